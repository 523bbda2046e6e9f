"""What the nodes report while they run: log events, and the same facts on LangGraph's custom stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from langgraph.config import get_stream_writer

from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.outcome import Lesson
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.session import Pending
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.tools import ToolSelection
from langchain_ctxwin.util.log import log


def announce_compaction(compaction: Compaction, after: Window, *, refused: str = "") -> None:
    """Report a compaction, or a summary that was refused."""
    if refused:
        log.warning("context.summary_refused", reason=refused)
        _stream("context.summary_refused", reason=refused)
        return
    facts = {
        "kind": compaction.kind,
        "reason": compaction.reason,
        "actions": list(compaction.actions),
        "tokens_before": compaction.tokens_before,
        "tokens_after": after.total_tokens,
        "input_limit": after.budget.input_limit,
    }
    log.info("context.compacted", **facts)
    _stream("context.compacted", **facts)


def announce_summary(event: Literal["started", "ready", "failed", "lost"], pending: Pending, **facts: Any) -> None:
    """Report what became of a summary in the background."""
    facts = {"key": pending.key, **facts}
    (log.warning if event in {"failed", "lost"} else log.info)(f"context.summary_{event}", **facts)
    _stream(f"context.summary_{event}", **facts)


def announce_recovery(
    window: Window, overflow: ContextOverflow, attempt: int, *, output_tokens: int | None = None
) -> None:
    """Report that the provider refused a request; a smaller one follows, or one that asks for less output."""
    facts = {
        "attempt": attempt,
        "estimated_tokens": window.total_tokens,
        "stated_tokens": overflow.actual,
        "stated_limit": overflow.limit,
        **({"output_tokens": output_tokens} if output_tokens else {}),
    }
    log.warning("context.overflow_recovered", **facts)
    _stream("context.overflow_recovered", **facts)


def announce_lesson(window: Window, lesson: Lesson) -> None:
    """Report a size that came with an answer and could not be used."""
    if lesson.ignored:
        log.warning("context.usage_ignored", model=window.about.model, reason=lesson.ignored)
        _stream("context.usage_ignored", model=window.about.model, reason=lesson.ignored)


def announce_reset(window: Window) -> None:
    """Report that what was learned about sizes is forgotten, because the counts were too often wrong."""
    log.warning("context.calibration_reset", model=window.about.model)
    _stream("context.calibration_reset", model=window.about.model)


def announce_model(model: str, before: str, reason: str, rejected: Mapping[str, str] | None = None) -> None:
    """Report that the conversation goes to another candidate from now on."""
    facts = {"model": model, "before": before, "reason": reason, "rejected": dict(rejected or {})}
    log.info("context.model_chosen", **facts)
    _stream("context.model_chosen", **facts)


def announce_tools(selection: ToolSelection) -> None:
    """Report that the set of tools changed."""
    facts = {"added": list(selection.added), "removed": list(selection.removed), "tokens": selection.tokens}
    log.info("context.tools_chosen", **facts, deferred=len(selection.deferred))
    _stream("context.tools_chosen", **facts, deferred=len(selection.deferred))


def announce_faults(window: Window) -> None:
    """Report what in the stored session did not match the history."""
    announce_mended(window.session.faults)


def announce_mended(faults: Iterable[str]) -> None:
    """Report what in the stored state was not what this package writes."""
    for fault in faults:
        log.warning("context.session_mended", fault=fault)
        _stream("context.session_mended", fault=fault)


def announce_stop(window: Window, known: str) -> None:
    """Report, once, why no summary is tried any more."""
    stopped = window.report["stopped"]
    if not stopped or stopped == known:
        return
    facts = {"fixed_tokens": window.priced_view.fixed_tokens, "input_limit": window.budget.input_limit}
    facts |= {"stopped": stopped, "reason": window.session.guard.get("reason", "")}
    log.warning("context.compaction_stopped", **facts)
    _stream("context.compaction_stopped", **facts)


def _stream(event: str, **facts: Any) -> None:
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):  # a node that is called outside a graph has no stream
        return
    writer({"type": event, **facts})
