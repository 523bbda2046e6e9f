"""What happened, as session state: a measure, a compaction that worked or did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.measured import Measured
from langchain_ctxwin.core.pins import last_user
from langchain_ctxwin.core.session import counted
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.errors import SummarizationError

MAX_INEFFECTIVE = 2
"""Summaries that failed in a row after which none is tried until the next user message."""


def seen(window: Window) -> dict[str, Any]:
    """Return the state after a measure: mended positions, how many messages were seen, the report."""
    messages = window.request.messages
    first = message_id(messages, 0) if messages else None
    counts = {**window.session.counts, "messages": len(messages), "first": first}
    return {**window.session.to_json(), "context_counts": counts, "context_report": window.report}


def applied(compaction: Compaction, window: Window, summary: str) -> dict[str, Any]:
    """Return the state after a compaction; the anchor goes, because the request it counted is no longer a prefix."""
    session = window.session
    dropped = int(session.guard.get("dropped_turns", 0)) + compaction.dropped_turns
    failed = 0 if compaction.kind == "summarize" else int(session.guard.get("ineffective", 0))
    guard = counted(
        session, window.request.messages, reason=compaction.reason, ineffective=failed, dropped_turns=dropped
    )
    counts = {key: value for key, value in session.counts.items() if key != "anchor"}
    start = window.request.start_of(compaction.view)
    if measured := counts.get("measured"):
        counts["measured"] = {
            name: Measured.from_json(value).since(start).to_json() for name, value in measured.items()
        }
    after = replace(session, view=compaction.view, summary=summary, guard=guard, counts=counts)
    return {**after.to_json(), "context_pending": {}}


def accepted(summary: str, compaction: Compaction, window: Window) -> str:
    """Return the summary, or raise `SummarizationError` for one that makes the request no smaller."""
    after = window.request.survey(compaction.view, summary).total_tokens
    if after >= compaction.tokens_before:
        raise SummarizationError(
            f"with the summary the request has {after:,} tokens, before it had {compaction.tokens_before:,}: "
            "use a summarizer that keeps to its max_tokens"
        )
    return summary


def gave_up(window: Window, reason: str) -> dict[str, Any]:
    """Return the state after a summary that failed: only the guard changes, so that it is not tried forever."""
    session, asked = window.session, last_user(window.request.messages)
    before = int(session.guard.get("ineffective", 0)) if session.guard.get("asked") == asked else 0
    guard = {
        **session.guard,
        "ineffective": before + 1,
        "asked": asked,
        "reason": f"summary refused: {reason}",
    }
    return {**replace(session, guard=guard).to_json(), "context_pending": {}}


def has_given_up(window: Window) -> bool:
    """True when summaries failed too often since the last user message."""
    guard = window.session.guard
    same_question = guard.get("asked") == last_user(window.request.messages)
    return same_question and int(guard.get("ineffective", 0)) >= MAX_INEFFECTIVE
