"""Providers' own lists of models: one table of APIs, asked over HTTP in one way.

row of the table  --key, pages-->  entries of its list  --read-->  ModelInfo
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.models.reading import (
    ONE_TOKEN,
    SourceError,
    capabilities_of,
    mapping,
    model_info_of,
    named,
    price,
    provider_id,
    tokens,
)

TIMEOUT_SECONDS = 8.0  # of one answer; lists take one or two
MAX_PAGES = (
    50  # of one listing; the longest known have a few hundred entries, at 1,000 a page
)

# Where a page says how the next one is asked for -> parameter that asks for it.
CURSORS = {
    "nextPageToken": "pageToken",
    "next_page_token": "page_token",
    "last_id": "after_id",
}
LATEST, VERSION = ":latest", "/v1"

Entry = Mapping[str, Any]


def fetch_json(
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
    import httpx  # noqa: PLC0415  # most programs ask nobody

    address = url.partition("?")[0]
    try:
        answer = httpx.request(
            method,
            url,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            follow_redirects=not headers,
            **sent,
        )
        answer.raise_for_status()
        return answer.json()
    except httpx.HTTPStatusError as error:
        why = f"answered HTTP {error.response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:  # may quote what was sent
        why = f"cannot be reached: {type(error).__name__}"
    except ValueError:
        why = "answered no JSON, or the key holds what no header may"
    raise SourceError(f"{address} {why}")


@dataclass(frozen=True, slots=True)
class Api:
    """Where a provider's API is, how a key goes along, and how its list is read."""

    provider: str
    url: str
    variables: tuple[str, ...] = ()
    """Variables of the environment that hold the key, the preferred one first."""

    version: str = ""
    """What is added to an address that ends in no version."""

    header: str = "authorization"
    prefix: str = "Bearer "
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Entry, str], ModelInfo | None] | None = None
    """Reads an entry; None as servers that speak OpenAI's protocol write it."""


def read_gemini(entry: Entry, provider: str) -> ModelInfo | None:
    """Return what the Gemini API states: input and output limits are separate, the window is their sum."""
    methods = entry.get("supportedGenerationMethods", ["generateContent"])
    if "generateContent" not in methods:
        return None  # a model for something else, such as embeddings
    largest_input = tokens(entry.get("inputTokenLimit"))
    largest_output = tokens(entry.get("outputTokenLimit"))
    window = (
        largest_input + largest_output if largest_input and largest_output else None
    )
    return model_info_of(
        str(entry.get("name", "")).removeprefix("models/"),
        provider=provider,
        context_window=window,
        max_input_tokens=largest_input,
        max_output_tokens=largest_output,
    )


def read_anthropic(entry: Entry, provider: str) -> ModelInfo | None:
    """Return what the Anthropic API states: its `max_input_tokens` is the window that the output shares."""
    return model_info_of(
        entry.get("id"),
        provider=provider,
        context_window=tokens(entry.get("max_input_tokens")),
        max_output_tokens=tokens(entry.get("max_tokens")),
    )


_WINDOW_PARAMETER = re.compile(r"^[^\S\n]*+num_ctx\s++(\d++)\s*$", re.MULTILINE)


def read_ollama(entry: Entry, provider: str) -> ModelInfo | None:
    """Return the facts that an Ollama server states about one model."""
    set_here = _WINDOW_PARAMETER.search(str(entry.get("parameters")))
    started = tokens(set_here[1] if set_here else entry["loaded"])
    facts = mapping(entry.get("model_info"))
    trained = tokens(facts.get(f"{facts.get('general.architecture')}.context_length"))
    can, name = entry.get("capabilities"), entry["name"]
    return model_info_of(
        name,
        provider=provider,
        context_window=min(filter(None, (trained, started)), default=None),
        capabilities=capabilities_of(
            tools=None if can is None else "tools" in can,
            images="vision" in (can or ()),
            structured_output=True,  # the server constrains any model's output to a schema
        ),
        aliases=(name.removesuffix(LATEST),) if name.endswith(LATEST) else (),
    )


