"""Chooses the tools of a request: the useful ones, whole, within a number of tokens, and the same ones while it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from langchain_core.runnables import run_in_executor
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.tool_schemas import listed
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import TokenCounter, ToolRanker
from langchain_ctxwin.tools.ranking import (
    FOUND_KEY,
    SEARCH_NAME,
    Entry,
    Needs,
    QueryOrMessages,
    Ranking,
    Wish,
    WordIndex,
    best_first,
    custom_ranking,
    entry_of,
    needs_of,
)
from langchain_ctxwin.util.log import log

MOST_NAMED = 10  # names that one message lists

# A wish is served when a loaded tool scores so much of what the best of all tools scores: such a lead is chance.
SERVED_SHARE = 0.8
# Tools that are added for one wish, and the least score beside the best one's: the best one alone is often not the
# right one, one of the best five mostly is.
BATCH_TOOLS, BATCH_SHARE = 5, 0.5
MAX_RESULTS = 5  # tools that one search shows and loads: more would push out too many of those that are loaded
# least score, beside that of the best new tool, of what a search shows with it
MATCH_SHARE = 0.5
MIN_SCORE = 1e-9  # what scores nothing is no match

SEARCH_DESCRIPTION = (
    "Find more tools. You see only some of the tools that exist. When none of yours does what is needed, describe in a "
    "few words what the tool should do; the tools that are found can be called in your next step."
)
NOTHING_FOUND = "No other tool matches these words. Try others, or go on with the tools that you have."
INTRODUCTION = "Found; you can call these now:"

# LangGraph's `ToolRuntime`; a plain call has none
Runtime = Annotated[Any, InjectedToolArg]
Query = Annotated[str, "What the tool should do, for example: convert currencies."]
# what the model reads, and the names of the tools that were found
Found = tuple[str, dict[str, list[str]] | None]


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


class ToolSelector:
    """Chooses which tool definitions a request carries. Immutable and thread-safe.

    Key init args:
        tools: in any form LangChain takes: tools, functions, pydantic classes, definitions of any provider.
        max_tool_tokens: what the definitions may add to a request.
        ranker: ranks in the place of words, such as by meaning; see `protocols.ToolRanker`. A score of 0 or less is no
            match: such tools fill what is left of the room in the given order, and `search_tools` shows none of them.
        always: tools, or names of tools, that every request carries.
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
    conversation has called, the last call first; the best of the others fill up.

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
        counter: TokenCounter | None = None,
    ) -> None:
        self._entries: tuple[Entry, ...] = tuple(map(entry_of, listed(tools)))
        self._numbers = _numbers(self._entries)
        if expect(max_tool_tokens, int, "max_tool_tokens", "a number of tokens") <= 0:
            raise ConfigError(f"max_tool_tokens={max_tool_tokens}: pass more than 0")
        self.max_tool_tokens = max_tool_tokens
        self._room = priced_room(self.tools, max_tool_tokens, counter)
        self._always = tuple(
            dict.fromkeys(
                map(self._number_of, [always] if isinstance(always, str) else always)
            )
        )
        if ranker is not None and not callable(getattr(ranker, "rank", None)):
            raise ConfigError(
                f"ranker={ranker!r}: give an object with a method `rank(query, tools) -> list[float]`"
            )
        self._ranker = ranker
        self._require_room_for_always()
        free_tokens = self._room.free_tokens(self._always)
        too_large = [
            number
            for number, price in enumerate(self._room.each)
            if price > free_tokens and number not in self._always
        ]
        if too_large:
            log.warning(
                "tools.skipped",
                tools=self._names(too_large),
                max_tool_tokens=max_tool_tokens,
            )
        self.search_tools: BaseTool = self._search_tool(never=too_large)
        """Finds deferred tools for the model; bind it and give it to the tool node when tools are deferred."""

    def select(
        self,
        query_or_messages: QueryOrMessages,
        *,
        previous: Iterable[str] = (),
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
        needs, room = needs_of(query_or_messages), self._room
        if max_tool_tokens is not None:
            room = replace(room, tokens=max_tool_tokens)
        ranking = None if room.holds_all else self._ranking(needs)
        return self._selection(needs, ranking, room, previous)

    async def aselect(self, *args: Any, **options: Any) -> ToolSelection:
        """Like `select`, in a thread: an index of thousands of tools, or a ranker, may take seconds."""
        return await run_in_executor(None, self.select, *args, **options)

    def _ranking(self, needs: Needs) -> Ranking:
        if self._ranker is not None:
            return custom_ranking(self._ranker, self.tools, needs.request)
        return self._words.ranking(needs)

    @cached_property
    def _words(self) -> WordIndex:
        return WordIndex(self._entries)

    @property
    def tools(self) -> list[Any]:
        """All tools, as they were given."""
        return [entry.tool for entry in self._entries]

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def named(self, names: Iterable[str]) -> list[Any]:
        """Return the tools with these names, in this order; unknown names are left out."""
        return [self._entries[number].tool for number in self._positions(names)]

    def _selection(
        self,
        needs: Needs,
        ranking: Ranking | None,
        room: ToolRoom,
        previous: Iterable[str],
    ) -> ToolSelection:
        before = self._positions(previous)
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
        )

    def _chosen(
        self, needs: Needs, ranking: Ranking | None, room: ToolRoom, before: list[int]
    ) -> list[int]:
        """The positions of the tools to bind, in their order."""
        always, each = self._always, range(len(self._entries))
        if ranking is None:  # nothing has to be chosen
            return list(dict.fromkeys((*before, *always, *each)))
        fitting = [one for one in each if room.each[one] <= room.free_tokens(())]
        clear = [wish.among(fitting) for wish in ranking.wishes if wish.is_clear]
        urgent = self._positions((*needs.searched, *needs.called_now))
        called = self._positions(needs.called)
        if not before:  # as much as fits; shown in the given order, so that equal sets are equal texts
            first = room.fill((), always)
            best = [_best(wish)[0] for wish in clear]
            wanted = (*urgent, *best, *called, *ranking.order)
            return [*first, *sorted(room.fill(first, wanted))]
        needed = [*always, *(one for one in urgent if one in fitting)]
        loaded = {*before, *needed}
        for wish in clear:
            if _serving(wish, loaded) is None:
                needed += _best(wish)
        new = [one for one in dict.fromkeys(needed) if one not in before]
        if room.free_tokens([*before, *new]) >= 0:
            stay, others = [*before, *new], ranking.order
        else:
            # What serves a wish goes in before what is new, so that two wishes never take turns.
            serving = (_serving(wish, before) for wish in clear)
            kept = (one for one in serving if one is not None)
            stay = room.fill((), [*always, *urgent, *kept, *new])
            others = [*called, *ranking.order]
        if room.free_tokens(before) >= 0 and set(before).issuperset(stay):
            return before
        # Without room for all, tools leave in one batch; a change that is made anyway fills the room.
        chosen = {*stay, *room.fill(stay, others)}
        staying = [number for number in before if number in chosen]
        return [*staying, *sorted(chosen.difference(before))]

    def _search_tool(self, *, never: Collection[int]) -> BaseTool:
        """The tool by which a model finds what is not loaded, those apart that never can be."""

        def search_tools(query: Query, runtime: Runtime = None) -> Found:
            ranking = self._ranking(needs_of(query))
            state = getattr(runtime, "state", None) or {}
            loaded = self._positions(state.get("context_tools") or ())
            left_out, scores = {*loaded, *never}, ranking.scores
            best = [one for one in ranking.order if one not in left_out][:MAX_RESULTS]
            least = max(MATCH_SHARE * scores[best[0]], MIN_SCORE) if best else 0.0
            new = [self._entries[one] for one in best if scores[one] >= least]
            if not new:
                return NOTHING_FOUND, None
            lines = [
                f"- {': '.join(filter(None, (one.name, one.summary)))}" for one in new
            ]
            found = {FOUND_KEY: [one.name for one in new]}
            return "\n".join([INTRODUCTION, *lines]), found

        return StructuredTool.from_function(
            search_tools,
            name=SEARCH_NAME,
            description=SEARCH_DESCRIPTION,
            response_format="content_and_artifact",
        )

    def _positions(self, names: Iterable[str]) -> list[int]:
        return list(
            dict.fromkeys(
                self._numbers[name] for name in names if name in self._numbers
            )
        )

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._entries[number].name for number in numbers)

    def _number_of(self, tool: Any) -> int:
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
            f"always needs {room.total(always):,} of max_tool_tokens={self.max_tool_tokens:,} tokens: raise "
            "max_tool_tokens or name fewer tools"
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


