"""What does the Anthropic API say about the models it serves?"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.hosts import ANTHROPIC, digest
from langchain_ctxwin.models.sources.http import TIMEOUT_SECONDS, Endpoint, base_of
from langchain_ctxwin.models.sources.stating import capabilities_of, items, mapping, stated
from langchain_ctxwin.models.values import tokens

VERSION = "/v1"
PROTOCOL = {"anthropic-version": "2023-06-01"}
PAGE_SIZE = 1000


class AnthropicSource:
    """Reads the model list of the Anthropic API, whose `max_input_tokens` is the window that the output shares.

    Args:
        base_url: As the chat client takes it, with or without `/v1`.
        api_key: By default `ANTHROPIC_API_KEY`, read when asked, which goes to Anthropic and to the server that
            `ANTHROPIC_BASE_URL` names; any other host gets a key only from here.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    name = "anthropic"
    tier = "provider"

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        base = base_of(base_url or ANTHROPIC.url)
        self._base_url = base if base.endswith(VERSION) else base + VERSION
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds

    def __repr__(self) -> str:
        return f"AnthropicSource({self._base_url!r})"

    @property
    def cache_key(self) -> str:
        """Who is asked, on whose account."""
        return f"{self.name} {self._base_url}{digest(self._key())}"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, also by an alias of it, or all of them.

        Raises:
            SourceError: the API cannot be read.
        """
        with self._endpoint().open() as session:
            if name is not None:
                return self._read([session.find(f"/models/{quote(name, safe='')}")], alias=name)
            pages = session.pages("/models", {"limit": PAGE_SIZE}, _next_page)
            return self._read([entry for page in pages for entry in items(mapping(page).get("data"))])

    def _endpoint(self) -> Endpoint:
        key = self._key()
        headers = {**PROTOCOL, **({"x-api-key": key} if key else {})}
        return Endpoint(base_url=self._base_url, headers=headers, timeout_seconds=self._timeout_seconds)

    def _key(self) -> str:
        return self._api_key or ANTHROPIC.key_for(self._base_url, os.environ)

    def _read(self, entries: list[Any], *, alias: str | None = None) -> list[ModelInfo]:
        infos = (self._info(mapping(entry), alias) for entry in entries)
        return [info for info in infos if info is not None]

    def _info(self, entry: Any, alias: str | None) -> ModelInfo | None:
        return stated(
            self.name,
            entry.get("id"),
            provider="anthropic",
            context_window=tokens(entry.get("max_input_tokens")),
            max_output_tokens=tokens(entry.get("max_tokens")),
            capabilities=_capabilities(entry.get("capabilities")),
            aliases=(alias,),
        )


def _capabilities(stated_support: Any) -> frozenset[str]:
    if not isinstance(stated_support, dict):
        return frozenset()
    can = {name: mapping(support).get("supported") for name, support in stated_support.items()}
    return capabilities_of(
        tools=True,  # the Messages API takes tools for every model; what is listed is only what differs
        images=can.get("image_input"),
        pdf=can.get("pdf_input"),
        structured_output=can.get("structured_outputs"),
        reasoning=can.get("thinking"),
    )


def _next_page(page: Any) -> dict[str, Any]:
    last = mapping(page).get("last_id")
    return {"after_id": last} if mapping(page).get("has_more") is True and isinstance(last, str) else {}
