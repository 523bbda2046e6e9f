"""What a model call cost, by the usage that came with its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.blocks import COMPACTION_TYPE
from langchain_ctxwin.core.model_info import ModelInfo

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

MAX_TOKENS = 100_000_000
"""Above this no count has ever been: nothing that a provider reports is believed."""


def count_of(value: object) -> int | None:
    """Return a stated value as a whole number of at least 0; None for anything else, and for impossible sizes."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_TOKENS else None


def as_money(value: object) -> Decimal:
    """Read an amount of at least 0, exactly as it is written.

    Raises:
        ValueError: it is none.
    """
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{value!r} is no amount")
    return amount


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
        listed = (
            [one for one in rounds if isinstance(one, Mapping)]
            if isinstance(rounds, list)
            else []
        )
        spent = [
            cls.of(_as_metadata(one))
            for one in listed
            if one.get("type") == COMPACTION_TYPE
        ]
        return replace(
            cls.of(answer.usage_metadata),
            compaction=sum(spent[1:], spent[0]) if spent else None,
        )

    def __add__(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(
            input_tokens=(self.input_tokens or 0) + (other.input_tokens or 0),
            output_tokens=(self.output_tokens or 0) + (other.output_tokens or 0),
            cached_tokens=(self.cached_tokens or 0) + (other.cached_tokens or 0),
            cache_write_tokens=(self.cache_write_tokens or 0)
            + (other.cache_write_tokens or 0),
            hour_write_tokens=self.hour_write_tokens + other.hour_write_tokens,
        )

    @classmethod
    def of(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the `usage_metadata` of an answer."""
        reported: Mapping[str, Any] = usage or {}
        details = reported.get("input_token_details")
        parts: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
        size, output = (
            count_of(reported.get("input_tokens")),
            count_of(reported.get("output_tokens")),
        )
        if size is None:
            return cls(output_tokens=output)
        cached, hour = (
            count_of(parts.get("cache_read")),
            count_of(parts.get("ephemeral_1h_input_tokens")),
        )
        # Where writes are told apart by how long they are kept, the total is those of both kinds.
        kinds = [
            one
            for one in (count_of(parts.get("ephemeral_5m_input_tokens")), hour)
            if one
        ]
        written = (
            count_of(parts.get("cache_creation"))
            or sum(kinds)
            or count_of(parts.get("cache_creation"))
        )
        room = size - min(size, cached or 0)
        return cls(
            input_tokens=size,
            output_tokens=output,
            cached_tokens=None if cached is None else min(size, cached),
            cache_write_tokens=None if written is None else min(room, written),
            hour_write_tokens=min(room, written or 0, hour or 0),
            is_free=reported.get("total_cost") == 0,
        )

    def uncached(self) -> Usage:
        """Return the usage of the same call where nothing is cached."""
        return replace(
            self, cached_tokens=None, cache_write_tokens=None, hour_write_tokens=0
        )

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
        read_price = (
            info.input_price if info.cache_read_price is None else info.cache_read_price
        )
        write_price = (
            info.input_price
            if info.cache_write_price is None
            else info.cache_write_price
        )
        hour_price = (
            write_price
            if info.cache_write_hour_price is None
            else info.cache_write_hour_price
        )
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
    read, written = (
        count_of(raw.get("cache_read_input_tokens")),
        count_of(raw.get("cache_creation_input_tokens")),
    )
    kinds = raw.get("cache_creation")
    details = {
        **(kinds if isinstance(kinds, Mapping) else {}),
        "cache_read": read,
        "cache_creation": written,
    }
    size = (count_of(raw.get("input_tokens")) or 0) + (read or 0) + (written or 0)
    return {
        "input_tokens": size,
        "output_tokens": raw.get("output_tokens"),
        "input_token_details": details,
    }
