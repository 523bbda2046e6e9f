"""Work that waits, written once for sync and async callers: a generator that yields what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that work waits for, for sync and for async callers."""

    now: Callable[[], Any]
    later: Callable[[], Awaitable[Any]]


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


async def arun(work: Work[T], *, aside: bool = False) -> T:
    """Do the work, awaiting where it waits.

    With `aside`, what lies between the waits is done in threads, because it may take long enough to hold up the loop.
    """
    resume: Callable[[], Wait] = work.__next__
    while True:
        wait = await asyncio.to_thread(_next, resume) if aside else _next(resume)
        if isinstance(wait, StopIteration):
            done: T = wait.value
            return done
        try:
            resume = partial(work.send, await wait.later())
        except Exception as error:  # noqa: BLE001  # see run
            resume = partial(work.throw, error)


def _next(resume: Callable[[], Wait]) -> Wait | StopIteration:
    """What the work waits for next, or its end, which no future may raise."""
    try:
        return resume()
    except StopIteration as finished:
        return finished
