"""What model calls cost: one by the usage that came with its answer, those to come by how a conversation grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.blocks import COMPACTION_TYPE
from langchain_ctxwin.core.model_info import ModelInfo

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

MAX_TOKENS = 100_000_000
"""Above this no count has ever been: nothing that a provider reports is believed."""


def count_of(value: object) -> int | None:
    """Return what others stated as a whole number of at least 0; None for anything else, and for impossible sizes."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_TOKENS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, as its provider reported them; None is unknown, and parts of the input never exceed it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    # Parts of the input that were read from the prompt cache, and written to it.
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """Parts of the input that were read from the prompt cache, and written to it."""

    hour_write_tokens: int = 0
    """Part of the written input that is kept for an hour."""

    is_free: bool = False
    """True for an answer from LangChain's own cache, which has the usage of the one that was paid for."""

    compaction: Usage | None = None
    """What the provider spent beside it on compacting the conversation, before it answered."""

    @classmethod
    def of_answer(cls, answer: object) -> Usage:
        """Read all that a provider billed for an answer; Anthropic states its compactions apart from the usage."""
        if not isinstance(answer, AIMessage):
            return cls()
        raw = answer.response_metadata.get("usage")
        rounds = raw.get("iterations") if isinstance(raw, Mapping) else None
        listed = [one for one in rounds if isinstance(one, Mapping)] if isinstance(rounds, list) else []
        spent = [cls.of(_as_metadata(one)) for one in listed if one.get("type") == COMPACTION_TYPE]
        return replace(cls.of(answer.usage_metadata), compaction=sum(spent[1:], spent[0]) if spent else None)

    def __add__(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(
            input_tokens=(self.input_tokens or 0) + (other.input_tokens or 0),
            output_tokens=(self.output_tokens or 0) + (other.output_tokens or 0),
            cached_tokens=(self.cached_tokens or 0) + (other.cached_tokens or 0),
            cache_write_tokens=(self.cache_write_tokens or 0) + (other.cache_write_tokens or 0),
            hour_write_tokens=self.hour_write_tokens + other.hour_write_tokens,
        )

    @classmethod
    def of(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the `usage_metadata` of an answer."""
        stated: Mapping[str, Any] = usage or {}
        details = stated.get("input_token_details")
        parts: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
        size, output = count_of(stated.get("input_tokens")), count_of(stated.get("output_tokens"))
        if size is None:
            return cls(output_tokens=output)
        cached, hour = count_of(parts.get("cache_read")), count_of(parts.get("ephemeral_1h_input_tokens"))
        # Where writes are told apart by how long they are kept, the total is those of both kinds.
        kinds = [one for one in (count_of(parts.get("ephemeral_5m_input_tokens")), hour) if one]
        written = count_of(parts.get("cache_creation")) or sum(kinds) or count_of(parts.get("cache_creation"))
        room = size - min(size, cached or 0)
        return cls(
            input_tokens=size,
            output_tokens=output,
            cached_tokens=None if cached is None else min(size, cached),
            cache_write_tokens=None if written is None else min(room, written),
            hour_write_tokens=min(room, written or 0, hour or 0),
            is_free=stated.get("total_cost") == 0,
        )

    def uncached(self) -> Usage:
        """Return the usage of the same call where nothing is cached."""
        return replace(self, cached_tokens=None, cache_write_tokens=None, hour_write_tokens=0)

    def cost(self, info: ModelInfo | None) -> Decimal | None:
        """Return USD by a model's prices; None when a price or the usage is unknown.

        A price of reading or writing the cache that nobody states is the one of input.
        """
        if info is None or info.input_price is None or info.output_price is None:
            return None
        if self.input_tokens is None or self.output_tokens is None:
            return None
        if self.is_free:
            return Decimal(0)
        beside = self.compaction.cost(info) if self.compaction else Decimal(0)
        if beside is None:
            return None
        cached, written = self.cached_tokens or 0, self.cache_write_tokens or 0
        read_price = info.input_price if info.cache_read_price is None else info.cache_read_price
        write_price = info.input_price if info.cache_write_price is None else info.cache_write_price
        hour_price = write_price if info.cache_write_hour_price is None else info.cache_write_hour_price
        priced = (
            (self.input_tokens - cached - written) * info.input_price
            + cached * read_price
            + (written - self.hour_write_tokens) * write_price
            + self.hour_write_tokens * hour_price
            + self.output_tokens * info.output_price
        )
        return beside + priced / PRICED_TOKENS


def _as_metadata(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's usage in LangChain's shape: there the input holds what was read from the cache and written to it."""
    read, written = count_of(raw.get("cache_read_input_tokens")), count_of(raw.get("cache_creation_input_tokens"))
    kinds = raw.get("cache_creation")
    details = {**(kinds if isinstance(kinds, Mapping) else {}), "cache_read": read, "cache_creation": written}
    size = (count_of(raw.get("input_tokens")) or 0) + (read or 0) + (written or 0)
    return {"input_tokens": size, "output_tokens": raw.get("output_tokens"), "input_token_details": details}


def _call_cost(info: ModelInfo | None, tokens: int, *, cached: int, output: int = 0) -> Decimal | None:
    return Usage(input_tokens=tokens, cached_tokens=min(cached, tokens), output_tokens=output).cost(info)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionWorth:
    """What a compaction costs once, and what it saves with each call that follows; None where a price is unknown."""

    # USD more for the first call after it, which finds only the prompt and the tools in the cache.
    once_cost: Decimal | None = None
    saved_cost: Decimal | None = None  # USD less for each call, because less is read from the cache

    @property
    def pays_after_calls(self) -> float | None:
        """Calls after which it has paid for itself; None when it never does, or nobody knows."""
        if self.once_cost is None or not self.saved_cost or self.saved_cost <= 0:
            return None
        return float(self.once_cost / self.saved_cost)


def worth_of(info: ModelInfo | None, *, before: int, after: int, prefix: int) -> CompactionWorth:
    """Return what a compaction is worth by the prices of its model.

    Sizes are input tokens of the request before and after it; `prefix` are those of the system prompt and the tools,
    which stay in the cache.

    Examples:
        >>> info = ModelInfo(name="m", input_price=Decimal(1), output_price=Decimal(4), cache_read_price=Decimal("0.1"))
        >>> worth_of(info, before=8_000, after=4_000, prefix=1_000).pays_after_calls
        6.75
    """
    cold, warm = _call_cost(info, after, cached=prefix), _call_cost(info, after, cached=after)
    full = _call_cost(info, before, cached=before)
    if cold is None or warm is None or full is None:
        return CompactionWorth()
    return CompactionWorth(once_cost=cold - warm, saved_cost=full - warm)


MOVE_ADVANTAGE = Decimal("1.25")
"""Times what a move costs that compacting has to cost before a conversation moves: nobody knows how long it will last.
Of recorded agents over three windows of one price, those that moved at equal costs ended up 2 to 20 % dearer."""

LEAST_CALLS = 10
MOST_CALLS = 200
"""Calls that a conversation is taken to have before it, at least and at most: as many as it had so far. That is what
to expect of something whose end nobody knows, and a comparison of two models does not change beyond some hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a conversation goes on with one model: it grows with each call, and is compacted whenever it is full."""

    info: ModelInfo
    tokens: int  # input tokens of the next request, before any compaction
    limit: int  # largest input
    low: int  # input tokens after a compaction
    prefix_tokens: int  # system prompt and tools: the part of the prompt cache that survives a compaction
    # Part of the next request that the model's prompt cache holds; 0 for a model that has not seen it.
    cached_tokens: int
    added_tokens: int  # input tokens that each call adds
    output_tokens: int  # length of an answer
    summary_tokens: int = 0  # length of the summary that a model writes for each compaction; 0 when none does

    def cost(self, calls: int) -> Decimal | None:
        """Return USD of so many calls, compactions included; None when a price is unknown."""
        tokens, cached, total = self.tokens, self.cached_tokens, Decimal(0)
        for _ in range(calls):
            if tokens > self.limit:
                if self.summary_tokens:  # asked for by extending the last request, which the cache holds
                    total += _call_cost(self.info, tokens, cached=tokens, output=self.summary_tokens) or 0
                tokens, cached = self.low, min(cached, self.prefix_tokens)
            request = _call_cost(self.info, tokens, cached=cached, output=self.output_tokens)
            if request is None:
                return None
            total += request
            cached, tokens = tokens, tokens + self.added_tokens
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class CostComparison:
    """What a full conversation costs from here on: compacted at its model, or moved whole to a larger one."""

    calls: int  # coming calls that are compared
    model: str
    larger_model: str
    # USD at its model, compacted whenever it is full, and at the larger one, whose prompt cache has nothing of it yet;
    # None when a price is unknown.
    compact_cost: Decimal | None
    move_cost: Decimal | None

    @property
    def is_cheaper_to_compact(self) -> bool:
        """True when both costs are known, and moving is not clearly cheaper."""
        if self.compact_cost is None or self.move_cost is None:
            return False
        return self.compact_cost <= MOVE_ADVANTAGE * self.move_cost

    def facts(self) -> dict[str, Any]:
        """Return the costs under the names that events have for them."""
        return {"compact_cost": self.compact_cost, "move_cost": self.move_cost, "coming_calls": self.calls}

    def __str__(self) -> str:
        costs = (self.compact_cost, self.move_cost)
        compact, move = ("unknown" if cost is None else f"${float(cost):.3g}" for cost in costs)
        larger = f"{self.larger_model} with all of it: {move}"
        return f"{self.model} compacted: {compact}, {larger}, for {self.calls} more calls"


def compared(model: str, course: Course, larger_model: str, larger: Course, *, calls_so_far: int) -> CostComparison:
    """Compare staying with moving, for as many calls as the conversation had so far.

    Examples:
        >>> small = ModelInfo(
        ...     name="s", input_price=Decimal(1), output_price=Decimal(4), cache_read_price=Decimal("0.1")
        ... )
        >>> large = ModelInfo(name="l", input_price=Decimal(10), output_price=Decimal(40), cache_read_price=Decimal(1))
        >>> sizes = {"tokens": 8_000, "prefix_tokens": 1_000, "added_tokens": 500, "output_tokens": 100}
        >>> stay = Course(info=small, limit=8_000, low=4_000, cached_tokens=7_500, **sizes)
        >>> move = Course(info=large, limit=100_000, low=50_000, cached_tokens=0, **sizes)
        >>> str(compared("s", stay, "l", move, calls_so_far=30))
        's compacted: $0.0524, l with all of it: $0.78, for 30 more calls'
    """
    calls = min(max(LEAST_CALLS, calls_so_far), MOST_CALLS)
    return CostComparison(
        calls=calls,
        model=model,
        larger_model=larger_model,
        compact_cost=course.cost(calls),
        move_cost=larger.cost(calls),
    )
