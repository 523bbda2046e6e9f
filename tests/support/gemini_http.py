"""How the Gemini API speaks HTTP: routes, error bodies and server-sent events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
STREAM_CHUNK_CHARS = 24  # several chunks even for a short answer
ROUTE = re.compile(r"/v1(?:beta)?/models(?:/(?P<model>[^/:?]+)(?::(?P<method>\w+))?)?")
CACHES = re.compile(r"/v1(?:beta)?/(?P<name>cachedContents(?:/[^/]+)?)")
GENERATE = frozenset({"generateContent", "streamGenerateContent"})

Reply = tuple[int, dict[str, Any]]
"""Status and JSON body."""


def error_reply(status: int, message: str) -> Reply:
    """Return an error as the API words it in JSON."""
    return status, {
        "error": {"code": status, "message": message, "status": STATUS_NAMES[status]}
    }


def events(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a reply into the events of a stream; the last one carries the finish reason, all carry the usage so far."""
    candidate, usage = reply["candidates"][0], reply["usageMetadata"]
    pieces = [
        piece for part in candidate["content"]["parts"] for piece in _pieces(part)
    ]
    partial = {
        key: value for key, value in usage.items() if key != "candidatesTokenCount"
    }
    partial["totalTokenCount"] = (
        usage["totalTokenCount"] - usage["candidatesTokenCount"]
    )
    for position, piece in enumerate(pieces, 1):
        last = position == len(pieces)
        part = {"content": {"role": "model", "parts": [piece]}, "index": 0}
        finish = {"finishReason": candidate["finishReason"]} if last else {}
        yield reply | {
            "candidates": [part | finish],
            "usageMetadata": usage if last else partial,
        }


def _pieces(part: dict[str, Any]) -> list[dict[str, Any]]:
    text = part.get("text", "")
    if len(text) <= STREAM_CHUNK_CHARS:
        return [part]
    return [
        {**part, "text": text[i : i + STREAM_CHUNK_CHARS]}
        for i in range(0, len(text), STREAM_CHUNK_CHARS)
    ]
