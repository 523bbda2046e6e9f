"""Memos: bounded mappings that threads share. Losing what they hold loses time only."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import TypeVar

V = TypeVar("V")


class Lru(dict[Hashable, V]):
    """A small mapping that forgets what was put the longest time ago; threads read it as they like."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._lock = Lock()

    def put(self, key: Hashable, value: V) -> V:
        """Store and return the value."""
        with self._lock:
            self.pop(key, None)
            self[key] = value
            if len(self) > self._size:
                del self[next(iter(self))]
        return value


def once(memo: Lru[V], key: Hashable, make: Callable[[], V]) -> V:
    """Return the remembered value of `key`, or make it."""
    value = memo.get(key)
    return memo.put(key, make() if value is None else value)
