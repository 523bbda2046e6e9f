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
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.demo.folder import Folder
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

INDENT = " " * 5
LINE_CHARS, GAUGE_CHARS = 240, 32  # of a printed line, and of the bar in it
OUTPUT_SHARE = (
    8  # the window divided by this is reserved for the answer: answers here are short
)
MAX_SUPERSTEPS = 1_000  # of one turn, about 250 model calls
THREAD: Any = {
    "configurable": {"thread_id": "demo"},
    "recursion_limit": MAX_SUPERSTEPS,
}

RULE = "From now on, end every answer with the word juniper on a line of its own."
RULE_WORD = "juniper"
RECALL = "One last thing: what was your answer to my very first question?"
RECALLED = "It was: {answer}"


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


# ---- what a model sees -----------------------------------------------------------------------------------------------


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


# ---- what is printed and measured ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """What a story claims, what was measured, and whether it held; None where a figure claims nothing."""

    text: str
    figure: str
    holds: bool | None = None


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
        mark = {None: "", True: "ok", False: "FAILED"}[claim.holds]
        say(f"{mark:<6} {claim.text:<42}{claim.figure}")
    return claims


def ending(claims: Sequence[Claim]) -> bool:
    """Print one line about the claims of all stories; return whether all hold."""
    checked = [claim for claim in claims if claim.holds is not None]
    failed = [claim.text for claim in checked if not claim.holds]
    say()
    if failed:
        say(f"FAILED: {'; '.join(failed)}")
    else:
        say(f"All {len(checked)} claims that were checked hold.")
    return not failed


@dataclass(slots=True, kw_only=True)
class Talk:
    """One thread of an agent, played question by question; what was sent is measured, what is answered is checked."""

    # a compiled graph over `messages`
    graph: Any
    model: ScriptedChatModel
    # what the first answer had to begin with
    first: str = ""
    turns: int = 0
    true_answers: int = 0
    kept_rules: int = 0
    compactions: int = 0
    without_question: int = 0

    @classmethod
    def begin(
        cls, title: str, model: ScriptedChatModel, tools: Sequence[Any], **options: Any
    ) -> Talk:
        """Print what the story is about, and make its agent."""
        opening(title, model)
        saver = InMemorySaver()
        graph = create_context_agent(model, tools, checkpointer=saver, **options)
        return cls(graph=graph, model=model)

    @property
    def history(self) -> list[Any]:
        """All messages of the thread."""
        messages: list[Any] = self.graph.get_state(THREAD).values["messages"]
        return messages

    def ask(self, question: str, expected: str) -> None:
        """Run the graph for one question; the answer has to begin as expected, and to end as the first one demanded."""
        if not self.turns:
            question, self.first = f"{RULE} {question}", expected
        self.turns += 1
        say()
        say(f"Turn {self.turns}  {question}")
        before = len(self.model.requests)
        self._run(question)
        answer = self.history[-1].text
        self.without_question += sum(
            not any(question in message.text for message in request.messages)
            for request in self.model.requests[before:]
        )
        is_true = answer.startswith(expected)
        keeps_rule = answer.endswith(f"\n{RULE_WORD}")
        self.true_answers += is_true
        self.kept_rules += keeps_rule
        say(f"{INDENT}=> {' '.join(answer.split())}")
        truth = "verified" if is_true else f"WRONG: {expected}"
        say(f"{INDENT}   {truth}, {'rule kept' if keeps_rule else 'RULE BROKEN'}")

    def ask_for_the_first_answer(self) -> None:
        """Ask for what was said at the beginning, which left the view long ago."""
        self.ask(RECALL, RECALLED.format(answer=self.first))

    def _run(self, question: str) -> None:
        """Print what the graph does about a question."""
        start, modes = {"messages": [HumanMessage(question)]}, ["custom", "updates"]
        for mode, chunk in self.graph.stream(start, THREAD, stream_mode=modes):
            if mode == "custom":
                self._print_event(chunk)
                continue
            for update in filter(None, chunk.values()):
                for message in update.get("messages", ()):
                    if isinstance(message, AIMessage):
                        self._print_step(message)

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
        done = event["type"].removeprefix("context.").replace("_", " ")
        if event["type"] == "context.compacted":
            self.compactions += 1
            sizes = f"{event['tokens_before']:,} -> {event['tokens_after']:,} tokens"
            done = f"{done} {sizes}: {'; '.join(event['actions'])}"
        say(f"{INDENT}~ {done}  ({event.get('reason') or event.get('fault') or ''})")

    def claims(self) -> list[Claim]:
        """Return the claims of every conversation, each with the figure that was measured."""
        model, requests, turns = self.model, self.model.requests, self.turns
        limit = ModelLimits.of(model).room()
        refused = len(model.refusals)
        faults = sum(len(request_faults(request.messages)) for request in requests)
        shown = len(requests) - self.without_question
        return [
            Claim(
                "every request fits",
                f"up to {model.largest_tokens:,} of {limit:,}; {refused} refused, sent again smaller",
                model.largest_tokens <= limit,
            ),
            Claim(
                "nothing is orphaned",
                f"{faults} faults in {len(requests)} requests",
                not faults,
            ),
            Claim(
                "the question is in every request",
                f"{shown} of {len(requests)}, word by word",
                shown == len(requests),
            ),
            Claim(
                "every answer is true",
                f"{self.true_answers} of {turns} answers, as plain code finds them",
                self.true_answers == turns,
            ),
            Claim(
                "the rule of the first message is kept",
                f"{self.kept_rules} of {turns} answers",
                self.kept_rules == turns,
            ),
        ]

    def savings(self) -> list[Claim]:
        """Return the tokens that were sent, beside those of requests with the whole history."""
        sizes = [request.tokens for request in self.model.answered]
        # system prompt and tools
        whole = sizes[0] - count_tokens(self.history[:1])
        unmanaged = list[int]()
        for message in self.history:
            if isinstance(message, AIMessage):
                unmanaged.append(whole)
            whole += count_tokens([message])
        unsaved = f"{sum(unmanaged):,} tokens, {unmanaged[-1]:,} at the end"
        return [
            Claim(
                "sent in all", f"{sum(sizes):,} tokens, {self.compactions} compactions"
            ),
            Claim("with the whole history each time", unsaved),
        ]
