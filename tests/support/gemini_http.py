"""How the Gemini API speaks HTTP: routes, error bodies and server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
OK = 200
STREAM_CHUNK_CHARS = 24  # several chunks even for a short answer
ROUTE = re.compile(r"/v1beta/models(?:/(?P<model>[^/:?]+)(?::(?P<method>\w+))?)?(?:\?.*)?")
GENERATE = frozenset({"generateContent", "streamGenerateContent"})

Reply = tuple[int, dict[str, Any]]
"""Status and JSON body."""


class Api(Protocol):
    """What answers behind the HTTP server."""

    model: str

    def describe(self, model: str) -> dict[str, Any]:
        """Return the entry of a model."""
        ...

    def handle(self, model: str, method: str, body: dict[str, Any]) -> Reply:
        """Answer one POST."""
        ...


def error_reply(status: int, message: str) -> Reply:
    """Return an error as the API words it in JSON."""
    return status, {"error": {"code": status, "message": message, "status": STATUS_NAMES[status]}}


class GeminiHttp(ThreadingHTTPServer):
    """Serves an API on a free port of the loopback interface; one thread per request."""

    def __init__(self, api: Api) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.0, so that no connection outlives its request."""

    server: GeminiHttp

    def do_GET(self) -> None:
        api, found = self.server.api, ROUTE.fullmatch(self.path)
        if found is None or found["method"]:
            self._send(*error_reply(404, f"not found: {self.path}"))
        elif found["model"]:
            self._send(OK, api.describe(found["model"]))
        else:
            self._send(OK, {"models": [api.describe(api.model)]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = ROUTE.fullmatch(self.path)
        if found is None or found["method"] not in GENERATE | {"countTokens"}:
            self._send(*error_reply(404, f"not found: {self.path}"))
            return
        status, reply = self.server.api.handle(found["model"], found["method"], body)
        if status == OK and found["method"] == "streamGenerateContent":
            self._stream(reply)
        else:
            self._send(status, reply)

    def log_message(self, *_: object) -> None:
        """Stay silent: the API records every request."""

    def _send(self, status: int, reply: dict[str, Any]) -> None:
        self._begin(status, "application/json")
        self.wfile.write(json.dumps(reply).encode())

    def _stream(self, reply: dict[str, Any]) -> None:
        self._begin(OK, "text/event-stream")
        for event in _events(reply):
            self.wfile.write(f"data: {json.dumps(event)}\r\n\r\n".encode())
            self.wfile.flush()

    def _begin(self, status: int, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.end_headers()


def _events(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a reply into the events of a stream; the last one carries the finish reason, all carry the usage so far."""
    candidate, usage = reply["candidates"][0], reply["usageMetadata"]
    pieces = [piece for part in candidate["content"]["parts"] for piece in _pieces(part)]
    partial = {key: value for key, value in usage.items() if key != "candidatesTokenCount"}
    partial["totalTokenCount"] = usage["totalTokenCount"] - usage["candidatesTokenCount"]
    for position, piece in enumerate(pieces, 1):
        last = position == len(pieces)
        part = {"content": {"role": "model", "parts": [piece]}, "index": 0}
        finish = {"finishReason": candidate["finishReason"]} if last else {}
        yield reply | {"candidates": [part | finish], "usageMetadata": usage if last else partial}


def _pieces(part: dict[str, Any]) -> list[dict[str, Any]]:
    text = part.get("text", "")
    if len(text) <= STREAM_CHUNK_CHARS:
        return [part]
    return [{**part, "text": text[i : i + STREAM_CHUNK_CHARS]} for i in range(0, len(text), STREAM_CHUNK_CHARS)]
