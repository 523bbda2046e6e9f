"""The stories of the demo: long work and large results; with `--all` also a text of any size.

Their models see nothing but their request: what they answer follows from what it shows.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool

from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.talk import (
    RECALL,
    RECALLED,
    Claim,
    Talk,
    conclude,
    offline,
    opening,
)
from langchain_ctxwin.testing import count_tokens
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

TOUR = "Go through lines 1 to {last} of `{file}`, {page} lines at a time. How many of them contain `{term}`?"
COUNTED = "{hits} of them do."
NOTE = "Note to myself: {hits} so far."
PAGES = 13  # of a tour: many more than a window holds
TOKENS_PER_LINE = (
    120  # of the window, for each line of a page: a page takes a tenth of the window
)
STEPS = 60  # model calls, about: some turns, a few seconds
WORD = re.compile(r"[^\W\d_]{4,16}")
# begin messages that somebody put in between: a request to continue, the record
NOT_ASKED = ("[", "<record>")
# what a message may ask for that holds until the end
RULE_ASKED = re.compile(r"end every answer with the word (\w+)")

ROWS = 2_400  # with some 210 tokens each, half a million tokens in all
FIND = "What is the `{field}` of the row whose `id` is `{value}`?"
FOUND = "Its {field} is {value}."
CURSOR = re.compile(r'cursor="([^"]+)"')
FETCH_ROWS, READ_MORE = "fetch_rows", "read_more"
TOWNS = ("Graz", "Brno", "Turin", "Lyon", "Ghent", "Malmo", "Porto", "Varna", "Riga")
REMARK = "The seal was checked at the border and found intact; the driver left a note about the gate. "

TERM = "return"
LINES_COUNTED = "lines have it."
TEXT_WINDOWS, CHARS_PER_TOKEN = 12, 4  # size of the text in windows, about
# lines around the data begin so; in the data such marks are spelled otherwise
MARKS = ("<document", "</document")


def read_back(template: str, text: str) -> dict[str, str] | None:
    """Return what a template was filled with, if it was; all of its fields are text without backquotes."""
    pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^`]+?)", re.escape(template))
    match = re.search(pattern, text)
    return match.groupdict() if match else None


class Sight:
    """What one request shows: the question, the rule, the first answer, the newest call and its result."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        asked = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, HumanMessage)
            and not message.text.startswith(NOT_ASKED)
        ] or [0]
        self.question = messages[asked[-1]].text
        self.key = f"call-{len(self.question)}-{len(messages)}"
        rules = (RULE_ASKED.search(messages[index].text) for index in asked)
        self.rule_word = next((rule[1] for rule in rules if rule), "")
        self.first_answer = next(
            (
                message.text.partition("\n")[0]
                for message in messages[asked[0] :]
                if isinstance(message, AIMessage) and not message.tool_calls
            ),
            "",
        )
        self.call: Any = None
        self.said, self.result = "", ""
        for message in messages[asked[-1] + 1 :]:
            if isinstance(message, AIMessage) and message.tool_calls:
                self.call, self.said = message.tool_calls[0], message.text
            elif isinstance(message, ToolMessage):
                self.result = message.text

    def answer(self, text: str) -> AIMessage:
        """Write an answer as the rule demands."""
        return AIMessage("\n".join(filter(None, [text, self.rule_word])))

    def lost(self, what: str) -> AIMessage:
        """Say what is missing: it is never guessed."""
        return self.answer(f"I cannot see {what}.")

    def unasked(self) -> AIMessage:
        """Repeat the first answer where that is the question."""
        if RECALL not in self.question:
            return self.lost("a question that I understand")
        if not self.first_answer:
            return self.lost("my first answer")
        return self.answer(RECALLED.format(answer=self.first_answer))

    def calling(self, text: str, name: str, **args: Any) -> AIMessage:
        """Call a tool."""
        call = {"name": name, "args": args, "id": self.key}
        return AIMessage(text, tool_calls=[call])


# ---- long work ------------------------------------------------------------------------------------------------------


def long_work(folder: Folder, *, window: int, steps: int = STEPS) -> list[Claim]:
    """An agent answers questions about a folder, in a conversation much larger than its window."""
    size = f"{len(folder.sizes):,} files, {sum(folder.sizes.values()) / 1e6:,.1f} MB"
    talk = Talk.begin(
        f"Long work: an agent explores {folder.root}: {size}",
        offline(window, explore),
        folder.tools(),
        system_prompt=EXPLORER_PROMPT,
    )
    for question in interview(folder, window_tokens=window):
        talk.ask(*question)
        if len(talk.model.requests) >= steps:
            break
    talk.ask_for_the_first_answer()
    return conclude([*talk.claims(), *talk.savings()])


