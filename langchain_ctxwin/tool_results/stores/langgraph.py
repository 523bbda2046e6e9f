"""How are results kept in the store that a LangGraph application has anyway?"""

from __future__ import annotations

import base64
import hashlib
import time
from math import ceil
from typing import Any

from langgraph.store.base import BaseStore, Item
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.tool_results.stores.sealing import key_bytes, report_damaged, sealed, unsealed
from langchain_ctxwin.tool_results.stores.threads import in_thread

NAMESPACE = ("ctxwin", "results")
"""Where the results stand in the store; below it, one namespace per tenant and thread."""

SECONDS_PER_MINUTE = 60.0


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
        self._store.put(*_place(key), self._item(key, value, ttl_seconds), index=False, **self._life(ttl_seconds))

    def get(self, key: str) -> bytes | None:
        """Return what is kept under this key, or None: never kept, expired, deleted or damaged."""
        # Refreshing the store's expiry would write at each read, and ours is not in it.
        return self._value(key, self._store.get(*_place(key), refresh_ttl=False))

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        self._store.delete(*_place(key))

    async def aput(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Like `put`, without blocking the event loop."""
        if not self._is_async:
            await in_thread(lambda: self.put(key, value, ttl_seconds))
            return
        item = self._item(key, value, ttl_seconds)
        await self._store.aput(*_place(key), item, index=False, **self._life(ttl_seconds))

    async def aget(self, key: str) -> bytes | None:
        """Like `get`, without blocking the event loop."""
        if not self._is_async:
            found: bytes | None = await in_thread(lambda: self.get(key))
            return found
        return self._value(key, await self._store.aget(*_place(key), refresh_ttl=False))

    async def adelete(self, key: str) -> None:
        """Like `delete`, without blocking the event loop."""
        if not self._is_async:
            await in_thread(lambda: self.delete(key))
            return
        await self._store.adelete(*_place(key))

    def _item(self, key: str, value: bytes, ttl_seconds: float) -> dict[str, Any]:
        # Text: stores keep JSON, and some databases refuse control characters.
        text = base64.b64encode(sealed(key, value)).decode()
        return {"sealed": text, "expires_at_seconds": self._clock() + ttl_seconds}

    def _life(self, ttl_seconds: float) -> dict[str, Any]:
        """The store's own expiry, in whole minutes, where it has one; other stores refuse the argument."""
        return {"ttl": ceil(ttl_seconds / SECONDS_PER_MINUTE)} if self._store.supports_ttl else {}

    def _value(self, key: str, item: Item | None) -> bytes | None:
        if item is None:
            return None
        try:
            is_expired = self._clock() >= item.value["expires_at_seconds"]
            data = base64.b64decode(item.value["sealed"], validate=True)
        except (KeyError, TypeError, ValueError) as error:  # another program's item, or damage
            report_damaged(key, f"{type(error).__name__}: {error}")
            return None
        return None if is_expired else unsealed(key, data)


def _place(key: str) -> tuple[tuple[str, ...], str]:
    """Namespace and key in the store; hashed, because stores and databases refuse some characters."""
    namespace, _, name = key.rpartition("/")
    return (*NAMESPACE, _digest(namespace)), _digest(name)


def _digest(text: str) -> str:
    return hashlib.sha256(key_bytes(text)).hexdigest()
