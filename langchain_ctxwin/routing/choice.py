"""Choice among the candidates that fit: chance of a good answer against cost and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.routing.candidates import Candidate

PRICED_TOKENS = 1_000_000
"""Tokens that prices are stated for."""

MIDDLE = 0.5
"""Presumed strength where prices say nothing."""

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


def choose(
    options: Sequence[Option], config: RoutingConfig, *, others_fit: bool = False
) -> tuple[Candidate, str, dict[str, str]]:
    """Return the option with the highest score, why, and why not each other one.

    Of equal ones the cheapest is taken, then the one that was given first.

    Args:
        options: the candidates that can be asked.
        config: the weights.
        others_fit: other candidates would fit, but failed, rest or are excluded; only the reason depends on it.
    """
    enough = [option for option in options if option.chance >= (config.least_chance or 0.0)]
    scores = {option.candidate.name: score for option, score in zip(options, _scores(options, config), strict=True)}
    ranked = sorted(enough, key=lambda option: (-scores[option.candidate.name], _by_cost(option)))
    best = ranked[0] if ranked else max(options, key=lambda option: option.chance)
    rejected = {
        option.candidate.name: _left(option, best, scores, is_enough=option in enough)
        for option in options
        if option is not best
    }
    return best.candidate, _reason(best, options, enough, others_fit=others_fit), rejected


def estimated_cost(info: ModelInfo, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> Decimal | None:
    """Return USD for one request, or None when a price is unknown.

    Args:
        info: the prices; without one for cached input, that costs what other input costs.
        input_tokens: the whole request.
        cached_tokens: the part of it that the model has seen before, at most the whole.
        output_tokens: the expected answer.
    """
    if info.input_price is None or info.output_price is None:
        return None
    cached = min(cached_tokens, input_tokens)
    cached_price = info.input_price if info.cache_read_price is None else info.cache_read_price
    priced = (input_tokens - cached) * info.input_price + cached * cached_price + output_tokens * info.output_price
    return priced / PRICED_TOKENS


def strengths(infos: Sequence[ModelInfo]) -> list[float]:
    """Return how strong each model presumably is, 0 to 1, by the rank of its price; in the middle when it is unknown.

    Models of one price share a rank. A price says little of one task, but is all that is known before any outcome.
    """
    prices = [info.input_price if info.output_price is None else info.output_price for info in infos]
    ranks = {price: rank for rank, price in enumerate(sorted({price for price in prices if price is not None}))}
    highest = max(1, len(ranks) - 1)
    return [MIDDLE if price is None or len(ranks) == 1 else ranks[price] / highest for price in prices]


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
