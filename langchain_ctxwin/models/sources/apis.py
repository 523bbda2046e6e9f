"""Providers' APIs as sources: Gemini, Anthropic, Ollama, and servers with an OpenAI-compatible API."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import (
    NOT_FOUND,
    TIMEOUT_SECONDS,
    ApiSession,
    SourceError,
    base_of,
    connected,
    entries_of,
)
from langchain_ctxwin.models.sources.platforms import (
    ANTHROPIC,
    COMPATIBLE,
    GEMINI,
    Platform,
    digest,
    platform_at,
    provider_at,
)
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


class ApiSource(ABC):
    """A provider's API as a source: where it is, and on whose account it is asked."""

    name: str
    tier: ClassVar[str] = "provider"
    platforms: ClassVar[tuple[Platform, ...]] = ()  # whose keys in the environment may be sent there, its own first
    versions: ClassVar[tuple[str, ...]] = ("",)  # what the address ends in; the first is added where none does
    headers: ClassVar[Mapping[str, str]] = {}
    key_header: ClassVar[str] = ""
    key_prefix: ClassVar[str] = ""

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        base = base_of(base_url or self.platforms[0].url)
        self._base_url = base if base.endswith(self.versions) else base + self.versions[0]
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r})"

    @property
    def cache_key(self) -> str:
        """Who is asked, on whose account."""
        return f"{type(self).__name__} {self.name} {self._base_url}{digest(self._key())}"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, by its name or an alias, or all of them; an API that cannot be read is a `SourceError`."""
        key = self._key()
        headers = {**self.headers, **({self.key_header: self.key_prefix + key} if key else {})}
        with connected(self._base_url, headers, timeout_seconds=self._timeout_seconds) as session:
            infos = [self._info(entry, name) for entry in self._entries(session, name)]
        return [info for info in infos if info is not None]

    @abstractmethod
    def _entries(self, session: ApiSession, name: str | None) -> Iterable[Mapping[str, Any]]:
        """What the API says about its models; about one alone, where it may be asked for one."""

    @abstractmethod
    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:
        """What an entry states, asked for by this name; None when it is about another model, or no chat model."""

    def _key(self) -> str:
        keys = (platform.key_for(self._base_url, os.environ) for platform in self.platforms)
        return self._api_key or next(filter(None, keys), "")


class GeminiSource(ApiSource):
    """Reads the model list of the Gemini API.

    Its input and output limits are separate, so the window that is stated is their sum.

    Args:
        base_url: As the chat client takes it, with or without the version.
        api_key: Sent as a header. By default `GOOGLE_API_KEY`, else `GEMINI_API_KEY`, read when asked, which goes to
            Google and to the server that `GOOGLE_GEMINI_BASE_URL` names; any other host gets a key only from here.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    name = "gemini"
    platforms = (GEMINI,)
    versions = ("/v1beta", "/v1", "/v1alpha")
    key_header = "x-goog-api-key"

    def _entries(self, session: ApiSession, name: str | None) -> Iterable[Mapping[str, Any]]:
        if name is None:
            return session.entries("/models", {"pageSize": 1000})
        return [mapping(session.find(f"/models/{quote(name.removeprefix('models/'), safe='')}"))]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:  # noqa: ARG002  # the base's
        methods, listed = entry.get("supportedGenerationMethods"), entry.get("name")
        if not isinstance(listed, str) or (isinstance(methods, list) and "generateContent" not in methods):
            return None  # a model for something else, such as embeddings
        largest_input, largest_output = tokens(entry.get("inputTokenLimit")), tokens(entry.get("outputTokenLimit"))
        return stated(
            self.name,
            listed.removeprefix("models/"),
            provider="google",
            context_window=largest_input + largest_output if largest_input and largest_output else None,
            max_input_tokens=largest_input,
            max_output_tokens=largest_output,
        )


