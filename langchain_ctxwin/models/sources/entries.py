"""What does one entry of a model list say, whichever OpenAI-compatible server wrote it?

Told by the shape of the entry, not by the host: gateways serve everybody's shapes under their own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.stating import capabilities_of, items, mapping, stated
from langchain_ctxwin.models.values import MILLION, ONE_TOKEN, day, price, tokens

LISTS = ("data", "models")
"""Where the entries are, when the answer is not the list itself."""

NAMES = ("id", "name")

WINDOWS = (
    "context_window",  # Groq, Vercel
    "context_length",  # OpenRouter, Together, Fireworks, Cohere
    "contextLength",  # Fireworks' own API, Together
    "max_context_length",  # Mistral, LM Studio
    "max_model_len",  # vLLM
    "max_prompt_length",  # xAI
)
OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_output_length")

TAKES_TOOLS = ("function_calling", "supports_tools", "supportsTools")  # Mistral, Fireworks, Fireworks' own API
TAKES_IMAGES = ("vision", "supports_image_input", "supportsImageInput")  # the same

INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "file": "pdf"}
"""Kinds of input as OpenRouter calls them -> capability."""

LOADED = "loaded_context_length"
"""LM Studio: the window a model was loaded with, which requests meet; the largest it could have is another field."""

PER_TEN_BILLION = 10_000 * MILLION
"""xAI states hundredths of a cent per million tokens, which is dollars per ten thousand million."""


def entries_of(answer: Any) -> list[Mapping[str, Any]]:
    """Return the entries of a model list: a bare list, or the list under `data` or `models`."""
    lists = [answer, *(mapping(answer).get(key) for key in LISTS)]
    found = next((entries for entries in lists if isinstance(entries, list)), [])
    return [entry for entry in found if isinstance(entry, dict)]


def read_entry(source: str, entry: Mapping[str, Any], provider: str | None) -> ModelInfo | None:
    """Return what the entry states, or None when it has no name."""
    prices = _prices(entry)
    deprecated, retires_on = _retirement(entry)
    return stated(
        source,
        next((entry[key] for key in NAMES if entry.get(key)), None),
        provider=provider,
        context_window=window_of(entry),
        max_output_tokens=_output_limit(entry),
        input_price=prices[0],
        output_price=prices[1],
        cache_read_price=prices[2],
        capabilities=_capabilities(entry),
        deprecated=deprecated,
        retires_on=retires_on,
        aliases=items(entry.get("aliases")),
    )


def window_of(entry: Mapping[str, Any]) -> int | None:
    """Return the window that requests meet: the loaded one, else the smallest that is stated."""
    loaded = tokens(entry.get(LOADED))
    if loaded is not None:
        return loaded
    meta, top = mapping(entry.get("meta")), mapping(entry.get("top_provider"))
    stated_windows = (*(entry.get(key) for key in WINDOWS), meta.get("n_ctx"), top.get("context_length"))
    return min(_known(stated_windows), default=None)


def _output_limit(entry: Mapping[str, Any]) -> int | None:
    top = mapping(entry.get("top_provider")).get("max_completion_tokens")
    found = list(_known((top, *(entry.get(key) for key in OUTPUTS))))
    if not found and "context_window" in entry:  # elsewhere `max_tokens` may be the whole window
        found = list(_known((entry.get("max_tokens"),)))
    return min(found, default=None)


def _prices(entry: Mapping[str, Any]) -> tuple[Decimal | None, Decimal | None, Decimal | None]:
    """Input, output and cache prices: per token as text, per million as a number, or in xAI's unit."""
    table = mapping(entry.get("pricing"))
    if not table:
        keys = ("prompt_text_token_price", "completion_text_token_price", "cached_prompt_text_token_price")
        found = [price(entry.get(key), per=PER_TEN_BILLION) for key in keys]
        return found[0], found[1], found[2]
    return (
        _listed_price(table, "prompt", "input"),
        _listed_price(table, "completion", "output"),
        _listed_price(table, "input_cache_read", "cached_input"),
    )


def _listed_price(table: Mapping[str, Any], *keys: str) -> Decimal | None:
    value = _first(table, *keys)
    return price(value, per=ONE_TOKEN if isinstance(value, str) else MILLION)


def _retirement(entry: Mapping[str, Any]) -> tuple[bool, date | None]:
    written = (entry.get(key) for key in ("deprecation", "expiration_date", "deprecation_date", "deprecationDate"))
    retires_on = next((found for value in written if (found := day(_iso(value))) is not None), None)
    flags = (entry.get("is_deprecated"), entry.get("deprecated"), bool(entry.get("deprecation")))
    return any(flag is True for flag in flags) or entry.get("active") is False, retires_on


def _iso(value: Any) -> Any:
    """A day that is spread over three numbers as the text of one."""
    if not isinstance(value, dict):
        return value
    return "-".join(str(value.get(part, "")) for part in ("year", "month", "day"))


def _capabilities(entry: Mapping[str, Any]) -> frozenset[str]:
    parameters, table = entry.get("supported_parameters"), entry.get("capabilities")
    if isinstance(parameters, list):  # OpenRouter
        kinds = items(mapping(entry.get("architecture")).get("input_modalities"))
        return capabilities_of(
            tools="tools" in parameters,
            structured_output="structured_outputs" in parameters,
            reasoning="reasoning" in parameters,
            temperature="temperature" in parameters,
            **{name: kind in kinds for kind, name in INPUT_KINDS.items()},
        )
    if isinstance(table, list):  # LM Studio
        return capabilities_of(tools="tool_use" in table, images=entry.get("type") == "vlm")
    said = {**entry, **mapping(table)}
    return capabilities_of(tools=_first(said, *TAKES_TOOLS), images=_first(said, *TAKES_IMAGES))


def _first(table: Mapping[str, Any], *keys: str) -> Any:
    return next((table[key] for key in keys if table.get(key) is not None), None)


def _known(values: Iterable[Any]) -> Iterator[int]:
    return (found for value in values if (found := tokens(value)) is not None)
