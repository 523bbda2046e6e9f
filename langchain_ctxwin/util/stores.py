"""A LangGraph store that is asked on the way of a turn: from sync and async callers, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langgraph.store.base import BaseStore
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langchain_ctxwin.util.background import in_few_daemons
from langchain_ctxwin.util.work import Wait


def asking(store: BaseStore, method: str, *given: Any, seconds: float, **options: Any) -> Wait:
    """Return the wait for what a method of the store answers; it raises `TimeoutError` after `seconds`.

    An async store answers only while its event loop is free: on that loop's own thread wait asynchronously.

    Args:
        store: any store of LangGraph; its sync methods are called from other threads.
        method: one that also exists with an "a" before its name.
        *given: arguments of the method.
        seconds: longest wait.
        **options: more arguments of the method.
    """

    def ask() -> Any:
        return getattr(store, method)(*given, **options)

    async def later() -> Any:
        # The async methods of sync stores refuse to work, or use a pool whose threads hold up the exit.
        is_async = isinstance(store, AsyncBatchedBaseStore)
        answer: Callable[[], Any] = getattr(store, f"a{method}")
        asked = answer(*given, **options) if is_async else asyncio.wrap_future(in_few_daemons(ask))
        return await asyncio.wait_for(asked, seconds)

    return Wait(lambda: in_few_daemons(ask).result(seconds), later)
