"""Providers' own lists of models: Gemini, Anthropic, Ollama, and servers with an OpenAI-compatible API."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.models.reading import (
    MILLION,
    ONE_TOKEN,
    capabilities_of,
    day,
    first,
    mapping,
    price,
    provider_id,
    stated,
    tokens,
)
from langchain_ctxwin.models.sources import SourceError

TIMEOUT_SECONDS = 8.0  # of one answer; lists take one or two
MAX_PAGES = (
    50  # of one listing; the longest known have a few hundred entries, at 1,000 a page
)
# of variables that send clients to another server
ADDRESS_SUFFIXES = ("_BASE_URL", "_API_BASE", "_API_URL")

# Where a page says how the next one is asked for -> parameter that asks for it.
CURSORS = {
    "nextPageToken": "pageToken",
    "next_page_token": "page_token",
    "last_id": "after_id",
}

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Api:
    """Where a provider's API is, and how a key goes along."""

    provider: str
    url: str
    variables: tuple[str, ...] = ()
    """Variables of the environment that hold the key, the preferred one first."""

    version: str = ""
    """What is added to an address that ends in no version."""

    header: str = "authorization"
    prefix: str = "Bearer "

    def key(self, environment: Mapping[str, str]) -> str:
        """Return the key in the environment; empty when there is none."""
        return next(filter(None, map(environment.get, self.variables)), "")

    def address(self, environment: Mapping[str, str]) -> str:
        """Return the address that the environment sends clients to, else the usual one."""
        stems = [name.removesuffix("_API_KEY") for name in self.variables]
        names = [stem + suffix for stem in stems for suffix in ADDRESS_SUFFIXES]
        return next(filter(None, map(environment.get, names)), self.url)


