"""Stores that are asked on the way of a turn, for a bounded time: those of LangGraph, for media, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from langgraph.store.base import BaseStore, GetOp, PutOp

from langchain_ctxwin.core.provider_blocks import digest
from langchain_ctxwin.util.log import log, reason_of
from langchain_ctxwin.util.work import Wait, Work, in_daemon

DELETED_AT_ONCE = 100  # items that are listed before they are deleted


def namespace_of(kind: str, thread_id: str) -> tuple[str, ...]:
    """Return the namespace in a LangGraph store where what we keep of a thread and its subgraphs is."""
    return ("ctxwin", kind, digest(thread_id))


def delete_items(store: BaseStore, namespace: tuple[str, ...]) -> None:
    """Delete all items of a namespace of a store and of those below it.

    Blocks; of an async store call it on another thread than that of its event loop.
    """
    while items := store.search(namespace, limit=DELETED_AT_ONCE, refresh_ttl=False):
        for item in items:
            store.delete(tuple(item.namespace), item.key)


STORE_SECONDS = 3.0
"""Longest wait of a turn: a healthy store takes milliseconds a megabyte."""


class ThreadStore:
    """Texts of one kind that belong to one conversation, by key, until the thread is deleted.

    A store that fails or hangs costs a warning and at most `STORE_SECONDS`.

    Args:
        store: where they are.
        kind: what they are, such as `media`.
        thread_id: the conversation; another one reads nothing of it.
    """

    def __init__(self, store: BaseStore, kind: str, thread_id: str) -> None:
        self._store, self._kind, self._thread = store, kind, thread_id
        self._namespace = namespace_of(kind, thread_id)

    def putting(self, texts: Mapping[str, str]) -> Work[bool]:
        """Keep texts; false where the store failed."""
        puts = [
            PutOp(self._namespace, key, {"data": text}, index=False)
            for key, text in texts.items()
        ]
        return (yield from self._batch("not_stored", puts)) is not None

    def getting(self, keys: Collection[str]) -> Work[dict[str, str]]:
        """Return the texts of these keys, as far as they are kept."""
        # refreshing the time to live would write at each turn
        gets = [GetOp(self._namespace, key, refresh_ttl=False) for key in keys]
        items = (yield from self._batch("not_read", gets)) or ()
        return {item.key: str(item.value.get("data")) for item in items if item}

    def _batch(self, event: str, ops: Any) -> Work[Any]:
        # The async methods of sync stores refuse to work, or use a pool whose threads hold up the exit; an async store
        # answers another thread while its event loop is free.
        batch = partial(self._store.batch, ops)
        try:
            return (yield Wait.within(STORE_SECONDS, lambda _: in_daemon(batch)))
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may end the turn
            reason = reason_of(error)
            log.warning(f"{self._kind}.{event}", thread=self._thread, error=reason)
            return None
