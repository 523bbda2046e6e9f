"""A story: a conversation that is measured request by request, printed as it happens, and ends with its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph.state import CompiledStateGraph

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.testing import count_tokens, request_faults

if TYPE_CHECKING:
    from rich.console import Console

Part = tuple[str, str]
"""A piece of a line and its style, in rich's words; text of files is never read as markup this way."""

GOOD, BAD, REASON, DID = "green", "bold red", "dim", "magenta"
INDENT, BLOCK = " " * 5, "\u2588"
# of a line that is not written to a terminal, and of the bar in it
PLAIN_WIDTH, GAUGE_CHARS = (110, 32)
MAX_CHARS = 240  # of a text of a file or a model that is printed; a line may be endless
OUTPUT_SHARE = (
    8  # the window divided by this is reserved for the answer: answers here are short
)
MAX_SUPERSTEPS = 1_000  # of one turn, about 250 model calls: a real model that never answers is stopped
THREAD: Any = {"configurable": {"thread_id": "demo"}}

RULE = "From now on, end every answer with the word juniper on a line of its own."
RULE_WORD = "juniper"

REGIONS = (
    ("system", "system_tokens", "blue", "s"),
    ("tools", "tool_tokens", "cyan", "t"),
    ("summary", "summary_tokens", "magenta", "m"),
    ("record", "record_tokens", "bright_magenta", "n"),
    ("pinned", "pinned_tokens", "yellow", "p"),
    ("history", "history_tokens", "green", "h"),
    ("free", "free_tokens", "bright_black", "."),
    ("reserve", "reserved_tokens", "red", "r"),
)
"""Name, key in a report, color on a terminal, letter elsewhere; in the order in which they are drawn."""

EVENTS = {
    "context.overflow_recovered": "! the provider refused the request: compacted and sent again",
}


@dataclass(frozen=True, slots=True)
class Promise:
    """What a story promises, what was measured, and whether it held; None where a figure claims nothing."""

    text: str
    figure: str
    holds: bool | None = None


@dataclass(slots=True, kw_only=True)
class Screen:
    """Prints stories as they happen; plain lines where the output is no terminal."""

    console: Console
    # the last measure of the next request
    report: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def standard(cls) -> Screen:
        """Write to the standard output."""
        from rich.console import Console  # noqa: PLC0415  # extra `cli`

        console = Console(highlight=False, emoji=False)
        return cls(
            console=console
            if console.is_terminal
            else Console(highlight=False, emoji=False, width=PLAIN_WIDTH)
        )

    def line(self, *parts: Part) -> None:
        """Print one line."""
        from rich.text import Text  # noqa: PLC0415  # extra `cli`

        text = Text.assemble(
            *((_safe(text), style) for text, style in parts),
            no_wrap=True,
            overflow="ellipsis",
        )
        self.console.print(text, soft_wrap=True)

    def opening(self, title: str, limits: ModelLimits) -> None:
        """Print the first lines of a story."""
        window, limit = limits.context_window or 0, limits.room()
        self.line()
        self.line((title, "bold"))
        self.line(
            (
                f"Window {window:,} tokens = {limit:,} for the request + {window - limit:,} for the answer",
                "",
            )
        )

    def legend(self) -> None:
        """Print what the parts of a bar mean."""
        is_plain = not self.console.is_terminal
        signs = [
            (f"{letter if is_plain else BLOCK}={name}  ", color)
            for name, _, color, letter in REGIONS
        ]
        self.line(("Gauge  ", ""), *signs)

    def step(self, number: int, tokens: int, message: AIMessage) -> None:
        """Print one model call: the regions of the request, its true size, and what the model does next."""
        calls = [
            f"{call['name']}({', '.join(map(str, call['args'].values()))})"
            for call in message.tool_calls
        ]
        does = (
            f"{len(calls)} x {calls[0]} ..."
            if len(calls) > 1
            else calls[0]
            if calls
            else "answers"
        )
        gauge = (
            bar(self.report, GAUGE_CHARS, is_plain=not self.console.is_terminal)
            if self.report
            else []
        )
        before = [(f"{number:>4} ", REASON), *gauge, (f" {tokens:>6,}  ", "bold")]
        room = self.console.width - sum(len(text) for text, _ in before)
        self.line(*before, (_safe(does, room), ""))

    def event(self, event: Mapping[str, Any]) -> None:
        """Print what the package did and why."""
        template = EVENTS.get(
            event["type"],
            f"~ {event['type'].removeprefix('context.').replace('_', ' ')}",
        )
        done = template.format_map(event)
        if event["type"] == "context.compacted":
            sizes = f"{event['tokens_before']:,} -> {event['tokens_after']:,} tokens"
            done = f"~ compacted {sizes}: {'; '.join(event['actions'])}"
        why = event.get("reason") or event.get("fault")
        self.line((INDENT, ""), (done, DID), (f"  ({why})" if why else "", REASON))

    def claims(self, claims: Sequence[Promise]) -> None:
        """Print the claims of a story with their figures."""
        self.line()
        for claim in claims:
            mark, style = {
                None: ("      ", ""),
                True: ("ok    ", GOOD),
                False: ("FAILED", BAD),
            }[claim.holds]
            self.line(
                (f"{mark} ", style), (f"{claim.text:<42}", "cyan"), (claim.figure, "")
            )

    def ending(self, claims: Sequence[Promise]) -> bool:
        """Print one line about the claims of all stories; return whether all hold."""
        checked = [claim for claim in claims if claim.holds is not None]
        failed = [claim.text for claim in checked if not claim.holds]
        self.line()
        if failed:
            self.line((f"FAILED: {'; '.join(failed)}", BAD))
        else:
            self.line((f"All {len(checked)} claims that were checked hold.", GOOD))
        return not failed


