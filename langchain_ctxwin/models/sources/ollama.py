"""An Ollama server as a source: its models, and the window that it runs them with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import (
    NOT_FOUND,
    TIMEOUT_SECONDS,
    ApiSource,
    Session,
    SourceError,
    base_of,
    entries_of,
)
from langchain_ctxwin.models.sources.reading import capabilities_of, items, mapping, stated, tokens

BASE_URL = "http://localhost:11434"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
LATEST = ":latest"

NAME, LOADED = "_name", "_loaded"  # added to what the server shows: its name, and the window that it is loaded with
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
        super().__init__(base_of(base_url).removesuffix("/v1"), timeout_seconds=timeout_seconds)

    def _entries(self, session: Session, name: str | None) -> Iterable[Mapping[str, Any]]:
        shown: dict[str, Mapping[str, Any]] = {}
        for model in [name] if name is not None else map(_name_in, session.entries("/api/tags")):
            try:
                shown[model] = mapping(session.get("/api/show", method="POST", json={"model": model}))
            except SourceError as error:
                if name is None:
                    shown[model] = {}  # a listed one is there even if it cannot be shown
                elif error.status != NOT_FOUND:
                    raise
        # Those that are in memory now; older servers do not say.
        loaded = {
            _name_in(one): tokens(one.get("context_length"))
            for one in entries_of(session.find("/api/ps", is_optional=True))
        }
        windows = {model: loaded.get(model) or loaded.get(model + LATEST) for model in shown}
        return [{**details, NAME: model, LOADED: windows[model]} for model, details in shown.items()]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:  # noqa: ARG002  # the base's
        known, listed, parameters = entry.get(NAME), entry.get("capabilities"), entry.get("parameters")
        set_here = _WINDOW_PARAMETER.search(parameters) if isinstance(parameters, str) else None
        started = (tokens(set_here[1]) if set_here else None) or entry.get(LOADED)
        if not started and urlsplit(self._base_url).hostname in LOCAL:  # the server's setting is this process's too
            started = tokens(os.environ.get("OLLAMA_CONTEXT_LENGTH"))
        windows = (_trained_window(mapping(entry.get("model_info"))), started)
        can = items(listed)
        return stated(
            self.name,
            known,
            provider="ollama",
            context_window=min(filter(None, windows), default=None),
            capabilities=capabilities_of(
                tools="tools" in can if isinstance(listed, list) else None,
                images="vision" in can,
                audio="audio" in can,
                reasoning="thinking" in can,
                structured_output=True,  # the server constrains any model's output to a schema
            ),
            aliases=(str(known).removesuffix(LATEST),),
        )


def _name_in(entry: Mapping[str, Any]) -> str:
    return str(entry.get("model") or entry.get("name"))


def _trained_window(facts: Mapping[str, Any]) -> int | None:
    """`<architecture>.context_length`; the longest such key may be that of a part, such as the vision encoder."""
    own = tokens(facts.get(f"{facts.get('general.architecture')}.context_length"))
    found = (tokens(value) for key, value in facts.items() if key.endswith(".context_length"))
    return own or min(filter(None, found), default=None)
