"""Servers with an OpenAI-compatible API as sources: the models that they serve.

What an entry says is told by its shape, not by the host: gateways serve everybody's shapes under their own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import TIMEOUT_SECONDS, ApiSource, Session, SourceError, base_of, entries_of
from langchain_ctxwin.models.sources.platforms import COMPATIBLE, digest, platform_at, provider_at
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

OWNERS_WITH_MORE = {"xai": "/language-models"}
"""Owner that the entries name -> path beside `/models` that says more about them."""

TRAINED_WINDOW = "n_ctx_train"
"""What llama.cpp says about a model beside its own window; no other server does."""

LLAMA_CPP_FACTS = "/props"
LM_STUDIO_LIST = "/api/v0/models"

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

PRICES = {
    "input_price": ("prompt", "input", "prompt_text_token_price"),
    "output_price": ("completion", "output", "completion_text_token_price"),
    "cache_read_price": ("input_cache_read", "cached_input", "cached_prompt_text_token_price"),
    "cache_write_price": ("input_cache_write",),
}
"""Fields of a table of prices, and at last xAI's, which stands in the entry itself."""

RETIREMENTS = ("deprecation", "expiration_date", "deprecation_date", "deprecationDate")
DAY_PARTS = ("year", "month", "day")

TAKES_TOOLS = ("function_calling", "supports_tools", "supportsTools")  # Mistral, Fireworks, Fireworks' own API
TAKES_IMAGES = ("vision", "supports_image_input", "supportsImageInput")  # the same

INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "file": "pdf"}
"""Kinds of input as OpenRouter calls them -> capability."""

LOADED = "loaded_context_length"
"""LM Studio: the window a model was loaded with, which requests meet; the largest it could have is another field."""

PER_TEN_BILLION = 10_000 * MILLION
"""xAI states hundredths of a cent per million tokens, which is dollars per ten thousand million."""


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
        super().__init__(base_of(base_url), api_key, timeout_seconds)
        self._is_known = platform_at(self._base_url) is not None
        self._provider = provider_id(provider) if provider else provider_at(self._base_url)
        self.name = self._provider

    def __repr__(self) -> str:
        return f"OpenAICompatibleSource({self._base_url!r}, provider={self._provider!r})"

    @property
    def cache_key(self) -> str:
        """Who is asked, on whose account."""
        return f"openai-compatible {self._provider} {self._base_url}{digest(self._key())}"

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:
        info = read_entry(self.name, entry, self._provider)
        return info if info and name in (None, info.name, *info.aliases) else None

    def _entries(self, session: Session, name: str | None) -> list[Mapping[str, Any]]:  # noqa: ARG002  # the base's
        """The entries of the list, with what other paths of the same server say about them."""
        entries = session.entries("/models")
        if any(TRAINED_WINDOW in mapping(entry.get("meta")) for entry in entries):
            return _with_started_window(entries, session)
        owners = [entry.get("owned_by") for entry in entries]
        for path in (path for owner, path in OWNERS_WITH_MORE.items() if owner in owners):
            entries = _completed(entries, _optional(session, path))
        if self._is_known or any(window_of(entry) for entry in entries):
            return entries
        return _completed(entries, _optional(session, LM_STUDIO_LIST, without=VERSION))


def _with_started_window(entries: list[Mapping[str, Any]], session: Session) -> list[Mapping[str, Any]]:
    """Entries of llama.cpp with the window of one of its slots, which is what a request meets."""
    started: Any = None
    with suppress(SourceError):  # switched off, or an older build: the list alone has to do
        started = tokens(
            mapping(mapping(session.get(LLAMA_CPP_FACTS, without=VERSION)).get("default_generation_settings")).get(
                "n_ctx"
            )
        )
    return entries if started is None else [{**entry, "context_window": started} for entry in entries]


def _completed(entries: list[Mapping[str, Any]], more: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Entries with the fields that another list of the same server adds to them."""
    known = {str(entry.get("id")): entry for entry in more}
    return [{**entry, **known.get(str(entry.get("id")), {})} for entry in entries]


def _optional(session: Session, path: str, *, without: str = "") -> list[Mapping[str, Any]]:
    try:
        return entries_of(session.get(path, without=without))
    except SourceError:  # most servers have no such path
        return []


def read_entry(source: str, entry: Mapping[str, Any], provider: str | None) -> ModelInfo | None:
    """Return what the entry states, or None when it has no name."""
    flags = (entry.get("is_deprecated"), entry.get("deprecated"), bool(entry.get("deprecation")))
    return stated(
        source,
        next((entry[key] for key in NAMES if entry.get(key)), None),
        provider=provider,
        context_window=window_of(entry),
        max_output_tokens=_output_limit(entry),
        **_prices(entry),
        capabilities=_capabilities(entry),
        deprecated=entry.get("active") is False or any(flag is True for flag in flags),
        retires_on=_retires_on(entry),
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


def _prices(entry: Mapping[str, Any]) -> dict[str, Decimal | None]:
    """Prices per token as text, per million as a number, or in xAI's unit."""
    table = mapping(entry.get("pricing"))
    if not table:
        return {field: price(entry.get(keys[-1]), per=PER_TEN_BILLION) for field, keys in PRICES.items()}
    found = {field: _first(table, *keys) for field, keys in PRICES.items()}
    return {field: price(value, per=ONE_TOKEN if isinstance(value, str) else MILLION) for field, value in found.items()}


def _retires_on(entry: Mapping[str, Any]) -> date | None:
    """The day, which one provider spreads over three numbers."""
    written = [entry.get(key) for key in RETIREMENTS]
    texts = ("-".join(str(v.get(part, "")) for part in DAY_PARTS) if isinstance(v, dict) else v for v in written)
    return next((found for text in texts if (found := day(text)) is not None), None)


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
