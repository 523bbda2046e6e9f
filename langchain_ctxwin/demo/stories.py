"""The stories of the demo: long work and large results; with `--all` also a text of any size.

Their models see nothing but their request: what they answer follows from what it shows. What was sent is measured
request by request, and each story ends with its claims.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens, request_faults
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
RULE_WORD = "juniper"
RULE = f"From now on, end every answer with the word {RULE_WORD} on a line of its own."
LOST = "I cannot see what I need for an answer."
# begin messages that somebody put in between: a request to continue, the record
NOT_ASKED = ("[", "<record>")

TOUR = "Go through lines 1 to {last} of `{file}`, {page} lines at a time. How many of them contain `{term}`?"
COUNTED = "{hits} of them do."
NOTE = "Note to myself: {hits} so far."
PAGES = 13  # of a tour: many more than a window holds
# of the window, for each line of a page: a page takes a tenth of the window
TOKENS_PER_LINE = 120
STEPS = 60  # model calls, about: some turns, a few seconds
WORD = re.compile(r"[^\W\d_]{4,16}")

ROWS = 2_400  # with some 210 tokens each, half a million tokens in all
REMARK = "The seal was checked at the border and found intact; the driver left a note about the gate. "
FIND = "What is the quantity of the row whose `id` is `{id}`?"
FOUND = "Its quantity is {quantity}."
CURSOR = re.compile(r'cursor="([^"]+)"')
# rows are lines of `name:value` pairs
QUANTITY = re.compile(r"[{,]quantity:([^,}]+)")

LITTLE = 0.1  # of a result that a question asks for one row of

TERM = "return"
LINES_COUNTED = "lines have it."
TEXT_WINDOWS, CHARS_PER_TOKEN = 12, 4  # size of the text in windows, about

INDENT = " " * 5
LINE_CHARS, GAUGE_CHARS = 240, 32  # of a printed line, and of the bar in it
# the window divided by this is reserved for the answer: answers here are short
OUTPUT_SHARE = 8
MAX_SUPERSTEPS = 1_000  # of one turn, about 250 model calls
THREAD: Any = {
    "configurable": {"thread_id": "demo"},
    "recursion_limit": MAX_SUPERSTEPS,
}


# ---- long work ------------------------------------------------------------------------------------------------------


def long_work(folder: Folder, *, window: int, steps: int = STEPS) -> list[Claim]:
    """An agent answers questions about a folder, in a conversation much larger than its window."""
    size = f"{len(folder.sizes):,} files, {sum(folder.sizes.values()) / 1e6:,.1f} MB"
    talk = Talk(
        f"Long work: an agent explores {folder.root}: {size}",
        offline(window, explore),
        folder.tools(),
        system_prompt=EXPLORER_PROMPT,
    )
    for question in interview(folder, window_tokens=window):
        talk.ask(*question)
        if len(talk.model.requests) >= steps:
            break
    return conclude(talk.claims())


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
        hits = sum(term in line for line in lines)
        question = TOUR.format(file=name, last=len(lines), page=page, term=term)
        yield question, COUNTED.format(hits=hits)


def explore(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> AIMessage:
    """Read a file page by page; the count so far travels in a note, because old pages leave the view."""
    question, call, said, result = seen(messages)
    tour = read_back(TOUR, question)
    if tour is None:
        return answer(messages, LOST)
    hits = first = 0
    if call:
        args, note = call["args"], read_back(NOTE, said)
        lines = [line.partition(": ") for line in result.split("\n")]
        first = args["last_line"]
        wanted = list(map(str, range(args["first_line"], first + 1)))
        if note is None or [number for number, *_ in lines] != wanted:
            return answer(messages, LOST)
        hits = int(note["hits"]) + sum(tour["term"] in text for *_, text in lines)
    if first == int(tour["last"]):
        return answer(messages, COUNTED.format(hits=hits))
    last = min(first + int(tour["page"]), int(tour["last"]))
    page = {"path": tour["file"], "first_line": first + 1, "last_line": last}
    return calling(messages, NOTE.format(hits=hits), "read_file", page)


# ---- large results --------------------------------------------------------------------------------------------------


def large_results(*, window: int, rows: int = ROWS) -> list[Claim]:
    """An agent answers a question about half a million tokens of JSON through a small window."""
    dice = random.Random(0)  # noqa: S311  # sample data
    shipments = [
        {
            "id": f"GR-{10_000 + 7 * number}",
            "quantity": dice.randint(1, 40),
            "label_url": f"https://labels.example.com/{dice.getrandbits(64):016x}.pdf",
            "remark": REMARK * 8,
        }
        for number in range(rows)
    ]
    text = json.dumps(shipments)
    whole = count_tokens([AIMessage(text)])
    fetch = StructuredTool.from_function(
        lambda: text, name="fetch_rows", description="Return all rows as JSON."
    )
    talk = Talk(
        f"Large results: an agent answers a question about {rows:,} shipments, {whole:,} tokens in one tool result",
        offline(window, read_rows),
        [fetch],
        system_prompt=READER_PROMPT,
        guard=ToolResultGuard(),
    )
    row = dice.choice(shipments)
    talk.ask(FIND.format(**row), FOUND.format(**row))
    shown = count_tokens([m for m in talk.history if isinstance(m, ToolMessage)])
    figure = f"{shown:,} tokens ({shown / whole:.1%})"
    claim = "little of the result is shown in all"
    return conclude([Claim(claim, figure, shown < LITTLE * whole), *talk.claims()])


def read_rows(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> AIMessage:
    """Answer a question about a row: call a tool, find the cursor in the note of its result, and ask with it."""
    question, call, _, result = seen(messages)
    wanted = read_back(FIND, question)
    if wanted and not call:
        return calling(messages, "I fetch the rows.", "fetch_rows", {})
    if wanted and call["name"] == "fetch_rows" and (cursor := CURSOR.search(result)):
        page = {"cursor": cursor[1], "contains": wanted["id"], "fields": ["quantity"]}
        return calling(messages, "Too much to read row by row.", "read_more", page)
    found = QUANTITY.search(result)
    return answer(messages, FOUND.format(quantity=found[1]) if found else LOST)


# ---- any size -------------------------------------------------------------------------------------------------------


def any_size(folder: Folder, *, window: int) -> list[Claim]:
    """A question about a text of many windows is answered part by part, and the answers are combined."""
    model, text = offline(window, count_lines), ""
    for name in folder.sizes:
        if len(text) < TEXT_WINDOWS * CHARS_PER_TOKEN * window:
            text += "\n".join(["", *folder.lines(name)])
    opening(f"Any size: one question about {len(text):,} characters", model)
    question = f"How many lines have the word `{TERM}`?"
    done = create_map_reduce_graph(model).invoke({"question": question, "text": text})
    say(f"{question}  => {done['answer']}")
    truth = f"{sum(TERM in line for line in text.splitlines())} {LINES_COUNTED}"
    sizes = f"up to {model.largest_tokens:,} tokens, {len(model.requests)} requests"
    return conclude(
        [
            Claim("every part fits", sizes, not model.refusals),
            Claim(
                "no part is left out", f"{done['parts']} parts", not done["failures"]
            ),
            Claim("the answer is true", truth, done["answer"] == truth),
        ]
    )


def count_lines(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> str:
    """Count lines of the documents that a request shows, or add up the answers that it shows."""
    lines = messages[-1].text.partition("\n\nThe ")[2].split("\n")
    if lines[0].startswith("answer"):
        counts = [line.split()[0] for line in lines if line.endswith(LINES_COUNTED)]
        return f"{sum(map(int, counts))} {LINES_COUNTED}"
    return f"{sum(TERM in line for line in lines)} {LINES_COUNTED}"


# ---- what a model sees and does -------------------------------------------------------------------------------------


def read_back(template: str, text: str) -> dict[str, str] | None:
    """Return what a template was filled with, if it was; all of its fields are text without backquotes."""
    pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^`]+?)", re.escape(template))
    match = re.search(pattern, text)
    return match.groupdict() if match else None


def seen(messages: Sequence[BaseMessage]) -> tuple[str, Any, str, str]:
    """Return the question that a request shows, and since then the newest call, what was said with it, its result."""
    question, call, said, result = "", None, "", ""
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            call, said = message.tool_calls[0], message.text
        elif isinstance(message, ToolMessage):
            result = message.text
        elif message.type == "human" and not message.text.startswith(NOT_ASKED):
            question, call, said, result = message.text, None, "", ""
    return question, call, said, result


def answer(messages: Sequence[BaseMessage], text: str) -> AIMessage:
    """Write an answer, as the rule demands where the request shows it; what is missing is never guessed."""
    is_ruled = any(RULE in message.text for message in messages)
    return AIMessage(f"{text}\n{RULE_WORD}" if is_ruled else text)


def calling(
    messages: Sequence[BaseMessage], text: str, name: str, args: dict[str, Any]
) -> AIMessage:
    """Call a tool."""
    key = f"call-{len(messages[-1].text)}-{len(messages)}"
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": key}])


# ---- what is printed and measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """What a story claims, what was measured, and whether it held."""

    text: str
    figure: str
    holds: bool


def offline(window_tokens: int, script: Any) -> ScriptedChatModel:
    """Return a model without a network, which is as strict as a provider."""
    reserve = max(1, window_tokens // OUTPUT_SHARE)
    return ScriptedChatModel(
        window=window_tokens, max_tokens=reserve, script=script, model_name="offline"
    )


def opening(title: str, model: ScriptedChatModel) -> None:
    """Print the first lines of a story."""
    window, reserve = model.window or 0, model.max_tokens or 0
    say()
    say(title)
    say(
        f"Window {window:,} tokens = {window - reserve:,} for the request + {reserve:,} for the answer"
    )


def conclude(claims: list[Claim]) -> list[Claim]:
    """Print the claims of a story with their figures, and return them."""
    say()
    for claim in claims:
        mark = "ok" if claim.holds else "FAILED"
        say(f"{mark:<6} {claim.text:<42}{claim.figure}")
    return claims


def ending(claims: Sequence[Claim]) -> bool:
    """Print one line about the claims of all stories; return whether all hold."""
    failed = [claim.text for claim in claims if not claim.holds]
    say()
    say(
        f"FAILED: {'; '.join(failed)}"
        if failed
        else f"All {len(claims)} claims that were checked hold."
    )
    return not failed


class Talk:
    """One thread of an agent, played question by question; what was sent is measured, what is answered is checked."""

    def __init__(
        self, title: str, model: ScriptedChatModel, tools: Sequence[Any], **options: Any
    ) -> None:
        opening(title, model)
        saver = InMemorySaver()
        self.graph: Any = create_context_agent(
            model, tools, checkpointer=saver, **options
        )
        self.model = model
        self.questions = list[str]()  # of each request
        # of each turn
        self.is_true, self.keeps_rule = list[bool](), list[bool]()

    @property
    def history(self) -> list[Any]:
        """All messages of the thread."""
        messages: list[Any] = self.graph.get_state(THREAD).values["messages"]
        return messages

    def ask(self, question: str, expected: str) -> None:
        """Run the graph for one question; the answer has to begin as expected, and to end as the first one demanded."""
        if not self.is_true:
            question = f"{RULE} {question}"
        say()
        say(f"Turn {len(self.is_true) + 1}  {question}")
        start, modes = {"messages": [HumanMessage(question)]}, ["custom", "updates"]
        for mode, chunk in self.graph.stream(start, THREAD, stream_mode=modes):
            if mode == "custom":
                self._print_event(chunk)
                continue
            for update in filter(None, chunk.values()):
                for message in update.get("messages", ()):
                    if isinstance(message, AIMessage):
                        self._print_step(message)
        sent = len(self.model.requests) - len(self.questions)
        self.questions += [question] * sent
        said = self.history[-1].text
        self.is_true.append(said.startswith(expected))
        self.keeps_rule.append(said.endswith(f"\n{RULE_WORD}"))
        truth = "verified" if self.is_true[-1] else f"WRONG: {expected}"
        rule = "rule kept" if self.keeps_rule[-1] else "RULE BROKEN"
        say(f"{INDENT}=> {' '.join(said.split())}  {truth}, {rule}")

    def _print_step(self, message: AIMessage) -> None:
        """Print one model call: the window as its request fills it, its true size, and what the model does next."""
        requests = self.model.answered
        tokens, window = requests[-1].tokens, self.model.window or 1
        bar = ("#" * round(GAUGE_CHARS * tokens / window)).ljust(GAUGE_CHARS, ".")
        calls = [
            f"{call['name']}({', '.join(map(str, call['args'].values()))})"
            for call in message.tool_calls
        ]
        does = "; ".join(calls) or "answers"
        say(f"{len(requests):>4} {bar} {tokens:>6,}  {does}"[:LINE_CHARS])

    def _print_event(self, event: Mapping[str, Any]) -> None:
        """Print what the package did and why."""
        done = re.sub("[._]", " ", event["type"].removeprefix("context."))
        if event["type"] == "context.compacted":
            sizes = f"{event['tokens_before']:,} -> {event['tokens_after']:,} tokens"
            done = f"{done} {sizes}: {event['left_messages']} messages left"
        why = event.get("reason") or event.get("fault")
        say(f"{INDENT}~ {done}" + (f"  ({why})" if why else ""))

    def claims(self) -> list[Claim]:
        """Return the claims of every conversation, each with the figure that was measured."""
        model, requests = self.model, self.model.requests
        limit, refused = ModelLimits.of(model).room(), len(model.refusals)
        size = f"up to {model.largest_tokens:,} of {limit:,}; {refused} refused, sent again smaller"
        paired = [not request_faults(request.messages) for request in requests]
        shown = [
            any(question in message.text for message in request.messages)
            for question, request in zip(self.questions, requests, strict=True)
        ]
        checks = {
            "nothing is orphaned": (paired, "requests"),
            "the question is in every request": (shown, "requests"),
            "every answer is true": (self.is_true, "answers, as plain code finds them"),
            "the rule of the first message is kept": (self.keeps_rule, "answers"),
        }
        return [
            Claim("every request fits", size, model.largest_tokens <= limit),
            *(
                Claim(text, f"{sum(held)} of {len(held)} {what}", all(held))
                for text, (held, what) in checks.items()
            ),
        ]


# ---- the folder that is explored -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder and the Python files in it; nothing else can be reached by a name."""

    root: Path
    sizes: dict[str, int]
    """Bytes of each file, by its path from the root with slashes, in path order."""

    @classmethod
    def open(cls, path: Path) -> Folder:
        """List the Python files of a folder."""
        sizes = {
            file.relative_to(path).as_posix(): file.stat().st_size
            for file in sorted(path.rglob("*.py"))
        }
        return cls(root=path, sizes=sizes)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file."""
        return (self.root / name).read_text(encoding="utf-8").rstrip("\n").split("\n")

    def tools(self) -> list[BaseTool]:
        """Return what an agent reads the folder with."""
        return [StructuredTool.from_function(self.read_file)]

    def read_file(self, path: str, first_line: int, last_line: int) -> str:
        """Read lines of a file, from first_line to last_line, counted from 1."""
        numbered_lines = [
            f"{number}: {line}" for number, line in enumerate(self.lines(path), 1)
        ]
        return "\n".join(numbered_lines[first_line - 1 : last_line])
