"""Renewal after a fork: threads do not survive one, so that locks they held would stay held for ever."""

from __future__ import annotations

import os
import threading
from typing import Protocol
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
    """A lock that is free in a forked process, whoever held it in the parent: nobody would ever release it there."""

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Be free."""
        self._lock = threading.Lock()

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock, waiting so many seconds or, by default, for ever; false when it could not be had."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Give the lock back; one that was renewed meanwhile is free already."""
        if self._lock.locked():
            self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
