"""What events add to counters: one account, which each sink of metrics puts into its own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxwin.core import events
from langchain_ctxwin.core.events import OTHER, Event

MAX_VALUES = 100  # of a label: more models or tools than an application has, and each is a series that never ends
MAX_VALUE_CHARS = 100  # longer than any name of a model or tool


class Labels:
    """The values that labels of metrics may have: names may come from outside, and each new one is another series.

    Examples:
        >>> labels = Labels()
        >>> labels.of("tool", "search"), labels.of("tool", "word " * 100), labels.of("oversized", True)
        ('search', 'other', 'true')
    """

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def of(self, label: str, value: str | bool) -> str:
        """Return a value as it is shown: `other` for one that is long, holds control characters, or is one too many."""
        if isinstance(value, bool):
            return str(value).lower()
        known = self._known.setdefault(label, set())
        if value in known:
            return value
        if len(known) >= MAX_VALUES or len(value) > MAX_VALUE_CHARS or not value.isprintable():
            return OTHER
        known.add(value)
        return value


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
