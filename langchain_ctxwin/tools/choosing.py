"""Which tools make the set? It stays as it is until a needed tool is missing; then it changes once, for several.

Providers put tools before the messages, so that any change of the set makes the whole prompt cache worthless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from langchain_ctxwin.tools.prices import ToolPrices
from langchain_ctxwin.tools.ranking import Ranking, Wish

SERVED_SHARE = 0.8
"""A wish is served when a loaded tool scores so much of what the best of all tools scores: such a lead is chance."""

BATCH_TOOLS = 5
"""Tools that are added for one wish: the best one alone is often not the right one, one of the best five mostly is."""

BATCH_SHARE = 0.5
"""Least score beside the best tool's of what is added with it."""

RECENT_TOOLS = 7
"""Loaded tools that came last and stay when others leave: those of the request before, so that two topics in turn both
keep theirs. More of them would leave less room for the request itself."""

PRUNED_SHARE = 0.85
"""What a set is filled to when it changes: what is left free takes the next additions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the tools of one request may cost, and what they do cost."""

    tokens: int
    prices: ToolPrices

    @property
    def holds_all(self) -> bool:
        """True when nothing has to be chosen."""
        return self.prices.all_tokens is not None and self.prices.all_tokens <= self.tokens

    def admits(self, index: int) -> bool:
        """Say whether a tool fits when it is the only one."""
        return self.prices.each[index] is not None and self.fits([index])

    def fits(self, chosen: Collection[int]) -> bool:
        """Say whether all of these fit together."""
        return self.prices.total(chosen) <= self.tokens

    def left(self, chosen: Collection[int], share: float = 1.0) -> int:
        """Return the tokens that are free beside the chosen ones."""
        return int(self.tokens * share) - (self.prices.total(chosen) or self.prices.base)

    def fill(self, chosen: Collection[int], wanted: Iterable[int], share: float = 1.0) -> list[int]:
        """Return the wanted tools, in their order, that fit beside the chosen ones; those too big are skipped."""
        left = self.left(chosen, share)
        taken, kept = set(chosen), list[int]()
        for index in wanted:
            if left < self.prices.least:
                break
            price = self.prices.each[index]
            if price is None or price > left or index in taken:
                continue
            taken.add(index)
            kept.append(index)
            left -= price
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request asks for, as positions in the tool set."""

    always: tuple[int, ...]
    urgent: tuple[int, ...]
    """Found by a search or called since the last user message, the most urgent first."""

    called: tuple[int, ...]
    """Called at any time, the last one first."""

    ranking: Ranking
    is_new: bool
    """True at the first step of a request."""


def choose(wanted: Wanted, previous: Sequence[int], room: Room) -> list[int]:
    """Return the positions of the tools to bind, in their order."""
    if room.holds_all:
        return list(dict.fromkeys((*previous, *wanted.always, *range(len(room.prices.each)))))
    if not previous:
        return _first_set(wanted, room)
    kept = list(dict.fromkeys(previous))
    needed = [index for index in (*wanted.always, *wanted.urgent) if room.admits(index)]
    clear = (wish for wish in wanted.ranking.wishes if wish.is_clear)
    needed += [index for index in missing(clear, {*kept, *needed}) if room.admits(index)]
    new = [index for index in dict.fromkeys(needed) if index not in kept]
    if room.fits([*kept, *new]):
        return _extended(wanted, kept, new, room)
    return _pruned(wanted, kept, needed, room)


def missing(wishes: Iterable[Wish], loaded: set[int]) -> list[int]:
    """Return the best tools of each wish that no loaded tool serves; some of them may be loaded."""
    unserved = (wish for wish in wishes if _serving(wish, loaded) is None)
    return list(dict.fromkeys(index for wish in unserved for index in _best(wish)))


def _serving(wish: Wish, loaded: Collection[int]) -> int | None:
    """The loaded tool that is about as good for a wish as any."""
    best = max(sorted(loaded), key=lambda index: float(wish.scores[index]), default=None)
    return best if best is not None and wish.scores[best] >= SERVED_SHARE * wish.scores.max() else None


def _best(wish: Wish) -> list[int]:
    order: list[int] = (-wish.scores).argsort(kind="stable")[:BATCH_TOOLS].tolist()
    return [index for index in order if wish.scores[index] >= BATCH_SHARE * wish.scores.max()]


def _first_set(wanted: Wanted, room: Room) -> list[int]:
    """As much as fits, the most useful first; shown in the given order, so that equal sets are equal texts."""
    always = room.fill((), wanted.always)
    clear = [index for wish in wanted.ranking.wishes if wish.is_clear for index in _best(wish)[:1]]
    chosen = room.fill(always, (*wanted.urgent, *clear, *wanted.called, *wanted.ranking.order))
    return [*always, *sorted(chosen)]


def _extended(wanted: Wanted, kept: Sequence[int], new: Sequence[int], room: Room) -> list[int]:
    """Add to a set that all stays. A user's hint is enough for that; those of a model's plan would add at each step."""
    hints = (wish for wish in wanted.ranking.wishes if wish.is_hint and wanted.is_new)
    added = [*new, *room.fill([*kept, *new], missing(hints, {*kept, *new}))]
    refill = room.fill([*kept, *added], wanted.ranking.order, share=PRUNED_SHARE) if added else []
    return [*kept, *sorted(refill), *_in_given_order(added, wanted.always)]


def _pruned(wanted: Wanted, kept: Sequence[int], needed: Sequence[int], room: Room) -> list[int]:
    """Make room by leaving out tools in one batch, and use that change for whatever else serves the request.

    What serves a part of the request goes in before what is new, so that two wishes never take turns. A set to which
    nothing is added that way stays whole. What is needed comes last, where the next change finds it as recent.
    """
    loaded = set(kept)
    serving = [_serving(wish, loaded) for wish in wanted.ranking.wishes if wish.is_clear]
    first = [*wanted.always, *wanted.urgent, *(index for index in serving if index is not None), *needed]
    stay = room.fill((), first)
    if room.fits(kept) and loaded.issuperset(stay):
        return list(kept)
    new = [index for index in stay if index not in loaded]
    # Within a turn the topic is the same, and its best tools are worth more than those of the one before.
    recent = list(reversed(kept))[:RECENT_TOOLS] if wanted.is_new else []
    stay += room.fill(stay, [*wanted.called, *recent, *wanted.ranking.order], share=PRUNED_SHARE)
    refill = set(stay).difference(kept, new)
    return [*(index for index in kept if index in stay), *sorted(refill), *_in_given_order(new, wanted.always)]


def _in_given_order(added: Iterable[int], always: Sequence[int]) -> list[int]:
    return sorted(added, key=lambda index: (index not in always, index))
