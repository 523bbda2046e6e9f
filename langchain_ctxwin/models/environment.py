"""Which sources does this machine offer: keys in the environment, installed integrations, a local server?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_ctxwin.protocols import ModelSource

APP = "langchain-ctxwin"
SNAPSHOTS_FILE = "models.json"
LEARNED_FILE = "learned.json"

OPENAI_COMPATIBLE = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "OPENROUTER_API_KEY": "https://openrouter.ai/api/v1",
    "MISTRAL_API_KEY": "https://api.mistral.ai/v1",
    "GROQ_API_KEY": "https://api.groq.com/openai/v1",
    "TOGETHER_API_KEY": "https://api.together.xyz/v1",
    "FIREWORKS_API_KEY": "https://api.fireworks.ai/inference/v1",
    "DEEPSEEK_API_KEY": "https://api.deepseek.com/v1",
    "XAI_API_KEY": "https://api.x.ai/v1",
}
"""Usual variable of a key -> the address it is for; the key is sent nowhere else."""

OPENAI_ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
"""Variables that send OpenAI's client to another server: its key belongs there then."""


def cache_folder() -> Path:
    """Return the platform's folder for what may be deleted at any time."""
    import platformdirs  # noqa: PLC0415  # not needed to look a model up

    return Path(platformdirs.user_cache_path(APP))


def data_folder() -> Path:
    """Return the platform's folder for what was learned and cannot be fetched again."""
    import platformdirs  # noqa: PLC0415  # as above

    return Path(platformdirs.user_data_path(APP))


def sources_of(
    environment: Mapping[str, str], *, models: Sequence[Any] = (), catalogs: Sequence[str | os.PathLike[str]] = ()
) -> list[ModelSource]:
    """Return the sources that can be asked with what the environment holds, besides what was learned.

    An API is asked only with its key, a server only when its address is set, a catalog only when it is given.
    """
    from langchain_ctxwin.models import sources  # noqa: PLC0415  # loads an HTTP client

    found: list[ModelSource] = []
    if environment.get("GOOGLE_API_KEY") or environment.get("GEMINI_API_KEY"):
        found.append(sources.GeminiSource())
    if key := environment.get("ANTHROPIC_API_KEY"):
        found.append(sources.AnthropicSource(api_key=key))
    for variable, address in OPENAI_COMPATIBLE.items():
        if key := environment.get(variable):
            found.append(sources.OpenAICompatibleSource(_address(variable, address, environment), api_key=key))
    if host := environment.get("OLLAMA_HOST"):
        found.append(sources.OllamaSource(ollama_address(host)))
    found.append(sources.ProfileSource(models))
    found += [sources.CatalogSource(catalog) for catalog in catalogs]
    return found


def ollama_address(host: str) -> str:
    """Return the URL in `OLLAMA_HOST`, which servers and clients also take without scheme or port."""
    scheme, separator, rest = host.strip().rpartition("://")
    address = rest.rstrip("/").replace("0.0.0.0", "127.0.0.1")  # noqa: S104  # where it listens, not where it is
    has_port = address.rpartition("]")[2].count(":") == 1
    port = "" if has_port or (separator and scheme == "https") else ":11434"
    return f"{scheme or 'http'}://{address}{port}"


def _address(variable: str, usual: str, environment: Mapping[str, str]) -> str:
    if variable != "OPENAI_API_KEY":
        return usual
    return next((url for name in OPENAI_ADDRESSES if (url := environment.get(name))), usual)
