"""May the provider be asked now? Not too often, and not while it does not answer."""

from __future__ import annotations

import threading
from collections import deque

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock

MINUTE_SECONDS = 60.0

FIRST_PAUSE_SECONDS = 10.0
"""Pause after a first failure: longer than a time box, so that a dead endpoint takes little of anybody's time."""

LONGEST_PAUSE_SECONDS = 300.0
"""Pause at most, however often it failed: an endpoint that is back is noticed within five minutes."""


class Gate:
    """Admits so many questions a minute, and one at a time after each pause while nothing but failures come back.

    Thread-safe. It never waits: who is not admitted goes on without an answer. A clock that is set back opens it.

    Raises:
        ConfigError: not even one question a minute is allowed.

    Example:
        >>> gate = Gate(requests_per_minute=1, clock=lambda: 0.0)
        >>> gate.enter(), gate.enter()
        (0, None)
    """

    def __init__(self, *, requests_per_minute: int, clock: Clock) -> None:
        if isinstance(requests_per_minute, bool) or not requests_per_minute >= 1:
            raise ConfigError(f"requests_per_minute={requests_per_minute!r}: give a number of at least 1")
        self._per_minute = requests_per_minute
        self._clock = clock
        self._entered_at: deque[float] = deque()
        self._failures = 0
        self._closed_at = 0.0
        self._tickets = 0
        self._lock = threading.Lock()

    def enter(self) -> int | None:
        """Return a ticket to hand back to `failed`, or None when this is no time to ask."""
        now = self._clock()
        with self._lock:
            if self._is_paused(now) or self._is_full(now):
                return None
            self._entered_at.append(now)
            self._closed_at = now  # counts only after a failure: others wait for what this one finds out
            return self._tickets

    def failed(self, ticket: int) -> None:
        """Close for a while, twice as long as the last time; questions of the same round fail together."""
        with self._lock:
            if ticket == self._tickets:
                self._tickets += 1
                self._failures += 1
                self._closed_at = self._clock()

    def succeeded(self) -> None:
        """Forget the failures."""
        with self._lock:
            self._failures = 0

    def _is_paused(self, now: float) -> bool:
        if not self._failures:
            return False
        pause_seconds: float = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, 10))
        return 0 <= now - self._closed_at < pause_seconds

    def _is_full(self, now: float) -> bool:
        recent = (at for at in self._entered_at if 0 <= now - at < MINUTE_SECONDS)
        self._entered_at = deque(recent)
        return len(self._entered_at) >= self._per_minute
