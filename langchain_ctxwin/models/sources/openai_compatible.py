"""Servers with an OpenAI-compatible API as sources: the models that they serve.

What an entry says is told by its shape, not by the host: gateways serve everybody's shapes under their own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import TIMEOUT_SECONDS, ApiSource, Session, base_of, entries_of
from langchain_ctxwin.models.sources.platforms import COMPATIBLE, platform_at, provider_at
from langchain_ctxwin.models.sources.reading import (
    MILLION,
    ONE_TOKEN,
    capabilities_of,
    day,
    items,
    mapping,
    price,
    provider_id,
    stated,
    tokens,
)

VERSION = "/v1"

OWNERS_WITH_MORE = {"xai": "/language-models"}  # owner of the entries -> path that says more about them

WINDOWS = (
    "context_window",  # Groq, Vercel
    "context_length",  # OpenRouter, Together, Fireworks, Cohere
    "contextLength",  # Fireworks' own API, Together
    "max_context_length",  # Mistral, LM Studio
    "max_model_len",  # vLLM
    "max_prompt_length",  # xAI
)
OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_output_length")

# Fields of a table of prices, and at last xAI's, which stands in the entry itself.
PRICES = {
    "input_price": ("prompt", "input", "prompt_text_token_price"),
    "output_price": ("completion", "output", "completion_text_token_price"),
    "cache_read_price": ("input_cache_read", "cached_input", "cached_prompt_text_token_price"),
    "cache_write_price": ("input_cache_write",),
}
PER_TEN_BILLION = 10_000 * MILLION  # xAI's unit: hundredths of a cent per million

RETIREMENTS = ("deprecation", "expiration_date", "deprecation_date", "deprecationDate")
TAKES_TOOLS = ("function_calling", "supports_tools", "supportsTools")  # Mistral, Fireworks, Fireworks' own API
TAKES_IMAGES = ("vision", "supports_image_input", "supportsImageInput")  # the same
INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "file": "pdf"}  # OpenRouter's -> capability


class OpenAICompatibleSource(ApiSource):
    """Reads the model list of a server, in whatever shape it adds limits and prices to OpenAI's.

    OpenAI itself states no limits. Where the list of an unknown server states none, the own lists of LM Studio and of
    llama.cpp are tried on the same host: there the window that the server was started with counts, not the one that the
    model was trained for.

    Args:
        base_url: As the OpenAI client takes it, with `/v1`.
        api_key: By default that of the usual variable, which goes to its well-known host and to the server that its
            `..._BASE_URL` names; any other host gets a key only from here.
        provider: Provider id of the statements; by default that of a well-known host, else the host itself and its
            port, because the same name may have other limits elsewhere.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    platforms = COMPATIBLE
    key_header = "authorization"
    key_prefix = "Bearer "

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        provider: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(base_of(base_url), api_key, timeout_seconds=timeout_seconds)
        self.name = provider_id(provider) if provider else provider_at(self._base_url)

    def __repr__(self) -> str:
        return f"OpenAICompatibleSource({self._base_url!r}, provider={self.name!r})"

    def _entries(self, session: Session, name: str | None) -> list[Mapping[str, Any]]:  # noqa: ARG002  # the base's
        """The entries of the list, with what other paths of the same server say about them."""
        entries = session.entries("/models")
        if any("n_ctx_train" in mapping(entry.get("meta")) for entry in entries):  # llama.cpp, and no other server
            facts = mapping(session.find("/props", without=VERSION, is_optional=True))
            slot = mapping(facts.get("default_generation_settings"))  # what a request meets
            started = tokens(slot.get("n_ctx"))
            return [{**entry, "context_window": started} for entry in entries] if started else entries
        owners = [entry.get("owned_by") for entry in entries]
        for path in (path for owner, path in OWNERS_WITH_MORE.items() if owner in owners):
            entries = _completed(entries, session.find(path, is_optional=True))
        if platform_at(self._base_url) is not None or any(map(window_of, entries)):
            return entries
        return _completed(entries, session.find("/api/v0/models", without=VERSION, is_optional=True))  # LM Studio

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:
        info = read_entry(self.name, entry, self.name)
        return info if info and name in (None, info.name, *info.aliases) else None


def _completed(entries: list[Mapping[str, Any]], more: Any) -> list[Mapping[str, Any]]:
    """The entries with the fields that another list of the same server adds to them."""
    known = {str(entry.get("id")): entry for entry in entries_of(more)}
    return [{**entry, **known.get(str(entry.get("id")), {})} for entry in entries]


def read_entry(source: str, entry: Mapping[str, Any], provider: str | None) -> ModelInfo | None:
    """Return what the entry states, or None when it has no name."""
    outputs = _known([mapping(entry.get("top_provider")).get("max_completion_tokens"), *map(entry.get, OUTPUTS)])
    if not outputs and "context_window" in entry:  # elsewhere `max_tokens` may be the whole window
        outputs = _known([entry.get("max_tokens")])
    flags = (entry.get("is_deprecated"), entry.get("deprecated"), bool(entry.get("deprecation")))
    return stated(
        source,
        entry.get("id") or entry.get("name"),
        provider=provider,
        context_window=window_of(entry),
        max_output_tokens=min(outputs, default=None),
        **_prices(entry),
        capabilities=_capabilities(entry),
        deprecated=entry.get("active") is False or any(flag is True for flag in flags),
        retires_on=next(filter(None, (_retirement(entry.get(key)) for key in RETIREMENTS)), None),
        aliases=items(entry.get("aliases")),
    )


def window_of(entry: Mapping[str, Any]) -> int | None:
    """Return the window that requests meet: the one it was loaded with (LM Studio), else the smallest stated."""
    meta, top = mapping(entry.get("meta")), mapping(entry.get("top_provider"))
    windows = [*map(entry.get, WINDOWS), meta.get("n_ctx"), top.get("context_length")]
    return tokens(entry.get("loaded_context_length")) or min(_known(windows), default=None)


def _known(values: list[Any]) -> list[int]:
    return list(filter(None, map(tokens, values)))


def _prices(entry: Mapping[str, Any]) -> dict[str, Decimal | None]:
    """Prices per token as text, per million as a number, or in xAI's unit."""
    table = mapping(entry.get("pricing"))
    if not table:
        return {field: price(entry.get(keys[-1]), per=PER_TEN_BILLION) for field, keys in PRICES.items()}
    found = {field: _first(table, *keys) for field, keys in PRICES.items()}
    return {field: price(value, per=ONE_TOKEN if isinstance(value, str) else MILLION) for field, value in found.items()}


def _retirement(written: Any) -> date | None:
    """The day, which one provider spreads over three numbers."""
    is_spread = isinstance(written, dict)
    return day("-".join(str(written.get(part, "")) for part in ("year", "month", "day")) if is_spread else written)


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
