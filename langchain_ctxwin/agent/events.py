"""The events of a step, made from what the step knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_ctxwin.core.events import NoticeEvent, OverflowEvent
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.updates import own_words
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.reporting import Reporter


def recovery_event(
    window: Window, overflow: ContextOverflow, attempt: int, *, output_tokens: int | None = None
) -> OverflowEvent:
    """Return the event of a request that its provider refused."""
    return OverflowEvent(
        model=window.about.model,
        attempt=attempt,
        total_tokens=window.total_tokens,
        input_limit=window.budget.input_limit,
        stated_tokens=overflow.actual,
        stated_limit=overflow.limit,
        output_tokens=output_tokens,
    )


def refusal_event(window: Window, error: Exception) -> OverflowEvent:
    """Return the event of a request that cannot be made to fit, by the size of its smallest form if that is known."""
    known = error.report if isinstance(error, BudgetExceededError) else None
    sizes: Mapping[str, Any] = known or window.report
    return OverflowEvent(
        model=window.about.model,
        reason=type(error).__name__,
        total_tokens=sizes["total_tokens"],
        input_limit=sizes["input_limit"],
    )


def report_stop(reporter: Reporter, window: Window, known: str) -> None:
    """Report, once, why no summary is tried any more."""
    stopped = window.report["stopped"]
    if not stopped or stopped == known:
        return
    reason = str(window.session.guard.get("reason", ""))
    about: dict[str, Any] = {"fixed_tokens": window.priced_view.fixed_tokens, "input_limit": window.budget.input_limit}
    about |= {"stopped": stopped, "reason": own_words(reason)}
    reporter.emit(
        NoticeEvent(model=window.about.model, notice="compaction_stopped", about=about, quoting={"reason": reason})
    )


def report_mended(reporter: Reporter, faults: Iterable[str]) -> None:
    """Report what in the stored state was not what this package writes."""
    for fault in faults:
        reporter.emit(NoticeEvent(notice="session_mended", about={"fault": fault}))
