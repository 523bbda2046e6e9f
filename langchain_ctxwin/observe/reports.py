"""What happened over time, as tables: usage, tools, compactions, summaries, troubles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from statistics import fmean
from types import UnionType
from typing import Any

from langchain_ctxwin.core.events import (
    CacheMissEvent,
    CompactionEvent,
    Event,
    NoticeEvent,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
    as_json,
)
from langchain_ctxwin.errors import escaped, expect_each
from langchain_ctxwin.observe.gates import EVENTS_WANTED
from langchain_ctxwin.util.log import aligned

MONEY_DIGITS = 6
"""Digits of USD behind the point: a call of a thousand tokens to a small model costs a few millionths."""

UNKNOWN = "-"

Row = dict[str, Any]


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
            _printed(TABLES[name].title, rows) for name, rows in self.tables.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all tables in JSON values; money is text, so that it stays exact."""
        values: dict[str, Any] = as_json({"events": self.events, **self.tables})
        return values


def report(events: Iterable[Event]) -> Report:
    """Sum up what happened.

    Args:
        events: in the order in which they were reported: of a `History`, or of a `MemorySink`.

    Examples:
        >>> events = [StepEvent(model="small", reported_tokens=90, time=1.0)]
        >>> report(events).tables["usage"][0]["new_tokens"]
        90
    """
    checked_events = expect_each(events, Event, "events", EVENTS_WANTED)
    tables = {name: table.rows(checked_events) for name, table in TABLES.items()}
    return Report(events=len(checked_events), tables=tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A row for each group of events that agree in some values, with how many there are, sums and means."""

    title: str
    of: type[Event] | UnionType
    by: tuple[str, ...]
    sums: tuple[str, ...] = ()
    means: tuple[str, ...] = ()
    where: Callable[[Any], Any] = bool
    """Says which of the events count; by default all."""

    def rows(self, events: Iterable[Event]) -> list[Row]:
        """Return the rows, in the order of what their events agree in; a sum or mean of nothing known is None."""
        groups = defaultdict[tuple[str, ...], list[Event]](list)
        for event in events:
            if isinstance(event, self.of) and self.where(event):
                groups[tuple(_value(event, name) for name in self.by)].append(event)
        rows = []
        for key, group in sorted(groups.items()):
            row: Row = {**dict(zip(self.by, key, strict=True)), "events": len(group)}
            for names, work_out in ((self.sums, sum), (self.means, fmean)):
                for name in names:
                    values = [_value(event, name) for event in group]
                    numbers = [value for value in values if value is not None]
                    row[name] = work_out(numbers) if numbers else None
            rows.append(row)
        return rows


TABLES = {
    "usage": Table(
        title="Usage by day (UTC) and model: tokens, USD, share of the input limit, accuracy of our counts",
        of=StepEvent,
        by=("day", "model"),
        sums=(
            "cached_tokens",
            "cache_write_tokens",
            "new_tokens",
            "output_tokens",
            "cost",
            "cache_saved",
            "unused_reserve_tokens",
        ),
        means=("utilization", "accuracy"),
    ),
    "tools": Table(
        title="Tools: results, their tokens, share of those that were too large",
        of=ToolResultEvent,
        by=("tool",),
        sums=("tokens", "shown_tokens"),
        means=("is_oversized",),
    ),
    "compactions": Table(
        title="Compactions: messages and results that left, mean tokens before and after, seconds",
        of=CompactionEvent,
        by=("kind",),
        sums=("left_messages", "left_results"),
        means=("tokens_before", "tokens_after", "duration_seconds"),
    ),
    "cache_misses": Table(
        title="Prompt caches that missed: what had changed, tokens that were not read from them, by a compaction",
        of=CacheMissEvent,
        by=("changed", "model"),
        sums=("missed_tokens", "is_compacted"),
    ),
    "summaries": Table(
        title="Summaries: what became of them, calls, tokens, USD",
        of=SummaryEvent,
        by=("status",),
        sums=("calls", "input_tokens", "output_tokens", "cost"),
    ),
    "troubles": Table(
        title="Recoveries, refusals and notices",
        of=OverflowEvent | NoticeEvent,
        by=("name", "model", "reason"),
        where=lambda event: event.level == "warning",
    ),
}


def _day(event: Event) -> str:
    return datetime.fromtimestamp(event.time, UTC).date().isoformat()


def _reason(event: OverflowEvent | NoticeEvent) -> str:
    about = event.about if isinstance(event, NoticeEvent) else {"reason": event.reason}
    return str(about.get("reason", ""))


WORKED_OUT: Mapping[str, Callable[[Any], Any]] = {
    "day": _day,
    "reason": _reason,
    # a result that was not reduced is shown as it is
    "shown_tokens": lambda event: (
        event.tokens if event.shown_tokens is None else event.shown_tokens
    ),
}
"""Values that are no field of an event."""


def _value(event: Event, name: str) -> Any:
    work_out = WORKED_OUT.get(name)
    return work_out(event) if work_out else getattr(event, name)


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
}
"""How numbers are printed that are no shares."""


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, Decimal):
        return f"{value:,.{MONEY_DIGITS}f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:{FORMATS.get(name, '.1%')}}"
    return escaped(value)
