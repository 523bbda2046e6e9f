"""A loopback server that gives one and the same reply, whatever it is asked."""

from __future__ import annotations

import threading
from typing import Any

from support.loopback import Answer, Call, Loopback


class Replies(Loopback):
    """Answers every request on a free port of the loopback interface while the `with` block runs.

    With `held=True` the requests wait until the block ends, as at a server that hangs.

    Example:
        >>> with Replies({"totalTokens": 7}) as server:
        ...     httpx.post(server.url, json={}).json()
        {'totalTokens': 7}
    """

    def __init__(self, body: Any, *, status: int = 200, held: bool = False) -> None:
        super().__init__()
        self.body = body
        self.status = status
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.released = threading.Event()
        if not held:
            self.released.set()

    def __exit__(self, *_: object) -> None:
        self.released.set()
        super().__exit__()

    def answer(self, call: Call) -> Answer:
        """Give the reply."""
        self.asked.append((call.path, call.body))
        self.released.wait()
        return Answer(body=self.body, status=self.status)
