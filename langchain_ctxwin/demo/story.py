"""A story: a conversation that is measured request by request, printed as it happens, and ends with its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.demo.explorer import ANSWERS, QUESTIONS
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens, request_faults
from langchain_ctxwin.util.log import say

INDENT = " " * 5
LINE_CHARS, GAUGE_CHARS = 240, 32  # of a printed line, and of the bar in it
OUTPUT_SHARE = (
    8  # the window divided by this is reserved for the answer: answers here are short
)
MAX_SUPERSTEPS = 1_000  # of one turn, about 250 model calls
THREAD: Any = {"configurable": {"thread_id": "demo"}}

RULE = "From now on, end every answer with the word juniper on a line of its own."
RULE_WORD = "juniper"

REGIONS = {
    "system": "s",
    "tool": "t",
    "summary": "m",
    "record": "n",
    "pinned": "p",
    "history": "h",
    "free": ".",
    "reserved": "r",
}
"""Regions of a window in the order in which they are drawn, as the keys of a report begin, and their letters."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a story promises, what was measured, and whether it held; None where a figure claims nothing."""

    text: str
    figure: str
    holds: bool | None = None


def limits_of(window_tokens: int) -> ModelLimits:
    """Return the limits of a model with a window, most of which is for the request."""
    return ModelLimits(
        window_tokens, max_output_tokens=max(1, window_tokens // OUTPUT_SHARE)
    )


def opening(title: str, limits: ModelLimits) -> None:
    """Print the first lines of a story."""
    window, limit = limits.context_window or 0, limits.room()
    say()
    say(title)
    say(
        f"Window {window:,} tokens = {limit:,} for the request + {window - limit:,} for the answer"
    )
    say("Gauge  " + "  ".join(f"{letter}={name}" for name, letter in REGIONS.items()))


def gauge(report: Mapping[str, Any]) -> str:
    """Return a bar over the whole window, its cells shared among the regions."""
    free = max(0, report["input_limit"] - report["total_tokens"])
    sizes = {"free_tokens": free, **report}
    window = sum(sizes[f"{name}_tokens"] for name in REGIONS) or 1
    line, done = "", 0
    for name, letter in REGIONS.items():
        done += sizes[f"{name}_tokens"]
        line = line.ljust(round(done * GAUGE_CHARS / window), letter)
    return line


def ending(claims: Sequence[Promise]) -> bool:
    """Print one line about the claims of all stories; return whether all hold."""
    checked = [claim for claim in claims if claim.holds is not None]
    failed = [claim.text for claim in checked if not claim.holds]
    say()
    if failed:
        say(f"FAILED: {'; '.join(failed)}")
    else:
        say(f"All {len(checked)} claims that were checked hold.")
    return not failed


def conclude(claims: list[Promise]) -> list[Promise]:
    """Print the claims of a story with their figures, and return them."""
    say()
    for claim in claims:
        mark = {None: "", True: "ok", False: "FAILED"}[claim.holds]
        say(f"{mark:<6} {claim.text:<42}{claim.figure}")
    return claims


@dataclass(slots=True, kw_only=True)
class Talk:
    """One thread of an agent, played question by question; what was sent is measured, what is answered is checked."""

    # a compiled graph over `messages`
    graph: Any
    model: ScriptedChatModel
    limits: ModelLimits
    # as they are in the history
    results: list[ToolMessage] = field(default_factory=list)
    # the last measure of the next request
    report: Mapping[str, Any] = field(default_factory=dict)
    # what the first answer had to begin with
    first: str = ""
    turns: int = 0
    true_answers: int = 0
    kept_rules: int = 0
    compactions: int = 0
    without_question: int = 0

    def ask(self, question: str, expected: str) -> None:
        """Run the graph for one question; the answer has to begin as expected, and to end as the first one demanded."""
        if not self.turns:
            question, self.first = f"{RULE} {question}", expected
        self.turns += 1
        say()
        say(f"Turn {self.turns}  {question}")
        before = len(self.model.requests)
        answer = self._answer(question)
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
        self.ask(QUESTIONS["recall"], ANSWERS["recall"].format(answer=self.first))

    def _answer(self, question: str) -> str:
        """Print what the graph does about a question; return the last text of the model."""
        answer, config = "", {**THREAD, "recursion_limit": MAX_SUPERSTEPS}
        start = {"messages": [HumanMessage(question)]}
        modes = ["custom", "updates"]
        for mode, chunk in self.graph.stream(start, config, stream_mode=modes):
            if mode == "custom":
                self._print_event(chunk)
                continue
            for update in filter(None, chunk.values()):
                self.report = update.get("context_report") or self.report
                for message in update.get("messages", ()):
                    if isinstance(message, AIMessage):
                        answer = message.text or answer
                        self._print_step(message)
                    elif isinstance(message, ToolMessage):
                        self.results.append(message)
        return answer

    def _print_step(self, message: AIMessage) -> None:
        """Print one model call: the regions of the request, its true size, and what the model does next."""
        requests = self.model.answered
        calls = [
            f"{call['name']}({', '.join(map(str, call['args'].values()))})"
            for call in message.tool_calls
        ]
        does = "; ".join(calls) or "answers"
        line = (
            f"{len(requests):>4} {gauge(self.report)} {requests[-1].tokens:>6,}  {does}"
        )
        say(line[:LINE_CHARS])

    def _print_event(self, event: Mapping[str, Any]) -> None:
        """Print what the package did and why."""
        done = event["type"].removeprefix("context.").replace("_", " ")
        if event["type"] == "context.compacted":
            self.compactions += 1
            sizes = f"{event['tokens_before']:,} -> {event['tokens_after']:,} tokens"
            done = f"{done} {sizes}: {'; '.join(event['actions'])}"
        say(f"{INDENT}~ {done}  ({event.get('reason') or event.get('fault') or ''})")

    def claims(self) -> list[Promise]:
        """Return the promises of every conversation, each with the figure that was measured."""
        requests, limit, turns = self.model.requests, self.limits.room(), self.turns
        largest, refused = self.model.largest_tokens, len(self.model.refusals)
        faults = sum(len(request_faults(request.messages)) for request in requests)
        shown = len(requests) - self.without_question
        return [
            Promise(
                "every request fits",
                f"up to {largest:,} of {limit:,}; {refused} refused, sent again smaller",
                largest <= limit,
            ),
            Promise(
                "nothing is orphaned",
                f"{faults} faults in {len(requests)} requests",
                not faults,
            ),
            Promise(
                "the question is in every request",
                f"{shown} of {len(requests)}, word by word",
                shown == len(requests),
            ),
            Promise(
                "every answer is true",
                f"{self.true_answers} of {turns} answers, as plain code finds them",
                self.true_answers == turns,
            ),
            Promise(
                "the rule of the first message is kept",
                f"{self.kept_rules} of {turns} answers",
                self.kept_rules == turns,
            ),
        ]

    def savings(self) -> list[Promise]:
        """Return the tokens that were sent, beside those of requests with the whole history."""
        history = self.graph.get_state(THREAD).values["messages"]
        sizes = [request.tokens for request in self.model.answered]
        # system prompt and tools
        whole = sizes[0] - count_tokens(history[:1])
        unmanaged = list[int]()
        for message in history:
            if isinstance(message, AIMessage):
                unmanaged.append(whole)
            whole += count_tokens([message])
        unsaved = f"{sum(unmanaged):,} tokens, {unmanaged[-1]:,} at the end"
        return [
            Promise(
                "sent in all", f"{sum(sizes):,} tokens, {self.compactions} compactions"
            ),
            Promise("with the whole history each time", unsaved),
        ]
