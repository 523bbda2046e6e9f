"""What an answer took, as its provider reported it: tokens by kind, what they cost, and why the answer ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.limits import count_of
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.provider_blocks import COMPACTION_TYPE

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

SIZE_KEYS = ("input_tokens", "output_tokens")
CACHE_KEYS = (
    "cache_read",
    "cache_creation",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
)
RAW_KEYS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


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

    compactions: tuple[Usage, ...] = ()
    """What the provider spent beside it on compacting the conversation, before it answered."""

    @classmethod
    def of_answer(cls, answer: object) -> Usage:
        """Read all that a provider billed for an answer; Anthropic states its compactions apart from the usage."""
        if not isinstance(answer, AIMessage):
            return cls()
        raw = answer.response_metadata.get("usage")
        rounds = raw.get("iterations") if isinstance(raw, Mapping) else None
        spent = (
            cls.of(_as_metadata(one))
            for one in rounds or ()
            if one.get("type") == COMPACTION_TYPE
        )
        return replace(cls.of(answer.usage_metadata), compactions=tuple(spent))

    @classmethod
    def of(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the `usage_metadata` of an answer."""
        reported = usage or {}
        parts = reported.get("input_token_details") or {}
        size, output = map(count_of, map(reported.get, SIZE_KEYS))
        if size is None:
            return cls(output_tokens=output)
        cached, total, minutes, hour = map(count_of, map(parts.get, CACHE_KEYS))
        # Where writes are told apart by how long they are kept, the total is those of both kinds.
        written = total or (minutes or 0) + (hour or 0) or total
        room = size - min(size, cached or 0)
        return cls(
            input_tokens=size,
            output_tokens=output,
            cached_tokens=None if cached is None else size - room,
            cache_write_tokens=None if written is None else min(room, written),
            hour_write_tokens=min(room, written or 0, hour or 0),
        )

    def cost(self, info: ModelInfo | None) -> Decimal | None:
        """Return USD by a model's prices; None when a price or the usage is unknown.

        A price of reading or writing the cache that nobody states is the one of input.
        """
        if info is None or info.input_price is None or info.output_price is None:
            return None
        beside = [one.cost(info) for one in self.compactions]
        if self.input_tokens is None or self.output_tokens is None or None in beside:
            return None
        read_price, write_price = (
            info.input_price if price is None else price
            for price in (info.cache_read_price, info.cache_write_price)
        )
        hour_price = info.cache_write_hour_price
        cached, written = self.cached_tokens or 0, self.cache_write_tokens or 0
        priced = (
            (self.input_tokens - cached - written) * info.input_price
            + cached * read_price
            + (written - self.hour_write_tokens) * write_price
            + self.hour_write_tokens
            * (write_price if hour_price is None else hour_price)
            + self.output_tokens * info.output_price
        )
        return sum(filter(None, beside), priced / PRICED_TOKENS)


def _as_metadata(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's usage in LangChain's shape: there the input holds what was read from the cache and written to it."""
    size, read, written = (count_of(raw.get(key)) or 0 for key in RAW_KEYS)
    kinds = raw.get("cache_creation") or {}
    return {
        "input_tokens": size + read + written,
        "output_tokens": raw.get("output_tokens"),
        "input_token_details": {**kinds, "cache_read": read, "cache_creation": written},
    }


STOP_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Where the integrations keep why an answer ended (OpenAI, Mistral, Google; Anthropic; Ollama; Bedrock)."""


def stop_reasons(reply: AIMessage) -> list[str]:
    """Return why an answer ended, as its provider states it; empty when it does not."""
    metadata = reply.response_metadata
    incomplete = metadata.get("incomplete_details") or {}  # OpenAI's Responses API
    reasons = [*map(metadata.get, STOP_KEYS), incomplete.get("reason")]
    return [str(reason) for reason in reasons if reason]
