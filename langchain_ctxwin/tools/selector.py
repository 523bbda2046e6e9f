"""Chooses the tools of a request: the useful ones, whole, within a number of tokens, and the same ones while it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Annotated, Any

from langchain_core.embeddings import Embeddings
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from pydantic import BaseModel, Field

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.provider_blocks import FOUND_KEY, deferred
from langchain_ctxwin.core.session import read_key
from langchain_ctxwin.core.tokens import TokenEstimator, text_price
from langchain_ctxwin.core.tool_schemas import UNREADABLE, listed
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import TokenCounter, ToolRanker
from langchain_ctxwin.tools.entries import (
    SEARCH_NAME,
    Entry,
    Needs,
    QueryOrMessages,
    entries_of,
    entry_of,
    needs_of,
)
from langchain_ctxwin.tools.ranking import Ranker, Ranking, Wish, best_first
from langchain_ctxwin.util.log import log

MOST_NAMED = 10  # names that one message lists
UNKNOWN_PRICE = inf  # of a tool that cannot be priced: it fits nowhere

# A wish is served when a loaded tool scores so much of what the best of all tools scores: such a lead is chance.
SERVED_SHARE = 0.8
# Tools that are added for one wish, and the least score beside the best one's: the best one alone is often not the
# right one, one of the best five mostly is.
BATCH_TOOLS, BATCH_SHARE = 5, 0.5
# Loaded tools that came last and stay when others leave: those of the request before, so that two topics in turn both
# keep theirs. More of them would leave less room for the request itself.
RECENT_TOOLS = 7
# What a set is filled to when it changes: the rest takes a small addition. On public queries (StableToolBench, BFCL,
# MetaTool) it held .01-.05 more of what was needed than one filled to .85.
PRUNED_SHARE = 0.95
MAX_RESULTS = 5  # tools that one search shows and loads: more would push out too many of those that are loaded
MATCH_SHARE = (
    0.5  # least score, beside that of the best new tool, of what a search shows with it
)
MAX_RESULT_TOKENS = 400  # of a search: five names with a line each

SEARCH_DESCRIPTION = (
    "Find more tools. You see only some of the tools that exist. When none of yours does what is needed, describe in a "
    "few words what the tool should do; the tools that are found can be called in your next step."
)
NOTHING_FOUND = "No other tool matches these words. Try others, or go on with the tools that you have."
INTRODUCTION = "Found; you can call these now:"

Names = Iterable[str] | None  # a text is one name, and None is none
# LangGraph's `ToolRuntime`; a plain call has none
Runtime = Annotated[Any, InjectedToolArg]
# what the model reads, and the names of the tools that were found
Found = tuple[str, dict[str, list[str]] | None]


class Search(BaseModel):
    """What a model gives to `search_tools`."""

    query: str = Field(
        description="What the tool should do, for example: convert currencies."
    )
    runtime: Runtime = None


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
        if expect(max_tool_tokens, int, "max_tool_tokens", "a number of tokens") <= 0:
            raise ConfigError(f"max_tool_tokens={max_tool_tokens}: pass more than 0")
        self.max_tool_tokens = max_tool_tokens
        self._room = priced_room(self.tools, max_tool_tokens, counter)
        self._always = tuple(dict.fromkeys(map(self._number_of, _listed(always))))
        self._ranker = Ranker(self._entries, ranker, embeddings)
        self._require_room_for_always()
        if too_large := self._too_large(self._room):
            log.warning(
                "tools.skipped",
                tools=self._names(too_large),
                max_tool_tokens=max_tool_tokens,
            )
        self.search_tools: BaseTool = self._search_tool(
            text_price(counter), never=too_large
        )
        """Finds deferred tools for the model; bind it and give it to the tool node when tools are deferred."""

        search = priced_room([self.search_tools], 0, counter)
        self.search_tokens: int = search.total([0]) - search.base
        """What `search_tools` itself adds to a request: it is part of no selection, nor of its tokens."""

    def select(
        self,
        query_or_messages: QueryOrMessages,
        *,
        previous: Names = (),
        max_tool_tokens: int | None = None,
    ) -> ToolSelection:
        """Return the tools for the next request.

        Args:
            query_or_messages: what tools are needed for. Of messages, the last user message, what the model said and
                planned since, the tools it called, and what `search_tools` found for it count.
            previous: names of the set before, in their order (`ToolSelection.names`); unknown ones are ignored.
            max_tool_tokens: another room for this request, such as that of a small window. When it is too small for
                `always`, as much of that is selected as fits.
        """
        needs, room = needs_of(query_or_messages), self._room_of(max_tool_tokens)
        return self._selection(
            needs, None if room.holds_all else self._ranker.rank(needs), room, previous
        )

    async def aselect(
        self,
        query_or_messages: QueryOrMessages,
        *,
        previous: Names = (),
        max_tool_tokens: int | None = None,
    ) -> ToolSelection:
        """Like `select`, without holding up the event loop: what is asked of embeddings is asked in a thread."""
        needs, room = needs_of(query_or_messages), self._room_of(max_tool_tokens)
        return self._selection(
            needs,
            None if room.holds_all else await self._ranker.arank(needs),
            room,
            previous,
        )

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
        forms = tuple(map(deferred, self.tools))
        return () if None in forms else forms

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def named(self, names: Iterable[str]) -> list[Any]:
        """Return the tools with these names, in this order; unknown names are left out."""
        return [self._entries[number].tool for number in self._positions(names)]

    def _selection(
        self, needs: Needs, ranking: Ranking | None, room: ToolRoom, previous: Names
    ) -> ToolSelection:
        before = self._positions(_listed(previous))
        chosen = self._chosen(needs, ranking, room, before)
        loaded = set(chosen)
        return ToolSelection(
            selected=tuple(self._entries[number].tool for number in chosen),
            deferred=tuple(
                entry.tool
                for number, entry in enumerate(self._entries)
                if number not in loaded
            ),
            tokens=room.total(chosen),
            names=self._names(chosen),
            added=self._names(number for number in chosen if number not in before),
            removed=self._names(number for number in before if number not in loaded),
            skipped=self._names(self._too_large(room)),
        )

    def _chosen(
        self, needs: Needs, ranking: Ranking | None, room: ToolRoom, before: list[int]
    ) -> list[int]:
        """The positions of the tools to bind, in their order."""
        always = self._always
        if ranking is None:  # nothing has to be chosen
            return list(dict.fromkeys((*before, *always, *range(len(self._entries)))))
        urgent = self._positions((*needs.searched, *needs.called_now))
        called = self._positions(needs.called)
        clear = [wish for wish in ranking.wishes if wish.is_clear]
        if not before:  # as much as fits; shown in the given order, so that equal sets are equal texts
            first = room.fill((), always)
            best = [_best(wish)[0] for wish in clear]
            wanted = (*urgent, *best, *called, *ranking.order)
            return [*first, *sorted(room.fill(first, wanted))]
        needed = [*always, *urgent]
        unserved = (
            wish for wish in clear if _serving(wish, {*before, *needed}) is None
        )
        needed += [number for wish in list(unserved) for number in _best(wish)]
        alone = room.free_tokens(())
        new = [
            number
            for number in dict.fromkeys(needed)
            if number not in before and room.each[number] <= alone
        ]
        # What serves a wish goes in before what is new, so that two wishes never take turns. Within a turn the topic is
        # the same, and its best tools are worth more than those of the one before.
        serving = [_serving(wish, before) for wish in clear]
        recent = before[::-1][:RECENT_TOOLS] if needs.is_new else []
        stay = [*always, *urgent, *(one for one in serving if one is not None), *new]
        others = [*called, *recent, *ranking.order]
        if room.free_tokens([*before, *new]) >= 0:
            stay, others = [*before, *new], list(ranking.order)
        stay = room.fill((), stay)
        if room.free_tokens(before) >= 0 and set(before).issuperset(stay):
            return before
        # Without room for all, tools leave in one batch; a change that is made anyway fills the room.
        filling = room.fill(stay, others, share=PRUNED_SHARE)
        staying = [number for number in before if number in {*stay, *filling}]
        # What is needed comes last, where the next change finds it as recent.
        last = self._always_first(number for number in stay if number not in before)
        return [*staying, *sorted(set(filling).difference(before)), *last]

    def _always_first(self, numbers: Iterable[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (number not in self._always, number))

    def _search_tool(
        self, price: Callable[[str], int], *, never: Collection[int]
    ) -> BaseTool:
        """The tool by which a model finds what is not loaded, those apart that never can be."""

        def answer(ranking: Ranking, runtime: Any) -> Found:
            state = getattr(runtime, "state", None)
            names = state.get("context_tools") if isinstance(state, Mapping) else None
            loaded = self._positions(read_key("context_tools", names)[0])
            left_out, scores = {*loaded, *never}, ranking.scores
            matching = [
                number
                for number in ranking.order
                if scores[number] > 0 and number not in left_out
            ]
            best = matching[:MAX_RESULTS]
            least = MATCH_SHARE * scores[best[0]] if best else 0.0
            new = [self._entries[one] for one in best if scores[one] >= least]
            lines = {
                f"- {': '.join(filter(None, (one.name, one.summary)))}": one.name
                for one in new
            }
            free_tokens = MAX_RESULT_TOKENS - price(INTRODUCTION)
            fit = take_while_fits(lines, free_tokens, price, on_overflow="skip")
            if not fit.kept:
                return NOTHING_FOUND, None
            names = [lines[line] for line in fit.kept]
            return "\n".join([INTRODUCTION, *fit.kept]), {FOUND_KEY: names}

        def search_tools(query: str, runtime: Runtime = None) -> Found:
            return answer(self._ranker.rank(needs_of(query)), runtime)

        async def asearch_tools(query: str, runtime: Runtime = None) -> Found:
            return answer(await self._ranker.arank(needs_of(query)), runtime)

        return StructuredTool.from_function(
            search_tools,
            asearch_tools,
            name=SEARCH_NAME,
            description=SEARCH_DESCRIPTION,
            args_schema=Search,
            response_format="content_and_artifact",
        )

    def _room_of(self, tokens: int | None) -> ToolRoom:
        expect(tokens, int | None, "max_tool_tokens", "a number of tokens, or None")
        return self._room if tokens is None else replace(self._room, tokens=tokens)

    def _too_large(self, room: ToolRoom) -> list[int]:
        """The tools that do not fit even alone beside those that are always there."""
        free_tokens = room.free_tokens(self._always)
        return [
            number
            for number, price in enumerate(room.each)
            if price > free_tokens and number not in self._always
        ]

    def _positions(self, names: Iterable[str]) -> list[int]:
        return list(
            dict.fromkeys(
                self._numbers[name] for name in names if name in self._numbers
            )
        )

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._entries[number].name for number in numbers)

    def _number_of(self, tool: Any) -> int:
        if not isinstance(tool, str):
            for number, entry in enumerate(self._entries):
                if entry.tool is tool:
                    return number
        name = tool if isinstance(tool, str) else entry_of(tool).name
        if name not in self._numbers:
            raise ConfigError(
                f"always={name!r} is no tool of this selector: give it among `tools`"
            )
        return self._numbers[name]

    def _require_room_for_always(self) -> None:
        room, always = self._room, self._always
        if not always or room.free_tokens(always) >= 0:
            return
        raise ConfigError(
            f"always needs {room.total(always):,} of max_tool_tokens={self.max_tool_tokens:,} tokens, or a tool in it "
            "cannot be read: raise max_tool_tokens or name fewer tools"
        )


def _numbers(entries: Sequence[Entry]) -> Mapping[str, int]:
    """Position by name, of every function in every tool."""
    times = Counter(name for entry in entries for name in entry.names)
    if repeated := [name for name in times if times[name] > 1]:
        raise ConfigError(
            f"{len(repeated)} tool names occur more than once ({', '.join(repeated[:MOST_NAMED])}): "
            "a model calls tools by name, so give each a name of its own"
        )
    if SEARCH_NAME in times:
        raise ConfigError(
            f"a tool is called {SEARCH_NAME!r}, like the tool by which a model finds more: rename it"
        )
    return {
        name: number for number, entry in enumerate(entries) for name in entry.names
    }


def _listed(names: Iterable[Any] | None) -> list[Any]:
    """Names or tools; a single one stays one."""
    return [names] if isinstance(names, str) else listed(names, "names")


def _serving(wish: Wish, loaded: Collection[int]) -> int | None:
    """The loaded tool that is about as good for a wish as any."""
    best = max(sorted(loaded), key=wish.scores.__getitem__, default=None)
    return (
        best
        if best is not None and wish.scores[best] >= SERVED_SHARE * max(wish.scores)
        else None
    )


def _best(wish: Wish) -> list[int]:
    order = best_first(wish.scores, BATCH_TOOLS)
    return [
        number
        for number in order
        if wish.scores[number] >= BATCH_SHARE * wish.scores[order[0]]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRoom:
    """The tokens that the tools of one request may take, and those that each of them takes."""

    tokens: int  # what they may cost
    base: int  # once, when any tool is bound
    # per tool, a whole number; `UNKNOWN_PRICE` for one that the counter cannot read
    each: tuple[float, ...]

    @property
    def holds_all(self) -> bool:
        """True when nothing has to be chosen."""
        return not self.each or self.base + sum(self.each) <= self.tokens

    def total(self, chosen: Collection[int]) -> int:
        """Return the tokens that these tools add to a request; an unreadable tool is never shown and adds none."""
        prices = (self.each[number] for number in chosen)
        return (
            self.base + sum(int(price) for price in prices if price != UNKNOWN_PRICE)
            if chosen
            else 0
        )

    def free_tokens(self, chosen: Collection[int], share: float = 1.0) -> int:
        """Return the tokens that are free beside the chosen ones; less than 0 when those do not fit together."""
        return int(self.tokens * share) - (self.total(chosen) or self.base)

    def fill(
        self, chosen: Collection[int], wanted: Iterable[int], share: float = 1.0
    ) -> list[int]:
        """Return the wanted tools, in their order, that fit beside the chosen ones; those too big are skipped."""
        taken, free_tokens = set(chosen), self.free_tokens(chosen, share)
        free = (
            number
            for number in dict.fromkeys(wanted)
            if number not in taken and self.each[number] <= free_tokens
        )
        return list(
            take_while_fits(
                free,
                free_tokens,
                lambda number: int(self.each[number]),
                on_overflow="skip",
            ).kept
        )


def priced_room(
    tools: Sequence[Any], tokens: int, counter: TokenCounter | None
) -> ToolRoom:
    """Price every tool once, as what it adds to a request."""
    count = counter or TokenEstimator()
    probe = {
        "type": "function",
        "function": {"name": "a", "description": "a", "parameters": {"type": "object"}},
    }
    try:  # twice and once tells what the first tool adds beside its own text
        empty, one, two = (
            count([]),
            count([], tools=[probe]),
            count([], tools=[probe, probe]),
        )
    except TypeError as error:
        raise ConfigError(
            f"counter={counter!r} cannot price tools ({error}): pass a callable `(messages, *, tools=None) -> int`"
        ) from error
    base = max(0, 2 * one - two - empty)

    def price(tool: Any) -> float:
        try:
            return max(0, count([], tools=[tool]) - empty - base)
        except UNREADABLE:
            return UNKNOWN_PRICE

    return ToolRoom(tokens=tokens, base=base, each=tuple(map(price, tools)))
