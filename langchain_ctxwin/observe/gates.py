"""Is the quality of many requests good enough? Requests from events, thresholds with names, and a verdict for each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from math import inf
from types import MappingProxyType
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.calibration import answered_by
from langchain_ctxwin.core.events import Event, RecoveryEvent, RefusalEvent, RouteEvent, StepEvent, as_json
from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.spending import Usage, amount_of, count_of
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ConfigError,
    NoModelFitsError,
    escaped,
    expect,
    expect_each,
)
from langchain_ctxwin.util.log import aligned

ROUTING = "routing/"
"""Begins the name of a routing share; the reason follows."""

MIN_KNOWN = 0.95
"""Share of the concerned requests that must be known before a gate is passed: one in twenty may be silent, so that a
stray answer without usage spoils no verdict. What is known to miss a threshold fails, however little it is."""

NOT_SENT = frozenset({"", BudgetExceededError.__name__, NoModelFitsError.__name__})
"""Reasons of a refusal that are not its provider's: it may have been refused before, as other events tell."""

Amount = int | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Sizes, route and price of one request; None means unknown, never zero.

    A request that got no answer at all has no message to be made from: state it with `succeeded=False`.

    Raises:
        ConfigError: a count is not a whole number of at least 0 (a limit: 1), or a cost is not a `Decimal` of at
            least 0.

    Examples:
        >>> RequestRecord(model="small", input_limit=8_192, input_tokens=1_024).reason
        ''
    """

    model: str
    input_limit: int | None
    """Largest input of the model that answered; the output reserve is already taken off."""

    input_tokens: int | None
    """Size of the prompt, tool definitions included: as the provider reported it, else as it was counted."""

    output_tokens: int | None = None
    tool_tokens: int | None = 0
    """Part of the input that defines tools."""

    reserved_tokens: int | None = None
    reason: str = ""
    """Kind of reason why this model was chosen, without the figures of the request; empty when no router says."""

    fallbacks: int | None = 0
    overflows: int = 0
    """Times a provider refused the request as too long. `of` counts what a route lists; 0 where nothing says so."""

    succeeded: bool = True
    optimal: bool | None = None
    """Whether no other candidate would have been the better choice, where somebody judged that."""

    # USD, and what the same tokens cost at the candidate with the largest window.
    cost: Decimal | None = None
    largest_cost: Decimal | None = None
    """USD, and what the same tokens cost at the candidate with the largest window."""

    def __post_init__(self) -> None:
        require_tokens("input_limit", self.input_limit, minimum=1, optional=True)
        for name in ("input_tokens", "output_tokens", "tool_tokens", "reserved_tokens", "fallbacks"):
            require_tokens(name, getattr(self, name), optional=True)
        require_tokens("overflows", self.overflows)
        for name in ("cost", "largest_cost"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Decimal) and value.is_finite() and value >= 0):
                raise ConfigError(
                    f"{name}={value!r}: give USD as a Decimal of at least 0 made from text, or None when unknown"
                )

    @classmethod
    def of(
        cls,
        message: AIMessage,
        *,
        report: Mapping[str, Any] | None = None,
        info: ModelInfo | None = None,
        largest: ModelInfo | None = None,
    ) -> RequestRecord:
        """Make a record of an answer; what its metadata do not state, or state in a form that cannot be, is unknown.

        Refusals are known from the route alone. An answer does not tell that a request without a router was refused,
        made smaller and sent again: add those where they are seen, `replace(record, overflows=1)`.

        Args:
            message: the answer, with the usage and the route that came with it.
            report: the `context_report` of its request.
            info: the model that answered, for the cost of the reported usage. With neither model, the cost is the
                one that the router estimated.
            largest: the candidate with the largest window, for the cost of the same usage there.
        """
        usage, sizes = Usage.of_answer(message), report or {}
        stated = message.response_metadata.get("route")
        route: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
        failed: Any = route.get("fallbacks")
        is_listed = isinstance(failed, list | tuple)
        return cls(
            model=_text(route.get("model")) or answered_by(message),
            input_limit=count_of(sizes.get("input_limit")) or None,
            input_tokens=usage.input_tokens or count_of(sizes.get("total_tokens")) or None,
            output_tokens=usage.output_tokens,
            tool_tokens=count_of(sizes.get("tool_tokens")),
            reserved_tokens=count_of(sizes.get("reserved_tokens")),
            reason=kind_of_reason(_text(route.get("reason"))),
            fallbacks=len(failed) if is_listed else count_of(failed),
            overflows=refused_as_too_long(failed) if is_listed else 0,
            cost=usage.cost(info) if info or largest else amount_of(route.get("estimated_cost")),
            largest_cost=usage.cost(largest),
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def kind_of_reason(reason: str) -> str:
    """Return what the reason of a route has in common with others: it, without the figures of one request."""
    return re.split("[(:;,]", reason, maxsplit=1)[0].strip()


def refused_as_too_long(fallbacks: Iterable[object]) -> int:
    """Return how many of the candidates that failed did so because the request was too long."""
    return sum(_text(entry).endswith(": had too small a window") for entry in fallbacks)  # what a route says of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvents:
    """What events say about one request."""

    model: str
    step: StepEvent | None = None
    """Its answer; None where none came, or where only a route tells of it."""

    route: RouteEvent | None = None
    """Why the model was chosen."""

    is_chosen: bool = False
    """Whether the route was chosen for this request; else for an earlier one of the conversation."""

    overflows: int = 0
    """Times that a provider refused it as too long."""

    succeeded: bool = True

    @property
    def reason(self) -> str:
        """Kind of reason why this model was chosen; empty when nothing says so."""
        return kind_of_reason(self.route.reason) if self.route else ""

    @property
    def quality(self) -> float | None:
        """Score of the answer, where somebody gave one."""
        return self.step.quality if self.step else None

    @property
    def left_cost(self) -> Decimal | None:
        """USD that the choice made for it costs more than the cheapest candidate.

        By the estimates of the choice, which know neither what the cache had nor how short the answer was; so of what
        the answer did cost it is the share that they say, and never more than the bill.
        """
        route = self.route if self.is_chosen else None
        if route is None or route.estimated_cost is None or route.cheapest_cost is None:
            return None
        more = max(Decimal(0), route.estimated_cost - route.cheapest_cost)
        cost = self.step.cost if self.step else None
        return more if cost is None or not route.estimated_cost else cost * more / route.estimated_cost

    def record(self) -> RequestRecord:
        """Return the request as gates take it.

        What it would have cost at the largest candidate, and whether another one would have been the better choice, no
        event says. The sizes of a request that got no answer are unknown, because it may not have been sent.
        """
        about: dict[str, Any] = {name: getattr(self, name) for name in ("model", "reason", "overflows", "succeeded")}
        about["fallbacks"] = len(self.route.fallbacks) if self.route else 0
        if self.step is None:
            route = self.route if self.route and self.succeeded else RouteEvent()
            about |= {"input_tokens": route.estimated_tokens, "cost": route.estimated_cost}
            return RequestRecord(input_limit=None, tool_tokens=None, **about)
        step = self.step
        return RequestRecord(
            input_limit=step.input_limit or None,
            input_tokens=step.input_tokens or None,
            output_tokens=step.output_tokens,
            tool_tokens=step.regions.get("tools", None if step.tools_offered else 0),
            reserved_tokens=step.reserved_tokens,
            cost=step.cost,
            **about,
        )


EVENTS_WANTED = "the events of a History or of a MemorySink"


def requests_of(events: Iterable[Event]) -> Iterator[RequestEvents]:
    """Yield the requests in events, which are joined by their thread and their order alone.

    The route of an answer is the latest before it: of this answer, else the one that the conversation keeps to.
    Refusals by a provider belong to the next answer, as many as it took calls beyond the first; others belong to a
    request that failed. Agents that share a thread are mixed, and so are all calls outside of threads.

    Args:
        events: in the order in which they were reported.
    """
    threads: defaultdict[str, _Thread] = defaultdict(_Thread)
    for event in expect(events, Iterable, "events", EVENTS_WANTED):
        thread = threads[expect(event, Event, "an event", EVENTS_WANTED).thread]
        if isinstance(event, StepEvent):
            yield from thread.answered(event)
        elif isinstance(event, RefusalEvent):
            yield thread.failed(event.model, refusals=event.reason not in NOT_SENT)
        elif isinstance(event, RouteEvent):
            yield from thread.routed(event)
        elif isinstance(event, RecoveryEvent):
            thread.refusals.append(event.model)
    for thread in threads.values():
        yield from thread.left_over()


@dataclass(slots=True)
class _Thread:
    """What is known of a thread and belongs to a request that is still to come."""

    kept: RouteEvent | None = None  # the route that the conversation keeps to
    is_new: bool = False
    of_answer: RouteEvent | None = None  # the route of one answer
    refusals: list[str] = field(default_factory=list)  # models whose provider refused a request

    def routed(self, route: RouteEvent) -> Iterator[RequestEvents]:
        if route.has_answered:
            yield from self._lone_answer()
            self.of_answer = route
        else:
            self.kept, self.is_new = route, True

    def answered(self, step: StepEvent) -> Iterator[RequestEvents]:
        own = max(0, step.calls - 1)
        if earlier := self.refusals[: max(0, len(self.refusals) - own)]:
            yield RequestEvents(model=earlier[-1], overflows=len(earlier), succeeded=False)
        route = self.of_answer or self.kept
        yield RequestEvents(
            model=step.model,
            step=step,
            route=route,
            is_chosen=self.of_answer is not None or self.is_new,
            overflows=own + refused_as_too_long(route.fallbacks if route else ()),
        )
        self.of_answer, self.is_new, self.refusals = None, False, []

    def failed(self, model: str, *, refusals: int = 0) -> RequestEvents:
        overflows, self.refusals = len(self.refusals) + refusals, []
        return RequestEvents(model=model, overflows=overflows, succeeded=False)

    def left_over(self) -> Iterator[RequestEvents]:
        """What no answer followed."""
        yield from self._lone_answer()
        if self.refusals:
            yield self.failed(self.refusals[-1])

    def _lone_answer(self) -> Iterator[RequestEvents]:
        """An answer of a routed model that no agent asked."""
        route, self.of_answer = self.of_answer, None
        if route is not None:
            overflows = refused_as_too_long(route.fallbacks)
            yield RequestEvents(model=route.model, route=route, is_chosen=True, overflows=overflows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One amount over another, summed over the requests that state both; those of two batches can be added.

    Requests that the question does not concern are in neither number; those that do not say enough are in `unknown`.
    """

    numerator: Amount = 0
    denominator: Amount = 0
    requests: int = 0  # requests that are counted in the two amounts
    unknown: int = 0  # requests that do not state what is asked

    @property
    def value(self) -> float | None:
        """The numerator over the denominator; None when nothing is known, or all of it is 0."""
        return float(Fraction(self.numerator) / Fraction(self.denominator)) if self.denominator else None

    @property
    def is_boundless(self) -> bool:
        """True for something over nothing: there is no value, and it is more than any bound allows."""
        return self.numerator > 0 and not self.denominator

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(
            numerator=self.numerator + other.numerator,
            denominator=self.denominator + other.denominator,
            requests=self.requests + other.requests,
            unknown=self.unknown + other.unknown,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The values of a measure that are good enough.

    Raises:
        ConfigError: neither bound is given, a number is not one that a ratio can have, or no ratio is within both.
    """

    at_least: float | None = None
    at_most: float | None = None
    min_known: float = MIN_KNOWN

    def __post_init__(self) -> None:
        if self.at_least is None and self.at_most is None:
            raise ConfigError("Gate() bounds nothing: give at_least or at_most")
        for name in ("at_least", "at_most", "min_known"):
            bound = getattr(self, name)
            expect(bound, int | float | None, name, "a ratio, for example 0.95")
            if bound is not None and not 0 <= bound < inf:
                raise ConfigError(f"{name}={bound!r}: give a ratio of at least 0, for example 0.95")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ConfigError(f"at_least={self.at_least!r} is above at_most={self.at_most!r}: give them in order")

    def passes(self, ratio: Ratio) -> bool | None:
        """Say whether a measure passes; None when too little is known to say so.

        A question that concerned no request (no model ever failed, say) has a clean answer: it passes.
        """
        value = inf if ratio.is_boundless else ratio.value
        if value is not None:
            is_too_low = self.at_least is not None and value < self.at_least
            if is_too_low or (self.at_most is not None and value > self.at_most):
                return False
        return True if ratio.requests >= self.min_known * (ratio.requests + ratio.unknown) else None

    def __str__(self) -> str:
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " ".join(f"{sign} {bound:.1%}" for sign, bound in bounds if bound is not None)


DEFAULT_GATES: Mapping[str, Gate] = MappingProxyType(
    {
        "limit_compliance": Gate(at_least=1.0),  # a request over the limit fails or is cut: none is acceptable
        "fallback_success": Gate(at_least=0.95),  # of twenty requests whose model failed, nineteen have an answer
        "cost_against_largest": Gate(at_most=0.8),  # a router that saves less than a fifth is not worth its choices
        "optimal_routing": Gate(at_least=0.85),  # where a better candidate was there, it was taken almost always
    }
)
"""Judged unless told otherwise. Utilization, efficiency and waste are only reported: a short conversation in a large
window is no fault. Judge them for a workload that should fill its windows: `utilization=Gate(at_least=0.8)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """Measures of many requests beside their gates."""

    requests: int
    measures: Mapping[str, Ratio]
    """By name; a share of the routing is named `routing/` and the reason."""

    gates: Mapping[str, Gate]

    @property
    def verdicts(self) -> dict[str, bool | None]:
        """Whether each gate is passed; None where too little is known, as for no requests at all."""
        return {name: gate.passes(self.measures[name]) if self.requests else None for name, gate in self.gates.items()}

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the gates that are missed."""
        return tuple(name for name, passed in self.verdicts.items() if passed is False)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of the gates that too little is known for."""
        return tuple(name for name, passed in self.verdicts.items() if passed is None)

    @property
    def passed(self) -> bool | None:
        """True when every gate is passed, False when one is missed, None when none is missed and one is undecided."""
        if self.failed:
            return False
        return None if self.undecided else True

    def table(self) -> str:
        """Print one line per measure: value, amounts, requests that do not state it, gate and verdict."""
        rows = [("measure", "value", "amounts", "unknown", "gate", "verdict")]
        said = {True: "passed", False: "failed", None: "unknown"}
        verdicts = {name: said[passed] for name, passed in self.verdicts.items()}
        for name, ratio in self.measures.items():
            value = "boundless" if ratio.is_boundless else "unknown" if ratio.value is None else f"{ratio.value:.2%}"
            amounts = (ratio.numerator, ratio.denominator)
            shown = [f"{one:,}" if isinstance(one, int) else f"{one:,f}" for one in amounts]
            gate = str(self.gates.get(name, ""))
            rows.append((escaped(name), value, " of ".join(shown), f"{ratio.unknown:,}", gate, verdicts.get(name, "")))
        return "\n".join(aligned(rows, right={"value", "amounts", "unknown"}))

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON values; amounts of money are texts, so that they stay exact."""
        return {
            "requests": self.requests,
            "passed": self.passed,
            "measures": {name: {"value": one.value, **as_json(asdict(one))} for name, one in self.measures.items()},
            "gates": {name: asdict(gate) | {"passed": self.verdicts[name]} for name, gate in self.gates.items()},
        }


def quality_report(records: Iterable[RequestRecord], *, gates: Mapping[str, Gate] = DEFAULT_GATES) -> QualityReport:
    """Measure many requests and judge the measures.

    Args:
        records: the requests, in any order.
        gates: thresholds by the name of a measure; `routing/` and a reason judges the share of that reason, for
            example `{**DEFAULT_GATES, "routing/largest window": Gate(at_most=0.1)}`.

    Raises:
        ConfigError: a gate is named after no measure.
    """
    kept = tuple(expect_each(records, RequestRecord, "records", "a list of RequestRecords"))
    known = {name: sum(map(measure, kept), NOT_CONCERNED) for name, measure in MEASURES.items()}
    if unmeasured := [name for name in gates if name not in known and not name.startswith(ROUTING)]:
        raise ConfigError(
            f"gates for {', '.join(map(repr, unmeasured))}: no such measure, "
            f"use {', '.join(known)} or {ROUTING}<reason>"
        )
    taken = Counter(ROUTING + record.reason for record in kept if record.reason)
    most_first = sorted(taken, key=lambda name: (-taken[name], name))
    routed = Ratio(denominator=taken.total(), requests=taken.total(), unknown=len(kept) - taken.total())
    judged = (name for name in gates if name.startswith(ROUTING))
    shares = {name: replace(routed, numerator=taken[name]) for name in dict.fromkeys([*judged, *most_first])}
    return QualityReport(requests=len(kept), measures={**known, **shares}, gates=dict(gates))


UNKNOWN = Ratio(unknown=1)
NOT_CONCERNED = Ratio()


def _over(part: Amount | bool | None, whole: Amount | None = 1) -> Ratio:
    """One request's part; of a fact, whether it holds."""
    if part is None or whole is None:
        return UNKNOWN
    return Ratio(numerator=int(part) if isinstance(part, bool) else part, denominator=whole, requests=1)


def _compliance(record: RequestRecord) -> Ratio:
    """Within the input limit of its model; one that a provider refused as too long was not."""
    if record.overflows or record.input_limit is None or record.input_tokens is None:
        return _over(False if record.overflows else None)
    return _over(record.input_tokens <= record.input_limit)


def _survived(record: RequestRecord) -> Ratio:
    """Got an answer although its first candidate failed, whether or not another one was there."""
    if record.succeeded and record.fallbacks == 0:
        return NOT_CONCERNED
    return _over(None if record.succeeded and record.fallbacks is None else record.succeeded)


def _efficiency(record: RequestRecord) -> Ratio:
    """Useful tokens over all that were consumed.

    Tool definitions carry no part of the conversation, so they are not useful, and nothing of a request that got no
    answer is.
    """
    written = record.output_tokens if record.succeeded else record.output_tokens or 0
    if record.input_tokens is None or record.tool_tokens is None or written is None:
        return UNKNOWN
    useful = max(0, record.input_tokens - record.tool_tokens) + written if record.succeeded else 0
    return _over(useful, record.input_tokens + written)


def _waste(record: RequestRecord) -> Ratio:
    """Tokens kept free for an answer that it did not take, over all that were kept free."""
    if record.reserved_tokens is None or record.output_tokens is None:
        return UNKNOWN
    return _over(max(0, record.reserved_tokens - record.output_tokens), record.reserved_tokens)


MEASURES: Mapping[str, Callable[[RequestRecord], Ratio]] = MappingProxyType(
    {
        "limit_compliance": _compliance,
        "fallback_success": _survived,
        "cost_against_largest": lambda record: _over(record.cost, record.largest_cost),
        "optimal_routing": lambda record: _over(record.optimal),  # of those that were judged
        "utilization": lambda record: _over(record.input_tokens, record.input_limit),
        "token_efficiency": _efficiency,
        "reserve_waste": _waste,
    }
)
"""What one request adds to each ratio, by name; the shares of the routing have names of their own."""
