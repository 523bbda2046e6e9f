"""What does an exact counter say about a request, when there is time to ask it?"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import structlog
from langchain_core.messages import AnyMessage

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.pace import LogPace
from langchain_ctxwin.protocols import Clock, RequestCounter, TokenCounter

MAX_WAITING = 8
"""Requests that wait for the counter; each keeps all its messages in memory, so these are few."""

MAX_TOKENS = 10**9
"""Largest size believed, far above any window that is served."""

_log = structlog.get_logger(__name__)


def is_count(tokens: object) -> TypeGuard[int]:
    """Say whether a value is the size of some request."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and 1 <= tokens <= MAX_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    messages: Sequence[AnyMessage]
    tools: Sequence[Any]
    use: Callable[[int], object]


class ExactCounts:
    """Counts requests one after the other, in a daemon thread that lives while there is something to count.

    Exit does not wait for it, and callbacks do not see it: its context is empty. Requests that cannot be counted are
    lost: the counter failed, or others still wait for one that hangs. The first loss is logged, and after a count that
    succeeded the next one, at most one a minute.

    Raises:
        ConfigError: the counter is none.
    """

    def __init__(self, counter: RequestCounter | TokenCounter, *, clock: Clock) -> None:
        # A counter of requests is asked as such: called like a plain one, it may answer with its estimate.
        count: Any = getattr(counter, "count_request", None) or counter
        if not callable(count):
            raise ConfigError(f"counter={counter!r} cannot count: give a callable (messages, *, tools) -> int")
        self._count: Callable[..., Any] = count
        self._waiting: deque[_Task] = deque()
        self._lock = threading.Condition()  # notified when the thread rests
        self._thread: threading.Thread | None = None
        self._lost = 0
        self._is_reported = False
        self._pace = LogPace()
        self._clock = clock

    @property
    def lost(self) -> int:
        """Requests that were given and not counted."""
        return self._lost

    def submit(self, messages: Sequence[AnyMessage], tools: Sequence[Any], use: Callable[[int], object]) -> None:
        """Have a request counted and `use` called with its size, some time in another thread; returns at once.

        The sequences are kept until then: give copies.
        """
        task = _Task(messages=messages, tools=tools, use=use)
        with self._lock:
            fault = self._enqueue(task)
        if fault:
            self._lose(fault)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until nothing is left to count; false when that takes longer. Blocks its thread."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._is_counting(), timeout_seconds)

    def _is_counting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()  # a forked process has the name of it only

    def _enqueue(self, task: _Task) -> str:
        """Return why the task could not be accepted; empty when it was."""
        if len(self._waiting) >= MAX_WAITING:
            return f"the counter is busy and {MAX_WAITING} requests wait"
        self._waiting.append(task)
        if self._is_counting():
            return ""
        self._thread = threading.Thread(
            target=contextvars.Context().run, args=(self._count_all,), name="ctxwin-validation", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._waiting.pop()
            return str(error)
        return ""

    def _count_all(self) -> None:
        while (task := self._next()) is not None:
            self._count_one(task)

    def _next(self) -> _Task | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            self._lock.notify_all()
            return None

    def _count_one(self, task: _Task) -> None:
        try:
            counted = self._count(task.messages, tools=task.tools)
        except BaseException as error:  # noqa: BLE001  # ends here: this thread is ours, and nobody waits for the count
            self._lose(type(error).__name__)  # its text may quote the request
            return
        if is_count(counted):
            self._is_reported = False
            task.use(counted)
        else:
            self._lose(f"the counter returned {type(counted).__name__}: expected a number from 1 to {MAX_TOKENS:,}")

    def _lose(self, reason: str) -> None:
        with self._lock:
            self._lost += 1
            if self._is_reported or self._pace.take(self._clock()) is None:
                return
            self._is_reported = True
        _log.warning("validation.count_failed", reason=reason, lost=self._lost)
