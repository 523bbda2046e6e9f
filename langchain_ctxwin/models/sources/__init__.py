"""Where facts about models come from: one file per protocol.

Sources are imported when they are first used, so that nobody loads an HTTP client for a table of limits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.models.sources.learned import LearnedSource

if TYPE_CHECKING:
    from langchain_ctxwin.models.sources.anthropic import AnthropicSource
    from langchain_ctxwin.models.sources.catalog import CatalogSource
    from langchain_ctxwin.models.sources.explicit import ExplicitSource, GuessSource, ProfileSource
    from langchain_ctxwin.models.sources.gemini import GeminiSource
    from langchain_ctxwin.models.sources.ollama import OllamaSource
    from langchain_ctxwin.models.sources.openai_compatible import OpenAICompatibleSource

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
    "AnthropicSource": "anthropic",
    "CatalogSource": "catalog",
    "ExplicitSource": "explicit",
    "GeminiSource": "gemini",
    "GuessSource": "explicit",
    "OllamaSource": "ollama",
    "OpenAICompatibleSource": "openai_compatible",
    "ProfileSource": "explicit",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
