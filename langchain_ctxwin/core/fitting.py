"""What truncates and searches: the longest prefix of whole items that fits, the first of some values that is enough."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


HALF = 0.5  # of a room for text that whole lines have to fill; a paragraph in one line would otherwise be left out


CUT_MARK = "..."


# letters of scripts without spaces may stand alone
_LAST_WORD = re.compile(r"(?<![!-~])[!-~]++\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[T]):
    """The kept items, the dropped items, and the cost of the kept ones."""

    kept: tuple[T, ...]
    dropped: tuple[T, ...]
    tokens: int
    """Cost of the kept items, in tokens."""


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


def first_enough(cuts: Sequence[int], ok: Callable[[int], bool]) -> int:
    """Return the first of the cuts for which `ok` holds, if it holds for all later ones; the last when for none."""
    place = bisect_left(cuts, x=True, key=ok)
    return cuts[min(place, len(cuts) - 1)]


def first_part(text: str, room_tokens: int, price: Callable[[str], int]) -> str:
    """Return whole lines from the start of a text, as many as the room holds; a long one is cut between words."""
    if not text or price(text) <= room_tokens:
        return text
    fit = take_while_fits(text.split("\n"), room_tokens, lambda line: price(line) + 1)
    if fit.tokens >= HALF * room_tokens:
        return "\n".join(fit.kept)
    line = fit.dropped[0]
    room = room_tokens - fit.tokens
    stop = first_enough(
        range(len(line) - 1, -1, -1),
        lambda stop: price(f"{line[:stop]}{CUT_MARK}") < room,
    )
    # a word or value is never cut in two
    head = _LAST_WORD.sub("", line[:stop])
    return "\n".join((*fit.kept, f"{head}{CUT_MARK}" if head.strip() else "")).strip()
