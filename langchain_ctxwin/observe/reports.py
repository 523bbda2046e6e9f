"""What happened over time, as tables: usage, tools, compactions, routes, accuracy, costs, alerts, changes of models."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from statistics import fmean
from typing import Any, TypeVar

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
)
from langchain_ctxwin.core.spending import PRICED_TOKENS
from langchain_ctxwin.observe.gates import MEASURES
from langchain_ctxwin.observe.requests import RequestEvents, requests_of
from langchain_ctxwin.observe.validation import ACCURATE_WITHIN
from langchain_ctxwin.settings_faults import escaped
from langchain_ctxwin.util.tables import aligned

MONEY_DIGITS = 6
"""Digits of USD behind the point: a call of a thousand tokens to a small model costs a few millionths."""

RATE_DIGITS = 4
"""The same of USD per million tokens."""

UNKNOWN = "-"

T = TypeVar("T")
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """Requests to one model on one day."""

    day: str
    """In UTC, as in 2030-01-31."""

    model: str
    requests: int
    unreported: int
    """Those of them whose provider reported no size: their tokens are in no column."""

    cached_tokens: int
    written_tokens: int
    new_tokens: int
    """Input that was read from the prompt cache, written to it, and neither."""

    output_tokens: int
    cost: Decimal | None
    """USD of those whose cost is known; None when it is known of none."""

    unpriced: int
    of_limit: float | None
    of_limit_p95: float | None
    """Size of a request over its input limit: the mean, and what 95 % of requests do not exceed."""

    of_window: float | None
    of_window_p95: float | None
    accuracy: float | None
    """Mean of one minus the share by which our count missed the reported size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """One tool: in requests, in answers, and what it returned."""

    tool: str
    offered: int
    """Requests that held its definition."""

    calls: int
    results: int
    """Results that a guard saw."""

    oversized: float | None
    """Share of results that took more than they may."""

    tokens: int
    shown_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRow:
    """Compactions of one kind; sizes are means."""

    kind: str
    compactions: int
    before_tokens: float
    after_tokens: float
    mean_seconds: float | None
    p95_seconds: float | None
    left_messages: int
    left_results: int
    unused_results: int
    """Results that left, and that nothing was taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """What became of summaries."""

    status: str
    summaries: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleRow:
    """What went wrong, or was put right in time."""

    event: str
    """Name of the event, for example `context.overflow_recovered`."""

    model: str
    reason: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """Requests that went to a model for one kind of reason."""

    reason: str
    model: str
    requests: int
    choices: int
    """Requests that the choice was made for; others of the same conversation kept to it."""

    fallbacks: float
    """Share of requests that another candidate failed before."""

    scored: int
    """Answers with a score."""

    quality: float | None
    """Mean score: the share of right answers, where scores are 0 or 1."""

    left_cost: Decimal | None
    """USD that the choices cost more than the cheapest candidate that would have taken the request, as estimated."""

    uncompared: int
    """Choices for which either is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """How well requests to one model were counted, and what was kept free."""

    model: str
    compared: int
    """Requests of which an estimate and a reported size are known."""

    error: float | None
    error_p95: float | None
    """Share of the reported size by which the estimate missed it: the mean, and of 95 % of requests at most."""

    within: float | None
    """Share of requests whose error is at most 20 %."""

    over_limit: int
    """Requests that were larger than their input limit."""

    reserved_tokens: int
    unused: float | None
    """Share of the tokens kept free for answers that answers did not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """Cost of one model's answers, in USD."""

    model: str
    requests: int
    unpriced: int
    cost: Decimal | None
    cache_saved: Decimal | None
    """What the same calls cost more where nothing is cached; below 0 where writing cost more than reading saved."""

    useful_tokens: int
    """Input without tool definitions, and output, of the requests whose cost is known."""

    cost_per_million: Decimal | None
    """USD for a million useful tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The bill, and what part of it was for nothing."""

    requests: int
    failed: int
    """Requests that got no answer."""

    cost: Decimal | None
    """USD, summaries included."""

    summary_cost: Decimal | None
    summary_share: float | None
    cache_saved: Decimal | None
    unused_offers: float | None
    """Share of the tool definitions in requests that are of tools which no answer called."""

    unused_results: float | None
    """Share of the tool results that left in compactions, and that nothing was taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One threshold, and how often it was passed."""

    alert: str
    raised: int
    cleared: int
    value: float | None
    """The last that was told."""

    threshold: float | None
    last_day: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A limit or price of a model that changed."""

    day: str
    model: str
    field: str
    before: str
    after: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Tables of what happened; each is empty where no event tells of it."""

    events: int
    usage: tuple[UsageRow, ...] = ()
    tools: tuple[ToolRow, ...] = ()
    compactions: tuple[CompactionRow, ...] = ()
    summaries: tuple[SummaryRow, ...] = ()
    troubles: tuple[TroubleRow, ...] = ()
    routes: tuple[RouteRow, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    costs: tuple[CostRow, ...] = ()
    totals: tuple[Totals, ...] = ()
    """One, where there are requests or summaries."""

    alerts: tuple[AlertRow, ...] = ()
    changes: tuple[ChangeRow, ...] = ()

    def table(self) -> str:
        """Print all tables; one that is empty is a line."""
        if not self.events:
            return "no events"
        return "\n\n".join(_section(title, getattr(self, name)) for name, title in TITLES.items())

    def to_dict(self) -> dict[str, Any]:
        """Return all tables in JSON values; money is text, so that it stays exact."""
        return {
            "events": self.events,
            **{name: [_json(asdict(row)) for row in getattr(self, name)] for name in TITLES},
        }


TITLES = {
    "usage": "Usage by day (UTC) and model: tokens, USD, share of the input limit and of the window",
    "tools": "Tools: requests that offered them, calls, results of which some were too large",
    "compactions": "Compactions: mean tokens before and after, seconds, messages and results that left",
    "summaries": "Summaries: what became of them, calls, tokens, USD",
    "troubles": "Recoveries, refusals and notices",
    "routes": "Routes: why a model was chosen, quality where answers have scores, USD above the cheapest candidate",
    "budgets": f"Budgets: our counts against reported sizes (within {ACCURATE_WITHIN:.0%}), tokens kept free in vain",
    "costs": "Costs by model: USD, what caching saved, USD per million useful tokens",
    "totals": "Totals: USD, and what part was for nothing",
    "alerts": "Alerts",
    "changes": "Limits and prices that changed",
}
"""The tables of a report, in the order in which they are printed."""


def report(events: Iterable[Event]) -> Report:
    """Sum up what happened.

    Args:
        events: in the order in which they were reported: of a `History`, or of a `MemorySink`.

    Examples:
        >>> print(report([StepEvent(model="small", reported_tokens=90, time=1.0)]).usage[0].new_tokens)
        90
    """
    kept = list(events)
    requests = list(requests_of(kept))
    steps, summaries = _of(kept, StepEvent), _of(kept, SummaryEvent)
    compactions, results = _of(kept, CompactionEvent), _of(kept, ToolResultEvent)
    tools = _tools(steps, results)
    costs = tuple(_costs(model, group) for model, group in _grouped(_answered(requests), lambda one: one.model))
    return Report(
        events=len(kept),
        usage=tuple(_usage(key, group) for key, group in _grouped(steps, lambda one: (_day(one), one.model))),
        tools=tools,
        compactions=tuple(_compactions(kind, group) for kind, group in _grouped(compactions, lambda one: one.kind)),
        summaries=tuple(_summaries(status, group) for status, group in _grouped(summaries, lambda one: one.status)),
        troubles=_troubles(kept),
        routes=tuple(
            _routes(key, group)
            for key, group in _grouped(requests, lambda one: (one.reason, one.model))
            if group[0].route
        ),
        budgets=tuple(_budgets(model, group) for model, group in _grouped(steps, lambda one: one.model)),
        costs=costs,
        totals=_totals(requests, summaries, costs, tools, compactions),
        alerts=tuple(_alerts(alert, group) for alert, group in _grouped(_of(kept, AlertEvent), lambda one: one.alert)),
        changes=tuple(map(_change, _of(kept, ModelChangeEvent))),
    )


def _usage(about: tuple[str, str], steps: Sequence[StepEvent]) -> UsageRow:
    day, model = about
    limits, windows = _known(step.utilization for step in steps), _known(step.window_utilization for step in steps)
    return UsageRow(
        day=day,
        model=model,
        requests=len(steps),
        unreported=sum(step.reported_tokens is None for step in steps),
        cached_tokens=_sum(step.cached_tokens for step in steps),
        written_tokens=_sum(step.cache_write_tokens for step in steps),
        new_tokens=_sum(step.new_tokens for step in steps),
        output_tokens=_sum(step.output_tokens for step in steps),
        cost=_money(step.cost for step in steps),
        unpriced=sum(step.cost is None for step in steps),
        of_limit=_mean(limits),
        of_limit_p95=_p95(limits),
        of_window=_mean(windows),
        of_window_p95=_p95(windows),
        accuracy=_mean(_known(step.accuracy for step in steps)),
    )


def _tools(steps: Sequence[StepEvent], results: Sequence[ToolResultEvent]) -> tuple[ToolRow, ...]:
    offered = Counter(name for step in steps for name in step.tools_offered)
    called = Counter(name for step in steps for name in step.tools_called)
    seen = dict(_grouped(results, lambda one: one.tool))
    return tuple(
        ToolRow(
            tool=name,
            offered=offered[name],
            calls=called[name],
            results=len(seen.get(name, ())),
            oversized=_mean([float(one.is_oversized) for one in seen.get(name, ())]),
            tokens=_sum(one.tokens for one in seen.get(name, ())),
            shown_tokens=_sum(
                one.tokens if one.shown_tokens is None else one.shown_tokens for one in seen.get(name, ())
            ),
        )
        for name in sorted({*offered, *called, *seen})
    )


def _compactions(kind: str, events: Sequence[CompactionEvent]) -> CompactionRow:
    seconds = _known(event.duration_seconds for event in events)
    return CompactionRow(
        kind=kind,
        compactions=len(events),
        before_tokens=fmean(event.tokens_before for event in events),
        after_tokens=fmean(event.tokens_after for event in events),
        mean_seconds=_mean(seconds),
        p95_seconds=_p95(seconds),
        left_messages=_sum(event.left_messages for event in events),
        left_results=_sum(event.left_results for event in events),
        unused_results=_sum(event.unused_results for event in events),
    )


def _summaries(status: str, events: Sequence[SummaryEvent]) -> SummaryRow:
    return SummaryRow(
        status=status,
        summaries=len(events),
        calls=_sum(event.calls for event in events),
        input_tokens=_sum(event.input_tokens for event in events),
        output_tokens=_sum(event.output_tokens for event in events),
        cost=_money(event.cost for event in events),
    )


def _troubles(events: Iterable[Event]) -> tuple[TroubleRow, ...]:
    told = Counter(
        (event.name, event.model, _why(event))
        for event in events
        if isinstance(event, RecoveryEvent | RefusalEvent | NoticeEvent)
    )
    return tuple(
        TroubleRow(event=name, model=model, reason=reason, times=told[name, model, reason])
        for name, model, reason in sorted(told)
    )


def _why(event: RecoveryEvent | RefusalEvent | NoticeEvent) -> str:
    if isinstance(event, RecoveryEvent):
        return "asked again for less output" if event.output_tokens is not None else "asked again with less input"
    return event.reason if isinstance(event, RefusalEvent) else str(event.about.get("reason", ""))


def _routes(about: tuple[str, str], requests: Sequence[RequestEvents]) -> RouteRow:
    reason, model = about
    routes = [one.route for one in requests if one.route and one.is_chosen]
    pairs = [(route.estimated_cost, route.cheapest_cost) for route in routes]
    left = [max(Decimal(0), cost - least) for cost, least in pairs if cost is not None and least is not None]
    scores = _known(one.step.quality for one in requests if one.step)
    return RouteRow(
        reason=reason,
        model=model,
        requests=len(requests),
        choices=len(routes),
        fallbacks=fmean(bool(one.route and one.route.fallbacks) for one in requests),
        scored=len(scores),
        quality=_mean(scores),
        left_cost=_money(left),
        uncompared=len(routes) - len(left),
    )


def _budgets(model: str, steps: Sequence[StepEvent]) -> BudgetRow:
    errors = [
        abs(step.estimated_tokens - step.reported_tokens) / step.reported_tokens
        for step in steps
        if step.estimated_tokens is not None and step.reported_tokens
    ]
    answered = [step for step in steps if step.unused_reserve_tokens is not None]
    reserved = _sum(step.reserved_tokens for step in answered)
    return BudgetRow(
        model=model,
        compared=len(errors),
        error=_mean(errors),
        error_p95=_p95(errors),
        within=_mean([float(error <= ACCURATE_WITHIN) for error in errors]),
        over_limit=sum((step.utilization or 0) > 1 for step in steps),
        reserved_tokens=reserved,
        unused=_sum(step.unused_reserve_tokens for step in answered) / reserved if reserved else None,
    )


def _costs(model: str, requests: Sequence[RequestEvents]) -> CostRow:
    steps = [one.step for one in requests if one.step]
    priced = [one for one in requests if one.step and one.step.cost is not None]
    useful = [(one, MEASURES["token_efficiency"](one.record())) for one in priced]
    spent = _money(one.step.cost for one, ratio in useful if one.step and ratio.requests)
    tokens = int(sum(ratio.numerator for _, ratio in useful))
    return CostRow(
        model=model,
        requests=len(steps),
        unpriced=len(steps) - len(priced),
        cost=_money(step.cost for step in steps),
        cache_saved=_money(
            step.uncached_cost - step.cost for step in steps if step.cost is not None and step.uncached_cost is not None
        ),
        useful_tokens=tokens,
        cost_per_million=round(spent * PRICED_TOKENS / tokens, RATE_DIGITS) if spent is not None and tokens else None,
    )


def _totals(
    requests: Sequence[RequestEvents],
    summaries: Sequence[SummaryEvent],
    costs: Sequence[CostRow],
    tools: Sequence[ToolRow],
    compactions: Sequence[CompactionEvent],
) -> tuple[Totals, ...]:
    if not requests and not summaries:
        return ()
    written = _money(event.cost for event in summaries)
    cost = _money([*(row.cost for row in costs), written])
    offered = _sum(row.offered for row in tools)
    unused = _sum(row.offered for row in tools if not row.calls)
    left = _sum(event.left_results for event in compactions)
    return (
        Totals(
            requests=len(requests),
            failed=sum(not one.succeeded for one in requests),
            cost=cost,
            summary_cost=written,
            summary_share=float(written / cost) if written is not None and cost else None,
            cache_saved=_money(row.cache_saved for row in costs),
            unused_offers=unused / offered if offered else None,
            unused_results=_sum(event.unused_results for event in compactions) / left if left else None,
        ),
    )


def _alerts(alert: str, events: Sequence[AlertEvent]) -> AlertRow:
    cleared = sum(event.is_cleared for event in events)
    last = events[-1]
    return AlertRow(
        alert=alert,
        raised=len(events) - cleared,
        cleared=cleared,
        value=last.value,
        threshold=last.threshold,
        last_day=_day(last),
    )


def _change(event: ModelChangeEvent) -> ChangeRow:
    about = {one.name: getattr(event, one.name) for one in fields(ChangeRow) if one.name != "day"}
    return ChangeRow(day=_day(event), **about)


def _of(events: Iterable[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _answered(requests: Iterable[RequestEvents]) -> list[RequestEvents]:
    return [one for one in requests if one.step]


def _grouped(items: Iterable[T], key: Callable[[T], Any]) -> list[tuple[Any, list[T]]]:
    groups: defaultdict[Any, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return sorted(groups.items(), key=lambda group: group[0])


def _day(event: Event) -> str:
    try:
        return datetime.fromtimestamp(event.time, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):  # a clock may say anything
        return UNKNOWN


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)


def _money(values: Iterable[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return sum(known, Decimal(0)) if known else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _p95(values: Sequence[float]) -> float | None:
    return sorted(values)[ceil(0.95 * len(values)) - 1] if values else None


def _section(title: str, rows: Sequence[Any]) -> str:
    if not rows:
        return f"{title.partition(':')[0]}: none"
    names = [one.name for one in fields(rows[0])]
    headings = [name.removesuffix("_tokens").replace("_", " ") for name in names]
    right = {
        heading
        for name, heading in zip(names, headings, strict=True)
        if any(isinstance(getattr(row, name), int | float | Decimal) for row in rows)
    }
    cells = [[_cell(name, getattr(row, name)) for name in names] for row in rows]
    return "\n".join([title, *aligned([headings, *cells], right=right)])


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, Decimal):
        return f"{value:,.{MONEY_DIGITS}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:{_FORMATS.get(name, '.1%')}}" if isinstance(value, float) else escaped(value)


_FORMATS = {
    **dict.fromkeys(("mean_seconds", "p95_seconds"), ",.3f"),
    **dict.fromkeys(("before_tokens", "after_tokens"), ",.0f"),
    **dict.fromkeys(("value", "threshold"), "g"),
}
"""How numbers are printed that are no shares."""


def _json(row: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Decimal) else value for name, value in row.items()}