def bar(report: Mapping[str, Any], width: int, *, is_plain: bool) -> list[Part]:
    """Return a bar over the whole window: `width` cells, shared among its regions, in colored blocks or in letters."""
    sizes = {
        "free_tokens": max(0, report["input_limit"] - report["total_tokens"]),
        **report,
    }
    window = sum(sizes[key] for _, key, _, _ in REGIONS) or 1
    parts, border, done = [], 0, 0
    for _, key, color, letter in REGIONS:
        done += sizes[key]
        cells = round(done * width / window) - border
        border += cells
        parts.append(((letter if is_plain else BLOCK) * cells, color))
    return parts


def _safe(text: str, max_chars: int = MAX_CHARS) -> str:
    short_text = (
        text if len(text) <= max_chars else f"{text[: max(0, max_chars - 3)]}..."
    )
    return "".join(char if char.isprintable() else " " for char in short_text)


class Recorder(BaseCallbackHandler):
    """Sees every request of the agent on its way to the model and what came of it, the refused ones too."""

    raise_error = True  # a fault in the checks must not pass for a clean run

    def __init__(self) -> None:
        self.question = ""
        # what a strict provider would refuse in the requests
        self.faults: list[str] = []
        self.without_question = self.refused = 0
        # of what was answered: as the model counted, else as the offline model does
        self.sizes: list[int] = []
        self._under_way: dict[UUID, int] = {}

    def on_chat_model_start(
        self,
        serialized: Any,  # noqa: ARG002
        messages: list[list[BaseMessage]],
        **about: Any,
    ) -> None:  # of the base
        """Check one request of the agent; those of its summarizer are no part of the conversation."""
        if (about.get("metadata") or {}).get("lc_source") == "summarization":
            return
        tools = about.get("invocation_params", {}).get("tools", ())
        self._under_way[about["run_id"]] = count_tokens(messages[0], tools)
        self.faults.extend(request_faults(messages[0]))
        self.without_question += not any(
            self.question in message.text for message in messages[0]
        )

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ARG002
        """Note a request that was answered."""
        counted = self._under_way.pop(run_id, None)
        if counted is not None:
            message = response.generations[0][0].message
            self.sizes.append(
                (message.usage_metadata or {}).get("input_tokens", 0) or counted
            )

    def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Note a request that was refused as too large; other failures end the run."""
        is_of_agent = self._under_way.pop(run_id, None) is not None
        self.refused += is_of_agent and classify_overflow(error) is not None


@dataclass(slots=True, kw_only=True)
class Talk:
    """One thread of an agent, played question by question; what was sent is measured, what is answered is checked."""

    graph: CompiledStateGraph[Any, Any, Any, Any]
    screen: Screen
    limits: ModelLimits
    is_offline: bool = True  # the answers of a real model are not checked
    recorder: Recorder = field(default_factory=Recorder)
    # as they are in the history
    results: list[ToolMessage] = field(default_factory=list)
    turns: int = 0
    true_answers: int = 0
    kept_rules: int = 0
    compactions: int = 0

    def ask(self, question: str, expected: str) -> None:
        """Run the graph for one question; the answer has to begin as expected, and to end as the first one demanded."""
        screen = self.screen
        if not self.turns:
            screen.legend()
            question = f"{RULE} {question}"
        self.turns += 1
        screen.line()
        screen.line((f"Turn {self.turns}", "bold"), (f"  {question}", ""))
        answer = self._answer(question)
        is_true, keeps_rule = (
            answer.startswith(expected),
            answer.rstrip().split("\n")[-1].strip(" .*_`") == RULE_WORD,
        )
        self.true_answers += is_true
        self.kept_rules += keeps_rule
        rule = ("rule kept", GOOD) if keeps_rule else ("RULE BROKEN", BAD)
        truth = ("verified", GOOD) if is_true else (f"WRONG: {expected}", BAD)
        screen.line((f"{INDENT}=> {' '.join(answer.split())}", "bold"))
        screen.line(
            (f"{INDENT}   ", ""),
            truth if self.is_offline else ("facts not checked", REASON),
            (", ", ""),
            rule,
        )

    def _answer(self, question: str) -> str:
        """Stream what the graph does about a question to the screen; return the last text of the model."""
        self.recorder.question, answer = question, ""
        config: Any = {
            **THREAD,
            "callbacks": [self.recorder],
            "recursion_limit": MAX_SUPERSTEPS,
        }
        start, modes = {"messages": [HumanMessage(question)]}, ["custom", "updates"]
        chunk: Any
        for mode, chunk in self.graph.stream(start, config, stream_mode=modes):  # type: ignore[arg-type]  # literals
            if mode == "custom":
                self.compactions += chunk["type"] == "context.compacted"
                self.screen.event(chunk)
                continue
            for update in filter(None, chunk.values()):
                self.screen.report = update.get("context_report") or self.screen.report
                for message in update.get("messages", ()):
                    if isinstance(message, AIMessage):
                        answer = message.text or answer
                        self.screen.step(
                            len(self.recorder.sizes), self.recorder.sizes[-1], message
                        )
                    elif isinstance(message, ToolMessage):
                        self.results.append(message)
        return answer

    def claims(self) -> list[Promise]:
        """Return the promises of every conversation, each with the figure that was measured."""
        sizes, turns, limit = self.recorder.sizes, self.turns, self.limits.room()
        steps, faults, lost = (
            len(sizes),
            self.recorder.faults,
            self.recorder.without_question,
        )
        refused = (
            f"; {self.recorder.refused} refused, sent again smaller"
            if self.recorder.refused
            else ""
        )
        claims = [
            Promise(
                "every request fits",
                f"up to {max(sizes):,} of {limit:,}{refused}",
                max(sizes) <= limit,
            ),
            Promise(
                "nothing is orphaned",
                f"{len(faults)} faults in {steps} requests",
                not faults,
            ),
            Promise(
                "the question is in every request",
                f"{steps - lost} of {steps}, word by word",
                not lost,
            ),
        ]
        if self.is_offline:
            true, rules_kept = (
                f"{count} of {turns} answers"
                for count in (self.true_answers, self.kept_rules)
            )
            claims += [
                Promise(
                    "every answer is true",
                    f"{true}, as plain code finds them",
                    self.true_answers == turns,
                ),
                Promise(
                    "the rule of the first message is kept",
                    rules_kept,
                    self.kept_rules == turns,
                ),
            ]
        return claims

    def savings(self) -> list[Promise]:
        """Return the tokens that were sent, beside those of requests with the whole history."""
        history = self.graph.get_state(THREAD).values["messages"]
        # system prompt and tools
        whole = self.recorder.sizes[0] - count_tokens(history[:1])
        unmanaged = []
        for message in history:
            if isinstance(message, AIMessage):
                unmanaged.append(whole)
            whole += count_tokens([message])
        first = next(
            (
                step
                for step, tokens in enumerate(unmanaged, 1)
                if tokens > self.limits.room()
            ),
            0,
        )
        failure = f"too large from step {first} on" if first else "never too large"
        sent = f"{sum(self.recorder.sizes):,} tokens, {self.compactions} compactions"
        unsaved = f"{sum(unmanaged):,} tokens, {unmanaged[-1]:,} at the end, {failure}"
        return [
            Promise("sent in all", sent),
            Promise("with the whole history each time", unsaved),
        ]


def limits_of(window_tokens: int) -> ModelLimits:
    """Return the limits of a model with a window, most of which is for the request."""
    return ModelLimits(
        window_tokens, max_output_tokens=max(1, window_tokens // OUTPUT_SHARE)
    )
