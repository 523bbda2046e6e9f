"""Memos: bounded mappings that threads share. Losing what they hold loses time only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

MAX_TEXTS = 512
"""Prices of texts and tool sets kept beside the messages."""

MAX_SEEN = 10_000
"""Things of which is known that they were seen, such as warnings that were given."""

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
            return self._stored(key, value)

    def drop(self, key: Hashable) -> None:
        """Forget a value, if there is one."""
        with self._lock:
            self._values.pop(key, None)

    def _stored(self, key: Hashable, value: V) -> V:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
        return value


class Seen(Lru[bool]):
    """Keys of things that are done once; thread-safe, and bounded by `MAX_SEEN`."""

    def __init__(self) -> None:
        super().__init__(MAX_SEEN)

    def is_new(self, thing: Hashable) -> bool:
        """Say whether this is seen for the first time: True in one of several threads."""
        with self._lock:
            is_new = thing not in self._values
            self._stored(thing, True)
            return is_new


def once(memo: Lru[V], key: Hashable, make: Callable[[], V]) -> V:
    """Return the remembered value of `key`, or make it."""
    value = memo.get(key)
    return memo.put(key, make()) if value is None else value
