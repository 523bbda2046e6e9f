"""Background threads for blocking work, which hold up no exit and survive a fork, unseen by the caller's callbacks."""

from __future__ import annotations

import contextvars
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Something with locks or threads of its own."""

    def renew(self) -> None:
        """Make locks anew and forget threads; called in a child right after the fork."""
        ...


_alive: WeakSet[Renewable] = WeakSet()


def renew_after_fork(one: Renewable) -> None:
    """Have it renewed in every process forked from this one, for as long as it lives."""
    _alive.add(one)


def _renew_all() -> None:
    for one in list(_alive):
        one.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_renew_all)


class ForkSafeLock:
    """A lock that is free in a forked process, whoever held it in the parent: nobody would ever release it there.

    Use it as `with lock.held:`, which takes and releases it at once: a signal, such as Ctrl-C, cannot come in between.
    """

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Be free."""
        self.held = threading.Lock()

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock, waiting so many seconds or, by default, for ever; false when it could not be had."""
        return self.held.acquire(timeout=timeout)

    def release(self) -> None:
        """Give the lock back; one that was renewed meanwhile is free already."""
        if self.held.locked():
            self.held.release()


MAX_HANGING = 64
"""Threads of `in_few_daemons` at a time: their work takes milliseconds, so that many at once means that it hangs."""


class _Places:
    """The free places of this process; a forked child has all of them, because threads do not survive a fork."""

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        self.free = threading.BoundedSemaphore(MAX_HANGING)


_places = _Places()


def in_daemon(work: Callable[[], Any]) -> Future[Any]:
    """Start `work` in a daemon thread with a `bare_context` and return its future.

    A pool's threads are joined at exit, which would then wait for an endpoint that does not answer. With the caller's
    context, what the work streams would reach the user; some builds of Python from 3.14 on hand it to threads.
    """
    job: Future[Any] = Future()
    work = partial(bare_context().run, work)
    threading.Thread(target=partial(_settle, job, work), name="ctxwin", daemon=True).start()
    return job


def bare_context() -> contextvars.Context:
    """Return an empty context that carries the caller's trace alone, where OpenTelemetry is in use.

    What is measured of the work belongs to the trace of who wanted it; nothing else of the caller's is its business.
    """
    context = contextvars.Context()
    if (traces := sys.modules.get("opentelemetry.context")) is not None:
        context.run(traces.attach, traces.get_current())
    return context


def _settle(job: Future[Any], work: Callable[[], Any]) -> None:
    if not job.set_running_or_notify_cancel():
        return
    try:
        job.set_result(work())
    except BaseException as error:  # noqa: BLE001  # handed to the waiting caller, which decides
        job.set_exception(error)


class BusyError(RuntimeError):
    """Too many calls hang for another one to be made."""


def in_few_daemons(work: Callable[[], Any]) -> Future[Any]:
    """Like `in_daemon`, for short work: a `RuntimeError` says that too many hang already, or no thread can start."""
    free = _places.free
    if not free.acquire(blocking=False):
        raise BusyError(f"{MAX_HANGING} calls have not returned yet, no further one is made")
    try:
        job = in_daemon(work)
    except RuntimeError:  # the system has no thread to give
        free.release()
        raise
    job.add_done_callback(lambda _: free.release())
    return job


class Worker:
    """Does tasks one after the other, in a daemon thread that lives while there is something to do.

    In a forked process nothing waits: what was submitted before the fork is its parent's to do.
    """

    def __init__(
        self,
        name: str,
        *,
        max_waiting: int = 1,  # beside the task that is being done
        idle_seconds: float = 0.0,  # until the thread ends
        linger_seconds: float = 0.0,  # in which tasks gather, so that who is at work is not disturbed by each
    ) -> None:
        self._name = name
        self._linger_seconds = linger_seconds
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget the thread and what waits for it; neither means anything after a fork."""
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hurried = threading.Event()
        self._flushing = 0

    def submit(self, task: Callable[[], object]) -> bool:
        """Have a task done, which must not raise; False when too many wait already. Returns at once.

        A `RuntimeError` says that no thread can be started: there may be no more of them, or the process ends.
        """
        with self._lock:
            if self._tasks.qsize() - self._flushing >= self._max_waiting:
                return False
            if self._thread is None:
                target = partial(contextvars.Context().run, self._work)  # an empty context, as in `in_daemon`
                thread = threading.Thread(target=target, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            self._tasks.put(task)
            return True

    def run(self, work: Callable[[], Any]) -> Future[Any]:
        """Have `work` done and return its future; cancelled when too many tasks wait already."""
        job: Future[Any] = Future()
        if not self.submit(partial(_settle, job, work)):
            job.cancel()
        return job

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything that was submitted is done; false when that takes longer. Blocks its thread."""
        done = threading.Event()
        with self._lock:
            if self._thread is None:
                return True
            self._flushing += 1  # takes no place of a task
            self._tasks.put(partial(self._flushed, done))
        self._hurried.set()
        is_done = done.wait(timeout_seconds)
        self._hurried.clear()
        return is_done

    def _flushed(self, done: threading.Event) -> None:
        with self._lock:
            self._flushing -= 1
        done.set()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            task()
            del task  # or it would keep alive what it holds while nothing is to be done

    def _next(self) -> Callable[[], object] | None:
        """Wait for a task; None after the idle time, and then no task is in the queue or comes into it."""
        was_idle = self._tasks.empty()
        try:
            task = self._tasks.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if not self._tasks.empty():
                    return self._tasks.get()
                self._thread = None
                return None
        if was_idle and self._linger_seconds:
            self._hurried.wait(self._linger_seconds)
        return task
