"""Chooses the tools of a request: the useful ones, whole, within a number of tokens, and the same ones while it can."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from math import inf
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.tools import BaseTool

from langchain_ctxwin.core.native import deferred
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.tool_schemas import UNREADABLE
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import TokenCounter, ToolRanker
from langchain_ctxwin.tools.entries import Entry, entries_of, entry_of
from langchain_ctxwin.tools.needs import Needs, needs_of
from langchain_ctxwin.tools.ranking import Ranker, Ranking, Wish
from langchain_ctxwin.tools.search import SEARCH_NAME, create_search_tool, named_in
from langchain_ctxwin.util.log import log

MOST_NAMED = 10
"""Names that one message lists."""

SERVED_SHARE = 0.8
"""A wish is served when a loaded tool scores so much of what the best of all tools scores: such a lead is chance."""

BATCH_TOOLS = 5
"""Tools that are added for one wish: the best one alone is often not the right one, one of the best five mostly is."""

BATCH_SHARE = 0.5
"""Least score beside the best tool's of what is added with it."""

RECENT_TOOLS = 7
"""Loaded tools that came last and stay when others leave: those of the request before, so that two topics in turn both
keep theirs. More of them would leave less room for the request itself."""

PRUNED_SHARE = 0.95
"""What a set is filled to when it changes: the rest takes a small addition. On public queries (StableToolBench, BFCL,
MetaTool) it held .01-.05 more of what was needed than one filled to .85."""

PROBE = {"type": "function", "function": {"name": "a", "description": "a", "parameters": {"type": "object"}}}
"""A tool whose price twice and once tells what the first tool adds beside its own text."""

_NOT_RANKED = Ranking(order=(), wishes=(), scores=())

Names = Iterable[str] | None
"""Names of tools; a text is one name, and None is none."""

