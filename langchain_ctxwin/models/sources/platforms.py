"""Platforms: the usual addresses and keys of providers, where a key may go, and the sources that a machine offers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import ModelSource

KEY_SUFFIX = "_API_KEY"

ADDRESS_SUFFIXES = ("_BASE_URL", "_API_BASE", "_API_URL")
"""Endings of the variables by which clients are sent to another server than the usual one."""

DIGEST_BYTES = 8
"""Enough to tell a handful of keys apart, too little to be of use to anybody else."""

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A provider as its clients know it from the environment."""

    provider: str
    url: str
    key_variables: tuple[str, ...]
    address_variables: tuple[str, ...] = ()
    """Further variables than those that the name of the key's variable implies."""

    other_hosts: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that are this provider's own."""
        return (urlsplit(self.url).hostname or "", *self.other_hosts)

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the key and of the address."""
        stems = (variable.removesuffix(KEY_SUFFIX) for variable in self.key_variables)
        implied = (f"{stem}{suffix}" for stem in stems for suffix in ADDRESS_SUFFIXES)
        return (*self.key_variables, *self.address_variables, *implied)

    def key(self, environment: Mapping[str, str]) -> str:
        """Return the key in the environment; empty when there is none."""
        return next(filter(None, map(environment.get, self.key_variables)), None) or ""

    def address(self, environment: Mapping[str, str]) -> str:
        """Return the address that the environment sends clients to; empty when it is the usual one."""
        moving = (name for name in self.variables if name not in self.key_variables)
        return next(filter(None, map(environment.get, moving)), None) or ""

    def key_for(self, url: str, environment: Mapping[str, str]) -> str:
        """Return the key if it may go there: to the provider over TLS, or to the server the environment names."""
        place = place_of(url)
        usual = {("https", host, PORTS["https"]) for host in self.hosts}
        return self.key(environment) if place in usual or place == place_of(self.address(environment)) else ""


ANTHROPIC = Platform(provider="anthropic", url="https://api.anthropic.com", key_variables=("ANTHROPIC_API_KEY",))

GEMINI = Platform(
    provider="google",
    url="https://generativelanguage.googleapis.com",
    key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    address_variables=("GOOGLE_GEMINI_BASE_URL",),
)


def _compatible(provider: str, url: str, variable: str, *other_hosts: str) -> Platform:
    return Platform(provider=provider, url=url, key_variables=(variable,), other_hosts=other_hosts)


COMPATIBLE = (
    _compatible("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    _compatible("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    _compatible("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    _compatible("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    _compatible("togetherai", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "api.together.ai"),
    _compatible("fireworks-ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _compatible("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    _compatible("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    _compatible("cohere", "https://api.cohere.com/v1", "COHERE_API_KEY"),
)
"""Providers whose lists are read as OpenAI's is."""


VARIABLES = tuple(name for platform in (GEMINI, ANTHROPIC, *COMPATIBLE) for name in platform.variables)
"""Everything in an environment that brings a key or moves it."""


def platform_at(url: str) -> Platform | None:
    """Return the provider that an OpenAI-compatible address belongs to, or None for a server that nobody knows."""
    host = place_of(url)[1]
    return next((platform for platform in COMPATIBLE if host in platform.hosts), None)


def provider_at(url: str) -> str:
    """Return the provider id of an address; an unknown server is a provider of its own, named after host and port."""
    platform = platform_at(url)
    return platform.provider if platform else urlsplit(url).netloc.rpartition("@")[2].lower()


def digest(secret: str) -> str:
    """Return a short fingerprint of what must not be stored, led by a blank; empty when there is nothing."""
    return f" {blake2b(secret.encode(), digest_size=DIGEST_BYTES).hexdigest()}" if secret.strip() else ""


def place_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an address; what is no address is nowhere."""
    try:
        parts = urlsplit(url.strip())
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", "", -1


APP = "langchain-ctxwin"
SNAPSHOTS_FILE = "models.json"
LEARNED_FILE = "learned.json"

OLLAMA_PORT = ":11434"

LISTENING = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104  # where a server listens, which is not where it is


def cache_folder() -> Path:
    """Return the platform's folder for what may be deleted at any time."""
    import platformdirs  # noqa: PLC0415  # not needed to look a model up

    return Path(platformdirs.user_cache_path(APP))


def data_folder() -> Path:
    """Return the platform's folder for what was learned and cannot be fetched again."""
    import platformdirs  # noqa: PLC0415  # as above

    return Path(platformdirs.user_data_path(APP))


class Misconfigured:
    """Stands where a source would be whose address is none, so that it is shown with what is wrong, and others work."""

    tier = "provider"

    def __init__(self, name: str, error: ConfigError) -> None:
        self.name = name
        self._error = error

    def fetch(self, name: str | None) -> Sequence[ModelInfo]:  # noqa: ARG002  # the protocol's parameter
        """Say what is wrong.

        Raises:
            ConfigError: always.
        """
        raise self._error


def sources_of(
    environment: Mapping[str, str], *, models: Sequence[Any] = (), catalogs: Sequence[str | os.PathLike[str]] = ()
) -> list[ModelSource]:
    """Return the sources that can be asked with what the environment holds, besides what was learned.

    An API is asked only with its key, at the address that its client's own variable names; a server only when its
    address is set, a catalog only when it is given.
    """
    from langchain_ctxwin.models import sources  # noqa: PLC0415  # loads an HTTP client

    compatible = dict.fromkeys(COMPATIBLE, sources.OpenAICompatibleSource)
    kinds: dict[Platform, Any] = {GEMINI: sources.GeminiSource, ANTHROPIC: sources.AnthropicSource, **compatible}
    found: list[ModelSource] = []
    for platform, kind in kinds.items():
        if key := platform.key(environment):
            make = partial(kind, platform.address(environment) or platform.url, api_key=key)
            found.append(_made(platform.provider, make))
    if host := environment.get("OLLAMA_HOST"):
        found.append(_made("ollama", lambda: sources.OllamaSource(ollama_address(host))))
    found.append(sources.ProfileSource(models))
    found += [sources.CatalogSource(catalog) for catalog in catalogs]
    return found


def ollama_address(host: str) -> str:
    """Return the URL in `OLLAMA_HOST`, which servers and clients also take without scheme, host or port.

    Examples:
        >>> ollama_address("0.0.0.0"), ollama_address(":8080"), ollama_address("http://gateway/ollama")
        ('http://127.0.0.1:11434', 'http://127.0.0.1:8080', 'http://gateway/ollama')
    """
    scheme, separator, rest = host.strip().rpartition("://")
    address, slash, path = rest.rstrip("/").partition("/")
    bare = f"[{address}]" if address.count(":") > 1 and not address.startswith("[") else address
    name, port = _split_port(bare)
    if name in LISTENING:
        name = "127.0.0.1"
    usual = "" if separator else OLLAMA_PORT  # with a scheme, the scheme's own port is meant
    return f"{scheme or 'http'}://{name}{port or usual}{slash}{path}"


def _split_port(address: str) -> tuple[str, str]:
    name, colon, port = address.rpartition(":")
    return (name, colon + port) if colon and "]" not in port else (address, "")


def _made(name: str, make: Callable[[], ModelSource]) -> ModelSource:
    try:
        return make()
    except ConfigError as error:
        return Misconfigured(name, error)
