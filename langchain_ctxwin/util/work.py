"""Work that waits, written once for sync and async callers, and blocking work in background threads.

Threads hold up no exit, survive a fork, and are unseen by the caller's callbacks.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that work waits for, for sync and for async callers."""

    now: Callable[[], Any]
    later: Callable[[], Awaitable[Any]]

    @classmethod
    def on(cls, target: Any, method: str, *args: Any, **options: Any) -> Wait:
        """Return the wait for a method that also exists with an "a" before its name."""
        return cls(
            lambda: getattr(target, method)(*args, **options),
            lambda: getattr(target, f"a{method}")(*args, **options),
        )

    @classmethod
    def within(cls, seconds: float, start: Callable[[bool], Future[Any]]) -> Wait:
        """Return the wait for a job in another thread; `start` is told whether its caller's thread waits meanwhile."""

        async def later() -> Any:
            return await asyncio.wait_for(asyncio.wrap_future(start(False)), seconds)

        return cls(lambda: start(True).result(seconds), later)


Work = Generator[Wait, Any, T]
"""What is done: it yields what it waits for, is sent the result, or thrown the exception, and returns what it made."""


def run(work: Work[T]) -> T:
    """Do the work, blocking where it waits."""
    resume: Callable[[], Wait] = work.__next__
    while True:
        try:
            wait = resume()
        except StopIteration as finished:
            done: T = finished.value
            return done
        try:
            resume = partial(work.send, wait.now())
        except Exception as error:  # noqa: BLE001  # the work answers it, or raises it again
            resume = partial(work.throw, error)


async def arun(work: Work[T]) -> T:
    """Do the work, awaiting where it waits."""
    resume: Callable[[], Wait] = work.__next__
    while True:
        try:
            wait = resume()
        except StopIteration as finished:
            done: T = finished.value
            return done
        try:
            resume = partial(work.send, await wait.later())
        except Exception as error:  # noqa: BLE001  # see run
            resume = partial(work.throw, error)


def renew_after_fork(renew: Callable[[], None]) -> None:
    """Have locks made anew and threads forgotten in every process that is forked from this one."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=renew)


def in_daemon(
    work: Callable[[], Any], context: contextvars.Context | None = None
) -> Future[Any]:
    """Start `work` in a daemon thread, by default with an empty context, and return its future.

    A pool's threads are joined at exit, which would then wait for an endpoint that does not answer. With the caller's
    context, what the work streams would reach the user; some builds of Python from 3.14 on hand it to threads.
    """
    job: Future[Any] = Future()
    work = partial((context or contextvars.Context()).run, work)
    threading.Thread(
        target=partial(_settle, job, work), name="ctxwin", daemon=True
    ).start()
    return job


def _settle(job: Future[Any], work: Callable[[], Any]) -> None:
    if not job.set_running_or_notify_cancel():
        return
    try:
        job.set_result(work())
    except BaseException as error:  # noqa: BLE001  # handed to the waiting caller, which decides
        job.set_exception(error)