class AnthropicSource(ApiSource):
    """Reads the model list of the Anthropic API, whose `max_input_tokens` is the window that the output shares.

    Args:
        base_url: As the chat client takes it, with or without `/v1`.
        api_key: By default `ANTHROPIC_API_KEY`, read when asked, which goes to Anthropic and to the server that
            `ANTHROPIC_BASE_URL` names; any other host gets a key only from here.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    name = "anthropic"
    platforms = (ANTHROPIC,)
    versions = ("/v1",)
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
    key_header = "x-api-key"

    def _entries(self, session: ApiSession, name: str | None) -> Iterable[Mapping[str, Any]]:
        if name is None:
            return session.entries("/models", {"limit": 1000})
        return [mapping(session.find(f"/models/{quote(name, safe='')}"))]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:
        support = entry.get("capabilities")
        can = {what: mapping(said).get("supported") for what, said in mapping(support).items()}
        return stated(
            self.name,
            entry.get("id"),
            provider="anthropic",
            context_window=tokens(entry.get("max_input_tokens")),
            max_output_tokens=tokens(entry.get("max_tokens")),
            capabilities=capabilities_of(
                # The Messages API takes tools for every model; what is listed is only what differs.
                tools=True if isinstance(support, dict) else None,
                images=can.get("image_input"),
                pdf=can.get("pdf_input"),
                structured_output=can.get("structured_outputs"),
                reasoning=can.get("thinking"),
            ),
            aliases=(name,),
        )


BASE_URL = "http://localhost:11434"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
LATEST = ":latest"

NAME, LOADED = "_name", "_loaded"  # added to what the server shows: its name, and the window that it is loaded with
_WINDOW_PARAMETER = re.compile(r"^[^\S\n]*+num_ctx\s++(\d++)\s*$", re.MULTILINE)


class OllamaSource(ApiSource):
    """Reads the models of an Ollama server.

    The window is the one that the server runs a model with: the model's `num_ctx` parameter, else what it is loaded
    with now, else `OLLAMA_CONTEXT_LENGTH` for a server on this machine. Only where none of these is set the window that
    the model was trained for is stated; the server cuts longer requests silently, so set one of them.

    Args:
        base_url: As the chat client takes it; `/v1` at its end is ignored.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    name = "ollama"

    def __init__(self, base_url: str = BASE_URL, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__(base_of(base_url).removesuffix("/v1"), timeout_seconds=timeout_seconds)

    def _entries(self, session: ApiSession, name: str | None) -> Iterable[Mapping[str, Any]]:
        shown: dict[str, Mapping[str, Any]] = {}
        for model in [name] if name is not None else map(_name_in, session.entries("/api/tags")):
            try:
                shown[model] = mapping(session.get("/api/show", method="POST", json={"model": model}))
            except SourceError as error:
                if name is None:
                    shown[model] = {}  # a listed one is there even if it cannot be shown
                elif error.status != NOT_FOUND:
                    raise
        in_memory = entries_of(session.find("/api/ps", is_optional=True))  # older servers do not say
        loaded = {_name_in(one): tokens(one.get("context_length")) for one in in_memory}
        return [
            {**details, NAME: model, LOADED: loaded.get(model) or loaded.get(model + LATEST)}
            for model, details in shown.items()
        ]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:  # noqa: ARG002  # the base's
        known, parameters = entry.get(NAME), entry.get("parameters")
        set_here = _WINDOW_PARAMETER.search(parameters) if isinstance(parameters, str) else None
        started = (tokens(set_here[1]) if set_here else None) or entry.get(LOADED)
        if not started and urlsplit(self._base_url).hostname in LOCAL:  # the server's setting is this process's too
            started = tokens(os.environ.get("OLLAMA_CONTEXT_LENGTH"))
        windows = (_trained_window(mapping(entry.get("model_info"))), started)
        listed = entry.get("capabilities")
        can = items(listed)
        return stated(
            self.name,
            known,
            provider="ollama",
            context_window=min(filter(None, windows), default=None),
            capabilities=capabilities_of(
                tools="tools" in can if isinstance(listed, list) else None,
                images="vision" in can,
                audio="audio" in can,
                reasoning="thinking" in can,
                structured_output=True,  # the server constrains any model's output to a schema
            ),
            aliases=(str(known).removesuffix(LATEST),),
        )


def _name_in(entry: Mapping[str, Any]) -> str:
    return str(entry.get("model") or entry.get("name"))


def _trained_window(facts: Mapping[str, Any]) -> int | None:
    """`<architecture>.context_length`; the longest such key may be that of a part, such as the vision encoder."""
    own = tokens(facts.get(f"{facts.get('general.architecture')}.context_length"))
    found = (tokens(value) for key, value in facts.items() if key.endswith(".context_length"))
    return own or min(filter(None, found), default=None)


VERSION = "/v1"
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

    def _entries(self, session: ApiSession, name: str | None) -> list[Mapping[str, Any]]:  # noqa: ARG002  # the base's
        entries = session.entries("/models")
        if any("n_ctx_train" in mapping(entry.get("meta")) for entry in entries):  # llama.cpp, and no other server
            facts = mapping(session.find("/props", without=VERSION, is_optional=True))
            slot = mapping(facts.get("default_generation_settings"))  # what a request meets
            started = tokens(slot.get("n_ctx"))
            return [{**entry, "context_window": started} for entry in entries] if started else entries
        if any(entry.get("owned_by") == "xai" for entry in entries):
            entries = _completed(entries, session.find("/language-models", is_optional=True))
        if platform_at(self._base_url) is not None or any(map(_window_of, entries)):
            return entries
        return _completed(entries, session.find("/api/v0/models", without=VERSION, is_optional=True))  # LM Studio

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:
        info = read_entry(self.name, entry, self.name)
        return info if info and name in (None, info.name, *info.aliases) else None


def _completed(entries: list[Mapping[str, Any]], more: Any) -> list[Mapping[str, Any]]:
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
        context_window=_window_of(entry),
        max_output_tokens=min(outputs, default=None),
        **_prices(entry),
        capabilities=_capabilities(entry),
        deprecated=entry.get("active") is False or any(flag is True for flag in flags),
        retires_on=next(filter(None, (_retirement(entry.get(key)) for key in RETIREMENTS)), None),
        aliases=items(entry.get("aliases")),
    )


def _window_of(entry: Mapping[str, Any]) -> int | None:
    """The window that requests meet: the one it was loaded with (LM Studio), else the smallest stated."""
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
    if isinstance(written, dict):  # one provider spreads it over three numbers
        written = "-".join(str(written.get(part, "")) for part in ("year", "month", "day"))
    return day(written)


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
