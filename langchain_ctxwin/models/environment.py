"""Which sources does this machine offer: keys in the environment, installed integrations, a local server?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources.hosts import ANTHROPIC, COMPATIBLE, GEMINI, Platform
from langchain_ctxwin.protocols import ModelSource

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

    Example:
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
