"""What happened over time, as tables: usage, tools, compactions, routes, accuracy, costs, alerts, changes of models.

Each table is a type of rows, and each field of it says how it is worked out of the events or requests that a row sums
up.
"""
# ruff: noqa: RUF009  # the calls that it takes for shared values make fields

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TypeVar

from langchain_ctxwin.core.events import (
    AlertEvent,
    CompactionEvent,
    Event,
    ModelChangeEvent,
    NoticeEvent,
    RecoveryEvent,
    RefusalEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
    as_json,
)
from langchain_ctxwin.core.spending import PRICED_TOKENS
from langchain_ctxwin.errors import ConfigError, escaped, expect_each
from langchain_ctxwin.observe.gates import EVENTS_WANTED, MEASURES, RequestEvents, requests_of
from langchain_ctxwin.observe.validation import ACCURATE_WITHIN
from langchain_ctxwin.util.log import aligned

MONEY_DIGITS = 6
"""Digits of USD behind the point: a call of a thousand tokens to a small model costs a few millionths."""

RATE_DIGITS = 4
"""The same of USD per million tokens."""

UNKNOWN = "-"

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound="Row")


def column(work_out: Callable[[Sequence[Any]], Any], of: str = "") -> Any:
    """Return a field that is worked out of what its row sums up, or of what is known of an attribute of that."""

    def known(group: Sequence[Any]) -> list[Any]:
        return [value for value in map(attrgetter(of), group) if value is not None]

    return field(metadata={"work_out": (lambda group: work_out(known(group))) if of else work_out})


