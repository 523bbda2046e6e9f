"""A conversation with an agent that is printed as it happens, measured request by request, and ends with its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens, request_faults
from langchain_ctxwin.util.log import say

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
