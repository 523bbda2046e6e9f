"""Where facts about models come from, by the protocol that is spoken there.

Sources are imported when they are first used, so that nobody loads an HTTP client for a table of limits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.models.sources.learned import LearnedSource

if TYPE_CHECKING:
    from langchain_ctxwin.models.sources.apis import (
        AnthropicSource,
        GeminiSource,
        OllamaSource,
        OpenAICompatibleSource,
    )
    from langchain_ctxwin.models.sources.catalog import CatalogSource
    from langchain_ctxwin.models.sources.explicit import ExplicitSource, GuessSource, ProfileSource

__all__ = [
    "AnthropicSource",
    "CatalogSource",
    "ExplicitSource",
    "GeminiSource",
    "GuessSource",
    "LearnedSource",
    "OllamaSource",
    "OpenAICompatibleSource",
    "ProfileSource",
]

_MODULES = {
    "CatalogSource": "catalog",
    **dict.fromkeys(("ExplicitSource", "GuessSource", "ProfileSource"), "explicit"),
    **dict.fromkeys(("AnthropicSource", "GeminiSource", "OllamaSource", "OpenAICompatibleSource"), "apis"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