def _money(values: Iterable[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return sum(known, Decimal(0)) if known else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _p95(values: Sequence[float]) -> float | None:
    return sorted(values)[ceil(0.95 * len(values)) - 1] if values else None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table."""

    @classmethod
    def of(cls, group: Sequence[Any], **stated: Any) -> Self:
        """Return the row that sums up a group, with the fields that are stated."""
        columns = [one for one in fields(cls) if one.name not in stated]
        return cls(**stated, **{one.name: one.metadata["work_out"](group) for one in columns})


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Row):
    """Requests to one model on one day, in UTC: 2030-01-31."""

    day: str
    model: str
    requests: int = column(len)
    # Requests whose provider reported no size: their tokens are in no column.
    unreported: int = column(lambda steps: sum(one.reported_tokens is None for one in steps))
    # Input that was read from the prompt cache, written to it, and neither.
    cached_tokens: int = column(sum, "cached_tokens")
    written_tokens: int = column(sum, "cache_write_tokens")
    new_tokens: int = column(sum, "new_tokens")
    output_tokens: int = column(sum, "output_tokens")
    cost: Decimal | None = column(_money, "cost")
    unpriced: int = column(lambda steps: sum(one.cost is None for one in steps))
    of_limit: float | None = column(_mean, "utilization")
    of_limit_p95: float | None = column(_p95, "utilization")
    of_window: float | None = column(_mean, "window_utilization")
    of_window_p95: float | None = column(_p95, "window_utilization")
    accuracy: float | None = column(_mean, "accuracy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow(Row):
    """One tool: in requests, in answers, and what it returned."""

    tool: str
    offered: int  # requests that held its definition
    calls: int
    results: int = column(len)  # results that a guard saw
    oversized: float | None = column(_mean, "is_oversized")  # share of results that took more than they may
    tokens: int = column(sum, "tokens")
    shown_tokens: int = column(
        lambda results: sum((one.tokens if one.shown_tokens is None else one.shown_tokens) or 0 for one in results)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRow(Row):
    """Compactions of one kind; sizes are means."""

    kind: str
    compactions: int = column(len)
    before_tokens: float = column(_mean, "tokens_before")
    after_tokens: float = column(_mean, "tokens_after")
    mean_seconds: float | None = column(_mean, "duration_seconds")
    p95_seconds: float | None = column(_p95, "duration_seconds")
    left_messages: int = column(sum, "left_messages")
    left_results: int = column(sum, "left_results")
    unused_results: int = column(sum, "unused_results")  # results that left, and that nothing was taken from


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow(Row):
    """What became of summaries."""

    status: str
    summaries: int = column(len)
    calls: int = column(sum, "calls")
    input_tokens: int = column(sum, "input_tokens")
    output_tokens: int = column(sum, "output_tokens")
    cost: Decimal | None = column(_money, "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleRow(Row):
    """What went wrong, or was put right in time; `event` is its name, for example `context.overflow_recovered`."""

    event: str
    model: str
    reason: str
    times: int = column(len)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow(Row):
    """Requests that went to a model for one kind of reason."""

    reason: str
    model: str
    requests: int = column(len)
    # Requests that the choice was made for; others of the same conversation kept to it.
    choices: int = column(lambda requests: sum(one.is_chosen for one in requests))
    # Share of requests that another candidate failed before.
    fallbacks: float = column(lambda requests: fmean(bool(one.route.fallbacks) for one in requests))
    # Answers with a score, and the mean score: the share of right answers, where scores are 0 or 1.
    scored: int = column(len, "quality")
    quality: float | None = column(_mean, "quality")
    # USD of the bill that the choices cost more than the cheapest candidate that would have taken the request.
    left_cost: Decimal | None = column(_money, "left_cost")
    # Choices for which either is unknown.
    uncompared: int = column(lambda requests: sum(one.is_chosen and one.left_cost is None for one in requests))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow(Row):
    """How well requests to one model were counted, and what was kept free."""

    model: str
    compared: int = column(len, "miss")  # requests of which an estimate and a reported size are known
    error: float | None = column(_mean, "miss")
    error_p95: float | None = column(_p95, "miss")
    # Share of requests whose error is at most 20 %.
    within: float | None = column(lambda misses: _mean([miss <= ACCURATE_WITHIN for miss in misses]), "miss")
    # Requests that were larger than their input limit.
    over_limit: int = column(lambda steps: sum((one.utilization or 0) > 1 for one in steps))
    reserved_tokens: int = column(lambda steps: sum(_reserves(steps)))
    # Share of the tokens kept free for answers that answers did not take.
    unused: float | None = column(
        lambda steps: _share(sum(one.unused_reserve_tokens or 0 for one in steps), sum(_reserves(steps)))
    )


def _reserves(steps: Sequence[StepEvent]) -> list[int]:
    """Tokens that were kept free for each answer of which is known how many it took."""
    return [step.reserved_tokens or 0 for step in steps if step.unused_reserve_tokens is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow(Row):
    """Cost of one model's answers, in USD."""

    model: str
    requests: int = column(len)
    unpriced: int = column(lambda requests: sum(one.step.cost is None for one in requests))
    cost: Decimal | None = column(_money, "step.cost")
    # What the same calls cost more where nothing is cached; below 0 where writing cost more than reading saved.
    cache_saved: Decimal | None = column(_money, "step.cache_saved")
    # Input without tool definitions, and output, of the requests whose cost is known.
    useful_tokens: int = column(lambda requests: sum(tokens for _, tokens in _useful(requests)))
    # USD for a million useful tokens.
    cost_per_million: Decimal | None = column(lambda requests: _rate(_useful(requests)))


def _useful(requests: Iterable[RequestEvents]) -> list[tuple[Decimal, int]]:
    """Cost and useful tokens of the requests of which both are known."""
    priced = [(one.step.cost, one.record()) for one in requests if one.step and one.step.cost is not None]
    ratios = [(cost, MEASURES["token_efficiency"](record)) for cost, record in priced]
    return [(cost, int(ratio.numerator)) for cost, ratio in ratios if ratio.requests]


def _rate(useful: Sequence[tuple[Decimal, int]]) -> Decimal | None:
    tokens = sum(tokens for _, tokens in useful)
    spent = sum((cost for cost, _ in useful), Decimal(0))
    return round(spent * PRICED_TOKENS / tokens, RATE_DIGITS) if tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The bill in USD, summaries included, and what part of it was for nothing."""

    requests: int
    failed: int  # requests that got no answer
    cost: Decimal | None
    summary_cost: Decimal | None
    summary_share: float | None
    cache_saved: Decimal | None
    unused_offers: float | None  # share of the tool definitions in requests that are of tools which no answer called
    unused_results: float | None  # share of the tool results that left in compactions, and that nothing was taken from


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow(Row):
    """One threshold, how often it was passed, and what was told last."""

    alert: str
    raised: int = column(lambda events: sum(not one.is_cleared for one in events))
    cleared: int = column(sum, "is_cleared")
    value: float | None = column(lambda events: events[-1].value)
    threshold: float | None = column(lambda events: events[-1].threshold)
    last_day: str = column(lambda events: _day(events[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A limit or price of a model that changed."""

    day: str
    model: str
    field: str
    before: str
    after: str
    source: str


ALERTS = "Alerts"
NO_ALERTS = "none among these events (those that `Alerts(then=sink)` hands to the sink)"
"""An alert is told to its own sinks: no other one hears of it."""


def _table(title: str) -> Any:
    return field(default=(), metadata={"title": title})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Tables of what happened; each is empty where no event tells of it."""

    events: int
    usage: tuple[UsageRow, ...] = _table(
        "Usage by day (UTC) and model: tokens, USD, share of the input limit and of the window"
    )
    tools: tuple[ToolRow, ...] = _table(
        "Tools: requests that offered them, calls, results of which some were too large"
    )
    compactions: tuple[CompactionRow, ...] = _table(
        "Compactions: mean tokens before and after, seconds, messages and results that left"
    )
    summaries: tuple[SummaryRow, ...] = _table("Summaries: what became of them, calls, tokens, USD")
    troubles: tuple[TroubleRow, ...] = _table("Recoveries, refusals and notices")
    routes: tuple[RouteRow, ...] = _table(
        "Routes: why a model was chosen, quality where answers have scores, USD above the cheapest candidate"
    )
    budgets: tuple[BudgetRow, ...] = _table(
        f"Budgets: our counts against reported sizes (within {ACCURATE_WITHIN:.0%}), tokens kept free in vain"
    )
    costs: tuple[CostRow, ...] = _table("Costs by model: USD, what caching saved, USD per million useful tokens")
    totals: tuple[Totals, ...] = _table("Totals: USD, and what part was for nothing")
    """One, where there are requests or summaries."""

    alerts: tuple[AlertRow, ...] = _table(ALERTS)
    changes: tuple[ChangeRow, ...] = _table("Limits and prices that changed")

    def table(self) -> str:
        """Print all tables; one that is empty is a line."""
        if not self.events:
            return "no events"
        titles = {one.name: one.metadata["title"] for one in fields(self) if one.metadata}
        return "\n\n".join(_section(title, getattr(self, name)) for name, title in titles.items())

    def to_dict(self) -> dict[str, Any]:
        """Return all tables in JSON values; money is text, so that it stays exact."""
        values: dict[str, Any] = as_json(asdict(self))
        return values


def report(events: Iterable[Event]) -> Report:
    """Sum up what happened.

    Args:
        events: in the order in which they were reported: of a `History`, or of a `MemorySink`.

    Examples:
        >>> print(report([StepEvent(model="small", reported_tokens=90, time=1.0)]).usage[0].new_tokens)
        90
    """
    kept = expect_each(events, Event, "events", EVENTS_WANTED)
    requests = list(requests_of(kept))
    steps, summaries, compactions = _of(kept, StepEvent), _of(kept, SummaryEvent), _of(kept, CompactionEvent)
    troubles = [one for one in kept if isinstance(one, RecoveryEvent | RefusalEvent | NoticeEvent)]
    model = attrgetter("model")
    tools = _tools(steps, _of(kept, ToolResultEvent))
    costs = _rows(CostRow, [one for one in requests if one.step], model=model)
    return Report(
        events=len(kept),
        usage=_rows(UsageRow, steps, day=_day, model=model),
        tools=tools,
        compactions=_rows(CompactionRow, compactions, kind=attrgetter("kind")),
        summaries=_rows(SummaryRow, summaries, status=attrgetter("status")),
        troubles=_rows(TroubleRow, troubles, event=attrgetter("name"), model=model, reason=_why),
        routes=_rows(RouteRow, [one for one in requests if one.route], reason=attrgetter("reason"), model=model),
        budgets=_rows(BudgetRow, steps, model=model),
        costs=costs,
        totals=_totals(requests, summaries, costs, tools, compactions) if requests or summaries else (),
        alerts=_rows(AlertRow, _of(kept, AlertEvent), alert=attrgetter("alert")),
        changes=tuple(map(_change, _of(kept, ModelChangeEvent))),
    )


def _of(events: Iterable[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _rows(kind: type[R], items: Iterable[Any], /, **keys: Callable[[Any], str]) -> tuple[R, ...]:
    """A row for each group of items that agree in the keys, in their order."""
    groups: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
    for item in items:
        groups[tuple(key(item) for key in keys.values())].append(item)
    return tuple(kind.of(groups[found], **dict(zip(keys, found, strict=True))) for found in sorted(groups))


def _day(event: Event) -> str:
    try:
        return datetime.fromtimestamp(event.time, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):  # a clock may say anything
        return UNKNOWN


def _why(event: RecoveryEvent | RefusalEvent | NoticeEvent) -> str:
    if isinstance(event, RecoveryEvent):
        return "asked again for less output" if event.output_tokens is not None else "asked again with less input"
    return event.reason if isinstance(event, RefusalEvent) else str(event.about.get("reason", ""))


def _change(event: ModelChangeEvent) -> ChangeRow:
    about = {name: getattr(event, name) for name in ("model", "field", "before", "after", "source")}
    return ChangeRow(day=_day(event), **about)


def _tools(steps: Sequence[StepEvent], results: Sequence[ToolResultEvent]) -> tuple[ToolRow, ...]:
    offered = Counter(name for step in steps for name in step.tools_offered)
    called = Counter(name for step in steps for name in step.tools_called)
    seen: defaultdict[str, list[ToolResultEvent]] = defaultdict(list)
    for one in results:
        seen[one.tool].append(one)
    names = sorted({*offered, *called, *seen})
    return tuple(ToolRow.of(seen[name], tool=name, offered=offered[name], calls=called[name]) for name in names)


def _totals(
    requests: Sequence[RequestEvents],
    summaries: Sequence[SummaryEvent],
    costs: Sequence[CostRow],
    tools: Sequence[ToolRow],
    compactions: Sequence[CompactionEvent],
) -> tuple[Totals]:
    written = _money(event.cost for event in summaries)
    cost = _money([*(row.cost for row in costs), written])
    unused_offers = sum(row.offered for row in tools if not row.calls)
    unused_results = sum(event.unused_results for event in compactions)
    totals = Totals(
        requests=len(requests),
        failed=sum(not one.succeeded for one in requests),
        cost=cost,
        summary_cost=written,
        summary_share=float(written / cost) if written is not None and cost else None,
        cache_saved=_money(row.cache_saved for row in costs),
        unused_offers=_share(unused_offers, sum(row.offered for row in tools)),
        unused_results=_share(unused_results, sum(event.left_results for event in compactions)),
    )
    return (totals,)


def _section(title: str, rows: Sequence[Any]) -> str:
    if not rows:
        none = NO_ALERTS if title == ALERTS else "none"
        return f"{title.partition(':')[0]}: {none}"
    names = [one.name for one in fields(rows[0])]
    headings = {name: name.removesuffix("_tokens").replace("_", " ") for name in names}
    numbers = [name for name in names if any(isinstance(getattr(row, name), int | float | Decimal) for row in rows)]
    cells = [[_cell(name, getattr(row, name)) for name in names] for row in rows]
    return "\n".join([title, *aligned([list(headings.values()), *cells], right={headings[name] for name in numbers})])


_FORMATS = {
    **dict.fromkeys(("mean_seconds", "p95_seconds"), ",.3f"),
    **dict.fromkeys(("before_tokens", "after_tokens"), ",.0f"),
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
    return f"{value:{_FORMATS.get(name, '.1%')}}" if isinstance(value, float) else escaped(value)


PARTS = {
    "cached_tokens": "input from the cache",
    "written_tokens": "input written to it",
    "new_tokens": "other input",
    "output_tokens": "output",
}


def plot_usage(usage: Sequence[UsageRow], path: Path) -> None:
    """Draw the tokens of all models by day and part, and the utilization of each model's input limit, into a file.

    Raises:
        ConfigError: there is nothing to draw.
        ImportError: matplotlib is not installed.
        OSError, ValueError: the file cannot be written, or the end of its name is no format.
    """
    if not usage:
        raise ConfigError("there are no requests to draw: choose other events, or leave --plot out")
    from matplotlib.figure import Figure  # noqa: PLC0415  # extra `report`

    days = sorted({row.day for row in usage})
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    bottoms = [0] * len(days)
    for name, label in PARTS.items():
        tokens: defaultdict[str, int] = defaultdict(int)
        for row in usage:
            tokens[row.day] += getattr(row, name)
        heights = [tokens[day] for day in days]
        above.bar(days, heights, bottom=bottoms, label=label)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for model in sorted({row.model for row in usage}):
        rows = [row for row in usage if row.model == model and row.of_limit is not None]
        below.plot([row.day for row in rows], [row.of_limit for row in rows], "o-", label=model or "unknown")
    above.set_ylabel("tokens")
    below.set(ylabel="request / input limit (mean)", ylim=(0, None))
    below.tick_params(axis="x", rotation=45)
    above.legend()
    below.legend()
    figure.savefig(path)
