"""How are results kept on a Redis server, for every process of a fleet?"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from math import ceil
from typing import Any

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.redis_clients import async_redis_client, redis_client
from langchain_ctxwin.tool_results.stores.sealing import key_bytes, sealed, unsealed
from langchain_ctxwin.tool_results.stores.threads import in_thread

PREFIX = "ctxwin:result:"
"""Start of every key, so that results stand apart from other keys of the same server."""

AS_BYTES: dict[str, Any] = {"NEVER_DECODE": True}
"""Option of the client: the answer stays bytes, also for a client that decodes every other answer."""


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
        """Return what is kept under this key, or None: never kept, expired, displaced, deleted or damaged."""
        return unsealed(key, self._client.execute_command("GET", self._name(key), **AS_BYTES))

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        self._client.execute_command("DEL", self._name(key))

    async def aput(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Like `put`, without blocking the event loop."""
        await self._asend(*self._set(key, value, ttl_seconds))

    async def aget(self, key: str) -> bytes | None:
        """Like `get`, without blocking the event loop."""
        return unsealed(key, await self._asend("GET", self._name(key), **AS_BYTES))

    async def adelete(self, key: str) -> None:
        """Like `delete`, without blocking the event loop."""
        await self._asend("DEL", self._name(key))

    async def _asend(self, *command: Any, **options: Any) -> Any:
        if self._loops is None:
            return await in_thread(lambda: self._client.execute_command(*command, **options))
        client = await self._loops.client()
        return await client.execute_command(*command, **options)

    def _set(self, key: str, value: bytes, ttl_seconds: float) -> tuple[Any, ...]:
        return "SET", self._name(key), sealed(key, value), "PX", max(1, ceil(ttl_seconds * 1000))

    def _name(self, key: str) -> bytes:
        return key_bytes(f"{self._prefix}{key}")


class _LoopClients:
    """One client per event loop, closed with it: a connection cannot serve two loops, nor outlive its own."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._open: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]] = {}

    async def client(self) -> Any:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            self._forget_closed()
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

    def _forget_closed(self) -> None:
        """Let go of loops that somebody closed without letting them end."""
        for loop in [loop for loop in list(self._open) if loop.is_closed()]:
            self._open.pop(loop, None)
