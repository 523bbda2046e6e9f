"""Runs blocking work beside the caller, without holding up the exit or showing it to the caller's callbacks."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from langchain_ctxwin.util.forks import renew_after_fork

MAX_HANGING = 64
"""Threads of `in_few_daemons` at a time: their work takes milliseconds, so that many at once means that it hangs."""


class _Places:
    """The free places of this process; a forked child has all of them, because threads do not survive a fork."""

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Free every place."""
        self.free = threading.BoundedSemaphore(MAX_HANGING)


_places = _Places()


def in_daemon(work: Callable[[], Any]) -> Future[Any]:
    """Start `work` in a daemon thread with an empty context and return its future.

    A pool's threads are joined at exit, which would then wait for an endpoint that does not answer. With the caller's
    context, what the work streams would reach the user; some builds of Python from 3.14 on hand it to threads.
    """
    job: Future[Any] = Future()

    def run() -> None:
        if not job.set_running_or_notify_cancel():
            return
        try:
            job.set_result(contextvars.Context().run(work))
        except BaseException as error:  # noqa: BLE001  # handed to the waiting caller, which decides
            job.set_exception(error)

    threading.Thread(target=run, name="ctxwin", daemon=True).start()
    return job


def in_few_daemons(work: Callable[[], Any]) -> Future[Any]:
    """Like `in_daemon`, for short work that callers stop waiting for: what hangs cannot pile up without limit.

    Raises:
        RuntimeError: too many threads hang already, or none can be started.
    """
    free = _places.free
    if not free.acquire(blocking=False):
        raise RuntimeError(f"{MAX_HANGING} calls have not returned yet, no further one is made")
    try:
        job = in_daemon(work)
    except RuntimeError:  # the system has no thread to give
        free.release()
        raise
    job.add_done_callback(lambda _: free.release())
    return job
