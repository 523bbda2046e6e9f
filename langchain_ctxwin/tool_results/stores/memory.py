"""How are results kept in this process, in a bounded amount of memory?"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from functools import partial
from heapq import heapify, heappop, heappush

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock

MAX_BYTES = 64 * 1024 * 1024
"""Hundreds of results of ordinary size, and no burden for a server process: results are compressed JSON and text."""

SPARE_NOTES = 64  # expiry notes of entries that are gone, below which tidying them up is not worth it


class MemoryResultStore:
    """Keeps results in this process; what expired goes first, then what was not used for longest.

    Key init args:
        max_bytes: most bytes of keys and values together.
        clock: seconds since the epoch.

    Instantiate:
        ```python
        store = MemoryResultStore()
        ```
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, clock: Clock = time.time) -> None:
        if not isinstance(max_bytes, int) or max_bytes < 1:
            raise ConfigError(f"max_bytes={max_bytes!r:.60}: pass a positive number of bytes")
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()  # value, expiry; least recently used first
        self._expiries: list[tuple[float, str]] = []  # a heap; a note whose entry has another expiry by now is void
        self._size_bytes = 0
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=partial(_restart_in_child, weakref.ref(self)))

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values."""
        with self._lock:
            return self._size_bytes

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key.

        Raises:
            ConfigError: key and value are larger than the whole store may be.
        """
        size_bytes = _size_bytes(key, value)
        if size_bytes > self._max_bytes:
            raise ConfigError(
                f"a result of {size_bytes:,} bytes does not fit into max_bytes={self._max_bytes:,}: raise max_bytes of "
                f"MemoryResultStore, or use another store"
            )
        now = self._clock()
        with self._lock:
            self._drop(key)
            self._entries[key] = (value, now + ttl_seconds)
            self._size_bytes += size_bytes
            heappush(self._expiries, (now + ttl_seconds, key))
            self._drop_expired(now)
            while self._size_bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))
            self._tidy()

    def get(self, key: str) -> bytes | None:
        """Return what is kept under this key, or None: never kept, expired, displaced or deleted."""
        now = self._clock()
        with self._lock:
            self._drop_expired(now)
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        with self._lock:
            self._drop(key)

    async def aput(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Like `put`, which blocks for microseconds."""
        self.put(key, value, ttl_seconds)

    async def aget(self, key: str) -> bytes | None:
        """Like `get`."""
        return self.get(key)

    async def adelete(self, key: str) -> None:
        """Like `delete`."""
        self.delete(key)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size_bytes -= _size_bytes(key, entry[0])

    def _drop_expired(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            expiry, key = heappop(self._expiries)
            if key in self._entries and self._entries[key][1] == expiry:
                self._drop(key)

    def _tidy(self) -> None:
        """Write the notes anew when most are void: keys that are put again and again must not fill the memory."""
        if len(self._expiries) > 2 * len(self._entries) + SPARE_NOTES:
            self._expiries = [(expiry, key) for key, (_, expiry) in self._entries.items()]
            heapify(self._expiries)


def _size_bytes(key: str, value: bytes) -> int:
    return len(key.encode("utf-8", "surrogatepass")) + len(value)


def _restart_in_child(reference: weakref.ref[MemoryResultStore]) -> None:
    """Start empty after a fork: another thread may have held the lock, or been in the middle of a change."""
    store = reference()
    if store is not None:
        store._lock = threading.Lock()  # noqa: SLF001
        store._entries, store._expiries, store._size_bytes = OrderedDict(), [], 0  # noqa: SLF001
