"""What happened, as session state: a measure, a compaction that worked or did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.measured import Measured
from langchain_ctxwin.core.pending import Pending
from langchain_ctxwin.core.pins import last_user
from langchain_ctxwin.core.planning import MIN_PROGRESS, accepted_tokens
from langchain_ctxwin.core.session import Session, counted
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.errors import SummarizationError


def seen(window: Window) -> dict[str, Any]:
    """Return the state after a measure: mended positions, how many messages were seen, the report."""
    messages = window.request.messages
    first = message_id(messages, 0) if messages else None
    counts = {**window.session.counts, "messages": len(messages), "first": first}
    return {**window.session.to_json(), "context_counts": counts, "context_report": window.report}


def applied(compaction: Compaction, window: Window, summary: str) -> dict[str, Any]:
    """Return the state after a compaction; the anchor goes, because the request it counted is no longer a prefix."""
    session = window.session
    is_summary = compaction.kind == "summarize" or compaction.summary is not None
    dropped = int(session.guard.get("dropped_turns", 0)) + compaction.dropped_turns
    guard = counted(session, window.request.messages, reason=compaction.reason, dropped_turns=dropped)
    if is_summary:
        guard = {**guard, **_judged(window, compaction, summary)}
    counts = {key: value for key, value in session.counts.items() if key != "anchor"}
    start = window.request.start_of(compaction.view)
    if measured := counts.get("measured"):
        counts["measured"] = {
            name: Measured.from_json(value).since(start).to_json() for name, value in measured.items()
        }
    pending = None if is_summary or not _still_true(window) else session.pending
    after = replace(session, view=compaction.view, summary=summary, guard=guard, counts=counts, pending=pending)
    return after.to_json()


def taken(compaction: Compaction, window: Window, text: str, cost: Mapping[str, int]) -> dict[str, Any]:
    """Return the state after a summary was written: it is paid for, whether it can be used or not."""
    charged = replace(window, session=with_cost(window.session, cost))
    try:
        return applied(compaction, charged, accepted(text, compaction, charged))
    except SummarizationError as error:
        return gave_up(charged, str(error))


def ready(window: Window) -> Pending | None:
    """Return the finished summary that can be shown, if there is one and its messages are what they were."""
    pending = window.session.pending
    return pending if pending and pending.text and _still_true(window) else None


def _still_true(window: Window) -> bool:
    """True unless a finished summary is of messages that were edited since."""
    pending = window.session.pending
    return pending is None or not pending.text or pending.is_true_of(window.request.messages)


def accepted(summary: str, compaction: Compaction, window: Window) -> str:
    """Return the summary, its first part where it is much longer than was planned, or longer and frees too little.

    Raises:
        SummarizationError: even its first part makes the request no smaller.
    """
    request, before, planned = window.request, compaction.tokens_before, compaction.summary_max_tokens
    summary = first_part(summary, accepted_tokens(planned), request.price_text)
    wanted = 1 if window.goal.max_messages is not None else MIN_PROGRESS * before
    if summary and before - request.survey(compaction.view, summary).total_tokens >= wanted:
        return summary
    first = first_part(summary, planned, request.price_text)
    after = request.survey(compaction.view, first).total_tokens
    if after >= before or not first:
        raise SummarizationError(
            f"with {planned:,} tokens of the summary the request has {after:,} tokens, before it "
            f"had {before:,}: lower summary_max_tokens"
        )
    return first


def gave_up(window: Window, reason: str) -> dict[str, Any]:
    """Return the state after a summary that failed."""
    return after_failure(window, reason).to_json()


def after_failure(window: Window, reason: str) -> Session:
    """Return the session after a summary that failed: only the guard changes, so that it is not tried forever."""
    guard = {**window.session.guard, **_ineffective(window), "reason": f"summary refused: {reason}"}
    return replace(window.session, guard=guard, pending=None)


def with_cost(session: Session, cost: Mapping[str, int]) -> Session:
    """Return the session with one more summary and what it cost added to its guard: model calls and tokens."""
    before: Mapping[str, int] = session.guard.get("summarizer") or {}
    total = {name: before.get(name, 0) + amount for name, amount in {"summaries": 1, **cost}.items()}
    return replace(session, guard={**session.guard, "summarizer": total})


def _judged(window: Window, compaction: Compaction, summary: str) -> dict[str, Any]:
    """What the guard says of a summary by its outcome: one that frees too little counts like one that failed."""
    after = window.request.survey(compaction.view, summary).total_tokens
    is_late = after >= compaction.tokens_before  # it tells of messages that had left before
    is_by_number = window.goal.max_messages is not None  # what counts there is how many messages are shown
    if is_late or is_by_number or compaction.tokens_before - after >= MIN_PROGRESS * compaction.tokens_before:
        return {"ineffective": 0}
    return _ineffective(window)


def _ineffective(window: Window) -> dict[str, Any]:
    messages = window.request.messages
    return {"ineffective": window.session.failed_summaries + 1, "asked": last_user(messages)}
