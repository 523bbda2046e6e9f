"""What events add to counters: one account, which each sink of metrics puts into its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxwin.core import events
from langchain_ctxwin.core.events import Event


def counts_of(event: Event) -> Iterator[tuple[str, Any, Mapping[str, str | bool]]]:
    """Yield the counter, the amount (None where it is unknown) and the labels of all that an event adds."""
    model = {"model": event.model}
    if isinstance(event, events.StepEvent):
        yield "requests", 1, model
        yield "input_tokens", event.cached_tokens, {**model, "part": "cached"}
        yield "input_tokens", event.cache_write_tokens, {**model, "part": "written"}
        yield "input_tokens", event.new_tokens, {**model, "part": "new"}
        yield "output_tokens", event.output_tokens, model
        yield "unused_reserve_tokens", event.unused_reserve_tokens, model
        yield "cost_usd", event.cost, {**model, "purpose": "agent"}
    elif isinstance(event, events.CompactionEvent):
        yield "compactions", 1, {**model, "kind": event.kind}
        yield "compaction_freed_tokens", event.tokens_before - event.tokens_after, {**model, "kind": event.kind}
    elif isinstance(event, events.SummaryEvent):
        yield "summaries", 1, {**model, "status": event.status}
        yield "cost_usd", event.cost, {**model, "purpose": "summary"}
    elif isinstance(event, events.RecoveryEvent):
        yield "overflows", 1, model
    elif isinstance(event, events.RefusalEvent):
        yield "refusals", 1, {**model, "reason": event.reason}
    elif isinstance(event, events.RouteEvent) and event.has_answered:
        yield "routes", 1, {**model, "fallback": bool(event.fallbacks)}
    elif isinstance(event, events.ToolResultEvent):
        yield "tool_results", 1, {"tool": event.tool, "oversized": event.is_oversized}
    elif isinstance(event, events.AlertEvent) and not event.is_cleared:
        yield "alerts", 1, {"alert": event.alert}
