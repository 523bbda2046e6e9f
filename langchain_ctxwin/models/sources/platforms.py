"""Platforms: the usual addresses and keys of providers, where a key may go, and the sources that a machine offers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import ModelSource

ADDRESS_SUFFIXES = ("_BASE_URL", "_API_BASE", "_API_URL")  # of variables that send clients to another server
PORTS = {"http": 80, "https": 443}
LISTENING = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104  # where a server listens, which is not where it is


@dataclass(frozen=True, slots=True)
class Platform:
    """A provider as its clients know it from the environment."""

    provider: str
    url: str
    key_variables: tuple[str, ...]
    other_hosts: tuple[str, ...] = ()
    other_addresses: tuple[str, ...] = ()  # variables that the name of the key's variable does not imply

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that are this provider's own."""
        return (urlsplit(self.url).hostname or "", *self.other_hosts)

    @property
    def address_variables(self) -> tuple[str, ...]:
        """Variables that send clients to another server."""
        stems = (variable.removesuffix("_API_KEY") for variable in self.key_variables)
        return (*self.other_addresses, *(stem + suffix for stem in stems for suffix in ADDRESS_SUFFIXES))

    def key(self, environment: Mapping[str, str]) -> str:
        """Return the key in the environment; empty when there is none."""
        return next(filter(None, map(environment.get, self.key_variables)), None) or ""

    def address(self, environment: Mapping[str, str]) -> str:
        """Return the address that the environment sends clients to; empty when it is the usual one."""
        return next(filter(None, map(environment.get, self.address_variables)), None) or ""

    def key_for(self, url: str, environment: Mapping[str, str]) -> str:
        """Return the key if it may go there: to the provider over TLS, or to the server the environment names."""
        allowed = {("https", host, PORTS["https"]) for host in self.hosts} | {place_of(self.address(environment))}
        return self.key(environment) if place_of(url) in allowed else ""


ANTHROPIC = Platform("anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",))
GEMINI = Platform(
    "google",
    "https://generativelanguage.googleapis.com",
    ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    other_addresses=("GOOGLE_GEMINI_BASE_URL",),
)
COMPATIBLE = (  # their lists are read as OpenAI's is
    Platform("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    Platform("openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    Platform("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
    Platform("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
    Platform("togetherai", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), other_hosts=("api.together.ai",)),
    Platform("fireworks-ai", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",)),
    Platform("deepseek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",)),
    Platform("xai", "https://api.x.ai/v1", ("XAI_API_KEY",)),
    Platform("cohere", "https://api.cohere.com/v1", ("COHERE_API_KEY",)),
)


def platform_at(url: str) -> Platform | None:
    """Return the provider that an OpenAI-compatible address belongs to, or None for a server that nobody knows."""
    host = place_of(url)[1]
    return next((platform for platform in COMPATIBLE if host in platform.hosts), None)


def provider_at(url: str) -> str:
    """Return the provider id of an address; an unknown server is a provider of its own, named after host and port."""
    platform = platform_at(url)
    return platform.provider if platform else urlsplit(url).netloc.rpartition("@")[2].lower()


def digest(secret: str) -> str:
    """Return a short fingerprint of what must not be stored, led by a blank; empty when there is nothing.

    Its 8 bytes tell a handful of keys apart, and are of no use to anybody else.
    """
    return f" {blake2b(secret.encode(), digest_size=8).hexdigest()}" if secret.strip() else ""


def place_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an address; what is no address is nowhere."""
    try:
        parts = urlsplit(url.strip())
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", "", -1


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
    offered: list[tuple[str, Any, str, dict[str, str]]] = [
        (platform.provider, kind, platform.address(environment) or platform.url, {"api_key": key})
        for platform, kind in kinds.items()
        if (key := platform.key(environment))
    ]
    if host := environment.get("OLLAMA_HOST"):
        offered.append(("ollama", sources.OllamaSource, ollama_address(host), {}))
    found: list[ModelSource] = []
    for name, kind, address, options in offered:
        try:
            found.append(kind(address, **options))
        except ConfigError as error:
            found.append(_Misconfigured(name, error))
    return [*found, sources.ProfileSource(models), *map(sources.CatalogSource, catalogs)]


class _Misconfigured:
    """Stands where a source would be whose address is none, so that it is shown with what is wrong, and others work."""

    tier = "provider"

    def __init__(self, name: str, error: ConfigError) -> None:
        self.name = name
        self._error = error

    def fetch(self, name: str | None) -> Sequence[ModelInfo]:  # noqa: ARG002  # the protocol's parameter
        raise self._error


def ollama_address(host: str) -> str:
    """Return the URL in `OLLAMA_HOST`, which servers and clients also take without scheme, host or port.

    Examples:
        >>> ollama_address("0.0.0.0"), ollama_address(":8080"), ollama_address("http://gateway/ollama")
        ('http://127.0.0.1:11434', 'http://127.0.0.1:8080', 'http://gateway/ollama')
    """
    scheme, separator, rest = host.strip().rpartition("://")
    address, slash, path = rest.rstrip("/").partition("/")
    bare = f"[{address}]" if address.count(":") > 1 and not address.startswith("[") else address
    name, colon, port = bare.rpartition(":")
    if not colon or "]" in port:
        name, port = bare, "" if separator else "11434"  # with a scheme, the scheme's own port is meant
    name = "127.0.0.1" if name in LISTENING else name
    return f"{scheme or 'http'}://{name}{port and ':'}{port}{slash}{path}"