ANTHROPIC = Api(
    "anthropic",
    "https://api.anthropic.com",
    ("ANTHROPIC_API_KEY",),
    "/v1",
    "x-api-key",
    "",
    {"anthropic-version": "2023-06-01"},
    {"limit": 1000},
    read_anthropic,
)
GEMINI = Api(
    "google",
    "https://generativelanguage.googleapis.com",
    ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "/v1beta",
    "x-goog-api-key",
    "",
    params={"pageSize": 1000},
    read=read_gemini,
)
OLLAMA = Api("ollama", "http://localhost:11434", read=read_ollama)
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


def compatible_at(url: str) -> Api | None:
    """Return the well-known server at an address that speaks OpenAI's protocol, if it is one."""
    place = urlsplit(url).netloc
    return next((api for api in COMPATIBLE if urlsplit(api.url).netloc == place), None)


def provider_at(url: str) -> str:
    """Return the provider id of an address; an unknown server is a provider of its own, named after host and port."""
    api = compatible_at(url)
    return api.provider if api else urlsplit(url).netloc.lower()


class ApiSource:
    """A provider's API as a source.

    The key is by default that of the provider's usual variable, read when asked, which goes to the provider; any other
    host gets a key only from `api_key`.
    """

    tier: ClassVar[str] = "provider"

    def __init__(
        self,
        api: Api,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        base = _checked(api.url if base_url is None else base_url)
        is_versioned = re.search(r"/v\d\w*$", base)
        self.api, self.name = api, api.provider
        self.base_url = base if is_versioned else base + api.version
        self._api_key = api_key

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, by its name or an alias, or all of them; an API that cannot be read is a `SourceError`."""
        read = self.api.read or read_entry
        infos = (read(entry, self.name) for entry in self.entries())
        return named(filter(None, infos), name)

    def entries(self) -> Iterable[Entry]:
        """Return what the API says about its models."""
        return self.pages("/models", **self.api.params)

    def pages(self, path: str, **params: Any) -> list[Entry]:
        """Return the entries of a list, over all its pages: a bare list, or the one under `data` or `models`."""
        entries: list[Entry] = []
        for _ in range(MAX_PAGES):
            page = self.ask(path, params=params)
            fields = mapping(page)
            listed = fields.get("data") or fields.get("models")
            if isinstance(page, list):
                listed = page
            entries += [entry for entry in listed or () if isinstance(entry, dict)]
            more = {
                parameter: fields[field]
                for field, parameter in CURSORS.items()
                if fields.get(field) and fields.get("has_more") is not False
            }
            # a cursor that comes again would never end
            if not more or more.items() <= params.items():
                break
            params |= more
        return entries

    def ask(self, path: str, *, without: str = "", **sent: Any) -> Any:
        """Return the answer below the base URL, or below what is before this end of it."""
        key = self.key()
        own = {self.api.header: self.api.prefix + key} if key else {}
        return fetch_json(
            self.base_url.removesuffix(without) + path,
            {"accept": "application/json", **own, **self.api.headers},
            **sent,
        )

    def key(self) -> str:
        """Return the key that goes along: one in the environment goes to the provider alone."""
        is_own = urlsplit(self.base_url)[:2] == urlsplit(self.api.url)[:2]
        kept = map(os.environ.get, self.api.variables) if is_own else ()
        return self._api_key or next(filter(None, kept), "")


def _checked(url: str) -> str:
    wanted = "a URL such as http://localhost:8000/v1"
    url = expect(url, str, "base_url", wanted).strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"base_url={url!r}: give {wanted}")
    if parts.username or parts.password or parts.query:
        raise ConfigError(
            "base_url: leave user, password and query out; pass the key as api_key"
        )
    return url


GeminiSource = partial(ApiSource, GEMINI)
"""Reads the model list of the Gemini API; takes `base_url` and `api_key`."""

AnthropicSource = partial(ApiSource, ANTHROPIC)
"""Reads the model list of the Anthropic API, likewise."""


class OllamaSource(ApiSource):
    """Reads the models of an Ollama server.

    The window is the one that the server runs a model with: the model's `num_ctx` parameter, else what it is loaded
    with now. Only where neither is known the window that the model was trained for is stated; the server cuts longer
    requests silently, so set `num_ctx`.
    """

    def __init__(self, base_url: str = OLLAMA.url) -> None:
        super().__init__(OLLAMA, base_url)

    def entries(self) -> Iterable[Entry]:
        """Yield what the server says of each of its models."""
        running: list[Entry] = []
        with suppress(SourceError):  # older servers do not say
            running = self.pages("/api/ps")
        loaded = {_name_in(one): one.get("context_length") for one in running}
        for name in map(_name_in, self.pages("/api/tags")):
            details = self.ask("/api/show", method="POST", json={"model": name})
            yield {**mapping(details), "name": name, "loaded": loaded.get(name)}


def _name_in(entry: Entry) -> str:
    return str(entry.get("model") or entry.get("name"))


class OpenAICompatibleSource(ApiSource):
    """Reads the model list of a server, in whatever shape it adds limits and prices to OpenAI's.

    OpenAI itself states no limits. Where the list of an unknown server states none, LM Studio's own list is tried on
    the same host. The window that a server was started with counts, not the one that the model was trained for.

    Args:
        base_url: As the OpenAI client takes it, with `/v1`.
        api_key: As for every source of this module.
        provider: Provider id of the statements; by default that of a well-known host, else the host itself and its
            port, because the same name may have other limits elsewhere.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        provider: str | None = None,
    ) -> None:
        url = _checked(base_url)
        super().__init__(compatible_at(url) or COMPATIBLE[0], url, api_key)
        self.name = provider_id(provider) if provider else provider_at(self.base_url)

    def entries(self) -> list[Entry]:
        """Return the server's models, with the window that it was started with."""
        entries = self.pages("/models")
        if compatible_at(self.base_url) or any(map(_window_of, entries)):
            return entries
        listed: Any = None
        with suppress(SourceError):  # only LM Studio has this one
            listed = self.ask("/api/v0/models", without=VERSION)
        more = {one.get("id"): one for one in mapping(listed).get("data") or ()}
        return [{**entry, **more.get(entry.get("id"), {})} for entry in entries]


