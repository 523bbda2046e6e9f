"""A loopback Anthropic Messages API that refuses input and requested output that do not fit together."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from langchain_anthropic import ChatAnthropic

POLL_SECONDS = 0.02  # how long stopping may wait for the accept loop
CHARS_PER_TOKEN = 4
FRAME_TOKENS = 4  # around each message
OK, BAD_REQUEST = 200, 400
ANSWER = "Noted: the boats were counted."


class AnthropicServer:
    """Answers POSTs to `/v1/messages` on a free port of the loopback interface while the `with` block runs.

    A token is four characters of the JSON of system prompt, tools and each message's content.

    Example:
        >>> with AnthropicServer(context_window=4096) as server:
        ...     server.chat_model(max_tokens=512).invoke("hi").text == ANSWER
        True
    """

    def __init__(self, *, context_window: int) -> None:
        self.context_window = context_window
        self.requests: list[tuple[int, dict[str, Any]]] = []
        """Status and body of each request."""

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(POLL_SECONDS,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Bodies of the requests that were too large."""
        return [body for status, body in self.requests if status == BAD_REQUEST]

    def chat_model(self, **options: Any) -> ChatAnthropic:
        """Return the real client, pointed at this server, without retries."""
        url = f"http://127.0.0.1:{self._http.server_port}"
        return ChatAnthropic(**{"model": "claude-test", "api_key": "x", "base_url": url, "max_retries": 0} | options)

    def handle(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer one request and record it."""
        size, output = input_tokens(body), int(body["max_tokens"])
        fits = size + output <= self.context_window
        self.requests.append((OK if fits else BAD_REQUEST, body))
        return (OK, _message(body, size)) if fits else (BAD_REQUEST, self._refusal(size, output))

    def _refusal(self, size: int, output: int) -> dict[str, Any]:
        text = f"{size} + {output} > {self.context_window}, decrease input length or `max_tokens` and try again"
        message = f"input length and `max_tokens` exceed context limit: {text}"
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def input_tokens(body: dict[str, Any]) -> int:
    """Return the size of a request by the server's rule."""
    parts = [body.get("system") or "", body.get("tools") or "", *(message["content"] for message in body["messages"])]
    return sum(FRAME_TOKENS + len(json.dumps(part, ensure_ascii=False)) // CHARS_PER_TOKEN for part in parts)


def _message(body: dict[str, Any], size: int) -> dict[str, Any]:
    output = min(len(ANSWER) // CHARS_PER_TOKEN, body["max_tokens"])
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": ANSWER}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": size, "output_tokens": output},
    }


def _handler(api: AnthropicServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Speaks HTTP/1.0, so that no connection outlives its request."""

        def do_POST(self) -> None:
            status, reply = api.handle(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

        def log_message(self, *_: object) -> None:
            """Stay silent: the requests are recorded."""

    return Handler
