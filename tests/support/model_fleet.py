"""A loopback server that answers as many providers do, each under a path of its own, and as broken servers do."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support import model_shapes as shapes
from support.loopback import Served

LISTS: dict[str, Any] = {
    "/openai/v1/models": shapes.OPENAI,
    "/openrouter/api/v1/models": shapes.OPENROUTER,
    "/mistral/v1/models": shapes.MISTRAL,
    "/groq/openai/v1/models": shapes.GROQ,
    "/vllm/v1/models": shapes.VLLM,
    "/llamacpp/v1/models": shapes.LLAMA_CPP,
    "/lmstudio/v1/models": shapes.LM_STUDIO,
    "/lmstudio/api/v0/models": shapes.LM_STUDIO_OWN,
    "/together/v1/models": shapes.TOGETHER,
    "/fireworks/inference/v1/models": shapes.FIREWORKS,
    "/deepseek/models": shapes.DEEPSEEK,
    "/cohere/v1/models": shapes.COHERE,
    "/ollama/api/tags": shapes.OLLAMA_TAGS,
    "/ollama/api/ps": shapes.OLLAMA_LOADED,
    "/catalog/api.json": shapes.CATALOG,
    "/catalog/prices.json": shapes.PRICE_TABLE,
    "/gemini/v1beta/models/test-pro": shapes.GEMINI["models"][0],
    "/anthropic/v1/models/test-verse": shapes.ANTHROPIC["data"][0],
}
"""Path -> JSON."""

PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "/gemini/v1beta/models": (
        "pageToken",
        {"": shapes.GEMINI, "second": shapes.GEMINI_SECOND},
    ),
    "/anthropic/v1/models": (
        "after_id",
        {"": shapes.ANTHROPIC, "test-verse-20990101": shapes.ANTHROPIC_SECOND},
    ),
    "/endless/v1beta/models": (
        "pageToken",
        {"": shapes.GEMINI, "second": shapes.GEMINI},
    ),
}
"""Path -> query parameter of the next page, and the pages by its value."""


class ModelFleet(Served):
    """Serves every provider of the tests while the `with` block runs.

    `asked` holds a (method, path with query, headers) per request. Broken servers: `/hang`, `/http500`, `/truncated`.

    Example:
        >>> with ModelFleet() as fleet:
        ...     OpenAICompatibleSource(fleet.url + "/vllm/v1").fetch(None)
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.released = threading.Event()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Answer for the fleet."""
        return type("Handler", (_Handler,), {"fleet": self})

    def __exit__(self, *details: object) -> None:
        self.released.set()
        super().__exit__(*details)

    def paths(self) -> list[str]:
        """Paths asked so far, without their queries."""
        return [urlsplit(path).path for _, path, _ in self.asked]

    def headers_of(self, path: str) -> dict[str, str]:
        """Headers of the latest request for a path, in lower case."""
        return next(
            headers
            for _, asked, headers in reversed(self.asked)
            if urlsplit(asked).path == path
        )


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.0, so that no connection outlives its request."""

    fleet: ModelFleet

    def do_GET(self) -> None:
        self._record()
        parts = urlsplit(self.path)
        if parts.path in PAGES:
            parameter, pages = PAGES[parts.path]
            self._json(pages[parse_qs(parts.query).get(parameter, [""])[0]])
        elif parts.path in LISTS:
            self._json(LISTS[parts.path])
        else:
            self._broken(parts.path.split("/")[1])

    def do_POST(self) -> None:
        self._record()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        shown = shapes.OLLAMA_SHOW.get(body["model"])
        if self.path == "/ollama/api/show" and shown:
            self._json(shown)
        else:
            self._say(404, b'{"error": "model not found"}')

    def _record(self) -> None:
        self.fleet.asked.append(
            (
                self.command,
                self.path,
                {key.lower(): value for key, value in self.headers.items()},
            )
        )

    def _broken(self, kind: str) -> None:
        if kind == "hang":
            self.fleet.released.wait()
        else:
            self._say(*BROKEN.get(kind, (404, b"no such path", {})))

    def _json(self, document: Any) -> None:
        self._say(200, json.dumps(document).encode())

    def _say(
        self, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        try:
            self.send_response(status)
            for key, value in {
                "Content-Type": "application/json",
                **(headers or {}),
            }.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            return  # the caller has gone

    def log_message(self, *_: object) -> None:
        """Stay silent: the requests are recorded."""


BROKEN: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "http500": (500, b'{"error": "secret-key was here"}', {}),
    "truncated": (200, b'{"data": [', {"Content-Length": "100000"}),
}
"""Kind -> status, body and headers."""
