"""The stories of the demo: long work and large results; with `--all` also a text of any size."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.demo.explorer import (
    ANSWERS,
    QUESTIONS,
    Interview,
    Sight,
    explore,
    patterns,
)
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.story import (
    Promise,
    Recorder,
    Screen,
    Talk,
    limits_of,
)
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tool_results.guard import MIN_TOKENS

EXPLORER_PROMPT = (
    "You explore a folder of files with tools. Paths are relative to the folder. Look before you answer, answer in one "
    "or two sentences, and say only what the tools returned. When a result is too long to be seen whole, read the part "
    "that you need."
)
READER_PROMPT = (
    "You answer questions about rows that tools return. A result that is too large is shown in part, with a cursor to "
    "read on: search it, or read only the fields that you need. Answer in one sentence, and say only what the tools "
    "returned."
)

ROWS = 2_400  # with some 210 tokens each, half a million tokens in all
ROW_QUESTIONS = {
    "find": "What is the `{field}` of the row whose `id` is `{value}`?",
    "most": "Which `{field}` do the most rows have?",
    "recall": QUESTIONS["recall"],
}
ROW_PATTERNS = patterns(ROW_QUESTIONS)
FOUND, MOST = "Its {field} is {value}.", "{value}, {count} of them."
CURSOR = re.compile(r'cursor="([^"]+)"')
FETCH_ROWS, READ_MORE = "fetch_rows", "read_more"
TOWNS = ("Graz", "Brno", "Turin", "Lyon", "Ghent", "Malmo", "Porto", "Varna", "Riga")
REMARKS = (
    "The consignee asked for a call before delivery.",
    "Two parcels were joined at the depot and carry one label now.",
    "The seal was checked at the border and found intact.",
    "Fragile goods: keep upright, do not stack more than two high.",
    "The driver waited for the ramp and left a note about the gate.",
)

TERMS = ("return", "import", "the", "with", "from")
COUNTED = "lines have it."
TEXT_WINDOWS, CHARS_PER_TOKEN = 12, 4  # size of the text in windows, about
# lines around the data begin so; in the data such marks are spelled otherwise
MARKS = ("<document", "</document")


def offline(window_tokens: int, script: Any) -> ScriptedChatModel:
    """Return a model without a network, which is as strict as a provider."""
    reserve = limits_of(window_tokens).output_reserve()
    return ScriptedChatModel(
        window=window_tokens, max_tokens=reserve, script=script, model_name="offline"
    )


def long_work(
    screen: Screen,
    folder: Folder,
    *,
    window: int,
    steps: int,
    seed: int = 0,
    model: BaseChatModel | None = None,
) -> list[Promise]:
    """An agent answers questions about a folder, in a conversation much larger than its window."""
    limits = limits_of(window)
    graph = create_context_agent(
        model or offline(window, explore),
        folder.tools(),
        system_prompt=EXPLORER_PROMPT,
        limits=limits,
        summarizer=model,
        checkpointer=InMemorySaver(),
    )
    talk = Talk(graph=graph, screen=screen, limits=limits, is_offline=model is None)
    size = f"{len(folder.sizes):,} files, {sum(folder.sizes.values()) / 1e6:,.1f} MB"
    screen.opening(f"Long work: an agent explores {folder.root}: {size}", limits)
    _interview(talk, Interview(folder, window_tokens=window, seed=seed), steps)
    return [*talk.claims(), *talk.savings()]


def large_results(
    screen: Screen,
    *,
    window: int,
    seed: int = 0,
    rows: int = ROWS,
    model: BaseChatModel | None = None,
) -> list[Promise]:
    """An agent answers questions about half a million tokens of JSON through a small window."""
    dice, limits, guard = random.Random(seed), limits_of(window), ToolResultGuard()  # noqa: S311  # sample data
    shipments = [_shipment(dice, number) for number in range(rows)]
    text = json.dumps(shipments)
    fetch = StructuredTool.from_function(
        lambda: text, name=FETCH_ROWS, description="Return all rows as JSON."
    )
    graph = create_context_agent(
        model or offline(window, read_rows),
        [fetch],
        system_prompt=READER_PROMPT,
        limits=limits,
        guard=guard,
        checkpointer=InMemorySaver(),
    )
    talk = Talk(graph=graph, screen=screen, limits=limits, is_offline=model is None)
    size = f"{rows:,} shipments, {_text_tokens(text):,} tokens"
    screen.opening(
        f"Large results: an agent answers questions about {size} in one tool result",
        limits,
    )
    row, (town, count) = (
        dice.choice(shipments),
        Counter(one["town"] for one in shipments).most_common(1)[0],
    )
    quantity = FOUND.format(field="quantity", value=row["quantity"])
    talk.ask(ROW_QUESTIONS["find"].format(field="quantity", value=row["id"]), quantity)
    talk.ask(
        ROW_QUESTIONS["most"].format(field="town"), MOST.format(value=town, count=count)
    )
    talk.ask(ROW_QUESTIONS["recall"], ANSWERS["recall"].format(answer=quantity))
    sizes = [_text_tokens(message.text) for message in talk.results]
    largest = max(sizes, default=0)
    allowed = min(
        guard.config.max_tokens,
        max(MIN_TOKENS, int(guard.config.max_share * limits.room())),
    )
    share = f"{sum(sizes):,} tokens ({sum(sizes) / _text_tokens(text):.1%})"
    return [
        Promise(
            "no page takes more than it may",
            f"up to {largest:,} of {allowed:,}",
            largest <= allowed,
        ),
        Promise("shown of the result, all pages together", share),
        *talk.claims(),
    ]


def any_size(
    screen: Screen, folder: Folder, *, window: int, seed: int = 0
) -> list[Promise]:
    """A question about a text of many windows is answered part by part, and the answers are combined."""
    limits, recorder, lines = limits_of(window), Recorder(), list[str]()
    for name in folder.sizes:
        if sum(map(len, lines)) < TEXT_WINDOWS * CHARS_PER_TOKEN * window:
            lines += folder.lines(name)
    screen.opening(
        f"Any size: one question about {sum(map(len, lines)):,} characters", limits
    )
    term = random.Random(seed).choice(TERMS)  # noqa: S311  # no secret
    graph = create_map_reduce_graph(offline(window, count_lines))
    question = f"How many lines have the word `{term}`?"
    done = graph.invoke(
        {"question": question, "text": "\n".join(lines)}, {"callbacks": [recorder]}
    )
    screen.line((f"     {question}  ", ""), (f"=> {done['answer']}", "bold"))
    limit, largest = limits.room(), max(recorder.sizes)
    true_answer = f"{sum(term in line for line in lines)} {COUNTED}"
    return [
        Promise(
            "every part fits",
            f"up to {largest:,} of {limit:,}, {len(recorder.sizes)} requests",
            largest <= limit,
        ),
        Promise(
            "no part failed",
            f"{len(done['failures'])} of {done['parts']} parts",
            not done["failures"],
        ),
        Promise(
            "the answer is true", f"{true_answer} in all", done["answer"] == true_answer
        ),
    ]


def read_rows(messages: Sequence[BaseMessage], tools: Sequence[Any]) -> AIMessage:
    """Answer a question about rows: call a tool, find the cursor in the note of its result, and ask with it."""
    sight = Sight(messages)
    kind, fields = sight.understood(ROW_PATTERNS)
    if kind == "recall":
        return sight.recalled()
    page = sight.results[0] if sight.results else ""
    if page and sight.calls[0]["name"] == READ_MORE:
        return _from_page(kind, fields["field"], page, sight)
    cursor = newest_cursor(messages)
    if not cursor:
        return (
            sight.lost(f"a cursor in {page}")
            if page
            else sight.call("I fetch the rows.", [(FETCH_ROWS, {})], tools)
        )
    field = fields["field"]
    search = (
        {"count_by": field}
        if kind == "most"
        else {"contains": fields["value"], "fields": ["id", field]}
    )
    return sight.call(
        "Too much to read row by row.",
        [(READ_MORE, {"cursor": cursor, **search})],
        tools,
    )


def count_lines(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> str:
    """Count lines of the documents that a request shows, or add up the answers that it shows."""
    question, _, data = messages[-1].text.partition("\n\nThe ")
    # without the last sentence, which asks for the answer
    lines = data.rpartition("\n\n")[0].split("\n")
    if data.startswith("answer"):
        return f"{sum(int(line.split()[0]) for line in lines if line.endswith(COUNTED))} {COUNTED}"
    term = question.split("`")[1]
    return (
        f"{sum(term in line for line in lines if not line.startswith(MARKS))} {COUNTED}"
    )


def newest_cursor(messages: Sequence[BaseMessage]) -> str:
    """Return the cursor of the newest first page of the rows in the request; else an empty text."""
    pages = [
        message.text
        for message in messages
        if message.type == "tool" and message.name == FETCH_ROWS
    ]
    cursors = [cursor for page in pages for cursor in CURSOR.findall(page)]
    return cursors[-1] if cursors else ""


def _interview(talk: Talk, interview: Interview, steps: int) -> None:
    """Ask the first question, others until there were about `steps` model calls, and the last one."""
    talk.ask(*interview.opening)
    for question in interview.questions():
        if len(talk.recorder.sizes) >= steps:
            break
        talk.ask(*question)
    talk.ask(*interview.closing)


def _from_page(kind: str, field: str, page: str, sight: Sight) -> AIMessage:
    """Read the answer off a page of rows, which are lines of `name:value` pairs, or of cells below a header."""
    data = page.partition("<data ")[2].partition("</data ")[0].split("\n")[1:]
    if kind == "most" and data[0] == f"{field}|count":
        value, _, count = data[1].partition("|")
        return sight.answer(MOST.format(value=value, count=count))
    match = re.search(rf"[{{,]{field}:([^,}}]+)", data[0])
    return (
        sight.answer(FOUND.format(field=field, value=match[1]))
        if match
        else sight.lost(f"the {field} in {page}")
    )


def _text_tokens(text: str) -> int:
    return count_tokens([AIMessage(text)])


def _shipment(dice: random.Random, number: int) -> dict[str, Any]:
    code = f"{dice.choice(TOWNS)[:2].upper()}-{10_000 + 7 * number}"
    return {
        "id": code,
        "customer": f"customer {dice.randrange(10**6):06}",
        "status": dice.choice(("delivered", "in_transit", "held", "returned")),
        "total_amount": dice.randint(1_000, 99_999) / 100,
        "quantity": dice.randint(1, 40),
        "town": dice.choice(TOWNS),
        "label_url": f"https://labels.example.com/{code}/{dice.getrandbits(64):016x}.pdf",
        "tracking_url": f"https://track.example.com/{code}?key={dice.getrandbits(64):016x}",
        "contact": {"name": f"desk {number}", "email": f"desk{number}@example.com"},
        "remark": " ".join(dice.sample(REMARKS, 2)),
    }
