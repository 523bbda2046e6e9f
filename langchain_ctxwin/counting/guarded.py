"""A counter that anybody wrote, made safe: what it cannot count, in time or at all, is estimated."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import Any

import structlog
from langchain_core.messages import AnyMessage

from langchain_ctxwin.protocols import Clock, TokenCounter

log = structlog.get_logger("langchain_ctxwin")

COUNT_TIMEOUT_SECONDS = 2.0
"""Time for one count: local tokenizers need milliseconds, even for megabytes."""

PAUSE_SECONDS = 60.0
"""How long a counter that did not answer in time is left alone; its count would be wanted for every message."""

Job = tuple[Callable[[], Any], "queue.SimpleQueue[tuple[Any, BaseException | None]]"]


class GuardedCounter:
    """Passes on the counts of a counter that may raise, hang, or return what is no count; thread-safe.

    A fraction is rounded up. For anything else that is no count the estimator's is taken, and the event `count.failed`
    says why, once per reason.
    """

    def __init__(
        self,
        counter: TokenCounter,
        estimator: TokenCounter,
        *,
        timeout_seconds: float = COUNT_TIMEOUT_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._counter = counter
        self._estimator = estimator
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._jobs: queue.SimpleQueue[Job] | None = None
        self._paused_until = 0.0
        self._told = set[str]()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self.has_failed = False
        """True once a count was estimated instead."""
        for name in ("upper", "lower"):
            if hasattr(counter, name):
                setattr(self, name, getattr(counter, name))

    def __call__(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the tokens of messages and tools."""
        tokens = self.attempt(messages, tools=tools)
        if tokens is not None:
            return tokens
        self.has_failed = True
        return self._estimator(messages, tools=tools)

    def attempt(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int | None:
        """Return the counter's own count, or None."""
        with self._turn:  # one at a time, so that nobody's time runs while he waits for others
            return None if self._clock() < self._paused_until else self._counted(messages, tools)

    def _counted(self, messages: Sequence[AnyMessage], tools: Any) -> int | None:
        arguments = {"tools": tools} if tools else {}
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._worker().put((lambda: self._counter(messages, **arguments), answers))
        try:
            value, error = answers.get(timeout=self._timeout_seconds)
        except queue.Empty:
            self._pause()
            return None
        if error is not None and not isinstance(error, Exception):
            raise error
        tokens = None if error else _tokens(value)
        if tokens is None:
            self._tell(type(error).__name__ if error else _fault(value))
        return tokens

    def _worker(self) -> queue.SimpleQueue[Job]:
        """The queue of a daemon thread: a thread for every count would cost more than most counts."""
        with self._lock:
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=_work, args=(self._jobs,), name="ctxwin-count", daemon=True).start()
            return self._jobs

    def _pause(self) -> None:
        """Leave the thread that hangs to itself; the next try, after the pause, has another one."""
        with self._lock:
            self._jobs = None
            self._paused_until = self._clock() + PAUSE_SECONDS
        self._tell(f"no answer within {self._timeout_seconds:g} seconds")

    def _tell(self, reason: str) -> None:
        with self._lock:
            is_new = reason not in self._told
            self._told.add(reason)
        if is_new:
            name = getattr(self._counter, "__name__", type(self._counter).__name__)
            log.warning("count.failed", counter=name, reason=reason, instead="estimate")


def _work(jobs: queue.SimpleQueue[Job]) -> None:
    context = contextvars.Context()
    while True:
        count, answers = jobs.get()
        try:
            answers.put((context.run(count), None))
        except BaseException as error:  # noqa: BLE001  # handed to the waiting caller, which decides
            answers.put((None, error))


def _fault(value: object) -> str:
    """What is wrong with a count, in the same words for every value of a kind."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "returned a negative number" if value < 0 else "returned a number that is not finite"
    return f"returned {type(value).__name__}"


def _tokens(value: object) -> int | None:
    """Return a count as a whole number; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        return None
    return ceil(value)
