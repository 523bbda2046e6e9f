"""What does a server with an OpenAI-compatible API say about the models it serves?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.entries import entries_of, read_entry, window_of
from langchain_ctxwin.models.sources.hosts import COMPATIBLE, digest, platform_at, provider_at
from langchain_ctxwin.models.sources.http import TIMEOUT_SECONDS, Endpoint, Session, SourceError, base_of
from langchain_ctxwin.models.sources.stating import mapping
from langchain_ctxwin.models.values import provider_id, tokens

VERSION = "/v1"

OWNERS_WITH_MORE = {"xai": "/language-models"}
"""Owner that the entries name -> path beside `/models` that says more about them."""

TRAINED_WINDOW = "n_ctx_train"
"""What llama.cpp says about a model beside its own window; no other server does."""

LLAMA_CPP_FACTS = "/props"
LM_STUDIO_LIST = "/api/v0/models"


class OpenAICompatibleSource:
    """Reads the model list of a server, in whatever shape it adds limits and prices to OpenAI's.

    OpenAI itself states no limits. Where the list of an unknown server states none, the own lists of LM Studio and of
    llama.cpp are tried on the same host: there the window that the server was started with counts, not the one that the
    model was trained for.

    Args:
        base_url: As the OpenAI client takes it, with `/v1`.
        api_key: By default that of the usual variable, which goes to its well-known host and to the server that its
            `..._BASE_URL` names; any other host gets a key only from here.
        provider: Provider id of the statements; by default that of a well-known host, else the host itself and its
            port, because the same name may have other limits elsewhere.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    tier = "provider"

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        provider: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._base_url = base_of(base_url)
        self._is_known = platform_at(self._base_url) is not None
        self._api_key = api_key
        self._provider = provider_id(provider) if provider else provider_at(self._base_url)
        self._timeout_seconds = timeout_seconds
        self.name = self._provider

    def __repr__(self) -> str:
        return f"OpenAICompatibleSource({self._base_url!r}, provider={self._provider!r})"

    @property
    def cache_key(self) -> str:
        """Who is asked, on whose account."""
        return f"openai-compatible {self._provider} {self._base_url}{digest(self._key())}"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, by its name or an alias, or all of them.

        Raises:
            SourceError: the list cannot be read.
        """
        with self._endpoint().open() as session:
            infos = (read_entry(self.name, entry, self._provider) for entry in self._entries(session))
            found = [info for info in infos if info is not None]
        return found if name is None else [info for info in found if name in (info.name, *info.aliases)]

    def _endpoint(self) -> Endpoint:
        key = self._key()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return Endpoint(base_url=self._base_url, headers=headers, timeout_seconds=self._timeout_seconds)

    def _key(self) -> str:
        keys = (platform.key_for(self._base_url, os.environ) for platform in COMPATIBLE)
        return self._api_key or next(filter(None, keys), "")

    def _entries(self, session: Session) -> list[Mapping[str, Any]]:
        """The entries of the list, with what other paths of the same server say about them."""
        entries = self._listed(session)
        if any(TRAINED_WINDOW in mapping(entry.get("meta")) for entry in entries):
            return _with_started_window(entries, session.at(self._root()))
        owners = [entry.get("owned_by") for entry in entries]
        for path in (path for owner, path in OWNERS_WITH_MORE.items() if owner in owners):
            entries = _completed(entries, _optional(session, path))
        if self._is_known or any(window_of(entry) for entry in entries):
            return entries
        return _completed(entries, _optional(session.at(self._root()), LM_STUDIO_LIST))

    def _listed(self, session: Session) -> list[Mapping[str, Any]]:
        pages = session.pages("/models", {}, _next_page)
        return [entry for page in pages for entry in entries_of(page)]

    def _root(self) -> str:
        return self._base_url.removesuffix(VERSION)


def _with_started_window(entries: list[Mapping[str, Any]], server: Session) -> list[Mapping[str, Any]]:
    """Entries of llama.cpp with the window of one of its slots, which is what a request meets."""
    started: Any = None
    with suppress(SourceError):  # switched off, or an older build: the list alone has to do
        started = tokens(mapping(mapping(server.get(LLAMA_CPP_FACTS)).get("default_generation_settings")).get("n_ctx"))
    return entries if started is None else [{**entry, "context_window": started} for entry in entries]


def _completed(entries: list[Mapping[str, Any]], more: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Entries with the fields that another list of the same server adds to them."""
    known = {str(entry.get("id")): entry for entry in more}
    return [{**entry, **known.get(str(entry.get("id")), {})} for entry in entries]


def _optional(session: Session, path: str) -> list[Mapping[str, Any]]:
    try:
        return entries_of(session.get(path))
    except SourceError:  # most servers have no such path
        return []


def _next_page(page: Any) -> dict[str, Any]:
    """The token of the next page; most of these lists come as one."""
    for said, asked in (("next_page_token", "page_token"), ("nextPageToken", "pageToken")):
        token = mapping(page).get(said)
        if token and isinstance(token, str):
            return {asked: token}
    return {}
