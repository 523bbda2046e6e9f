"""Memos: bounded mappings that threads share. Losing what they hold loses time only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

MAX_TEXTS = 512
"""Prices of texts and tool sets kept beside the messages."""

V = TypeVar("V")


class Lru(Generic[V]):
    """A small thread-safe mapping that forgets what was used least recently."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> V | None:
        """Return the value, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: V) -> V:
        """Store and return the value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        return value

    def drop(self, key: Hashable) -> None:
        """Forget a value, if there is one."""
        with self._lock:
            self._values.pop(key, None)


def once(memo: Lru[V], key: Hashable, make: Callable[[], V]) -> V:
    """Return the remembered value of `key`, or make it."""
    value = memo.get(key)
    return memo.put(key, make()) if value is None else value
