"""Budget of a thread: an event when most is spent, then an error, or a question to a person, before the next call.

within_budget(step)  ->  model  ->  count_spent(step, window, answers)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import AIMessage
from langgraph.types import interrupt

from langchain_ctxwin.core.events import Notice, NoticeEvent
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.usage import Usage, as_money
from langchain_ctxwin.engine import settings_of
from langchain_ctxwin.errors import ConfigError, ThreadBudgetError, brief
from langchain_ctxwin.util.log import log

if TYPE_CHECKING:
    # which asks this module before each call
    from langchain_ctxwin.agent.step import AgentStep

NEAR_SHARE = Decimal("0.8")
"""Of a limit: it is reported while something is still left to decide about."""

TOKENS, COST = "max_thread_tokens", "max_thread_cost"


class Bound(NamedTuple):
    """One limit of a thread, and what was spent of it; USD or tokens."""

    setting: str
    spent: Decimal
    limit: Decimal

    @property
    def is_near(self) -> bool:
        """Most of it is spent."""
        return self.spent >= NEAR_SHARE * self.limit

    def about(self) -> dict[str, str]:
        """Return it as JSON; numbers as text, so that money stays exact."""
        return {name: str(value) for name, value in self._asdict().items()}


def within_budget(step: AgentStep) -> None:
    """Return while the thread has something left to spend; else raise, or ask for more where that is set.

    Raises:
        ConfigError: the cost is bounded, and no source states the prices of a model.
        ThreadBudgetError: the thread spent all that it may.
    """
    settings, fault = settings_of(step.window), ""
    if settings.max_thread_cost is not None:
        _require_prices(step, settings.max_thread_cost)
    while over := next((one for one in _bounds(step) if one.spent >= one.limit), None):
        if settings.on_budget == "raise" or not step.setup.place.thread:
            _report(step, step.window, "budget_spent", over)
            raise ThreadBudgetError(
                f"the thread spent {over.spent} of {over.setting}={over.limit}: raise {over.setting}, begin another "
                "thread, or set on_budget='interrupt' (with a checkpointer) to be asked",
                **over.about(),
            )
        answer = interrupt(
            {
                "reason": "thread_budget",
                **over.about(),
                "resume_with": {over.setting: str(2 * over.limit)},
                "fault": fault,
            }
        )
        fault = _allow(step, answer)


def count_spent(step: AgentStep, window: Window, answers: Sequence[AIMessage]) -> None:
    """Add what the answers to a request cost to what the state says of the thread, where that is bounded."""
    before = _bounds(step)
    if not before:
        return
    guard = step.window.session.guard
    tokens, cost = _stored(guard, "spent")
    for answer in answers:
        usage = _usage(answer, window)
        if not usage.is_free:
            tokens += _tokens(usage) + _tokens(usage.compaction or Usage())
        price = usage.cost(step.engine.info_of(window))
        if price is None and settings_of(window).max_thread_cost is not None:
            log.warning(
                "budget.unpriced",
                model=window.parts.model,
                do="pass prices= that know this model",
            )
        cost += price or 0
    _store(step, "spent", tokens, cost)
    for old, new in zip(before, _bounds(step), strict=True):
        if new.is_near and not old.is_near:
            _report(step, window, "budget_near", new)


def _usage(answer: AIMessage, window: Window) -> Usage:
    """What a call used, by our own count where its provider does not say."""
    usage = Usage.of_answer(answer)
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return usage
    return Usage(
        input_tokens=window.total_tokens, output_tokens=window.parts.price(answer)
    )


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _bounds(step: AgentStep) -> list[Bound]:
    """The limits that are set, what was allowed since included, with what answers and summaries took."""
    guard, settings = step.window.session.guard, settings_of(step.window)
    written = Usage.of(guard.get("summarizer"))
    tokens, cost = _stored(guard, "spent")
    more_tokens, more_cost = _stored(guard, "allowed")
    bounds = []
    if settings.max_thread_tokens is not None:
        limit = Decimal(max(settings.max_thread_tokens, more_tokens))
        bounds.append(Bound(TOKENS, Decimal(tokens + _tokens(written)), limit))
    if settings.max_thread_cost is not None:
        cost += written.cost(step.engine.summarizer_info()) or 0
        bounds.append(Bound(COST, cost, max(settings.max_thread_cost, more_cost)))
    return bounds


def _stored(guard: Mapping[str, Any], name: str) -> tuple[int, Decimal]:
    stored = guard.get(name) or {"tokens": 0, "cost": "0"}
    return stored["tokens"], as_money(stored["cost"])


def _store(step: AgentStep, name: str, tokens: int, cost: Decimal) -> None:
    amounts = {"tokens": tokens, "cost": str(cost)}
    step.update({"context_guard": {**step.window.session.guard, name: amounts}})


def _allow(step: AgentStep, answer: Any) -> str:
    """Set the limits that a person gives on resuming, or return what is wrong with them."""
    tokens, cost = _stored(step.window.session.guard, "allowed")
    fault = f"resumed with {brief(answer)}: give a new limit by the name of its setting"
    if not isinstance(answer, Mapping) or not answer.keys() & {TOKENS, COST}:
        return fault
    try:
        tokens = int(as_money(answer.get(TOKENS, tokens)))
        cost = as_money(answer.get(COST, cost))
    except ValueError:
        return fault
    _store(step, "allowed", tokens, cost)
    return ""


def _require_prices(step: AgentStep, most: Decimal) -> None:
    engine, model = step.engine, step.window.parts.model
    known = {model: engine.info_of(step.window)}
    if not engine.is_local:
        known.setdefault(engine.summarizer_model, engine.summarizer_info())
    for name, info in known.items():
        if info is None or info.input_price is None or info.output_price is None:
            raise ConfigError(
                f"max_thread_cost={most} needs the prices of {name or 'a model without a name'}, which nobody states: "
                "pass prices=ModelRegistry() or prices=ModelInfo(name=..., input_price=..., output_price=...), or "
                "bound max_thread_tokens"
            )


def _report(step: AgentStep, window: Window, notice: Notice, bound: Bound) -> None:
    event = NoticeEvent(model=window.parts.model, notice=notice, about=bound.about())
    step.engine.reporter.emit(event)
