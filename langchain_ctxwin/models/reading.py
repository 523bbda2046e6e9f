"""Tokens, prices, days and names of providers, as tables and servers write them; what cannot be read is None."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from math import inf
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo, exact
from langchain_ctxwin.errors import ContextWindowError

MAX_TOKENS = 10**9  # more is an id or a time that was misread
MAX_PRICE = Decimal(10_000)  # USD per million tokens; more is a price in another unit
# tokens that a price is for, at most endpoints and in `ModelInfo`
ONE_TOKEN, MILLION = (1, 1_000_000)


class SourceError(ContextWindowError):
    """A source could not be read. The text names the place and the reason, and never quotes a key or an answer."""


def named(infos: Iterable[ModelInfo], name: str | None) -> list[ModelInfo]:
    """Return the facts about one model, by its name or an alias, or all of them."""
    return [info for info in infos if name in (None, info.name, *info.aliases)]


def model_info_of(name: Any, **facts: Any) -> ModelInfo | None:
    """Return the facts of one model, or None when `name` is no name.

    Of two limits that contradict each other the one that allows the smaller request stays.
    """
    if not isinstance(name, str) or not name.strip():
        return None
    window = facts.get("context_window") or inf
    for field in ("max_input_tokens", "max_output_tokens"):
        if (facts.get(field) or 0) > window:
            del facts[field]
    known_facts: dict[str, Any] = {
        field: value
        for field, value in facts.items()
        if value or isinstance(value, Decimal)
    }
    return ModelInfo(name=name, **known_facts)


def capabilities_of(*, tools: Any, **others: Any) -> frozenset[str]:
    """Return the capabilities that are true; none (unknown) where it is not said whether the model takes tools."""
    if not isinstance(tools, bool):
        return frozenset()
    named = {"text": True, "tools": tools, **others}
    return frozenset(name for name, can in named.items() if can is True)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def tokens(value: Any) -> int | None:
    """Return a positive whole number of tokens.

    Examples:
        >>> tokens("131072"), tokens(131072.0), tokens(0), tokens("unlimited")
        (131072, 131072, None, None)
    """
    number = exact(value)
    return int(number) if number is not None and 1 <= number <= MAX_TOKENS else None


def price(value: Any, *, per: int = MILLION) -> Decimal | None:
    """Return USD per million tokens from USD per `per` tokens; a negative price means that it varies, so None.

    Examples:
        >>> price(2.5e-07, per=ONE_TOKEN), price("-1", per=ONE_TOKEN), price(0)
        (Decimal('0.25'), None, Decimal('0'))
    """
    number = exact(value)
    if number is None or not 0 <= number * MILLION / per <= MAX_PRICE:
        return None
    # 10, where normalize alone writes 1E+1
    return Decimal(format((number * MILLION / per).normalize(), "f"))


def day(value: Any) -> date | None:
    """Return the day of an ISO date or time.

    Examples:
        >>> day("2026-05-31T08:00:00Z"), day("soon")
        (datetime.date(2026, 5, 31), None)
    """
    with suppress(ValueError):
        return date.fromisoformat(str(value).strip()[:10])
    return None


def provider_id(text: str) -> str:
    """Return the one id of a provider, however it is spelled; an unknown one in lower case with hyphens.

    The same model served through another platform has other limits and prices, so platforms stay apart.

    Examples:
        >>> (
        ...     provider_id("google_genai"),
        ...     provider_id("Together"),
        ...     provider_id("my_gateway"),
        ... )
        ('google', 'togetherai', 'my-gateway')
    """
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    # one price table splits this platform by the kind of model
    if plain.startswith("vertexai"):
        return "google-vertex-anthropic" if "anthropic" in plain else "google-vertex"
    return SPELLINGS.get(plain) or re.sub(r"[\s_]+", "-", text.strip().lower())


SPELLINGS = {
    "azureopenai": "azure",
    "bedrock": "amazon-bedrock",
    "bedrockconverse": "amazon-bedrock",
    "fireworks": "fireworks-ai",
    "fireworksai": "fireworks-ai",
    "gemini": "google",
    "googleai": "google",
    "googlegenai": "google",
    "googlegenerativeai": "google",
    "googlevertex": "google-vertex",
    "googlevertexai": "google-vertex",
    "mistralai": "mistral",
    "nvidiaaiendpoints": "nvidia",
    "perplexityai": "perplexity",
    "together": "togetherai",
    "togetherai": "togetherai",
    "vertex": "google-vertex",
    "x": "xai",
}
"""How LangChain's integrations and LiteLLM spell providers, in plain letters -> the id that models.dev uses."""
