"""What many events say: a table of what happened, and measures of quality with their gates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from statistics import fmean
from typing import Any, TypeGuard

from langchain_ctxwin.core.events import Event, OverflowEvent, StepEvent, SummaryEvent
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ConfigError,
    NoModelFitsError,
    escaped,
)
from langchain_ctxwin.util.log import aligned

DIGITS = 4  # of shares, seconds and USD: a call of a thousand tokens to a small model costs a ten-thousandth

UNKNOWN = "-"

Row = dict[str, Any]

SUMS = ("input_tokens", "cached_tokens", "output_tokens", "cost")
MEANS = ("utilization", "accuracy")
"""What a row has of its steps and summaries beside their number."""


def report(events: Iterable[Event]) -> list[Row]:
    """Sum up what happened: a row for each day (UTC), model and kind of event.

    A row has the number of events and, of steps and summaries, the sums of tokens and USD, and the mean utilization of
    the input limit and accuracy of counts; None where nothing is known.

    Args:
        events: of a `History`, or of a `MemorySink`.

    Examples:
        >>> events = [StepEvent(model="small", reported_tokens=90, time=1.0)]
        >>> report(events)[0]["input_tokens"]
        90
    """
    groups = defaultdict[tuple[str, str, str], list[Event]](list)
    for event in events:
        day = datetime.fromtimestamp(event.time, UTC).date().isoformat()
        groups[day, event.model, event.name].append(event)
    rows = []
    for (day, model, name), group in sorted(groups.items()):
        row: Row = {"day": day, "model": model, "event": name, "number": len(group)}
        paid = [event for event in group if isinstance(event, StepEvent | SummaryEvent)]
        for columns, work_out in ((SUMS, sum), (MEANS, fmean)):
            for column in columns:
                values = [getattr(event, column, None) for event in paid]
                known = [value for value in values if value is not None]
                row[column] = work_out(known) if known else None
        rows.append(row)
    return rows


def lines_of(rows: Sequence[Row]) -> Iterable[str]:
    """Return the lines of printed rows."""
    if not rows:
        return ["no events"]
    cells = [[_cell(value) for value in row.values()] for row in rows]
    return aligned([list(rows[0]), *cells])


def _cell(value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float | Decimal):
        return f"{value:,.{DIGITS}f}"
    return escaped(value)


# ---- measures and gates ----------------------------------------------------------------------------------------


NOT_SENT = frozenset({BudgetExceededError.__name__, NoModelFitsError.__name__})
"""Reasons of a failed request that no provider saw."""

TOO_SMALL = ": had too small a window"
"""How a route tells of a candidate that refused the request as too large."""

Bounds = tuple[float | None, float | None]
"""Least and largest value of a measure that is good enough; None where there is no bound."""

DEFAULT_GATES: Mapping[str, Bounds] = {
    "limit_compliance": (
        1.0,
        None,
    ),  # a request over the limit fails or is cut: none is acceptable
    "fallback_success": (
        0.95,
        None,
    ),  # of twenty requests whose first call failed, nineteen have an answer
}
"""Judged by default. The other measures are only reported: a short conversation in a large window is no
fault. Judge them for a workload that should fill its windows: `{**DEFAULT_GATES, "utilization": (0.8, None)}`."""

Pair = tuple[float, float] | None
"""What one request adds to a measure: a part of a whole; None where it does not say."""


def quality_report(
    events: Iterable[Event], *, gates: Mapping[str, Bounds] = DEFAULT_GATES
) -> list[Row]:
    """Measure the requests in events and judge the measures: a row for each.

    A row has the value (a sum over a sum, of the requests that state both; None where nothing is known), how many
    requests do not state it, the bounds of its gate, and the verdict, which is empty without a gate.

    Args:
        events: of a `History` or of a `MemorySink`.
        gates: least and largest value by the name of a measure.

    Raises:
        ConfigError: a gate is named after no measure.

    Examples:
        >>> steps = [StepEvent(input_limit=800, reported_tokens=400)]
        >>> rows = quality_report(steps, gates={"utilization": (0.8, None)})
        >>> [row["measure"] for row in rows if row["verdict"] == "failed"]
        ['utilization']
    """
    listed = list(events)
    if unmeasured := [name for name in gates if name not in MEASURES]:
        raise ConfigError(
            f"gates for {', '.join(unmeasured)}: no such measure, use {', '.join(MEASURES)}"
        )
    return [
        _judged(name, list(pairs(listed)), gates.get(name))
        for name, pairs in MEASURES.items()
    ]


def _judged(name: str, pairs: Sequence[Pair], gate: Bounds | None) -> Row:
    stated = [pair for pair in pairs if pair is not None]
    part = sum(part for part, _ in stated)
    whole = sum(whole for _, whole in stated)
    value = part / whole if whole else None
    least, most = gate or (None, None)
    verdict = "unknown" if gate else ""
    if gate and value is not None:
        is_good = (least is None or value >= least) and (most is None or value <= most)
        verdict = "passed" if is_good else "failed"
    return {
        "measure": name,
        "value": value,
        "unknown": len(pairs) - len(stated),
        "least": least,
        "most": most,
        "verdict": verdict,
    }


def _is_failed(event: Event) -> TypeGuard[OverflowEvent]:
    """True for a request that got no answer."""
    return isinstance(event, OverflowEvent) and not event.is_recovered


def _steps(events: Sequence[Event]) -> Iterator[StepEvent]:
    return (event for event in events if isinstance(event, StepEvent))


def _over(part: float | None, whole: float | None) -> Pair:
    return None if part is None or whole is None else (part, whole)


def _compliance(events: Sequence[Event]) -> Iterator[Pair]:
    """Requests within the limit of their model; one that a provider refused as too large was not."""
    for step in _steps(events):
        if step.calls > 1 or any(
            TOO_SMALL in failure for failure in step.route.get("fallbacks", ())
        ):
            yield 0, 1
        else:
            yield None if step.utilization is None else (step.utilization <= 1, 1)
    for event in events:
        if _is_failed(event) and event.reason not in NOT_SENT:
            yield 0, 1


def _fallback_success(events: Sequence[Event]) -> Iterator[Pair]:
    """Requests that got an answer although their first call failed."""
    for step in _steps(events):
        if step.calls > 1 or step.route.get("fallbacks"):
            yield 1, 1
    yield from ((0, 1) for event in events if _is_failed(event))


def _token_efficiency(events: Sequence[Event]) -> Iterator[Pair]:
    """Tokens of requests and answers without the definitions of tools that their conversation never called."""
    called = defaultdict[str, set[str]](set)
    for step in _steps(events):
        called[step.thread].update(step.tools_called)
    for step in _steps(events):
        if step.input_tokens is None or step.output_tokens is None:
            yield None
            continue
        unused = len({*step.tools_offered} - called[step.thread]) / max(
            1, len(step.tools_offered)
        )
        consumed = step.input_tokens + step.output_tokens
        yield consumed - unused * step.regions.get("tools", 0), consumed


def _tools_needed(events: Sequence[Event]) -> Iterator[Pair]:
    """Tools that were called, of those that were offered."""
    for step in _steps(events):
        if step.tools_offered:
            yield (
                len({*step.tools_called} & {*step.tools_offered}),
                len(step.tools_offered),
            )


MEASURES: Mapping[str, Callable[[Sequence[Event]], Iterable[Pair]]] = {
    "limit_compliance": _compliance,
    "fallback_success": _fallback_success,
    "utilization": lambda events: (
        _over(step.input_tokens, step.input_limit) for step in _steps(events)
    ),
    "accuracy": lambda events: (_over(step.accuracy, 1) for step in _steps(events)),
    "token_efficiency": _token_efficiency,
    "reserve_waste": lambda events: (
        _over(one.unused_reserve_tokens, one.reserved_tokens) for one in _steps(events)
    ),
    "tools_needed": _tools_needed,
    "quality": lambda events: (
        (step.quality, 1) for step in _steps(events) if step.quality is not None
    ),
}
"""What requests add to each measure, by its name; `quality` is of the answers that have a score."""
