"""The stories of the demo: long work and large results; with `--all` also a text of any size."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.demo.explorer import (
    QUESTIONS,
    Sight,
    explore,
    interview,
    patterns,
)
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.story import Promise, Talk, conclude, limits_of, opening
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.util.log import say

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
    "recall": QUESTIONS["recall"],
}
ROW_PATTERNS = patterns(ROW_QUESTIONS)
FOUND = "Its {field} is {value}."
CURSOR = re.compile(r'cursor="([^"]+)"')
FETCH_ROWS, READ_MORE = "fetch_rows", "read_more"
TOWNS = ("Graz", "Brno", "Turin", "Lyon", "Ghent", "Malmo", "Porto", "Varna", "Riga")
REMARK = "The seal was checked at the border and found intact; the driver left a note about the gate. "

TERM = "return"
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


def talk_of(
    window: int, script: Any, tools: Sequence[Any], prompt: str, **options: Any
) -> Talk:
    """Return a conversation with an agent whose model plays a script."""
    model, limits = offline(window, script), limits_of(window)
    graph = create_context_agent(
        model,
        tools,
        system_prompt=prompt,
        limits=limits,
        checkpointer=InMemorySaver(),
        **options,
    )
    return Talk(graph=graph, model=model, limits=limits)


def long_work(folder: Folder, *, window: int, steps: int) -> list[Promise]:
    """An agent answers questions about a folder, in a conversation much larger than its window."""
    talk = talk_of(window, explore, folder.tools(), EXPLORER_PROMPT)
    size = f"{len(folder.sizes):,} files, {sum(folder.sizes.values()) / 1e6:,.1f} MB"
    opening(f"Long work: an agent explores {folder.root}: {size}", talk.limits)
    for question in interview(folder, window_tokens=window):
        talk.ask(*question)
        if len(talk.model.requests) >= steps:
            break
    talk.ask_for_the_first_answer()
    return conclude([*talk.claims(), *talk.savings()])


def large_results(*, window: int, rows: int = ROWS) -> list[Promise]:
    """An agent answers questions about half a million tokens of JSON through a small window."""
    dice = random.Random(0)  # noqa: S311  # sample data
    shipments = [_shipment(dice, number) for number in range(rows)]
    text = json.dumps(shipments)
    fetch = StructuredTool.from_function(
        lambda: text, name=FETCH_ROWS, description="Return all rows as JSON."
    )
    talk = talk_of(window, read_rows, [fetch], READER_PROMPT, guard=ToolResultGuard())
    size = f"{rows:,} shipments, {_text_tokens(text):,} tokens"
    opening(
        f"Large results: an agent answers questions about {size} in one tool result",
        talk.limits,
    )
    row = dice.choice(shipments)
    quantity = FOUND.format(field="quantity", value=row["quantity"])
    talk.ask(ROW_QUESTIONS["find"].format(field="quantity", value=row["id"]), quantity)
    talk.ask_for_the_first_answer()
    sizes = [_text_tokens(message.text) for message in talk.results]
    shown = Promise(
        "shown of the result, all pages together",
        f"{sum(sizes):,} tokens ({sum(sizes) / _text_tokens(text):.1%})",
    )
    return conclude([shown, *talk.claims()])


def any_size(folder: Folder, *, window: int) -> list[Promise]:
    """A question about a text of many windows is answered part by part, and the answers are combined."""
    model, limits, lines = offline(window, count_lines), limits_of(window), list[str]()
    for name in folder.sizes:
        if sum(map(len, lines)) < TEXT_WINDOWS * CHARS_PER_TOKEN * window:
            lines += folder.lines(name)
    opening(f"Any size: one question about {sum(map(len, lines)):,} characters", limits)
    question = f"How many lines have the word `{TERM}`?"
    done = create_map_reduce_graph(model).invoke(
        {"question": question, "text": "\n".join(lines)}
    )
    say(f"{question}  => {done['answer']}")
    true_answer = f"{sum(TERM in line for line in lines)} {COUNTED}"
    return conclude(
        [
            Promise(
                "every part fits",
                f"up to {model.largest_tokens:,} of {limits.room():,}, {len(model.requests)} requests",
                not model.refusals,
            ),
            Promise(
                "no part failed",
                f"{len(done['failures'])} of {done['parts']} parts",
                not done["failures"],
            ),
            Promise(
                "the answer is true",
                f"{true_answer} in all",
                done["answer"] == true_answer,
            ),
        ]
    )


def read_rows(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> AIMessage:
    """Answer a question about rows: call a tool, find the cursor in the note of its result, and ask with it."""
    sight = Sight(messages, ROW_PATTERNS)
    if sight.kind == "recall":
        return sight.recalled()
    field = sight.fields["field"]
    if sight.call and sight.call["name"] == READ_MORE:
        return _from_page(sight, field)
    pages = (m.text for m in messages if m.type == "tool" and m.name == FETCH_ROWS)
    cursors = [cursor for page in pages for cursor in CURSOR.findall(page)]
    if not cursors:
        if sight.call:
            return sight.lost(f"a cursor in {sight.result}")
        return sight.calling("I fetch the rows.", FETCH_ROWS)
    return sight.calling(
        "Too much to read row by row.",
        READ_MORE,
        cursor=cursors[-1],
        contains=sight.fields["value"],
        fields=["id", field],
    )


def _from_page(sight: Sight, field: str) -> AIMessage:
    """Read the answer off a page of rows, which are lines of `name:value` pairs."""
    data = sight.result.partition("<data ")[2].partition("</data ")[0]
    match = re.search(rf"[{{,]{field}:([^,}}]+)", data)
    if match is None:
        return sight.lost(f"the {field} in {sight.result}")
    return sight.answer(FOUND.format(field=field, value=match[1]))


def count_lines(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> str:
    """Count lines of the documents that a request shows, or add up the answers that it shows."""
    _, _, data = messages[-1].text.partition("\n\nThe ")
    # without the last sentence, which asks for the answer
    lines = data.rpartition("\n\n")[0].split("\n")
    if data.startswith("answer"):
        found = sum(int(line.split()[0]) for line in lines if line.endswith(COUNTED))
    else:
        found = sum(TERM in line for line in lines if not line.startswith(MARKS))
    return f"{found} {COUNTED}"


def _text_tokens(text: str) -> int:
    return count_tokens([AIMessage(text)])


def _shipment(dice: random.Random, number: int) -> dict[str, Any]:
    code = f"{dice.choice(TOWNS)[:2].upper()}-{10_000 + 7 * number}"
    return {
        "id": code,
        "customer": f"customer {dice.randrange(10**6):06}",
        "quantity": dice.randint(1, 40),
        "town": dice.choice(TOWNS),
        "label_url": f"https://labels.example.com/{code}/{dice.getrandbits(64):016x}.pdf",
        "contact": {"name": f"desk {number}", "email": f"desk{number}@example.com"},
        "remark": REMARK * 4,
    }
