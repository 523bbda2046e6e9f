"""The Gemini API as a source: the models that it serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.http import ApiSource, Session
from langchain_ctxwin.models.sources.platforms import GEMINI
from langchain_ctxwin.models.sources.reading import mapping, stated, tokens


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
    versions = ("/v1beta", "/v1", "/v1alpha")
    key_header = "x-goog-api-key"

    def _entries(self, session: Session, name: str | None) -> Iterable[Mapping[str, Any]]:
        if name is None:
            return session.entries("/models", {"pageSize": 1000})
        return [mapping(session.find(f"/models/{quote(name.removeprefix('models/'), safe='')}"))]

    def _info(self, entry: Mapping[str, Any], name: str | None) -> ModelInfo | None:  # noqa: ARG002  # the base's
        methods, listed = entry.get("supportedGenerationMethods"), entry.get("name")
        if not isinstance(listed, str) or (isinstance(methods, list) and "generateContent" not in methods):
            return None  # a model for something else, such as embeddings
        largest_input, largest_output = tokens(entry.get("inputTokenLimit")), tokens(entry.get("outputTokenLimit"))
        return stated(
            self.name,
            listed.removeprefix("models/"),
            provider="google",
            context_window=largest_input + largest_output if largest_input and largest_output else None,
            max_input_tokens=largest_input,
            max_output_tokens=largest_output,
        )