ANTHROPIC = Api(
    "anthropic",
    "https://api.anthropic.com",
    ("ANTHROPIC_API_KEY",),
    "/v1",
    "x-api-key",
    "",
)
GEMINI = Api(
    "google",
    "https://generativelanguage.googleapis.com",
    ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "/v1beta",
    "x-goog-api-key",
    "",
)
OLLAMA = Api("ollama", "http://localhost:11434")
COMPATIBLE = (  # their lists are read as OpenAI's is
    Api("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    Api("openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    Api("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
    Api("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    Api("togetherai", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
    Api(
        "fireworks-ai",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
    ),
    Api("deepseek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",)),
    Api("xai", "https://api.x.ai/v1", ("XAI_API_KEY",)),
    Api("cohere", "https://api.cohere.com/v1", ("COHERE_API_KEY",)),
)


def provider_at(url: str) -> str:
    """Return the provider id of an address; an unknown server is a provider of its own, named after host and port."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    known = (
        api.provider
        for api in COMPATIBLE
        if urlsplit(api.url).hostname == parts.hostname
    )
    return next(known, parts.netloc.rpartition("@")[2].lower())


def asked(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    **sent: Any,
) -> Any:
    """Return the JSON of an answer. A key that goes along is sent to no other host: redirects are not followed then.

    Raises:
        SourceError: there is no good answer; the text holds no key and nothing of the answer.
    """
    shown = url.partition("?")[0]
    timeout = sent.pop("timeout", TIMEOUT_SECONDS)
    try:
        with httpx.Client(
            timeout=timeout, headers=headers, follow_redirects=not headers
        ) as client:
            answer = client.request(method, url, **sent)
        answer.raise_for_status()
        return answer.json()
    except httpx.HTTPStatusError as error:
        raise SourceError(
            f"{shown} answered HTTP {error.response.status_code}"
        ) from None
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
    ) as error:  # its text may quote what was sent
        raise SourceError(
            f"{shown} cannot be reached: {type(error).__name__}"
        ) from None
    except ValueError:
        raise SourceError(
            f"{shown} answered no JSON, or the key holds what no header may"
        ) from None


class ApiSource(ABC):
    """A provider's API as a source.

    The key is by default that of the provider's usual variable, read when asked, which goes to the provider and to the
    server that its `..._BASE_URL` names; any other host gets a key only from `api_key`.
    """

    tier: ClassVar[str] = "provider"
    api: ClassVar[Api]

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.name = self.api.provider
        base = _checked(self.api.url if base_url is None else base_url)
        self._base_url = (
            base if re.search(r"/v\d\w*$", base) else base + self.api.version
        )
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r})"

    @property
    def cache_key(self) -> str:
        """Who is asked, on whose account, of which a fingerprint is enough to tell a handful apart."""
        account = blake2b(self._key().encode(), digest_size=8).hexdigest()
        return f"{type(self).__name__} {self.name} {self._base_url} {account}"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, by its name or an alias, or all of them; an API that cannot be read is a `SourceError`."""
        read = [self._info(entry) for entry in self._entries()]
        infos = [info for info in read if info is not None]
        return [
            info for info in infos if name is None or name in (info.name, *info.aliases)
        ]

    def _entries(self) -> Iterable[Entry]:
        """What the API says about its models."""
        return self._pages("/models")

    @abstractmethod
    def _info(self, entry: Entry) -> ModelInfo | None:
        """What an entry states; None when it is about no chat model."""

    def _pages(self, path: str, **params: Any) -> list[Entry]:
        found: list[Entry] = []
        for _ in range(MAX_PAGES):
            page = self._ask(path, params=params)
            found += _listed(page)
            known = {} if mapping(page).get("has_more") is False else mapping(page)
            more = {
                parameter: known[field]
                for field, parameter in CURSORS.items()
                if known.get(field)
            }
            # a cursor that comes again would never end
            if not more or more.items() <= params.items():
                break
            params |= more
        return found

    def _ask(self, path: str, *, without: str = "", **sent: Any) -> Any:
        """The answer below the base URL, or below what is before this end of it."""
        key = self._key()
        headers = {self.api.header: self.api.prefix + key} if key else {}
        url = self._base_url.removesuffix(without) + path
        return asked(
            url,
            {**headers, **self._headers()},
            timeout=self._timeout_seconds,
            **sent,
        )

    def _headers(self) -> dict[str, str]:
        return {"accept": "application/json"}

    def _key(self) -> str:
        return self._api_key or _own_key(self.api, self._base_url)


def _checked(url: str) -> str:
    parts = urlsplit(
        expect(url, str, "base_url", "a URL such as http://localhost:8000/v1").strip()
    )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"base_url={url!r}: give a URL such as http://localhost:8000/v1"
        )
    if parts.username or parts.password or parts.query:
        raise ConfigError(
            "base_url: leave user, password and query out; pass the key as api_key"
        )
    return url.strip().rstrip("/")


def _own_key(api: Api, url: str) -> str:
    """The key in the environment, if it may go to this address."""
    allowed = {urlsplit(one)[:2] for one in (api.url, api.address(os.environ))}
    return api.key(os.environ) if urlsplit(url)[:2] in allowed else ""


def _listed(answer: Any) -> list[Entry]:
    """The entries of a model list: a bare list, or the list under `data` or `models`."""
    entries = (
        answer if isinstance(answer, list) else first(mapping(answer), "data", "models")
    )
    return [entry for entry in entries or () if isinstance(entry, dict)]


class GeminiSource(ApiSource):
    """Reads the model list of the Gemini API, whose input and output limits are separate: the window is their sum."""

    api = GEMINI

    def _entries(self) -> Iterable[Entry]:
        return self._pages("/models", pageSize=1000)

    def _info(self, entry: Entry) -> ModelInfo | None:
        if "generateContent" not in entry.get(
            "supportedGenerationMethods", ["generateContent"]
        ):
            return None  # a model for something else, such as embeddings
        largest_input, largest_output = (
            tokens(entry.get("inputTokenLimit")),
            tokens(entry.get("outputTokenLimit")),
        )
        return stated(
            str(entry.get("name", "")).removeprefix("models/"),
            provider="google",
            context_window=largest_input + largest_output
            if largest_input and largest_output
            else None,
            max_input_tokens=largest_input,
            max_output_tokens=largest_output,
        )


class AnthropicSource(ApiSource):
    """Reads the model list of the Anthropic API, whose `max_input_tokens` is the window that the output shares."""

    api = ANTHROPIC

    def _entries(self) -> Iterable[Entry]:
        return self._pages("/models", limit=1000)

    def _headers(self) -> dict[str, str]:
        return {**super()._headers(), "anthropic-version": "2023-06-01"}

    def _info(self, entry: Entry) -> ModelInfo | None:
        support = entry.get("capabilities")
        can = {
            what: mapping(said).get("supported")
            for what, said in mapping(support).items()
        }
        return stated(
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
        )


LOCAL = ("localhost", "127.0.0.1", "::1")
LATEST = ":latest"
VERSION = "/v1"
_WINDOW_PARAMETER = re.compile(r"^[^\S\n]*+num_ctx\s++(\d++)\s*$", re.MULTILINE)


class OllamaSource(ApiSource):
    """Reads the models of an Ollama server.

    The window is the one that the server runs a model with: the model's `num_ctx` parameter, else what it is loaded
    with now, else `OLLAMA_CONTEXT_LENGTH` for a server on this machine. Only where none of these is set the window that
    the model was trained for is stated; the server cuts longer requests silently, so set one of them.
    """

    api = OLLAMA

    def __init__(
        self,
        base_url: str = OLLAMA.url,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(_checked(base_url), timeout_seconds=timeout_seconds)
        # as chat clients of OpenAI's protocol take it
        self._base_url = self._base_url.removesuffix(VERSION)

    def _entries(self) -> Iterable[Entry]:
        models = [_name_in(one) for one in self._pages("/api/tags")]
        loaded = {
            _name_in(one): one.get("context_length")
            for one in _optional(self, "/api/ps")
        }
        for model in models:
            shown = mapping(
                self._ask("/api/show", method="POST", json={"model": model})
            )
            yield {**shown, "name": model, "loaded": loaded.get(model)}

    def _info(self, entry: Entry) -> ModelInfo | None:
        set_here = _WINDOW_PARAMETER.search(str(entry.get("parameters")))
        started = tokens(set_here[1]) if set_here else tokens(entry["loaded"])
        # the server's setting is this process's too
        if not started and urlsplit(self._base_url).hostname in LOCAL:
            started = tokens(os.environ.get("OLLAMA_CONTEXT_LENGTH"))
        windows = (_trained_window(mapping(entry.get("model_info"))), started)
        can = entry.get("capabilities")
        return stated(
            entry["name"],
            provider="ollama",
            context_window=min(filter(None, windows), default=None),
            capabilities=capabilities_of(
                tools=None if can is None else "tools" in can,
                images="vision" in (can or ()),
                audio="audio" in (can or ()),
                reasoning="thinking" in (can or ()),
                structured_output=True,  # the server constrains any model's output to a schema
            ),
            aliases=(entry["name"].removesuffix(LATEST),)
            if entry["name"].endswith(LATEST)
            else (),
        )


def _name_in(entry: Entry) -> str:
    return str(entry.get("model") or entry.get("name"))


def _optional(source: ApiSource, path: str, **sent: Any) -> list[Entry]:
    """The entries of a list that not every server has."""
    try:
        return _listed(source._ask(path, **sent))  # noqa: SLF001  # of this module
    except SourceError:
        return []


def _trained_window(facts: Entry) -> int | None:
    """`<architecture>.context_length`; the longest such key may be that of a part, such as the vision encoder."""
    own = tokens(facts.get(f"{facts.get('general.architecture')}.context_length"))
    found = (
        tokens(value) for key, value in facts.items() if key.endswith(".context_length")
    )
    return own or min(filter(None, found), default=None)


class OpenAICompatibleSource(ApiSource):
    """Reads the model list of a server, in whatever shape it adds limits and prices to OpenAI's.

    OpenAI itself states no limits. Where the list of an unknown server states none, the own lists of LM Studio and of
    llama.cpp are tried on the same host: there the window that the server was started with counts, not the one that the
    model was trained for.

    Args:
        base_url: As the OpenAI client takes it, with `/v1`.
        api_key: As for every source of this module.
        provider: Provider id of the statements; by default that of a well-known host, else the host itself and its
            port, because the same name may have other limits elsewhere.
        timeout_seconds: Of one answer.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    api = COMPATIBLE[0]

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        provider: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(_checked(base_url), api_key, timeout_seconds=timeout_seconds)
        self.name = provider_id(provider) if provider else provider_at(self._base_url)

    def _key(self) -> str:
        return self._api_key or next(
            filter(None, (_own_key(api, self._base_url) for api in COMPATIBLE)),
            "",
        )

    def _entries(self) -> list[Entry]:
        entries = self._pages("/models")
        # llama.cpp, and no other server
        if any("n_ctx_train" in mapping(entry.get("meta")) for entry in entries):
            return self._started(entries)
        is_known = any(
            urlsplit(api.url).netloc == urlsplit(self._base_url).netloc
            for api in COMPATIBLE
        )
        if is_known or any(map(_window_of, entries)):
            return entries
        # LM Studio
        more = {
            one.get("id"): one
            for one in _optional(self, "/api/v0/models", without=VERSION)
        }
        return [{**entry, **more.get(entry.get("id"), {})} for entry in entries]

    def _started(self, entries: list[Entry]) -> list[Entry]:
        """The entries with the window that a llama.cpp server was started with."""
        try:
            facts = mapping(self._ask("/props", without=VERSION))
        except SourceError:
            return entries
        started = mapping(facts.get("default_generation_settings")).get("n_ctx")
        return [{**entry, "context_window": started} for entry in entries]

    def _info(self, entry: Entry) -> ModelInfo | None:
        return read_entry(entry, self.name)


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
    "input_price": ("prompt", "input"),
    "output_price": ("completion", "output"),
    "cache_read_price": ("input_cache_read", "cached_input"),
    "cache_write_price": ("input_cache_write",),
}

RETIREMENTS = (
    "deprecation",
    "expiration_date",
    "deprecation_date",
    "deprecationDate",
)
# Mistral, Fireworks, Fireworks' own API
TAKES_TOOLS = ("function_calling", "supports_tools", "supportsTools")
# the same
TAKES_IMAGES = ("vision", "supports_image_input", "supportsImageInput")
# OpenRouter's -> capability
INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "file": "pdf"}


def read_entry(entry: Entry, provider: str | None) -> ModelInfo | None:
    """Return what an entry of a compatible server states, or None when it has no name."""
    outputs = _known(
        [
            mapping(entry.get("top_provider")).get("max_completion_tokens"),
            *map(entry.get, OUTPUTS),
        ]
    )
    return stated(
        entry.get("id") or entry.get("name"),
        provider=provider,
        context_window=_window_of(entry),
        max_output_tokens=min(outputs, default=None),
        **_prices(entry),
        capabilities=_capabilities(entry),
        deprecated=entry.get("active") is False
        or bool(first(entry, "is_deprecated", "deprecated", "deprecation")),
        retires_on=day(first(entry, *RETIREMENTS)),
        aliases=tuple(
            alias for alias in entry.get("aliases") or () if isinstance(alias, str)
        ),
    )


def _window_of(entry: Entry) -> int | None:
    """The window that requests meet: the one it was loaded with (LM Studio), else the smallest stated."""
    meta, top = mapping(entry.get("meta")), mapping(entry.get("top_provider"))
    windows = [
        *map(entry.get, WINDOWS),
        meta.get("n_ctx"),
        top.get("context_length"),
    ]
    return tokens(entry.get("loaded_context_length")) or min(
        _known(windows), default=None
    )


def _known(values: list[Any]) -> list[int]:
    return list(filter(None, map(tokens, values)))


def _prices(entry: Entry) -> dict[str, Decimal | None]:
    """Prices per token as text, or per million as a number."""
    table = mapping(entry.get("pricing"))
    found = {field: first(table, *keys) for field, keys in PRICES.items()}
    return {
        field: price(value, per=ONE_TOKEN if isinstance(value, str) else MILLION)
        for field, value in found.items()
    }


def _capabilities(entry: Entry) -> frozenset[str]:
    parameters, table = (
        entry.get("supported_parameters"),
        entry.get("capabilities"),
    )
    if isinstance(parameters, list):  # OpenRouter
        kinds = mapping(entry.get("architecture")).get("input_modalities") or ()
        return capabilities_of(
            tools="tools" in parameters,
            structured_output="structured_outputs" in parameters,
            reasoning="reasoning" in parameters,
            temperature="temperature" in parameters,
            **{name: kind in kinds for kind, name in INPUT_KINDS.items()},
        )
    if isinstance(table, list):  # LM Studio
        return capabilities_of(
            tools="tool_use" in table, images=entry.get("type") == "vlm"
        )
    said = {**entry, **mapping(table)}
    return capabilities_of(
        tools=first(said, *TAKES_TOOLS), images=first(said, *TAKES_IMAGES)
    )


def api_sources(environment: Mapping[str, str]) -> list[ApiSource]:
    """Return the sources that can be asked with what the environment holds.

    An API is asked only with its key, at the address that its client's own variable names; Ollama only when its address
    is set.

    Raises:
        ConfigError: an address in the environment is none.
    """
    found: list[ApiSource] = []
    if key := GEMINI.key(environment):
        found.append(GeminiSource(GEMINI.address(environment), key))
    if key := ANTHROPIC.key(environment):
        found.append(AnthropicSource(ANTHROPIC.address(environment), key))
    keyed = [api for api in COMPATIBLE if api.key(environment)]
    found += [
        OpenAICompatibleSource(api.address(environment), api.key(environment))
        for api in keyed
    ]
    if host := environment.get("OLLAMA_HOST"):
        found.append(OllamaSource(ollama_address(host)))
    return found


LISTENING = ("", "0.0.0.0", "[::]")  # noqa: S104  # where a server listens, which is not where it is


def ollama_address(host: str) -> str:
    """Return the URL in `OLLAMA_HOST`, which servers and clients also take without scheme, host or port.

    Examples:
        >>> (
        ...     ollama_address("0.0.0.0"),
        ...     ollama_address(":8080"),
        ...     ollama_address("http://gateway/ollama"),
        ... )
        ('http://127.0.0.1:11434', 'http://127.0.0.1:8080', 'http://gateway/ollama')
    """
    scheme, separator, rest = host.strip().rpartition("://")
    address, slash, path = rest.rstrip("/").partition("/")
    bare = (
        f"[{address}]"
        if address.count(":") > 1 and not address.startswith("[")
        else address
    )
    name, colon, port = bare.rpartition(":")
    if not colon or "]" in port:
        # with a scheme, the scheme's own port is meant
        name, port = (bare, "" if separator else "11434")
    name = "127.0.0.1" if name in LISTENING else name
    return f"{scheme or 'http'}://{name}{port and ':'}{port}{slash}{path}"
