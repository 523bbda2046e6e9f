"""What a conversation may cost: told when most is spent, an error or a question before the call that would exceed it.

within_budget(step)  ->  model  ->  spent_update(step, window, answers)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage
from langgraph.types import interrupt

from langchain_ctxwin.core.events import NoticeEvent
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.spending import Usage, as_money
from langchain_ctxwin.engine import settings_of
from langchain_ctxwin.errors import ConfigError, ThreadBudgetError, brief
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.work import Wait, Work

if TYPE_CHECKING:
    # which asks this module before each call
    from langchain_ctxwin.agent.step import AgentStep

NEAR_SHARE = Decimal("0.8")
"""Of a limit: it is told while something is still left to decide about."""

SETTINGS = {"tokens": "max_thread_tokens", "cost": "max_thread_cost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One limit of a thread, and what was spent of it; USD or tokens."""

    setting: str
    spent: Decimal
    limit: Decimal

    @property
    def is_spent(self) -> bool:
        """Nothing is left."""
        return self.spent >= self.limit

    @property
    def is_near(self) -> bool:
        """Most of it is spent."""
        return self.spent >= NEAR_SHARE * self.limit

    def about(self) -> dict[str, str]:
        """Return it as JSON; numbers as text, so that money stays exact."""
        return {
            "setting": self.setting,
            "spent": str(self.spent),
            "limit": str(self.limit),
        }


def within_budget(step: AgentStep) -> Work[None]:
    """Go on while the thread has something left to spend; else raise, or ask for more where that is set.

    Raises:
        ConfigError: the cost is bounded, and nobody states the prices of a model.
        ThreadBudgetError: the thread spent all that it may.
    """
    settings = settings_of(step.window)
    if settings.max_thread_cost is None and settings.max_thread_tokens is None:
        return
    if settings.max_thread_cost is not None:
        yield from _require_prices(step, settings.max_thread_cost)
    fault = ""
    while over := next((bound for bound in _bounds(step) if bound.is_spent), None):
        if settings.on_budget == "raise" or not step.setup.place.thread:
            step.engine.reporter.emit(_notice(step.window, "budget_spent", over))
            raise ThreadBudgetError(
                f"the thread spent {over.spent} of {over.setting}={over.limit}: raise {over.setting}, begin another "
                "thread, or set on_budget='interrupt' (with a checkpointer) to be asked",
                **over.about(),
            )
        example = {over.setting: str(2 * over.limit)}
        answer = interrupt(
            {
                "reason": "thread_budget",
                **over.about(),
                "resume_with": example,
                "fault": fault,
            }
        )
        fault = _allow(step, answer)


def spent_update(
    step: AgentStep, window: Window, answers: Sequence[AIMessage]
) -> dict[str, Any]:
    """Return the update of the state after answers to a request; empty where nothing is bounded."""
    settings = settings_of(window)
    if settings.max_thread_cost is None and settings.max_thread_tokens is None:
        return {}
    before, guard = list(_bounds(step)), step.window.session.guard
    tokens, cost = _kept(guard, "spent")
    for answer in answers:
        usage = _usage(answer, window)
        parts = (usage, usage.compaction or Usage())
        tokens += (
            0
            if usage.is_free
            else sum((u.input_tokens or 0) + (u.output_tokens or 0) for u in parts)
        )
        price = usage.cost(step.engine.info_of(window))
        if price is None and settings.max_thread_cost is not None:
            log.warning(
                "budget.unpriced",
                model=window.parts.model,
                do="pass prices= that know this model",
            )
        cost += price or 0
    update = {
        "context_guard": {**guard, "spent": {"tokens": tokens, "cost": str(cost)}}
    }
    step.update(update)
    for old, new in zip(before, _bounds(step), strict=True):
        if new.is_near and not old.is_near:
            step.engine.reporter.emit(_notice(window, "budget_near", new))
    return update


def _usage(answer: AIMessage, window: Window) -> Usage:
    """What a call used, by our own count where its provider does not say."""
    usage = Usage.of_answer(answer)
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return usage
    return Usage(
        input_tokens=window.total_tokens, output_tokens=window.parts.price(answer)
    )


def _bounds(step: AgentStep) -> Iterator[Bound]:
    """The limits that are set, what was allowed since included, with what answers and summaries took."""
    guard, settings = step.window.session.guard, settings_of(step.window)
    written: Mapping[str, int] = guard.get("summarizer") or {}
    usage = Usage(
        input_tokens=written.get("input_tokens", 0),
        output_tokens=written.get("output_tokens", 0),
    )
    tokens, cost = _kept(guard, "spent")
    most_tokens, most_cost = _kept(guard, "allowed")
    if settings.max_thread_tokens is not None:
        total = tokens + (usage.input_tokens or 0) + (usage.output_tokens or 0)
        most = Decimal(max(settings.max_thread_tokens, most_tokens))
        yield Bound(setting=SETTINGS["tokens"], spent=Decimal(total), limit=most)
    if settings.max_thread_cost is not None:
        summaries = usage.cost(step.engine.summarizer_info()) or Decimal(0)
        most = max(settings.max_thread_cost, most_cost)
        yield Bound(setting=SETTINGS["cost"], spent=cost + summaries, limit=most)


def _kept(guard: Mapping[str, Any], name: str) -> tuple[int, Decimal]:
    kept = guard.get(name) or {"tokens": 0, "cost": "0"}
    return kept["tokens"], as_money(kept["cost"])


def _allow(step: AgentStep, answer: Any) -> str:
    """Take up the limits that a person gives on resuming; return what is wrong with them."""
    guard = step.window.session.guard
    tokens, cost = _kept(guard, "allowed")
    fault = f"resumed with {brief(answer)}: give a new limit by the name of its setting"
    if (
        not isinstance(answer, Mapping)
        or not answer
        or not answer.keys() <= {*SETTINGS.values()}
    ):
        return fault
    try:
        tokens = int(as_money(answer.get(SETTINGS["tokens"], tokens)))
        cost = as_money(answer.get(SETTINGS["cost"], cost))
    except ValueError:
        return fault
    step.update(
        {"context_guard": {**guard, "allowed": {"tokens": tokens, "cost": str(cost)}}}
    )
    return ""


def _require_prices(step: AgentStep, most: Decimal) -> Work[None]:
    engine, window = step.engine, step.window
    asked = {window.parts.model: window.parts.info}
    if not engine.is_local:
        asked.setdefault(engine.summarizer_model, None)
    for model, stated in asked.items():
        ask = partial(engine.prices.asked, model, stated)
        info: ModelInfo | None = yield Wait(ask, partial(asyncio.to_thread, ask))
        if info is None or info.input_price is None or info.output_price is None:
            raise ConfigError(
                f"max_thread_cost={most} needs the prices of {model or 'a model without a name'}, which nobody states: "
                "pass prices=ModelRegistry() or prices=ModelInfo(name=..., input_price=..., output_price=...), or "
                "bound max_thread_tokens"
            )


def _notice(window: Window, notice: Any, bound: Bound) -> NoticeEvent:
    return NoticeEvent(model=window.parts.model, notice=notice, about=bound.about())
