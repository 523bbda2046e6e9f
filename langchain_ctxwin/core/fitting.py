"""The one primitive behind everything that truncates: keep the longest prefix of whole items that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[T]):
    """The kept items, the dropped items, and the cost of the kept ones."""

    kept: tuple[T, ...]
    dropped: tuple[T, ...]
    tokens: int
    """Cost of the kept items, in tokens."""

    @property
    def truncated(self) -> bool:
        """True when anything was dropped."""
        return bool(self.dropped)


def take_while_fits(
    items: Iterable[T],
    budget: int,
    cost: Callable[[T], int],
    *,
    on_overflow: Literal["stop", "skip"] = "stop",
) -> Fit[T]:
    """Keep whole items in the given order while they fit in `budget` tokens.

    Every item is either kept or dropped, never both and never split; each is priced at most once. With `"stop"` the
    first item that does not fit ends the selection (the kept items are a prefix); with `"skip"` later, smaller items
    may still be kept.

    Examples:
        >>> take_while_fits(["aa", "bbb", "c"], 3, len)
        Fit(kept=('aa',), dropped=('bbb', 'c'), tokens=2)
        >>> take_while_fits(["aa", "bbb", "c"], 3, len, on_overflow="skip")
        Fit(kept=('aa', 'c'), dropped=('bbb',), tokens=3)
    """
    kept: list[T] = []
    dropped: list[T] = []
    tokens = 0
    for item in items:
        if dropped and on_overflow == "stop":
            dropped.append(item)
            continue
        price = cost(item)
        if tokens + price > budget:
            dropped.append(item)
            continue
        kept.append(item)
        tokens += price
    return Fit(kept=tuple(kept), dropped=tuple(dropped), tokens=tokens)
