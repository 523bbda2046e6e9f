"""Data of pictures and files in a LangGraph store: one item per digest, in a namespace of each conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from langgraph.store.base import BaseStore, GetOp, PutOp

from langchain_ctxwin.util.failures import log_failure
from langchain_ctxwin.util.stores import asking
from langchain_ctxwin.util.work import Work

STORE_SECONDS = (
    3.0  # longest wait of a turn: a healthy store takes milliseconds a megabyte
)


class MediaStore:
    """The data of the pictures and files of one conversation.

    A store that fails or hangs costs a warning and at most `STORE_SECONDS`: what is not stored stays in the history.

    Args:
        store: where they are.
        thread_id: the conversation; another one reads nothing of it.
    """

    def __init__(self, store: BaseStore, thread_id: str) -> None:
        self._store = store
        self._thread = thread_id
        self._namespace = namespace_of_media(thread_id)

    def putting(self, data: Mapping[str, str]) -> Work[bool]:
        """Keep data by digest until the thread is deleted; false where the store failed."""
        puts = [
            PutOp(self._namespace, digest, {"data": text}, index=False)
            for digest, text in data.items()
        ]
        return (yield from self._batch("media.not_stored", puts)) is not None

    def getting(self, digests: Collection[str]) -> Work[dict[str, str]]:
        """Return the data of these digests, as far as they are kept and whole."""
        gets = [GetOp(self._namespace, digest, refresh_ttl=False) for digest in digests]
        items = (yield from self._batch("media.not_read", gets)) or ()
        texts = {item.key: str(item.value.get("data")) for item in items if item}
        return {key: text for key, text in texts.items() if _digest(text) == key}

    def _batch(self, event: str, ops: Any) -> Work[Any]:
        try:
            return (yield asking(self._store, "batch", ops, seconds=STORE_SECONDS))
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may end the turn
            log_failure(
                event, error, timeout_seconds=STORE_SECONDS, thread=self._thread
            )
            return None


def namespace_of_media(thread_id: str) -> tuple[str, ...]:
    """Return the namespace in a LangGraph store where the pictures and files of a thread are."""
    return ("ctxwin", "media", _digest(thread_id))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
