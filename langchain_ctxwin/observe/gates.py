"""Is the quality of many requests good enough? Thresholds with names, and a report with a verdict for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.measures import Amount, Ratio, measures, routing_shares
from langchain_ctxwin.observe.records import RequestRecord

ROUTING = "routing/"
"""Begins the name of a routing share; the reason follows."""

MIN_KNOWN = 0.95
"""Share of the concerned requests that must be known before a gate is passed: one in twenty may be silent, so that a
stray answer without usage spoils no verdict. What is known to miss a threshold fails, however little it is."""


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
            if bound is not None and not 0 <= bound < float("inf"):
                raise ConfigError(f"{name}={bound!r}: give a ratio of at least 0, for example 0.95")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ConfigError(f"at_least={self.at_least!r} is above at_most={self.at_most!r}: give them in order")

    def passes(self, ratio: Ratio) -> bool | None:
        """Say whether a measure passes; None when too little is known to say so.

        A question that concerned no request (no model ever failed, say) has a clean answer: it passes.
        """
        value = float("inf") if ratio.is_boundless else ratio.value
        if value is not None and not self._admits(value):
            return False
        concerned = ratio.requests + ratio.unknown
        return True if ratio.requests >= self.min_known * concerned else None

    def _admits(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

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
        verdicts = self.verdicts
        rows = [
            ("measure", "value", "amounts", "unknown", "gate", "verdict"),
            *(self._row(name, ratio, verdicts) for name, ratio in self.measures.items()),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(_line(row, widths) for row in rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON values; amounts of money are texts, so that they stay exact."""
        return {
            "requests": self.requests,
            "passed": self.passed,
            "measures": {name: _ratio_values(ratio) for name, ratio in self.measures.items()},
            "gates": {name: _gate_values(gate) | {"passed": self.verdicts[name]} for name, gate in self.gates.items()},
        }

    def _row(self, name: str, ratio: Ratio, verdicts: Mapping[str, bool | None]) -> tuple[str, ...]:
        value = "boundless" if ratio.is_boundless else "unknown" if ratio.value is None else f"{ratio.value:.2%}"
        amounts = f"{_shown(ratio.numerator)} of {_shown(ratio.denominator)}"
        judged = (str(self.gates[name]), _VERDICTS[verdicts[name]]) if name in self.gates else ("", "")
        return (name, value, amounts, f"{ratio.unknown:,}", *judged)


def quality_report(records: Iterable[RequestRecord], *, gates: Mapping[str, Gate] = DEFAULT_GATES) -> QualityReport:
    """Measure many requests and judge the measures.

    Args:
        records: the requests, in any order.
        gates: thresholds by the name of a measure; `routing/` and a reason judges the share of that reason, for
            example `{**DEFAULT_GATES, "routing/largest window": Gate(at_most=0.1)}`.

    Raises:
        ConfigError: a gate is named after no measure.
    """
    kept = tuple(records)
    known = measures(kept)
    unmeasured = [name for name in gates if name not in known and not name.startswith(ROUTING)]
    if unmeasured:
        raise ConfigError(
            f"gates for {', '.join(map(repr, unmeasured))}: no such measure, "
            f"use {', '.join(known)} or {ROUTING}<reason>"
        )
    routed = sum(bool(record.reason) for record in kept)
    never_taken = Ratio(denominator=routed, requests=routed, unknown=len(kept) - routed)
    shares = {ROUTING + reason: share for reason, share in routing_shares(kept).items()}
    judged = {name: never_taken for name in gates if name.startswith(ROUTING)}
    return QualityReport(requests=len(kept), measures={**known, **judged, **shares}, gates=dict(gates))


_VERDICTS = {True: "passed", False: "failed", None: "unknown"}


def _shown(amount: Amount) -> str:
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,f}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, *rest, gate, verdict = row
    cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:-2], strict=True))]
    return "  ".join((*cells, gate.ljust(widths[-2]), verdict)).rstrip()


def _ratio_values(ratio: Ratio) -> dict[str, Any]:
    return {
        "value": ratio.value,
        "numerator": _json(ratio.numerator),
        "denominator": _json(ratio.denominator),
        "requests": ratio.requests,
        "unknown": ratio.unknown,
    }


def _gate_values(gate: Gate) -> dict[str, Any]:
    return {"at_least": gate.at_least, "at_most": gate.at_most, "min_known": gate.min_known}


def _json(amount: Amount) -> int | str:
    return amount if isinstance(amount, int) else str(amount)
