"""The Anthropic API as a source: the models that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import TIMEOUT_SECONDS, ApiSource, base_of
from langchain_ctxwin.models.sources.platforms import ANTHROPIC
from langchain_ctxwin.models.sources.reading import capabilities_of, items, mapping, stated, tokens

VERSION = "/v1"
PAGE_SIZE = 1000


class AnthropicSource(ApiSource):
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
    platforms = (ANTHROPIC,)
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
    key_header = "x-api-key"

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        base = base_of(base_url or ANTHROPIC.url)
        super().__init__(base if base.endswith(VERSION) else base + VERSION, api_key, timeout_seconds)

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, also by an alias of it, or all of them.

        Raises:
            SourceError: the API cannot be read.
        """
        with self._connected() as session:
            if name is not None:
                return self._read([session.find(f"/models/{quote(name, safe='')}")], alias=name)
            pages = session.pages("/models", {"limit": PAGE_SIZE}, _next_page)
            return self._read([entry for page in pages for entry in items(mapping(page).get("data"))])

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
