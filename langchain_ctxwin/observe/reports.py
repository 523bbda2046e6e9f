"""What happened over time, as tables: usage, tools, compactions, summaries, troubles, routes, alerts, model changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from statistics import fmean
from typing import Any, TypeVar

from langchain_ctxwin.core.events import (
    AlertEvent,
    CacheMissEvent,
    CompactionEvent,
    Event,
    ModelChangeEvent,
    NoticeEvent,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
    as_json,
)
from langchain_ctxwin.errors import escaped, expect_each
from langchain_ctxwin.observe.gates import EVENTS_WANTED, is_failed
from langchain_ctxwin.util.log import aligned

MONEY_DIGITS = 6
"""Digits of USD behind the point: a call of a thousand tokens to a small model costs a few millionths."""

UNKNOWN = "-"

E = TypeVar("E", bound=Event)
Row = dict[str, Any]
Column = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Tables of what happened."""

    events: int
    tables: Mapping[str, Sequence[Row]]
    """By name, each a list of rows; empty where no event tells of it."""

    def table(self) -> str:
        """Print all tables; one that is empty is a line."""
        if not self.events:
            return "no events"
        return "\n\n".join(
            _printed(TITLES[name], rows) for name, rows in self.tables.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all tables in JSON values; money is text, so that it stays exact."""
        values: dict[str, Any] = as_json({"events": self.events, **self.tables})
        return values


TITLES = {
    "usage": "Usage by day (UTC) and model: requests, tokens, USD, share of the input limit, accuracy of our counts",
    "tools": "Tools: requests that offered them, calls, results, share of results that were too large",
    "compactions": "Compactions: mean tokens before and after, seconds, messages and results that left",
    "cache_misses": "Prompt caches that missed: what had changed, tokens that were not read from them, by a compaction",
    "summaries": "Summaries: what became of them, calls, tokens, USD",
    "troubles": "Recoveries, refusals and notices",
    "routes": "Routes: why a model was chosen, fallbacks, quality where answers have scores",
    "totals": "Totals: USD, and what part of it was for summaries",
    "alerts": "Alerts: those that `Alerts(then=sink)` hands to the sink",
    "changes": "Limits and prices that changed",
}


def report(events: Iterable[Event]) -> Report:
    """Sum up what happened.

    Args:
        events: in the order in which they were reported: of a `History`, or of a `MemorySink`.

    Examples:
        >>> print(
        ...     report([StepEvent(model="small", reported_tokens=90, time=1.0)]).tables[
        ...         "usage"
        ...     ][0]["new_tokens"]
        ... )
        90
    """
    known = expect_each(events, Event, "events", EVENTS_WANTED)
    steps = _of(known, StepEvent)
    summaries = _of(known, SummaryEvent)
    model = attrgetter("model")
    troubles = [
        event
        for event in known
        if isinstance(event, OverflowEvent | NoticeEvent) and event.level == "warning"
    ]
    tables = {
        "usage": _rows(steps, {"day": _day, "model": model}, USAGE),
        "tools": _tools(steps, _of(known, ToolResultEvent)),
        "compactions": _rows(
            _of(known, CompactionEvent), {"kind": attrgetter("kind")}, COMPACTIONS
        ),
        "cache_misses": _rows(
            _of(known, CacheMissEvent),
            {"changed": attrgetter("changed"), "model": model},
            MISSES,
        ),
        "summaries": _rows(summaries, {"status": attrgetter("status")}, SUMMARIES),
        "troubles": _rows(
            troubles,
            {"event": attrgetter("name"), "model": model, "reason": _why},
            {"times": len},
        ),
        "routes": _rows(
            [step for step in steps if step.route],
            {"reason": _route_reason, "model": model},
            ROUTES,
        ),
        "totals": _totals(known, steps, summaries),
        "alerts": _rows(_of(known, AlertEvent), {"alert": attrgetter("alert")}, ALERTS),
        "changes": _rows(_of(known, ModelChangeEvent), CHANGES, {}),
    }
    return Report(events=len(known), tables=tables)


def _of(events: Iterable[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _rows(
    items: Iterable[Any],
    keys: Mapping[str, Callable[[Any], str]],
    columns: Mapping[str, Column],
) -> list[Row]:
    """A row for each group of items that agree in the keys, in their order."""
    groups = defaultdict[tuple[str, ...], list[Any]](list)
    for item in items:
        groups[tuple(key(item) for key in keys.values())].append(item)
    return [
        dict(zip(keys, values, strict=True))
        | {name: work_out(group) for name, work_out in columns.items()}
        for values, group in sorted(groups.items())
    ]


def _known(field: str, work_out: Callable[[list[Any]], Any]) -> Column:
    """A column that is worked out of what is known of a field of the events."""
    value_of = attrgetter(field)
    return lambda events: work_out(
        [value for event in events if (value := value_of(event)) is not None]
    )


def _money(amounts: Sequence[Decimal]) -> Decimal | None:
    return sum(amounts, Decimal(0)) if amounts else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _each(work_out: Callable[[list[Any]], Any], *names: str) -> dict[str, Column]:
    return {name: _known(name, work_out) for name in names}


def _day(event: Event) -> str:
    return datetime.fromtimestamp(event.time, UTC).date().isoformat()


USAGE: Mapping[str, Column] = {
    "requests": len,
    "unreported": lambda steps: sum(step.reported_tokens is None for step in steps),
    **_each(sum, "cached_tokens", "cache_write_tokens", "new_tokens", "output_tokens"),
    **_each(_money, "cost", "cache_saved"),
    "unpriced": lambda steps: sum(step.cost is None for step in steps),
    **_each(_mean, "utilization", "accuracy"),
    "over_limit": _known(
        "utilization", lambda shares: sum(share > 1 for share in shares)
    ),
    **_each(sum, "unused_reserve_tokens"),
}
COMPACTIONS: Mapping[str, Column] = {
    "compactions": len,
    **_each(_mean, "tokens_before", "tokens_after", "duration_seconds"),
    **_each(sum, "left_messages", "left_results"),
}
MISSES: Mapping[str, Column] = {
    "misses": len,
    **_each(sum, "missed_tokens"),
    "compacted": _known("is_compacted", sum),
}
SUMMARIES: Mapping[str, Column] = {
    "summaries": len,
    **_each(sum, "calls", "input_tokens", "output_tokens"),
    **_each(_money, "cost"),
}
ROUTES: Mapping[str, Column] = {
    "requests": len,
    "fallbacks": lambda steps: fmean(
        bool(step.route.get("fallbacks")) for step in steps
    ),
    "scored": _known("quality", len),
    **_each(_mean, "quality"),
    **_each(_money, "cost"),
}
ALERTS: Mapping[str, Column] = {
    "raised": lambda events: sum(not event.is_cleared for event in events),
    "cleared": _known("is_cleared", sum),
    "value": lambda events: events[-1].value,
    "threshold": lambda events: events[-1].threshold,
    "last_day": lambda events: _day(events[-1]),
}
CHANGES: Mapping[str, Callable[[Any], str]] = {
    "day": _day,
    **{
        name: attrgetter(name)
        for name in ("model", "field", "before", "after", "source")
    },
}
RESULTS: Mapping[str, Column] = {
    "results": len,
    "oversized": _known("is_oversized", _mean),
    "tokens": _known("tokens", sum),
    "shown_tokens": lambda results: sum(
        (one.tokens if one.shown_tokens is None else one.shown_tokens) or 0
        for one in results
    ),
}


def _tools(steps: Sequence[StepEvent], results: Sequence[ToolResultEvent]) -> list[Row]:
    offered = Counter(name for step in steps for name in step.tools_offered)
    called = Counter(name for step in steps for name in step.tools_called)
    of_tool = defaultdict[str, list[ToolResultEvent]](list)
    for result in results:
        of_tool[result.tool].append(result)
    return [
        {"tool": tool, "offered": offered[tool], "calls": called[tool]}
        | {name: work_out(of_tool[tool]) for name, work_out in RESULTS.items()}
        for tool in sorted({*offered, *called, *of_tool})
    ]


def _totals(
    events: Sequence[Event],
    steps: Sequence[StepEvent],
    summaries: Sequence[SummaryEvent],
) -> list[Row]:
    if not steps and not summaries:
        return []
    cost = _known("cost", _money)
    failed = sum(map(is_failed, events))
    return [
        {
            "requests": len(steps),
            "failed": failed,
            "cost": cost([*steps, *summaries]),
            "summary_cost": cost(summaries),
        }
    ]


def _why(event: OverflowEvent | NoticeEvent) -> str:
    if isinstance(event, NoticeEvent):
        return str(event.about.get("reason", ""))
    return event.reason


def _route_reason(step: StepEvent) -> str:
    """The kind of reason, without the figures of one request."""
    reason = str(step.route.get("reason") or "")
    return reason.partition(":")[0].partition("(")[0].strip()


def _printed(title: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"{title.partition(':')[0]}: none"
    headings = {
        name: name.removesuffix("_tokens").replace("_", " ") for name in rows[0]
    }
    cells = [[_cell(name, value) for name, value in row.items()] for row in rows]
    numbers = {
        headings[name]
        for row in rows
        for name, value in row.items()
        if isinstance(value, int | float | Decimal)
    }
    return "\n".join(
        [title, *aligned([list(headings.values()), *cells], right=numbers)]
    )


FORMATS = {
    "duration_seconds": ",.3f",
    **dict.fromkeys(("tokens_before", "tokens_after"), ",.0f"),
    **dict.fromkeys(("value", "threshold"), "g"),
}
"""How numbers are printed that are no shares."""


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, Decimal):
        return f"{value:,.{MONEY_DIGITS}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return (
        f"{value:{FORMATS.get(name, '.1%')}}"
        if isinstance(value, float)
        else escaped(value)
    )
