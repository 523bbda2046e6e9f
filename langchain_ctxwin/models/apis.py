"""Providers' own lists of models, asked over HTTP in one way.

address, key, pages  -->  entries of a list  --read-->  ModelInfo
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from math import inf
from typing import Any, ClassVar
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import ModelInfo, exact
from langchain_ctxwin.errors import ConfigError, ContextWindowError, expect

TIMEOUT_SECONDS = 8.0  # of one answer; lists take one or two
# of one listing; the longest known have a few hundred entries, at 1,000 a page
MAX_PAGES = 50

# Where a page says how the next one is asked for -> parameter that asks for it.
CURSORS = {
    "nextPageToken": "pageToken",
    "next_page_token": "page_token",
    "last_id": "after_id",
}
VERSION = "/v1"

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
        SourceError: there is no good answer; the text holds no key or password, and nothing of the answer.
    """
    import httpx  # noqa: PLC0415  # most programs ask nobody

    address = re.sub(r"//[^/]*@", "//", url.partition("?")[0])
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


class ApiSource:
    """A provider's API as a source.

    The key is by default that of the provider's usual variable, read when asked, which goes to the provider; any other
    host gets a key only from `api_key`.
    """

    tier: ClassVar[str] = "provider"
    provider: str
    url: str
    variables: ClassVar[tuple[str, ...]] = ()
    """Variables of the environment that hold the key, the preferred one first."""

    version: ClassVar[str] = ""
    """What is added to an address that ends in no version."""

    header: ClassVar[str] = "authorization"
    prefix: ClassVar[str] = "Bearer "
    headers: ClassVar[Mapping[str, str]] = {}
    params: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        base = _checked(self.url if base_url is None else base_url)
        is_versioned = re.search(r"/v\d\w*$", base)
        self.name = self.provider
        self.base_url = base if is_versioned else base + self.version
        self._api_key = api_key

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, by its name or an alias, or all of them; an API that cannot be read is a `SourceError`."""
        return named(filter(None, map(self.read, self.entries())), name)

    def read(self, entry: Entry) -> ModelInfo | None:
        """Return what an entry of the list states; None for what is no chat model."""
        raise NotImplementedError

    def entries(self) -> Iterable[Entry]:
        """Return what the API says about its models."""
        return self.pages("/models", **self.params)

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
        is_own = self.base_url == self.url + self.version
        kept = map(os.environ.get, self.variables) if is_own else ()
        key = self._api_key or next(filter(None, kept), "")
        own = {self.header: self.prefix + key} if key else {}
        return fetch_json(
            self.base_url.removesuffix(without) + path,
            {"accept": "application/json", **own, **self.headers},
            **sent,
        )


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


class GeminiSource(ApiSource):
    """Reads the model list of the Gemini API: input and output limits are separate, the window is their sum."""

    provider = "google"
    url = "https://generativelanguage.googleapis.com"
    variables = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    version = "/v1beta"
    header, prefix = "x-goog-api-key", ""
    params: ClassVar[Mapping[str, Any]] = {"pageSize": 1000}

    def read(self, entry: Entry) -> ModelInfo | None:
        """Return what an entry of the list states."""
        methods = entry.get("supportedGenerationMethods", ["generateContent"])
        if "generateContent" not in methods:
            return None  # a model for something else, such as embeddings
        largest_input = tokens(entry.get("inputTokenLimit"))
        largest_output = tokens(entry.get("outputTokenLimit"))
        window = None
        if largest_input and largest_output:
            window = largest_input + largest_output
        return model_info_of(
            str(entry.get("name", "")).removeprefix("models/"),
            provider=self.provider,
            context_window=window,
            max_input_tokens=largest_input,
            max_output_tokens=largest_output,
        )


class AnthropicSource(ApiSource):
    """Reads the model list of the Anthropic API: its `max_input_tokens` is the window that the output shares."""

    provider = "anthropic"
    url = "https://api.anthropic.com"
    variables = ("ANTHROPIC_API_KEY",)
    version = VERSION
    header, prefix = "x-api-key", ""
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
    params: ClassVar[Mapping[str, Any]] = {"limit": 1000}

    def read(self, entry: Entry) -> ModelInfo | None:
        """Return what an entry of the list states."""
        return model_info_of(
            entry.get("id"),
            provider=self.provider,
            context_window=tokens(entry.get("max_input_tokens")),
            max_output_tokens=tokens(entry.get("max_tokens")),
        )


_WINDOW_PARAMETER = re.compile(r"^[^\S\n]*+num_ctx\s++(\d++)\s*$", re.MULTILINE)


class OllamaSource(ApiSource):
    """Reads the models of an Ollama server.

    The window is the one that the server runs a model with: the model's `num_ctx` parameter, else what it is loaded
    with now. Only where neither is known the window that the model was trained for is stated; the server cuts longer
    requests silently, so set `num_ctx`.
    """

    provider = "ollama"
    url = "http://localhost:11434"

    def entries(self) -> Iterable[Entry]:
        """Yield what the server says of each of its models."""
        running: list[Entry] = []
        with suppress(SourceError):  # older servers do not say
            running = self.pages("/api/ps")
        loaded = {_name_in(one): one.get("context_length") for one in running}
        for name in map(_name_in, self.pages("/api/tags")):
            details = self.ask("/api/show", method="POST", json={"model": name})
            yield {**mapping(details), "name": name, "loaded": loaded.get(name)}

    def read(self, entry: Entry) -> ModelInfo | None:
        """Return the facts that the server states about one model."""
        set_here = _WINDOW_PARAMETER.search(str(entry.get("parameters")))
        started = set_here[1] if set_here else entry["loaded"]
        facts = mapping(entry.get("model_info"))
        trained = facts.get(f"{facts.get('general.architecture')}.context_length")
        can, name = entry.get("capabilities"), entry["name"]
        return model_info_of(
            name,
            provider=self.provider,
            context_window=_smallest((trained, started)),
            capabilities=capabilities_of(
                tools=None if can is None else "tools" in can,
                images="vision" in (can or ()),
                structured_output=True,  # the server constrains any model's output to a schema
            ),
            aliases=tuple({name.removesuffix(":latest")} - {name}),
        )


def _name_in(entry: Entry) -> str:
    return str(entry.get("model") or entry.get("name"))


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


class OpenAICompatibleSource(ApiSource):
    """Reads the model list of a server, in whatever shape it adds limits and prices to OpenAI's.

    OpenAI itself states no limits. Where a list states none, LM Studio's own list is tried on the same host. The window
    that a server was started with counts, not the one that the model was trained for.

    Args:
        base_url: As the OpenAI client takes it, with `/v1`.
        api_key: Goes along with each question.
        provider: Provider id of the statements; by default that of the host.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        provider: str | None = None,
    ) -> None:
        self.url = _checked(base_url)
        self.provider = provider_id(provider) if provider else provider_at(self.url)
        super().__init__(base_url, api_key)

    def entries(self) -> list[Entry]:
        """Return the server's models, with the window that it was started with."""
        entries = self.pages("/models")
        if any(map(_window_of, entries)):
            return entries
        listed: Any = None
        with suppress(SourceError):  # only LM Studio has this one
            listed = self.ask("/api/v0/models", without=VERSION)
        more = {one.get("id"): one for one in mapping(listed).get("data") or ()}
        return [{**entry, **more.get(entry.get("id"), {})} for entry in entries]

    def read(self, entry: Entry) -> ModelInfo | None:
        """Return what an entry states, or None when it has no name."""
        top, table = mapping(entry.get("top_provider")), mapping(entry.get("pricing"))
        outputs = [top.get("max_completion_tokens"), *map(entry.get, OUTPUTS)]
        prices: dict[str, Any] = {
            field: price(table.get(key), per=ONE_TOKEN) for field, key in PRICES.items()
        }
        return model_info_of(
            entry.get("id") or entry.get("name"),
            provider=self.provider,
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


def provider_at(url: str) -> str:
    """Return the provider id of an address: of a maker's own domain its name, else the host and its port.

    The same name may have other limits elsewhere.

    Examples:
        >>> (
        ...     provider_at("https://api.groq.com/openai/v1"),
        ...     provider_at("http://localhost:8000/v1"),
        ... )
        ('groq', 'localhost:8000')
    """
    place = urlsplit(url).netloc.lower()
    domain = _DOMAIN.fullmatch(place)
    return provider_id(domain[1]) if domain else place


_DOMAIN = re.compile(r"(?:api\.)?([a-z][a-z0-9-]*+)\.(?:ai|com|xyz)")


# ---- what tables and servers write; what cannot be read is None ------------------------------------------------------

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
    if number is None or number * MILLION / per > MAX_PRICE:
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