def interview(folder: Folder, *, window_tokens: int) -> Iterator[tuple[str, str]]:
    """Yield questions without end, with what answers have to begin with; the same folder gives the same ones.

    The answers are worked out from the files, without the agent's tools or model.
    """
    page = max(1, window_tokens // TOKENS_PER_LINE)
    by_size = sorted(folder.sizes, key=lambda name: -folder.sizes[name])
    dice = random.Random(0)  # noqa: S311  # no secret
    while True:
        # the larger third of the files is asked about
        name = dice.choice(by_size[: 1 + len(by_size) // 3])
        lines = folder.lines(name)[: PAGES * page]
        term = dice.choice(WORD.findall("\n".join(lines)) or ["e"])
        tour = {"file": name, "last": len(lines), "page": page, "term": term}
        hits = sum(term in line for line in lines)
        yield TOUR.format(**tour), COUNTED.format(hits=hits)


def explore(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> AIMessage:
    """Read a file page by page; the count so far travels in a note, because old pages leave the view."""
    sight = Sight(messages)
    tour = read_back(TOUR, sight.question)
    if tour is None:
        return sight.unasked()
    hits = first = 0
    if sight.call:
        args, note = sight.call["args"], read_back(NOTE, sight.said)
        lines = [line.partition(": ") for line in sight.result.split("\n")]
        first = args["last_line"]
        wanted = list(map(str, range(args["first_line"], first + 1)))
        if note is None or [number for number, *_ in lines] != wanted:
            return sight.lost(f"all lines up to {first}, or my note about those before")
        hits = int(note["hits"]) + sum(tour["term"] in text for *_, text in lines)
    if first == int(tour["last"]):
        return sight.answer(COUNTED.format(hits=hits))
    last = min(first + int(tour["page"]), int(tour["last"]))
    page = {"path": tour["file"], "first_line": first + 1, "last_line": last}
    return sight.calling(NOTE.format(hits=hits), "read_file", **page)


# ---- large results --------------------------------------------------------------------------------------------------


def large_results(*, window: int, rows: int = ROWS) -> list[Claim]:
    """An agent answers questions about half a million tokens of JSON through a small window."""
    dice = random.Random(0)  # noqa: S311  # sample data
    shipments = [_shipment(dice, number) for number in range(rows)]
    text = json.dumps(shipments)
    whole = count_tokens([AIMessage(text)])
    fetch = StructuredTool.from_function(
        lambda: text, name=FETCH_ROWS, description="Return all rows as JSON."
    )
    talk = Talk.begin(
        f"Large results: an agent answers questions about {rows:,} shipments, {whole:,} tokens in one tool result",
        offline(window, read_rows),
        [fetch],
        system_prompt=READER_PROMPT,
        guard=ToolResultGuard(),
    )
    row = dice.choice(shipments)
    quantity = FOUND.format(field="quantity", value=row["quantity"])
    talk.ask(FIND.format(field="quantity", value=row["id"]), quantity)
    talk.ask_for_the_first_answer()
    shown = count_tokens([m for m in talk.history if isinstance(m, ToolMessage)])
    figure = f"{shown:,} tokens ({shown / whole:.1%})"
    return conclude(
        [Claim("shown of the result, all pages together", figure), *talk.claims()]
    )


def read_rows(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> AIMessage:
    """Answer a question about rows: call a tool, find the cursor in the note of its result, and ask with it."""
    sight = Sight(messages)
    wanted = read_back(FIND, sight.question)
    if wanted is None:
        return sight.unasked()
    field = wanted["field"]
    if sight.call and sight.call["name"] == READ_MORE:
        data = sight.result.partition("<data ")[2].partition("</data ")[0]
        # rows are lines of `name:value` pairs
        match = re.search(rf"[{{,]{field}:([^,}}]+)", data)
        if match is None:
            return sight.lost(f"the {field} in {sight.result}")
        return sight.answer(FOUND.format(field=field, value=match[1]))
    pages = (m.text for m in messages if m.type == "tool" and m.name == FETCH_ROWS)
    cursors = [cursor for page in pages for cursor in CURSOR.findall(page)]
    if cursors:
        return sight.calling(
            "Too much to read row by row.",
            READ_MORE,
            cursor=cursors[-1],
            contains=wanted["value"],
            fields=["id", field],
        )
    if sight.call:
        return sight.lost(f"a cursor in {sight.result}")
    return sight.calling("I fetch the rows.", FETCH_ROWS)


def _shipment(dice: random.Random, number: int) -> Mapping[str, Any]:
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


# ---- any size -------------------------------------------------------------------------------------------------------


def any_size(folder: Folder, *, window: int) -> list[Claim]:
    """A question about a text of many windows is answered part by part, and the answers are combined."""
    model, lines = offline(window, count_lines), list[str]()
    for name in folder.sizes:
        if sum(map(len, lines)) < TEXT_WINDOWS * CHARS_PER_TOKEN * window:
            lines += folder.lines(name)
    opening(f"Any size: one question about {sum(map(len, lines)):,} characters", model)
    question = f"How many lines have the word `{TERM}`?"
    done = create_map_reduce_graph(model).invoke(
        {"question": question, "text": "\n".join(lines)}
    )
    say(f"{question}  => {done['answer']}")
    truth = f"{sum(TERM in line for line in lines)} {LINES_COUNTED}"
    sizes = f"up to {model.largest_tokens:,} tokens, {len(model.requests)} requests"
    failures = f"{len(done['failures'])} of {done['parts']} parts"
    return conclude(
        [
            Claim("every part fits", sizes, not model.refusals),
            Claim("no part failed", failures, not done["failures"]),
            Claim("the answer is true", f"{truth} in all", done["answer"] == truth),
        ]
    )


def count_lines(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> str:
    """Count lines of the documents that a request shows, or add up the answers that it shows."""
    _, _, data = messages[-1].text.partition("\n\nThe ")
    # without the last sentence, which asks for the answer
    lines = data.rpartition("\n\n")[0].split("\n")
    if data.startswith("answer"):
        found = sum(
            int(line.split()[0]) for line in lines if line.endswith(LINES_COUNTED)
        )
    else:
        found = sum(TERM in line for line in lines if not line.startswith(MARKS))
    return f"{found} {LINES_COUNTED}"
