"""A loopback server that gives one and the same reply, whatever it is asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

POLL_SECONDS = 0.02  # how long stopping may wait for the accept loop


class Replies:
    """Answers every POST on a free port of the loopback interface while the `with` block runs.

    With `held=True` the requests wait until the block ends, as at a server that hangs.

    Example:
        >>> with Replies({"totalTokens": 7}) as server:
        ...     httpx.post(server.url, json={}).json()
        {'totalTokens': 7}
    """

    def __init__(self, body: Any, *, status: int = 200, held: bool = False) -> None:
        self.content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.released = threading.Event()
        if not held:
            self.released.set()

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(POLL_SECONDS,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self._http.server_port}"


def _handler(replies: Replies) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Speaks HTTP/1.0, so that no connection outlives its request."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            replies.asked.append((self.path, body))
            replies.released.wait()
            try:
                self.send_response(replies.status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(replies.content)
            except OSError:
                return  # the caller has gone

        def log_message(self, *_: object) -> None:
            """Stay silent: the requests are recorded."""

    return Handler