Asked = str | Sequence[MessageLikeRepresentation]
"""A query, or the messages of a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """The tools for one request. Every tool is either selected or deferred."""

    selected: tuple[Any, ...]
    """The tools to bind, as they were given; the same set always comes in the same order."""

    deferred: tuple[Any, ...]
    """The others, in the order in which they were given."""

    tokens: int
    """What the selected definitions add to a request."""

    names: tuple[str, ...]
    """The names of the selected tools, in their order: pass them as `previous` with the next request."""

    added: tuple[str, ...] = ()
    """Names that the previous set did not have."""

    removed: tuple[str, ...] = ()
    """Names that only the previous set had."""

    skipped: tuple[str, ...] = ()
    """Names of deferred tools that never fit: not readable, or larger than the room beside what is always there."""


class ToolSelector:
    """Chooses which tool definitions a request carries. Immutable and thread-safe.

    Setup:
        Nothing to install. Give any LangChain `Embeddings` to rank by meaning as well as by words.

    Key init args:
        tools: in any form LangChain takes: tools, functions, pydantic classes, definitions of any provider.
        max_tool_tokens: what the definitions may add to a request.
        ranker: ranks in the place of words and embeddings; see `protocols.ToolRanker`. A score of 0 or less is no
            match: such tools fill what is left of the room in the given order, and `search_tools` shows none of them.
        always: tools, or names of tools, that every request carries.
        embeddings: every tool is embedded once, at the first choice.
        counter: prices definitions; by default `TokenEstimator()`, the median of all families with what models add to
            tools. By the plain JSON in the vocabulary of one model that fills three quarters of the room: to
            fill it all, pass the counter of the model that the tools are for.

    Instantiate:
        ```python
        selector = ToolSelector(tools, 4_000, always=["ask_user"])
        ```

    Use:
        ```python
        selection = selector.select(messages, previous=state.get("context_tools", ()))
        model.bind_tools([*selection.selected, selector.search_tools]).invoke(messages)
        state["context_tools"] = list(selection.names)
        ```

    Providers put tools before the messages: any change of the set makes the prompt cache worthless. With `previous` the
    set stays as it is, unless a tool that is clearly needed is missing; then several are added at once, after the
    others. When the room is needed, tools leave in one batch. What the request needs stays first, then what the
    conversation has called, the last call first, then what came last; the best of the others fill up.

    Raises:
        ConfigError: a setting is out of range, names are not unique, or `always` does not fit.
    """

    def __init__(
        self,
        tools: Iterable[Any],
        max_tool_tokens: int,
        ranker: ToolRanker | None = None,
        always: Iterable[Any] = (),
        *,
        embeddings: Embeddings | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._entries: tuple[Entry, ...] = entries_of(tools)
        self._numbers = _numbers(self._entries)
        self.max_tool_tokens = _positive(max_tool_tokens)
        self._room = priced_room([entry.tool for entry in self._entries], self.max_tool_tokens, counter)
        self._dearest_first = sorted(range(len(self._entries)), key=lambda number: -_size(self._room.each[number]))
        self._always = tuple(dict.fromkeys(self._number_of(tool) for tool in _listed(always)))
        self._ranker = Ranker(self._entries, ranker, embeddings)
        self._require_room_for_always()
        if too_large := self._too_large(self._room):
            log.warning("tools.skipped", tools=self._names(too_large), max_tool_tokens=self.max_tool_tokens)
        self.search_tools: BaseTool = create_search_tool(
            self._entries, self._ranker, counter, never=frozenset(too_large)
        )
        """Finds deferred tools for the model; bind it and give it to the tool node when tools are deferred."""

        self.search_tokens: int = priced_room([self.search_tools], 0, counter).each[0] or 0
        """What `search_tools` itself adds to a request: it is part of no selection, nor of its tokens."""

    def select(
        self, query_or_messages: Asked, *, previous: Names = (), max_tool_tokens: int | None = None
    ) -> ToolSelection:
        """Return the tools for the next request.

        Args:
            query_or_messages: what tools are needed for. Of messages, the last user message, what the model said and
                planned since, the tools it called, and what `search_tools` found for it count.
            previous: names of the set before, in their order (`ToolSelection.names`); unknown ones are ignored.
            max_tool_tokens: another room for this request, such as that of a small window. When it is too small for
                `always`, as much of that is selected as fits.
        """
        needs = self._needs(query_or_messages)
        room = self._room_of(max_tool_tokens)
        ranking = _NOT_RANKED if room.holds_all else self._ranker.rank(needs)
        return self._selection(needs, ranking, room, previous)

    async def aselect(
        self, query_or_messages: Asked, *, previous: Names = (), max_tool_tokens: int | None = None
    ) -> ToolSelection:
        """Like `select`, awaiting the embeddings."""
        needs = self._needs(query_or_messages)
        room = self._room_of(max_tool_tokens)
        ranking = _NOT_RANKED if room.holds_all else await self._ranker.arank(needs)
        return self._selection(needs, ranking, room, previous)

    @property
    def tools(self) -> list[Any]:
        """All tools, as they were given."""
        return [entry.tool for entry in self._entries]

    @property
    def holds_all(self) -> bool:
        """True when all tools fit together, so that nothing has to be chosen."""
        return self._room.holds_all

    @cached_property
    def deferred_forms(self) -> tuple[Any, ...]:
        """All tools as definitions that a message loads, where a provider can; empty when one of them cannot say so."""
        forms = tuple(deferred(entry.tool) for entry in self._entries)
        return () if None in forms else forms

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def named(self, names: Iterable[str]) -> list[Any]:
        """Return the tools with these names, in this order; unknown names are left out."""
        return [self._entries[number].tool for number in self._known(names)]

    def _selection(self, needs: Needs, ranking: Ranking, room: Room, previous: Names) -> ToolSelection:
        before = self._known(_listed(previous))
        urgent = dict.fromkeys((*named_in(needs.found, self._numbers), *self._known(needs.called_now)))
        called = tuple(self._known(needs.called))
        wanted = Wanted(always=self._always, urgent=tuple(urgent), called=called, ranking=ranking, is_new=needs.is_new)
        chosen = choose(wanted, before, room)
        loaded = set(chosen)
        left = [number for number in range(len(self._entries)) if number not in loaded]
        return ToolSelection(
            selected=tuple(self._entries[number].tool for number in chosen),
            deferred=tuple(self._entries[number].tool for number in left),
            tokens=self._room.total(chosen),
            names=self._names(chosen),
            added=self._names(number for number in chosen if number not in before),
            removed=self._names(number for number in before if number not in loaded),
            skipped=self._names(self._too_large(room)),
        )

    def _needs(self, asked: Asked) -> Needs:
        if isinstance(asked, str):
            return needs_of(asked, SEARCH_NAME)
        other: object = asked
        if isinstance(other, bytes) or not isinstance(other, Sequence):
            raise ConfigError(f"query_or_messages={type(asked).__name__}: give a text or a list of messages")
        given = all(isinstance(message, BaseMessage) for message in asked)
        return needs_of(list(asked) if given else convert_to_messages(asked), SEARCH_NAME)  # type: ignore[arg-type]

    def _room_of(self, tokens: int | None) -> Room:
        if isinstance(tokens, bool) or not isinstance(tokens, int | None):
            raise ConfigError(f"max_tool_tokens={tokens!r}: give a number of tokens, or None for that of the selector")
        return self._room if tokens is None else replace(self._room, tokens=tokens)

    def _too_large(self, room: Room) -> list[int]:
        """The tools that do not even fit as the only one beside those that are always there."""
        left = room.left(self._always)
        large = takewhile(lambda number: _size(self._room.each[number]) > left, self._dearest_first)
        return sorted(set(large).difference(self._always))

    def _known(self, names: Iterable[str]) -> list[int]:
        return list(dict.fromkeys(self._numbers[name] for name in names if name in self._numbers))

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._entries[number].name for number in numbers)

    def _number_of(self, tool: Any) -> int:
        given = (number for number, entry in enumerate(self._entries) if entry.tool is tool)
        if (number := next(given, None)) is not None and not isinstance(tool, str):
            return number
        name = tool if isinstance(tool, str) else entry_of(tool).name
        if name not in self._numbers:
            raise ConfigError(f"always={name!r} is no tool of this selector: give it among `tools`")
        return self._numbers[name]

    def _require_room_for_always(self) -> None:
        if self._room.fits(self._always):
            return
        rows = "\n".join(
            f"  {self._entries[number].name}: {_shown(self._room.each[number])}" for number in self._always
        )
        raise ConfigError(
            f"always needs {self._room.total(self._always):,} of max_tool_tokens={self.max_tool_tokens:,} tokens:\n"
            f"{rows}\nraise max_tool_tokens or name fewer tools"
        )


def _numbers(entries: Sequence[Entry]) -> Mapping[str, int]:
    """Position by name, of every function in every tool."""
    repeated = [name for name, times in Tally(name for entry in entries for name in entry.names).items() if times > 1]
    if repeated:
        raise ConfigError(
            f"{len(repeated)} tool names occur more than once ({', '.join(repeated[:MOST_NAMED])}): "
            "a model calls tools by name, so give each a name of its own"
        )
    if any(SEARCH_NAME in entry.names for entry in entries):
        raise ConfigError(f"a tool is called {SEARCH_NAME!r}, like the tool by which a model finds more: rename it")
    return {name: number for number, entry in enumerate(entries) for name in entry.names}


def _listed(given: Iterable[Any] | None) -> Iterable[Any]:
    """Names or tools; a single one, which could be iterated too, stays one."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str | Mapping) else given


