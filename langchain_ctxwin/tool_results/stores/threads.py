"""How does async code wait for a store whose methods block?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from langchain_ctxwin.daemon import in_few_daemons

PLACE_SECONDS = 1.0
"""Longest wait for a thread: a burst of parallel calls on a healthy store is through by then."""

POLL_SECONDS = 0.01  # a store answers within milliseconds


async def in_thread(work: Callable[[], Any]) -> Any:
    """Return what `work` does in a daemon thread, of which there are few.

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
