"""Who is behind a well-known address, and to which address may a key from the environment go?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import urlsplit

KEY_SUFFIX = "_API_KEY"

ADDRESS_SUFFIXES = ("_BASE_URL", "_API_BASE", "_API_URL")
"""Endings of the variables by which clients are sent to another server than the usual one."""

DIGEST_BYTES = 8
"""Enough to tell a handful of keys apart, too little to be of use to anybody else."""

_PORTS = {"http": 80, "https": 443}


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
        place = _place(url)
        usual = {("https", host, _PORTS["https"]) for host in self.hosts}
        return self.key(environment) if place in usual or place == _place(self.address(environment)) else ""


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
    host = _place(url)[1]
    return next((platform for platform in COMPATIBLE if host in platform.hosts), None)


def provider_at(url: str) -> str:
    """Return the provider id of an address; an unknown server is a provider of its own, named after host and port."""
    platform = platform_at(url)
    return platform.provider if platform else urlsplit(url).netloc.rpartition("@")[2].lower()


def digest(*secrets: str) -> str:
    """Return a short fingerprint of what must not be stored, led by a blank; empty when there is nothing."""
    text = "\n".join(secrets)
    return f" {blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()}" if text.strip() else ""


def _place(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url.strip())
        return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", "", -1