def _positive(tokens: int) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens <= 0:
        raise ConfigError(f"max_tool_tokens={tokens!r}: give the tokens that tool definitions may take, more than 0")
    return tokens


def _size(price: int | None) -> float:
    """What cannot be priced counts as larger than anything."""
    return inf if price is None else price


def _shown(price: int | None) -> str:
    return "cannot be read" if price is None else f"{price:,} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the tools of one request may cost, and what they do cost."""

    tokens: int
    """What they may cost."""

    base: int
    """Once, when any tool is bound, in tokens."""

    each: tuple[int | None, ...]
    """Per tool, in tokens; None for one that the counter cannot read."""

    all_tokens: int | None
    """The whole set; None when one of them cannot be read."""

    least: int
    """The price of the cheapest tool."""

    @property
    def holds_all(self) -> bool:
        """True when nothing has to be chosen."""
        return self.all_tokens is not None and self.all_tokens <= self.tokens

    def total(self, chosen: Collection[int]) -> int:
        """Return the tokens of the tools at these positions."""
        return self.base + sum(self.each[index] or 0 for index in chosen) if chosen else 0

    def admits(self, index: int) -> bool:
        """Say whether a tool fits when it is the only one."""
        return self.each[index] is not None and self.fits([index])

    def fits(self, chosen: Collection[int]) -> bool:
        """Say whether all of these fit together."""
        return self.total(chosen) <= self.tokens

    def left(self, chosen: Collection[int], share: float = 1.0) -> int:
        """Return the tokens that are free beside the chosen ones."""
        return int(self.tokens * share) - (self.total(chosen) or self.base)

    def fill(self, chosen: Collection[int], wanted: Iterable[int], share: float = 1.0) -> list[int]:
        """Return the wanted tools, in their order, that fit beside the chosen ones; those too big are skipped."""
        left = self.left(chosen, share)
        taken, kept = set(chosen), list[int]()
        for index in wanted:
            if left < self.least:
                break
            price = self.each[index]
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
        return list(dict.fromkeys((*previous, *wanted.always, *range(len(room.each)))))
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
    """Add to a set that all stays; a change that is made anyway fills the room."""
    refill = room.fill([*kept, *new], wanted.ranking.order, share=PRUNED_SHARE) if new else []
    return [*kept, *sorted(refill), *_in_given_order(new, wanted.always)]


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


def priced_room(tools: Sequence[Any], tokens: int, counter: TokenCounter | None) -> Room:
    """Price every tool once, as what it adds to a request.

    Raises:
        ConfigError: the counter takes no tools.
    """
    count = counter or TokenEstimator()
    try:
        empty, one, two = count([]), count([], tools=[PROBE]), count([], tools=[PROBE, PROBE])
    except TypeError as error:
        raise ConfigError(
            f"counter={counter!r} cannot price tools ({error}): pass a callable `(messages, *, tools=None) -> int`"
        ) from error
    base = max(0, 2 * one - two - empty)
    each = tuple(_price(tool, count, empty + base) for tool in tools)
    known = [price for price in each if price is not None]
    everything = base + sum(known) if known else 0
    all_tokens = everything if len(known) == len(each) else None
    return Room(tokens=tokens, base=base, each=each, all_tokens=all_tokens, least=min(known, default=0))


def _price(tool: Any, count: TokenCounter, without: int) -> int | None:
    try:
        return max(0, count([], tools=[tool]) - without)
    except UNREADABLE:
        return None
