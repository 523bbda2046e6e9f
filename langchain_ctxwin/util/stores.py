"""Stores that are asked on the way of a turn, for a bounded time: those of LangGraph, and Redis."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.store.base import BaseStore
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.work import Wait

ANSWER_SECONDS = 1.0  # a healthy server answers within milliseconds; a broken one must not cost the caller's time


DELETED_AT_ONCE = 100  # items that are listed before they are deleted


def asking(
    store: BaseStore, method: str, *args: Any, seconds: float, **options: Any
) -> Wait:
    """Return the wait for what a method, which also exists with an "a" before its name, answers within `seconds`.

    An async store answers only while its event loop is free: on that loop's own thread wait asynchronously.
    """

    def started() -> Any:
        return in_daemon(lambda: getattr(store, method)(*args, **options))

    async def later() -> Any:
        # The async methods of sync stores refuse to work, or use a pool whose threads hold up the exit.
        is_async = isinstance(store, AsyncBatchedBaseStore)
        answer = (
            getattr(store, f"a{method}")(*args, **options)
            if is_async
            else asyncio.wrap_future(started())
        )
        return await asyncio.wait_for(answer, seconds)

    return Wait(lambda: started().result(seconds), later)


def delete_items(store: BaseStore, namespace: tuple[str, ...]) -> int:
    """Delete all items of a namespace of a store and of those below it, and return how many there were.

    Blocks; of an async store call it on another thread than that of its event loop.
    """
    deleted = 0
    while items := store.search(namespace, limit=DELETED_AT_ONCE, refresh_ttl=False):
        for item in items:
            store.delete(tuple(item.namespace), item.key)
        deleted += len(items)
    return deleted


def redis_client(url: str, **options: Any) -> Any:
    """Return a `redis.Redis` that connects at its first use; by default it asks once, and waits for a second.

    Raises:
        ConfigError: the package `redis` is missing, or the address is none of its.
    """
    try:
        from redis import Redis  # noqa: PLC0415  # an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            'Redis needs the redis package: pip install "langchain-ctxwin[redis]"'
        ) from error
    patience = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
    }
    try:
        return Redis.from_url(
            url, **({"retry": Retry(NoBackoff(), 0)} | patience | options)
        )
    except (
        ValueError,
        AttributeError,
        TypeError,
    ) as error:  # raised for other schemes, and for what is no text
        scheme = str(url).partition("://")[0]  # the rest may hold a password
        raise ConfigError(
            f"url with the scheme {scheme!r:.20}: pass redis://host:6379/0 or rediss://..."
        ) from error
