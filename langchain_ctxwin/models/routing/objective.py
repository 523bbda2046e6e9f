"""Which of the candidates that fit is worth its money and time, and why?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.models.routing.candidates import Candidate

CENT = Decimal("0.01")
"""Amounts below are shown with two significant digits, others in cents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate that can take the request, and what to expect of it."""

    candidate: Candidate
    chance: float
    """Probability of a good answer."""

    cost: Decimal | None
    """USD; None when a price is unknown."""

    seconds: float | None
    """Usual time of an answer; None before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best option, and why each option was taken or left."""

    best: Option
    reason: str
    left: dict[str, str]
    """Name of every other candidate -> why it was not taken."""


def choose(options: Sequence[Option], config: RoutingConfig, *, others_fit: bool = False) -> Choice:
    """Return the option with the highest score; of equal ones the cheapest, then the one that was given first.

    Args:
        options: the candidates that can be asked.
        config: the weights.
        others_fit: other candidates would fit, but failed, rest or are excluded; only the reason depends on it.
    """
    enough = [option for option in options if option.chance >= (config.least_chance or 0.0)]
    scores = {option.candidate.name: score for option, score in zip(options, _scores(options, config), strict=True)}
    ranked = sorted(enough, key=lambda option: (-scores[option.candidate.name], _by_cost(option)))
    best = ranked[0] if ranked else max(options, key=lambda option: option.chance)
    return Choice(
        best=best,
        reason=_reason(best, options, enough, others_fit=others_fit),
        left={
            option.candidate.name: _left(option, best, scores, is_enough=option in enough)
            for option in options
            if option is not best
        },
    )


def _scores(options: Sequence[Option], config: RoutingConfig) -> list[float]:
    """The weighted sum; costs and times count as shares of the largest, so that a long request weighs no more."""
    dearest = max((option.cost for option in options if option.cost is not None), default=Decimal(0))
    slowest = max((option.seconds for option in options if option.seconds is not None), default=0.0)
    return [
        config.quality * option.chance
        - config.cost * _cost_share(option.cost, dearest)
        - config.latency * _time_share(option.seconds, slowest)
        for option in options
    ]


def _cost_share(cost: Decimal | None, dearest: Decimal) -> float:
    """An unknown cost counts as the largest: it may be anything."""
    if cost is None:
        return 1.0
    return float(cost / dearest) if dearest else 0.0


def _time_share(seconds: float | None, slowest: float) -> float:
    """An unmeasured time counts as none, so that a model that was not yet asked gets its first measurement."""
    return seconds / slowest if seconds and slowest else 0.0


def _by_cost(option: Option) -> tuple[bool, Decimal]:
    return option.cost is None, option.cost or Decimal(0)


def _reason(best: Option, options: Sequence[Option], enough: Sequence[Option], *, others_fit: bool) -> str:
    unpriced = "; its price is unknown" if best.cost is None else ""
    chance = f"{best.chance:.2f}"
    if all(option.cost is None for option in options) and len(options) > 1:
        return f"most likely to answer well (chance {chance}); no price is known"
    if len(options) == 1:
        return f"the only one {'left' if others_fit else 'that fits'} (chance {chance}){unpriced}"
    if not enough:
        return f"most likely to answer well (chance {chance}), though none is likely enough{unpriced}"
    cheapest = min(options, key=_by_cost)
    if best.cost is not None and best.cost == cheapest.cost:
        return f"cheapest that fits and is likely enough (chance {chance}, {money(best.cost)})"
    if best.chance >= max(option.chance for option in options):
        return f"most likely to answer well (chance {chance}, the cheapest has {cheapest.chance:.2f}){unpriced}"
    return f"best balance of chance ({chance}), cost ({money(best.cost)}) and time{unpriced}"


def _left(option: Option, best: Option, scores: dict[str, float], *, is_enough: bool) -> str:
    expected = f"chance {option.chance:.2f}, {money(option.cost)}"
    if not is_enough:
        return f"fits, but is not likely enough to answer well ({expected})"
    mine, other = scores[option.candidate.name], scores[best.candidate.name]
    return f"fits, but scored {mine:.3f} against {other:.3f} ({expected})"


def money(cost: Decimal | None) -> str:
    """Return an amount as text: cents, or two significant digits below one."""
    if cost is None:
        return "price unknown"
    if not cost or cost >= CENT:
        return f"${cost:.2f}"
    return f"${cost:.{1 - cost.adjusted()}f}"
