"""What the loopback servers of all providers share: HTTP, refusals, recorded requests, scripts."""

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

POLL_SECONDS = 0.02  # how long stopping may wait for the accept loop
OK, BAD_REQUEST = 200, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as it arrived, and what became of it."""

    path: str
    body: dict[str, Any]
    status: int
    reply: dict[str, Any]
    tokens: int = 0
    """Prompt that the model saw; 0 when it was refused before it was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request before it is answered."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back, as JSON."""

    body: Any
    status: int = OK
    tokens: int = 0


class RefusalError(Exception):
    """A request that the provider's rules forbid; `code` is what its error body calls the cause."""

    def __init__(
        self,
        message,
        *,
        code=None,
        param=None,
        status=BAD_REQUEST,
    ):
        super().__init__(message)
        self.message, self.code, self.param, self.status = message, code, param, status


def script(*answers):
    """Give one answer after the other, the last one again and again."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class Loopback:
    """Keeps requests, and answers them as a provider does, on a free port of the loopback interface.

    A subclass has `answer(call)`, which may raise `RefusalError`, and `error_body(refusal)`, in the provider's words.
    """

    def __init__(self):
        self.requests = []
        self._lock = threading.Lock()

    def __enter__(self):
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(POLL_SECONDS,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self):
        """Address without a path."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def refused(self):
        """Bodies of the requests that were refused."""
        return [request.body for request in self.requests if request.status != OK]

    def respond(self, call):
        """Answer one request and keep it for the test."""
        try:
            with self._lock:  # a summary may be asked for beside the request of a turn
                answer = self.answer(call)
        except RefusalError as refusal:
            answer = Answer(body=self.error_body(refusal), status=refusal.status)
        about = {"path": call.path, "body": call.body, "tokens": answer.tokens}
        exchange = Exchange(status=answer.status, reply=answer.body, **about)
        self.requests.append(exchange)
        return answer


def _handler(api):
    class Handler(BaseHTTPRequestHandler):
        """Speaks HTTP/1.0, so that no connection outlives its request."""

        def _answer(self):
            body = json.loads(
                self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
            )
            headers = {key.lower(): value for key, value in self.headers.items()}
            path = self.path.partition("?")[0]
            answer = api.respond(Call(path=path, headers=headers, body=body))
            with suppress(ConnectionError):  # the caller may have gone
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(answer.body).encode())

        do_POST = _answer  # noqa: N815  # the name that the standard library calls

        def log_message(self, *_):
            """Stay silent: the requests are recorded."""

    return Handler


def called(*names):
    """Build an AI message that calls tools."""
    calls = [{"name": name, "args": {}, "id": f"id-{name}"} for name in names]
    return AIMessage("", tool_calls=calls)


def result(name):
    """Build the result of a call."""
    return ToolMessage("done", tool_call_id=f"id-{name}", name=name)
