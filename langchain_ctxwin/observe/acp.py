"""Compactions as session updates of the Agent Client Protocol, for editors and other clients that show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_ctxwin.core.events import Event

STATUSES = {
    "context.summary_started": "in_progress",
    "context.summary_failed": "failed",
    "context.summary_refused": "failed",
    "context.compacted": "completed",
}


def acp_update(event: Event | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `compaction_update` of the Agent Client Protocol for an event; None for one about something else.

    The id is the number of the compaction in its conversation. What becomes of a compaction updates the same entry of
    the client's timeline. Where no model writes summaries, a compaction is one update, `completed`.

    Args:
        event: as a sink takes it, or as `stream_mode="custom"` yields it.

    Examples:
        >>> from langchain_ctxwin.observe import CompactionEvent
        >>> acp_update(CompactionEvent(compactions=2))["status"]
        'completed'
    """
    facts = (
        {"type": event.name, **event.facts(), **event.quoting}
        if isinstance(event, Event)
        else event
    )
    status = STATUSES.get(facts.get("type", ""))
    if status is None:
        return None
    update = {
        "sessionUpdate": "compaction_update",
        "compactionId": f"compaction-{facts['compactions']}",
        "status": status,
    }
    if status == "completed":
        summary = facts.get("summary")
        summary_blocks = [{"type": "text", "text": summary}] if summary else []
        return {**update, "summary": summary_blocks, "error": None}
    if status == "failed":
        update["error"] = facts.get("reason") or "no summary was written"
    return update
