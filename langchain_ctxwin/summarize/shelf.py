"""Where does a finished summary, or a session that nobody keeps, wait until a process of the fleet needs it?"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import structlog
from langgraph.store.base import BaseStore, Item
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langchain_ctxwin.daemon import in_few_daemons
from langchain_ctxwin.summarize.writing import Written

NAMESPACE = ("ctxwin", "summaries")
"""Where the items stand in the store."""

READ_SECONDS = 1.0
"""Longest wait for the store: a turn waits for it, and a healthy store answers within milliseconds."""

TTL_MINUTES = 7 * 24 * 60.0
"""Life of an item where the store removes expired ones: a conversation idle for a week summarizes again if it must."""

V = TypeVar("V")

_log = structlog.get_logger(__name__)


class Shelf:
    """One place per conversation in a LangGraph store; the next text takes the place of the last one.

    A store that fails or hangs costs a warning and at most `READ_SECONDS`; the answer is then None.

    Key init args:
        store: any store of LangGraph; its methods are called from other threads.
        thread: the conversation's id.
        namespace: what is kept there.
    """

    def __init__(self, store: BaseStore, thread: str, namespace: tuple[str, ...] = NAMESPACE) -> None:
        self._store = store
        self._namespace = namespace
        self._thread = thread
        # Ids may hold what a database refuses; lone surrogates cannot be encoded strictly.
        self._place = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()

    def put(self, key: str, written: Written) -> None:
        """Store a summary; blocks for as long as the store does, so call it off the critical path."""
        self.put_value(key, written.to_json())

    def put_value(self, key: str, value: Any) -> None:
        """Like `put`, for any JSON value."""
        options: dict[str, Any] = {"ttl": TTL_MINUTES} if self._store.supports_ttl else {}
        # Text in ASCII: some databases refuse the control characters and surrogates that a model may write.
        item = {"key": key, "written": json.dumps(value)}
        try:
            self._store.put(self._namespace, self._place, item, index=False, **options)
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may cost the summary
            _log.warning("summary.not_stored", thread=self._thread, error=f"{type(error).__name__}: {error}")

    def get(self, key: str) -> Written | None:
        """Return the summary stored under this key, or None: another one, none, or the store failed.

        An async store answers only while its event loop is free: on that loop's own thread use `aget`.
        """
        return self.get_one((key,), Written.from_json)

    async def aget(self, key: str) -> Written | None:
        """Like `get`, without blocking the event loop."""
        return await self.aget_one((key,), Written.from_json)

    def get_one(self, keys: Collection[str], read: Callable[[Any], V]) -> V | None:
        """Return what `read` makes of the value stored under any of these keys, or None."""
        try:
            return _value(in_few_daemons(self._read).result(READ_SECONDS), keys, read)
        except Exception as error:  # noqa: BLE001  # see put
            self._report_unread(error)
            return None

    async def aget_one(self, keys: Collection[str], read: Callable[[Any], V]) -> V | None:
        """Like `get_one`, without blocking the event loop."""
        try:
            return _value(await asyncio.wait_for(self._aread(), READ_SECONDS), keys, read)
        except Exception as error:  # noqa: BLE001  # see put
            self._report_unread(error)
            return None

    async def _aread(self) -> Item | None:
        # The async methods of sync stores refuse to work, or use a pool whose threads hold up the exit.
        if not isinstance(self._store, AsyncBatchedBaseStore):
            item: Item | None = await asyncio.wrap_future(in_few_daemons(self._read))
            return item
        return await self._store.aget(self._namespace, self._place, refresh_ttl=False)

    def _read(self) -> Item | None:
        return self._store.get(self._namespace, self._place, refresh_ttl=False)  # refreshing would write at each turn

    def _report_unread(self, error: Exception) -> None:
        text = f"no answer within {READ_SECONDS:g} seconds" if isinstance(error, TimeoutError) else str(error)
        _log.warning("summary.not_read", thread=self._thread, error=f"{type(error).__name__}: {text}")


def _value(item: Item | None, keys: Collection[str], read: Callable[[Any], V]) -> V | None:
    """What is inside an item, None when it is of another key; an item that somebody damaged may raise anything."""
    if item is None or item.value["key"] not in keys:
        return None
    return read(json.loads(item.value["written"]))
