"""What the nodes report while they run: log events, and the same facts on LangGraph's custom stream."""

from __future__ import annotations

from typing import Any

import structlog
from langgraph.config import get_stream_writer

from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.window import Window

log = structlog.get_logger("langchain_ctxwin")


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


def announce_recovery(window: Window, overflow: ContextOverflow, attempt: int) -> None:
    """Report that the provider refused a request and a smaller one follows."""
    facts = {
        "attempt": attempt,
        "estimated_tokens": window.total_tokens,
        "stated_tokens": overflow.actual,
        "stated_limit": overflow.limit,
    }
    log.warning("context.overflow_recovered", **facts)
    _stream("context.overflow_recovered", **facts)


def announce_faults(window: Window) -> None:
    """Report what in the stored session did not match the history."""
    for fault in window.session.faults:
        log.warning("context.session_mended", fault=fault)
        _stream("context.session_mended", fault=fault)


def _stream(event: str, **facts: Any) -> None:
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):  # a node that is called outside a graph has no stream
        return
    writer({"type": event, **facts})
