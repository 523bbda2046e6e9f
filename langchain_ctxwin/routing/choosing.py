"""Choosing among the candidates that can take a request: strong enough first, then the price, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from langchain_ctxwin.config import RoutingConfig
from langchain_ctxwin.routing.candidates import Candidate

ENOUGH = 0.75
"""Chance of a good answer from which a candidate is strong enough. Presumed is 1 for one whose strength is what the
complexity needs, 0.5 and a little more for a weaker one: ten good answers without a bad one make it strong enough, and
one bad answer in four takes that from any."""

PRESUMED_OF_WEAKER, MORE_BY_STRENGTH = 0.5, 0.2
CENT = Decimal("0.01")

Choice = tuple[Candidate, str, Mapping[str, str]]
"""Who is taken, why, and why not each other one that can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate that can take the request, and what to expect of it."""

    candidate: Candidate
    chance: float
    cost: Decimal | None

    @property
    def is_enough(self) -> bool:
        """True when it is strong enough for the request."""
        return self.chance >= ENOUGH

    @property
    def shown(self) -> str:
        """Chance and cost, for reasons."""
        digits = "f" if self.cost is None or self.cost >= CENT else "g"
        cost = "price unknown" if self.cost is None else f"${self.cost:.2{digits}}"
        return f"(chance {self.chance:.2f}, {cost})"


def presumed(strength: float, needed: float) -> float:
    """Return the chance of a good answer that is presumed before any outcome is known."""
    return (
        1.0 if strength >= needed else PRESUMED_OF_WEAKER + MORE_BY_STRENGTH * strength
    )


def best(
    options: Sequence[Option], config: RoutingConfig, *, asks: str, others_fit: bool
) -> Choice:
    """Return the candidate of the highest score, of equal ones the cheapest, then the one that was given first.

    An unknown cost counts as the largest, because it may be anything.

    Args:
        options: those that can take the request.
        config: weighs the chance and the cost.
        asks: what the request asks for, for the reasons.
        others_fit: whether a candidate fits that failed, rests or is excluded.
    """
    dearest = max((one.cost for one in options if one.cost), default=Decimal(1))

    def rank(one: Option) -> tuple[float, Decimal]:
        cost = dearest if one.cost is None else one.cost
        share = config.cost * float(cost / dearest)
        return (share - config.quality * min(one.chance, ENOUGH), cost)

    chosen = min(options, key=rank)
    left = {}
    for one in options:
        why = "costs no less" if one.is_enough else f"is not strong enough for {asks}"
        left[one.candidate.name] = f"fits, but {why} {one.shown}"
    del left[chosen.candidate.name]
    if len(options) == 1:
        reason = f"the only one {'left' if others_fit else 'that fits'} ({asks})"
    elif chosen.is_enough:
        reason = f"cheapest that is strong enough for {asks} {chosen.shown}"
    elif chosen.chance == max(one.chance for one in options):
        reason = f"the likeliest to answer well, none is strong enough for {asks} {chosen.shown}"
    else:
        reason = f"best balance of chance and cost for {asks} {chosen.shown}"
    return chosen.candidate, reason, left
