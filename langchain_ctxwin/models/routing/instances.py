"""Which chat model does a candidate stand for? Names become models when they are first called."""

from __future__ import annotations

import threading
from typing import Any

from langchain_core.language_models import BaseChatModel

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.recovery import only_model
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.routing.candidates import Candidate

INTEGRATIONS = {
    "google": "google_genai",
    "gemini": "google_genai",
    "mistral": "mistralai",
    "azure": "azure_openai",
    "togetherai": "together",
    "fireworks-ai": "fireworks",
    "fireworks_ai": "fireworks",
    "amazon-bedrock": "bedrock_converse",
    "vertex_ai": "google_vertexai",
}
"""Providers whose LangChain integration goes by another name than theirs."""

Instance = tuple[BaseChatModel, dict[str, Any]]
"""A chat model and the arguments bound around it."""


class CannotBeMadeError(ConfigError):
    """A name cannot be made into a chat model: a package or a key is missing, or the name is unknown."""


class Instances:
    """The chat models of candidates, each made once."""

    def __init__(self) -> None:
        self._made: dict[str, BaseChatModel] = {}
        self._lock = threading.Lock()

    def of(self, candidate: Candidate) -> Instance:
        """Return the chat model of a candidate and the arguments bound around it.

        Raises:
            CannotBeMadeError: a package or a key is missing, or the name is unknown.
        """
        if candidate.has_model:
            part = only_model(candidate.given)
            if part is None:  # refused when the candidates were read
                raise ConfigError(f"candidate {candidate.name!r} is no chat model")
            return part
        with self._lock:  # others wait: a model is made once
            made = self._made.get(candidate.name) or _made(candidate)
            self._made[candidate.name] = made
        return made, {}

    def is_made(self, candidate: Candidate) -> bool:
        """True when `of` returns at once."""
        return candidate.has_model or candidate.name in self._made


def _made(candidate: Candidate) -> BaseChatModel:
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415  # an extra
    except ImportError as missing:
        raise CannotBeMadeError(
            f"candidate {candidate.name!r} is a name: install langchain-ctxwin[agents] to turn names into chat models, "
            "or pass the chat model itself"
        ) from missing
    provider, name = _parts(candidate)
    try:
        model: BaseChatModel = init_chat_model(name, model_provider=INTEGRATIONS.get(provider or "", provider))
    except Exception as error:
        raise CannotBeMadeError(
            f"candidate {candidate.name!r} cannot be made into a chat model ({type(error).__name__}: {error}): install "
            "its integration and set its key, or pass the chat model itself"
        ) from error
    return model


def _parts(candidate: Candidate) -> tuple[str | None, str]:
    if isinstance(candidate.given, ModelInfo):
        return candidate.given.provider, candidate.given.name
    provider, slash, name = candidate.name.partition("/")
    return (provider, name) if slash else (None, candidate.name)