WINDOWS = (
    "context_window",  # Groq, Vercel
    "context_length",  # OpenRouter, Together, Fireworks, Cohere
    "contextLength",  # Fireworks' own API, Together
    "max_context_length",  # Mistral, LM Studio
    "max_model_len",  # vLLM
    "max_prompt_length",  # xAI
)
OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_output_length")

PRICES = {  # field -> OpenRouter's, USD per token
    "input_price": "prompt",
    "output_price": "completion",
    "cache_read_price": "input_cache_read",
    "cache_write_price": "input_cache_write",
}


def read_entry(entry: Entry, provider: str | None) -> ModelInfo | None:
    """Return what an entry of a compatible server states, or None when it has no name."""
    top, table = mapping(entry.get("top_provider")), mapping(entry.get("pricing"))
    outputs = [top.get("max_completion_tokens"), *map(entry.get, OUTPUTS)]
    prices: dict[str, Any] = {
        field: price(table.get(key), per=ONE_TOKEN) for field, key in PRICES.items()
    }
    return model_info_of(
        entry.get("id") or entry.get("name"),
        provider=provider,
        context_window=_window_of(entry),
        max_output_tokens=_smallest(outputs),
        **prices,
    )


def _window_of(entry: Entry) -> int | None:
    """The window that requests meet: the one it was loaded with (LM Studio), else the smallest stated."""
    meta, top = mapping(entry.get("meta")), mapping(entry.get("top_provider"))
    windows = [
        *map(entry.get, WINDOWS),
        meta.get("n_ctx"),
        top.get("context_length"),
    ]
    return tokens(entry.get("loaded_context_length")) or _smallest(windows)


def _smallest(values: Iterable[Any]) -> int | None:
    return min(filter(None, map(tokens, values)), default=None)
