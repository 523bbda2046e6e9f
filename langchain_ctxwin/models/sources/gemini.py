"""The Gemini API as a source: the models that it serves."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import TIMEOUT_SECONDS, ApiSource, base_of
from langchain_ctxwin.models.sources.platforms import GEMINI
from langchain_ctxwin.models.sources.reading import items, mapping, stated, tokens

VERSIONS = ("/v1beta", "/v1", "/v1alpha")
PAGE_SIZE = 1000
GENERATES = "generateContent"


class GeminiSource(ApiSource):
    """Reads the model list of the Gemini API.

    Its input and output limits are separate, so the window that is stated is their sum.

    Args:
        base_url: As the chat client takes it, with or without the version.
        api_key: Sent as a header. By default `GOOGLE_API_KEY`, else `GEMINI_API_KEY`, read when asked, which goes to
            Google and to the server that `GOOGLE_GEMINI_BASE_URL` names; any other host gets a key only from here.
        timeout_seconds: For everything that one `fetch` asks.

    Raises:
        ConfigError: `base_url` is no http(s) URL.
    """

    name = "gemini"
    platforms = (GEMINI,)
    key_header = "x-goog-api-key"

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        base = base_of(base_url or GEMINI.url)
        super().__init__(base if base.endswith(VERSIONS) else base + VERSIONS[0], api_key, timeout_seconds)

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model or all of them.

        Raises:
            SourceError: the API cannot be read.
        """
        with self._connected() as session:
            if name is not None:
                return self._read([session.find(f"/models/{quote(name.removeprefix('models/'), safe='')}")])
            pages = session.pages("/models", {"pageSize": PAGE_SIZE}, _next_page)
            return self._read([entry for page in pages for entry in items(mapping(page).get("models"))])

    def _read(self, entries: list[Any]) -> list[ModelInfo]:
        infos = (self._info(mapping(entry)) for entry in entries if _generates(mapping(entry)))
        return [info for info in infos if info is not None]

    def _info(self, entry: Any) -> ModelInfo | None:
        largest_input, largest_output = tokens(entry.get("inputTokenLimit")), tokens(entry.get("outputTokenLimit"))
        separate = largest_input is not None and largest_output is not None
        return stated(
            self.name,
            name.removeprefix("models/") if isinstance(name := entry.get("name"), str) else None,
            provider="google",
            context_window=(largest_input or 0) + (largest_output or 0) if separate else None,
            max_input_tokens=largest_input,
            max_output_tokens=largest_output,
        )


def _generates(entry: Any) -> bool:
    """True unless the entry says that it is for something else than generating, such as embeddings."""
    methods = entry.get("supportedGenerationMethods")
    return not isinstance(methods, list) or GENERATES in methods


def _next_page(page: Any) -> dict[str, Any]:
    token = mapping(page).get("nextPageToken")
    return {"pageToken": token} if token and isinstance(token, str) else {}
