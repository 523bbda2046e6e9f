"""The Anthropic API as a source: the models that it serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import ApiSource, Session
from langchain_ctxwin.models.sources.platforms import ANTHROPIC
from langchain_ctxwin.models.sources.reading import capabilities_of, mapping, stated, tokens


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
    versions = ("/v1",)
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
    key_header = "x-api-key"

    def _entries(self, session: Session, name: str | None) -> Iterable[Mapping[str, Any]]:
        if name is None:
            return session.entries("/models", {"limit": 1000})
        return [mapping(session.find(f"/models/{quote(name, safe='')}"))]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:
        support = entry.get("capabilities")
        can = {what: mapping(said).get("supported") for what, said in mapping(support).items()}
        return stated(
            self.name,
            entry.get("id"),
            provider="anthropic",
            context_window=tokens(entry.get("max_input_tokens")),
            max_output_tokens=tokens(entry.get("max_tokens")),
            capabilities=capabilities_of(
                # The Messages API takes tools for every model; what is listed is only what differs.
                tools=True if isinstance(support, dict) else None,
                images=can.get("image_input"),
                pdf=can.get("pdf_input"),
                structured_output=can.get("structured_outputs"),
                reasoning=can.get("thinking"),
            ),
            aliases=(name,),
        )
