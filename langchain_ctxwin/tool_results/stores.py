"""Stores of large tool results: in memory, on a Redis server, in a LangGraph store, or as files of an agent."""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import asdict
from math import ceil
from typing import Any

from langgraph.store.base import BaseStore

from langchain_ctxwin.core.provider_blocks import compact_json
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.tool_results.cursors import ResultRecord
from langchain_ctxwin.tool_results.showing import json_value
from langchain_ctxwin.util.stores import delete_items

__all__ = [
    "BackendResultStore",
    "LangGraphResultStore",
    "MemoryResultStore",
    "RedisResultStore",
]

MAX_BYTES = 64 * 1024 * 1024
"""Hundreds of results of ordinary size, and no burden for a server process: results are compressed JSON and text."""

SCANNED = 1_000  # keys that a Redis server looks at in one go: less than a millisecond of its time

ANSWER_SECONDS = 1.0  # a healthy server answers within milliseconds; a broken one must not cost the caller's time

PREFIX = "ctxwin:result:"  # of every key on a Redis server, so that results stand apart from other keys


class MemoryResultStore:
    """Keeps results in this process; what expired goes first, then what was not used for longest.

    Key init args:
        max_bytes: most bytes of values together.
        clock: seconds since the epoch.

    Instantiate:
        ```python
        store = MemoryResultStore()
        ```
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, clock: Clock = time.time) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        # value, expiry; least recently used first
        self._entries: dict[str, tuple[bytes, float]] = {}

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key.

        Raises:
            ConfigError: the value is larger than the whole store may be.
        """
        if len(value) > self._max_bytes:
            raise ConfigError(
                f"a result of {len(value):,} bytes does not fit into max_bytes={self._max_bytes:,}: raise max_bytes of "
                f"MemoryResultStore, or use another store"
            )
        with self._lock:
            self._drop_expired()
            self._entries.pop(key, None)
            self._entries[key] = (value, self._clock() + ttl_seconds)
            while (
                sum(len(kept) for kept, _ in self._entries.values()) > self._max_bytes
            ):
                del self._entries[next(iter(self._entries))]

    def get(self, key: str) -> bytes | None:
        """Return the value stored under this key, or None: never stored, expired, displaced or deleted."""
        with self._lock:
            self._drop_expired()
            if key not in self._entries:
                return None
            self._entries[key] = self._entries.pop(key)
            return self._entries[key][0]

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self, namespace: str) -> None:
        """Forget all results of a namespace."""
        with self._lock:
            for key in list(self._entries):
                if key.startswith(f"{namespace}/"):
                    del self._entries[key]

    def _drop_expired(self) -> None:
        now = self._clock()
        for key in [key for key, (_, expiry) in self._entries.items() if expiry <= now]:
            del self._entries[key]


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
        wanted = "a store of LangGraph"
        self._store = expect(base_store, BaseStore, "base_store", wanted)
        self._clock = clock

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key."""
        # Text: stores keep JSON, and some databases refuse control characters.
        item = {
            "result": base64.b64encode(value).decode(),
            "expires_at_seconds": self._clock() + ttl_seconds,
        }
        # The store's own expiry, in whole minutes; stores that have none refuse the argument.
        life: dict[str, Any] = (
            {"ttl": ceil(ttl_seconds / 60)} if self._store.supports_ttl else {}
        )
        self._store.put(*_place(key), item, index=False, **life)

    def get(self, key: str) -> bytes | None:
        """Return the value stored under this key, or None: never stored, expired or deleted."""
        # Refreshing the store's expiry would write at each read, and ours is not in it.
        item = self._store.get(*_place(key), refresh_ttl=False)
        if item is None or self._clock() >= item.value["expires_at_seconds"]:
            return None
        return base64.b64decode(item.value["result"])

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        self._store.delete(*_place(key))

    def clear(self, namespace: str) -> None:
        """Forget all results of a namespace."""
        delete_items(self._store, _place(f"{namespace}/")[0])


def _place(key: str) -> tuple[tuple[str, ...], str]:
    """Namespace and key in a LangGraph store."""
    namespace, _, name = key.rpartition("/")
    return ("ctxwin", "results", namespace), name


def redis_client(url: str, **options: Any) -> Any:
    """Return a `redis.Redis` that connects at its first use; by default it asks once, and waits for a second.

    Raises:
        ConfigError: the package `redis` is missing.
    """
    try:
        from redis import Redis  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigError(
            'Redis needs the redis package: pip install "langchain-ctxwin[redis]"'
        ) from error
    patience = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
    }
    return Redis.from_url(url, **(patience | options))


class RedisResultStore:
    """Keeps results on a Redis server, or any server that speaks its protocol; it needs no modules.

    The server removes what expired. A server that fails raises the client's own errors.

    Setup:
        ```bash
        pip install "langchain-ctxwin[redis]"
        ```

    Key init args:
        client: a `redis.Redis` client of your own, which decodes no answers; give it time-outs. Async runs use it from
            other threads.

    Instantiate:
        ```python
        store = RedisResultStore.from_url("redis://localhost:6379/0")
        ```
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    def from_url(cls, url: str, **options: Any) -> RedisResultStore:
        """Connect at the first use.

        Unless options say otherwise, the server has a second to answer and is asked once.

        Args:
            url: `redis://host:6379/0`, `rediss://...` or `unix://...`.
            options: go to `redis.Redis.from_url`, such as `socket_timeout`.

        Raises:
            ConfigError: the URL is no URL of a Redis server, or the extra `redis` is not installed.
        """
        return cls(redis_client(url, **options))

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key."""
        self._client.set(f"{PREFIX}{key}", value, px=ceil(ttl_seconds * 1000))

    def get(self, key: str) -> bytes | None:
        """Return the value stored under this key, or None: never stored, expired, displaced or deleted."""
        value: bytes | None = self._client.get(f"{PREFIX}{key}")
        return value

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        self._client.delete(f"{PREFIX}{key}")

    def clear(self, namespace: str) -> None:
        """Forget all results of a namespace; walks through all keys of the server."""
        for key in self._client.scan_iter(
            match=f"{PREFIX}{namespace}/*", count=SCANNED
        ):
            self._client.delete(key)


# -------------------------------------------------------------------------------------------------- files of an agent

NAMESPACE_CHARS = 12  # of a namespace in a path, which a model has to copy


class BackendResultStore:
    """Keeps each large result as a file of a deepagents backend: of the state, a store, a file system or a sandbox.

    The first line of a file says what the result is, the rest is the result, JSON by lines. Files stay until somebody
    deletes them, whatever time to live is set; those of a `StateBackend` go with their thread. Who shares a backend
    can read its files: give each tenant one of its own, as for the other files of an agent.

    Setup:
        ```bash
        pip install langchain-ctxwin deepagents
        ```

    Key init args:
        backend: that of the agent, as `create_deep_agent(backend=)` takes it.
        root: folder of the files.

    Instantiate:
        ```python
        guard = ToolResultGuard(store=BackendResultStore(backend))
        ```
    """

    def __init__(self, backend: Any, *, root: str = "/tool_results") -> None:
        self._backend = backend
        self._root = root.rstrip("/")

    def path_of(self, key: str) -> str:
        """Return the path of the file with this result."""
        namespace, _, name = key.rpartition("/")
        return f"{self._folder(namespace)}/{name}.txt"

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:  # noqa: ARG002  # files do not expire
        """Write the result, unless it is there: no result changes.

        Raises:
            OSError: the backend cannot write.
        """
        if self.get(key) is not None:
            return
        facts = asdict(ResultRecord.from_bytes(value))
        text = facts.pop("text")
        rows = json_value(text)
        if rows is not None:
            text = json.dumps(rows, ensure_ascii=False, indent=1)
        raw = f"{compact_json(facts)}\n{text}".encode("utf-8", "surrogatepass")
        (written,) = self._backend.upload_files([(self.path_of(key), raw)])
        if written.error:
            raise OSError(f"{written.path}: {written.error}")

    def get(self, key: str) -> bytes | None:
        """Return the result, or None: never kept, deleted, or no longer what was written."""
        (read,) = self._backend.download_files([self.path_of(key)])
        if read.content is None:
            return None
        facts, _, text = read.content.decode("utf-8", "surrogatepass").partition("\n")
        try:
            return ResultRecord(**json.loads(facts), text=text).to_bytes()
        except (TypeError, ValueError):
            return None

    def delete(self, key: str) -> None:
        """Delete the file of a result; no effect when there is none."""
        self._backend.delete(self.path_of(key))

    def clear(self, namespace: str) -> None:
        """Delete the files of a namespace."""
        for file in self._backend.ls(self._folder(namespace)).entries or ():
            self._backend.delete(file["path"])

    def _folder(self, namespace: str) -> str:
        return f"{self._root}/{namespace[:NAMESPACE_CHARS]}"
