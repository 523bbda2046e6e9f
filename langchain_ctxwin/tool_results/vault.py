"""How is a store asked that may fail, hang, or be async? Within a time limit, and never on the event loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from langchain_ctxwin.daemon import in_few_daemons
from langchain_ctxwin.errors import ResultGoneError
from langchain_ctxwin.protocols import ResultStore
from langchain_ctxwin.tool_results.stores import in_thread

STORE_SECONDS = 3.0
"""Longest wait for a store: a tool call waits for it, and a healthy one takes milliseconds for a megabyte."""

_log = structlog.get_logger(__name__)


class Vault:
    """A result store that cannot fail a tool call.

    Key init args:
        store: where results are kept.
    """

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    def put(self, key: str, value: bytes, ttl_seconds: float) -> bool:
        """Keep a result; False, with a warning, when the store failed."""
        try:
            in_few_daemons(partial(self._store.put, key, value, ttl_seconds)).result(STORE_SECONDS)
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may fail the call
            return _not_kept(key, error)
        return True

    async def aput(self, key: str, value: bytes, ttl_seconds: float) -> bool:
        """Like `put`, without blocking the event loop."""
        try:
            await self._awaited("aput", self._store.put, key, value, ttl_seconds)
        except Exception as error:  # noqa: BLE001  # see put
            return _not_kept(key, error)
        return True

    def get(self, key: str) -> bytes:
        """Return what is kept.

        Raises:
            ResultGoneError: nothing is kept under the key, or the store failed.
        """
        try:
            found = in_few_daemons(partial(self._store.get, key)).result(STORE_SECONDS)
        except Exception as error:  # see put
            raise _unread(key, error) from error
        return _present(found)

    async def aget(self, key: str) -> bytes:
        """Like `get`, without blocking the event loop."""
        try:
            found = await self._awaited("aget", self._store.get, key)
        except Exception as error:  # see put
            raise _unread(key, error) from error
        return _present(found)

    async def _awaited(self, name: str, method: Callable[..., Any], *args: Any) -> Any:
        own: Callable[..., Awaitable[Any]] | None = getattr(self._store, name, None)
        if own is not None:
            return await asyncio.wait_for(own(*args), STORE_SECONDS)
        return await asyncio.wait_for(in_thread(partial(method, *args)), STORE_SECONDS)


def _present(found: Any) -> bytes:
    if not isinstance(found, bytes):
        raise ResultGoneError(
            "this result is no longer stored: it expired or was displaced. Call the tool again only if repeating it "
            "is safe"
        )
    return found


def _unread(key: str, error: Exception) -> ResultGoneError:
    _log.warning("tool_result.not_read", key=key, error=_named(error))
    return ResultGoneError(
        "the store of results does not answer now: ask once more later, or call the tool again if repeating it is safe"
    )


def _not_kept(key: str, error: Exception) -> bool:
    _log.warning("tool_result.not_stored", key=key, error=_named(error))
    return False


def _named(error: Exception) -> str:
    text = f"no answer within {STORE_SECONDS:g} seconds" if isinstance(error, TimeoutError) else str(error)
    return f"{type(error).__name__}: {text}"
