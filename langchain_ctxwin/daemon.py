"""Runs blocking work beside the caller, without holding up the exit or showing it to the caller's callbacks."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


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
