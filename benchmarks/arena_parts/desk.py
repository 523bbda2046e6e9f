"""What does the provider's desk know? The script's place, and every request with what it showed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from arena_parts.script import Scenario, Turn
from arena_parts.sizes import Part
from cached_requests import Clock, breakpoints, laid_out, usual
from prompt_caches import RULES, Bill, CacheLedger

BILLED = (
    "Anthropic, least 1,024", "OpenAI, writes billed", "OpenAI, read .1", "Gemini implicit, small", "DeepSeek",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request."""

    turn: int
    step: int
    outcome: str
    """answered, overflow or invalid"""

    fault: str = ""
    tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    stable: float | None = None
    """Share of the answered request before it that is a prefix of this one."""

    has_user: bool = True
    has_rules: bool | None = None
    """None while no rule was stated."""

    facts: float | None = None
    """Share of the facts stated so far that it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One call of the summarizer."""

    tokens: int
    output_tokens: int
    cached_tokens: int = 0
    fault: str = ""


@dataclass(slots=True)
class Outside:
    """Time that is not the manager's: the provider, the tools and the summarizer's own work."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def spent(self) -> Iterator[None]:
        began, cpu_began = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu_seconds += time.thread_time() - cpu_began


class Books:
    """The bills of one conversation by the rules of several providers, at times that are assumed."""

    def __init__(self, name: str, *, ours: bool) -> None:
        self._clock, self._ours = Clock(name), ours
        self._ledgers = [CacheLedger(rules) for rules in RULES if rules.name in BILLED]

    def answered(self, messages: Sequence[BaseMessage], options: dict[str, Any], answer: AIMessage) -> None:
        """Bill a request by the breakpoints that it has, or else by the usual ones."""
        laid = laid_out(
            messages, options.get("tools") or [], answer, self._clock.seconds, tail=options.get("cache_control")
        )
        for ledger in self._ledgers:
            ledger.record(laid.request, breakpoints(laid, usual(ledger.rules, ours=self._ours)))
        self._clock.answered(laid.request.output_tokens, is_turn=not answer.tool_calls)

    def bills(self, summaries: Sequence[Summary]) -> dict[str, Bill]:
        """Return them by the name of the rules, with what summaries cost."""
        for ledger in self._ledgers:
            for one in summaries:
                ledger.record_summary(
                    input_tokens=one.tokens, output_tokens=one.output_tokens, cached_tokens=one.cached_tokens
                )
        return {ledger.rules.name: ledger.bill for ledger in self._ledgers}


@dataclass(slots=True)
class Desk:
    """The place in the script is kept here, never read from what a manager shows."""

    scenario: Scenario
    books: Books
    turn: int = 0
    step: int = 0
    sent: list[Sent] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    previous: tuple[Part, ...] = ()
    provider: Outside = field(default_factory=Outside)
    summarizer: Outside = field(default_factory=Outside)

    @property
    def now(self) -> Turn:
        return self.scenario.turns[self.turn]

    def begin(self, turn: int) -> None:
        self.turn, self.step = turn, 0

    def answer(self) -> AIMessage:
        """The next answer of the script; a turn that is over stays over."""
        if self.step >= len(self.now.steps):
            return AIMessage(self.now.answer)
        calls = [
            {
                "name": call.tool,
                "args": {"key": call.key, "note": call.note},
                "id": f"call_{call.key}".replace(".", "_"),
            }
            for call in self.now.steps[self.step]
        ]
        self.step += 1
        return AIMessage("" if self.step % 2 else "I will look that up.", tool_calls=calls)

    def rules(self) -> list[str]:
        return [turn.rule for turn in self.scenario.turns[: self.turn + 1] if turn.rule]

    def stated_codes(self) -> list[str]:
        return [fact.code for fact in self.scenario.facts if (fact.turn, fact.step) < (self.turn, self.step)]
