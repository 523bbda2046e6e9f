"""Which calls of a source have not returned yet? While one hangs, no second one is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from langchain_ctxwin.util.background import in_few_daemons

NO_THREAD = "no thread was free to ask it: the process has no more of them, or too many calls hang"

Question = tuple[Hashable, Hashable]
"""A source and what it is asked."""


class Calls:
    """Calls under way in daemon threads. Thread-safe."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget all calls: their threads did not survive a fork."""
        self._running: dict[Question, Future[Any]] = {}
        self._left: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def join(self, source: Hashable, about: Hashable, work: Callable[[], Any]) -> Future[Any] | None:
        """Return the call that asks this already, else start one; None when there is no thread to be had."""
        with self._lock:
            self._running = {key: job for key, job in self._running.items() if not job.done()}
            self._left &= set(self._running.values())
            running = self._running.get((source, about))
            job = started(work) if running is None else running
            if job is not None:
                self._running[source, about] = job
            return job

    def leave(self, job: Future[Any]) -> None:
        """Note that nobody waits for this call any more."""
        with self._lock:
            self._left.add(job)

    def is_asking(self, source: Hashable) -> bool:
        """Say whether any call of this source has not returned yet."""
        with self._lock:
            return any(not job.done() for job in self._of(source))

    def is_stuck(self, source: Hashable) -> bool:
        """Say whether a call that nobody waits for any more has not returned yet."""
        with self._lock:
            return any(job in self._left and not job.done() for job in self._of(source))

    def _of(self, source: Hashable) -> list[Future[Any]]:
        return [job for (one, _), job in self._running.items() if one is source]


def started(work: Callable[[], Any]) -> Future[Any] | None:
    """Return the work in a daemon thread; None when there is no thread to be had."""
    try:
        return in_few_daemons(work)
    except RuntimeError:
        return None
