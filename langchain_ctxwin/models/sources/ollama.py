"""An Ollama server as a source: its models, and the window that it runs them with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import NOT_FOUND, TIMEOUT_SECONDS, ApiSource, Session, SourceError, base_of
from langchain_ctxwin.models.sources.reading import capabilities_of, mapping, stated, tokens

BASE_URL = "http://localhost:11434"
WINDOW_VARIABLE = "OLLAMA_CONTEXT_LENGTH"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
LATEST = ":latest"

NAME, LOADED = "_name", "_loaded"
"""Fields added to what the server shows of a model: its name, and the window that it is loaded with."""

_WINDOW_PARAMETER = re.compile(r"^[^\S\n]*+num_ctx\s++(\d++)\s*$", re.MULTILINE)


class OllamaSource(ApiSource):
    """Reads the models of an Ollama server.

    The window is the one that the server runs a model with: the model's `num_ctx` parameter, else what it is loaded
    with now, else `OLLAMA_CONTEXT_LENGTH` for a server on this machine. Only where none of these is set the window that
    the model was trained for is stated; the server cuts longer requests silently, so set one of them.

    Args:
        base_url: As the chat client takes it; `/v1` at its end is ignored.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    name = "ollama"

    def __init__(self, base_url: str = BASE_URL, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__(base_of(base_url).removesuffix("/v1"), None, timeout_seconds)

    def _entries(self, session: Session, name: str | None) -> Iterable[Mapping[str, Any]]:
        listed = session.entries("/api/tags") if name is None else [{"name": name}]
        names = [str(entry.get("model") or entry.get("name")) for entry in listed]
        shown = {model: _shown(session, model, listed=name is None) for model in names}
        loaded = _loaded_windows(session)
        known = {model: loaded.get(model) or loaded.get(model + LATEST) for model in names}
        return [{**shown[model], NAME: model, LOADED: known[model]} for model in names if shown[model] is not None]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:  # noqa: ARG002  # the base's
        known = entry.get(NAME)
        return stated(
            self.name,
            known,
            provider="ollama",
            context_window=self._window(entry, entry.get(LOADED)),
            capabilities=_capabilities(entry.get("capabilities")),
            aliases=(str(known).removesuffix(LATEST),),
        )

    def _window(self, details: Any, loaded: int | None) -> int | None:
        trained = _trained_window(mapping(details.get("model_info")))
        started = _parameter(details.get("parameters")) or loaded or self._started_window()
        return min(filter(None, (trained, started)), default=None)

    def _started_window(self) -> int | None:
        """The server's own setting, which only a server on this machine shares with this process."""
        return tokens(os.environ.get(WINDOW_VARIABLE)) if urlsplit(self._base_url).hostname in LOCAL else None


def _shown(session: Session, name: str, *, listed: bool) -> Any:
    """What the server says about a model; None when it has none. A listed one is there even if it cannot be shown."""
    try:
        return mapping(session.post("/api/show", {"model": name}))
    except SourceError as error:
        if listed:
            return {}
        if error.status == NOT_FOUND:
            return None
        raise


def _loaded_windows(session: Session) -> dict[str, int | None]:
    """Windows of the models that are in memory now; older servers do not say."""
    answer: list[Mapping[str, Any]] = []
    with suppress(SourceError):
        answer = session.entries("/api/ps")
    return {str(entry.get("model") or entry.get("name")): tokens(entry.get("context_length")) for entry in answer}


def _trained_window(facts: Any) -> int | None:
    """`<architecture>.context_length`; the longest such key may be that of a part, such as the vision encoder."""
    own = tokens(facts.get(f"{facts.get('general.architecture')}.context_length"))
    if own is not None:
        return own
    found = (tokens(value) for key, value in facts.items() if key.endswith(".context_length"))
    return min(filter(None, found), default=None)


def _parameter(parameters: Any) -> int | None:
    found = _WINDOW_PARAMETER.search(parameters) if isinstance(parameters, str) else None
    return tokens(found[1]) if found else None


def _capabilities(listed: Any) -> frozenset[str]:
    if not isinstance(listed, list):
        return frozenset()
    return capabilities_of(
        tools="tools" in listed,
        images="vision" in listed,
        audio="audio" in listed,
        reasoning="thinking" in listed,
        structured_output=True,  # the server constrains any model's output to a schema
    )
