"""Stores of large tool results, until they expire: in memory, on a Redis server, or in a LangGraph store."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any

import structlog
from langgraph.store.base import BaseStore, Item
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.background import in_few_daemons
from langchain_ctxwin.util.forks import renew_after_fork
from langchain_ctxwin.util.redis import async_redis_client, redis_client

__all__ = ["LangGraphResultStore", "MemoryResultStore", "RedisResultStore"]

MAX_BYTES = 64 * 1024 * 1024
"""Hundreds of results of ordinary size, and no burden for a server process: results are compressed JSON and text."""

NAMESPACE = ("ctxwin", "results")
"""Where the results stand in a LangGraph store; below it, one namespace per tenant and thread."""

SECONDS_PER_MINUTE = 60.0

PREFIX = "ctxwin:result:"
"""Start of every key on a Redis server, so that results stand apart from other keys."""

AS_BYTES: dict[str, Any] = {"NEVER_DECODE": True}
"""Option of the Redis client: the answer stays bytes, also for a client that decodes every other answer."""

PLACE_SECONDS = 1.0
"""Longest wait for a thread: a burst of parallel calls on a healthy store is through by then."""

POLL_SECONDS = 0.01  # a store answers within milliseconds

_log = structlog.get_logger(__name__)


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
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Start empty: in a forked child, another thread may have held the lock, or been in the middle of a change."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()  # value, expiry; least recently used first
        self._size_bytes = 0

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
            self._drop_expired(now)
            while self._size_bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

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
        for key in [key for key, (_, expiry) in self._entries.items() if expiry <= now]:
            self._drop(key)


class LangGraphResultStore:
    """Keeps results in a LangGraph store: in memory, SQLite, Postgres, their async forms, or your own.

    Every item has its own expiry, checked when it is read. Whether expired items are removed is up to the store: those
    of SQLite and Postgres do it while their sweeper runs, `InMemoryStore` keeps them. A store that fails raises its
    own errors. An async store answers the sync methods only while its event loop is free, never on that loop's thread.

    Key init args:
        base_store: the store.
        clock: seconds since the epoch.

    Instantiate:
        ```python
        results = LangGraphResultStore(store)
        ```
    """

    def __init__(self, base_store: BaseStore, *, clock: Clock = time.time) -> None:
        if not isinstance(base_store, BaseStore):
            raise ConfigError(f"base_store is {type(base_store).__name__:.60}: pass a store of LangGraph")
        self._store = base_store
        self._clock = clock
        # The async methods of sync stores refuse to work, or use a pool whose threads hold up the exit.
        self._is_async = isinstance(base_store, AsyncBatchedBaseStore)

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key."""
        self._store.put(*_place(key), self._item(value, ttl_seconds), index=False, **self._life(ttl_seconds))

    def get(self, key: str) -> bytes | None:
        """Return what is kept under this key, or None: never kept, expired, deleted or damaged."""
        # Refreshing the store's expiry would write at each read, and ours is not in it.
        return self._value(key, self._store.get(*_place(key), refresh_ttl=False))

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        self._store.delete(*_place(key))

    async def aput(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Like `put`, without blocking the event loop."""
        item, life = self._item(value, ttl_seconds), self._life(ttl_seconds)
        await self._awaited("put", *_place(key), item, index=False, **life)

    async def aget(self, key: str) -> bytes | None:
        """Like `get`, without blocking the event loop."""
        return self._value(key, await self._awaited("get", *_place(key), refresh_ttl=False))

    async def adelete(self, key: str) -> None:
        """Like `delete`, without blocking the event loop."""
        await self._awaited("delete", *_place(key))

    async def _awaited(self, method: str, *args: Any, **options: Any) -> Any:
        if self._is_async:
            return await getattr(self._store, f"a{method}")(*args, **options)
        return await in_thread(partial(getattr(self._store, method), *args, **options))

    def _item(self, value: bytes, ttl_seconds: float) -> dict[str, Any]:
        # Text: stores keep JSON, and some databases refuse control characters.
        return {"result": base64.b64encode(value).decode(), "expires_at_seconds": self._clock() + ttl_seconds}

    def _life(self, ttl_seconds: float) -> dict[str, Any]:
        """The store's own expiry, in whole minutes, where it has one; other stores refuse the argument."""
        return {"ttl": ceil(ttl_seconds / SECONDS_PER_MINUTE)} if self._store.supports_ttl else {}

    def _value(self, key: str, item: Item | None) -> bytes | None:
        if item is None:
            return None
        try:
            is_expired = self._clock() >= item.value["expires_at_seconds"]
            value = base64.b64decode(item.value["result"], validate=True)
        except (KeyError, TypeError, ValueError) as error:  # another program's item, or damage
            _log.warning("results.damaged", key=key, reason=f"{type(error).__name__}: {error}")
            return None
        return None if is_expired else value


class RedisResultStore:
    """Keeps results on a Redis server, or any server that speaks its protocol; it needs no modules.

    The server removes what expired. A server that fails raises the client's own errors.

    Setup:
        ```bash
        pip install "langchain-ctxwin[redis]"
        ```

    Key init args:
        client: a `redis.Redis` client of your own; give it time-outs. Async runs use it from other threads.
        prefix: start of every key.

    Instantiate:
        ```python
        store = RedisResultStore.from_url("redis://localhost:6379/0")
        ```
    """

    def __init__(self, client: Any, *, prefix: str = PREFIX) -> None:
        send = getattr(client, "execute_command", None)
        if isinstance(client, type) or not callable(send) or inspect.iscoroutinefunction(send):
            raise ConfigError(
                f"client is {type(client).__module__}.{type(client).__name__}: pass a redis.Redis client, or use "
                f"RedisResultStore.from_url(url), which has connections for async runs too"
            )
        self._client = client
        self._prefix = prefix
        self._loops: _LoopClients | None = None

    @classmethod
    def from_url(cls, url: str, *, prefix: str = PREFIX, **options: Any) -> RedisResultStore:
        """Connect at the first use, once per event loop and once for all threads.

        Unless options say otherwise, the server has a second to answer and is asked once.

        Args:
            url: `redis://host:6379/0`, `rediss://...` or `unix://...`.
            prefix: start of every key.
            options: go to `redis.Redis.from_url` and to `redis.asyncio.Redis.from_url`, such as `socket_timeout`.

        Raises:
            ConfigError: the URL is no URL of a Redis server, or the extra `redis` is not installed.
        """
        store = cls(redis_client(url, **options), prefix=prefix)
        store._loops = _LoopClients(lambda: async_redis_client(url, **options))
        return store

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key."""
        self._client.execute_command(*self._set(key, value, ttl_seconds))

    def get(self, key: str) -> bytes | None:
        """Return what is kept under this key, or None: never kept, expired, displaced or deleted."""
        found: bytes | None = self._client.execute_command("GET", self._name(key), **AS_BYTES)
        return found

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        self._client.execute_command("DEL", self._name(key))

    async def aput(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Like `put`, without blocking the event loop."""
        await self._asend(*self._set(key, value, ttl_seconds))

    async def aget(self, key: str) -> bytes | None:
        """Like `get`, without blocking the event loop."""
        found: bytes | None = await self._asend("GET", self._name(key), **AS_BYTES)
        return found

    async def adelete(self, key: str) -> None:
        """Like `delete`, without blocking the event loop."""
        await self._asend("DEL", self._name(key))

    async def _asend(self, *command: Any, **options: Any) -> Any:
        if self._loops is None:
            return await in_thread(partial(self._client.execute_command, *command, **options))
        client = await self._loops.client()
        return await client.execute_command(*command, **options)

    def _set(self, key: str, value: bytes, ttl_seconds: float) -> tuple[Any, ...]:
        return "SET", self._name(key), value, "PX", max(1, ceil(ttl_seconds * 1000))

    def _name(self, key: str) -> bytes:
        return _key_bytes(f"{self._prefix}{key}")


class _LoopClients:
    """One client per event loop, closed with it: a connection cannot serve two loops, nor outlive its own."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._open: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]] = {}

    async def client(self) -> Any:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            for closed in [one for one in list(self._open) if one.is_closed()]:  # without letting them end
                self._open.pop(closed, None)
            # A loop that ends closes the generators that were started in it: the one hook that loops have for this.
            lifetime = self._lifetime(loop, client := self._connect())
            self._open[loop] = (client, lifetime)
            await anext(lifetime)
        return self._open[loop][0]

    async def _lifetime(self, loop: asyncio.AbstractEventLoop, client: Any) -> AsyncGenerator[Any, None]:
        try:
            yield
        finally:
            self._open.pop(loop, None)
            await client.aclose()


async def in_thread(work: Callable[[], Any]) -> Any:
    """Return what the blocking `work` of a store does in a daemon thread, of which there are few.

    Raises:
        RuntimeError: too many calls hang already, or the system has no thread to give.
    """
    return await asyncio.wrap_future(await _started(work))


async def _started(work: Callable[[], Any]) -> Future[Any]:
    for _ in range(round(PLACE_SECONDS / POLL_SECONDS)):
        with suppress(RuntimeError):
            return in_few_daemons(work)
        await asyncio.sleep(POLL_SECONDS)
    return in_few_daemons(work)


def _size_bytes(key: str, value: bytes) -> int:
    return len(_key_bytes(key)) + len(value)


def _key_bytes(key: str) -> bytes:
    """A key as bytes; scopes may hold lone surrogates, which cannot be encoded strictly."""
    return key.encode("utf-8", "surrogatepass")


def _place(key: str) -> tuple[tuple[str, ...], str]:
    """Namespace and key in a LangGraph store; hashed, because stores and databases refuse some characters."""
    namespace, _, name = key.rpartition("/")
    return (*NAMESPACE, _digest(namespace)), _digest(name)


def _digest(text: str) -> str:
    return hashlib.sha256(_key_bytes(text)).hexdigest()
