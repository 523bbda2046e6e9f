"""What a model call costs: the usage that came with its answer, by the prices of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

MAX_TOKENS = 100_000_000
"""Above this no count has ever been: nothing that a provider reports is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, as its provider reported them; None is unknown, and parts of the input never exceed it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """Parts of the input that were read from the prompt cache, and written to it."""

    hour_write_tokens: int = 0
    """Part of the written input that is kept for an hour."""

    @classmethod
    def of(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the `usage_metadata` of an answer."""
        stated: Mapping[str, Any] = usage or {}
        details = stated.get("input_token_details")
        parts: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
        size = _count(stated.get("input_tokens"))
        if size is None:
            return cls(output_tokens=_count(stated.get("output_tokens")))
        cached, hour = _count(parts.get("cache_read")), _count(parts.get("ephemeral_1h_input_tokens"))
        # Where writes are told apart by how long they are kept, the total is those of both kinds.
        kinds = [one for one in (_count(parts.get("ephemeral_5m_input_tokens")), hour) if one]
        written = _count(parts.get("cache_creation")) or sum(kinds) or _count(parts.get("cache_creation"))
        room = size - min(size, cached or 0)
        return cls(
            input_tokens=size,
            output_tokens=_count(stated.get("output_tokens")),
            cached_tokens=None if cached is None else min(size, cached),
            cache_write_tokens=None if written is None else min(room, written),
            hour_write_tokens=min(room, written or 0, hour or 0),
        )

    def uncached(self) -> Usage:
        """Return the usage of the same call where nothing is cached."""
        return Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)

    def cost(self, info: ModelInfo | None) -> Decimal | None:
        """Return USD by a model's prices; None when a price or the usage is unknown.

        A price of reading or writing the cache that nobody states is the one of input.
        """
        if info is None or info.input_price is None or info.output_price is None:
            return None
        if self.input_tokens is None or self.output_tokens is None:
            return None
        cached, written = self.cached_tokens or 0, self.cache_write_tokens or 0
        write_price = _first(info.cache_write_price, info.input_price)
        priced = (
            (self.input_tokens - cached - written) * info.input_price
            + cached * _first(info.cache_read_price, info.input_price)
            + (written - self.hour_write_tokens) * write_price
            + self.hour_write_tokens * _first(info.cache_write_hour_price, write_price)
            + self.output_tokens * info.output_price
        )
        return priced / PRICED_TOKENS


def _first(price: Decimal | None, otherwise: Decimal) -> Decimal:
    return otherwise if price is None else price


def _count(value: object) -> int | None:
    """A whole number of at least 0; sizes that no request has are not believed."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_TOKENS else None