def _serving(wish: Wish, loaded: Collection[int]) -> int | None:
    """The loaded tool that is about as good for a wish as any."""
    least = SERVED_SHARE * max(wish.scores)
    serving = [one for one in sorted(loaded) if wish.scores[one] >= least]
    return max(serving, key=wish.scores.__getitem__, default=None)


def _best(wish: Wish) -> list[int]:
    order = best_first(wish.scores)[:BATCH_TOOLS]
    least = BATCH_SHARE * wish.scores[order[0]]
    return [number for number in order if wish.scores[number] >= least]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRoom:
    """The tokens that the tools of one request may take, and those that each of them takes."""

    tokens: int  # what they may cost
    base: int  # once, when any tool is bound
    each: tuple[int, ...]  # per tool

    @property
    def holds_all(self) -> bool:
        """True when nothing has to be chosen."""
        return not self.each or self.base + sum(self.each) <= self.tokens

    def total(self, chosen: Collection[int]) -> int:
        """Return the tokens that these tools add to a request."""
        return self.base + sum(self.each[one] for one in chosen) if chosen else 0

    def free_tokens(self, chosen: Collection[int]) -> int:
        """Return the tokens that are free beside the chosen ones; less than 0 when those do not fit together."""
        return self.tokens - (self.total(chosen) or self.base)

    def fill(self, chosen: Collection[int], wanted: Iterable[int]) -> list[int]:
        """Return the wanted tools, in their order, that fit beside the chosen ones; those too big are skipped."""
        taken, free_tokens = set(chosen), self.free_tokens(chosen)
        free = [number for number in dict.fromkeys(wanted) if number not in taken]
        price = self.each.__getitem__
        return [*take_while_fits(free, free_tokens, price, on_overflow="skip").kept]


def priced_room(
    tools: Sequence[Any], tokens: int, counter: TokenCounter | None
) -> ToolRoom:
    """Price every tool once, as what it adds to a request."""
    count = counter or TokenEstimator()
    probe = {
        "type": "function",
        "function": {"name": "a", "description": "a", "parameters": {"type": "object"}},
    }
    # twice and once tells what the first tool adds beside its own text
    empty, one, two = (count([], tools=[probe] * times) for times in range(3))
    base = max(0, 2 * one - two - empty)
    each = (max(0, count([], tools=[tool]) - empty - base) for tool in tools)
    return ToolRoom(tokens=tokens, base=base, each=tuple(each))
