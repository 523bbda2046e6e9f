"""What processes of a fleet share of summaries: the finished texts in a store, and who writes which (a lease)."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import uuid4

from langgraph.store.base import BaseStore, Item

from langchain_ctxwin.core.spending import Usage
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.stores import asking, redis_client
from langchain_ctxwin.util.work import Wait

NAMESPACE = ("ctxwin", "summaries")
"""Where the items stand in the store."""

READ_SECONDS = 1.0
"""Longest wait for the store: a turn waits for it, and a healthy store answers within milliseconds."""

TTL_MINUTES = 7 * 24 * 60.0
"""Life of an item where the store removes expired ones: a conversation idle for a week summarizes again if it must."""

PREFIX = "ctxwin:lease:"
"""Start of every Redis key, so that leases stand apart from other keys of the same server."""

MAX_HELD = 256
"""Tokens of granted leases that are kept, far more than summaries are written at a time; a lease whose token is gone
runs out by itself."""

RELEASE_SCRIPT = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
"""Deletes a lease that is still ours, in one step: after a late answer it may be another process's by now."""

V = TypeVar("V")


COUNTS = ("calls", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
"""What of a summary is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished summary and what it cost."""

    text: str
    calls: int = 0
    """Model calls, failed ones included."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    """Parts of the input that were read from the prompt cache, and written to it."""
    seconds: float = 0.0

    @property
    def cost(self) -> dict[str, int]:
        """Calls and tokens, to be added up."""
        return {"calls": self.calls, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}

    @property
    def usage(self) -> Usage:
        """Tokens of all calls together, to be priced."""
        return Usage(**{name: getattr(self, name) for name in COUNTS[1:]})

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Written | None:
        """Read what `to_json` returned; None when that is not what this is. Unknown fields are left out."""
        if not isinstance(value, Mapping):
            return None
        text, seconds = value.get("text"), value.get("seconds")
        if not isinstance(text, str) or not text.strip():
            return None
        counts = {name: count(value.get(name)) for name in COUNTS}
        return cls(text=text, seconds=float(seconds) if isinstance(seconds, int | float) else 0.0, **counts)


class SummaryStore:
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
            log.warning("summary.not_stored", thread=self._thread, error=f"{type(error).__name__}: {error}")

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
            return _value(self._asking().now(), keys, read)
        except Exception as error:  # noqa: BLE001  # see put
            self._report_unread(error)
            return None

    async def aget_one(self, keys: Collection[str], read: Callable[[Any], V]) -> V | None:
        """Like `get_one`, without blocking the event loop."""
        try:
            return _value(await self._asking().later(), keys, read)
        except Exception as error:  # noqa: BLE001  # see put
            self._report_unread(error)
            return None

    def _asking(self) -> Wait:
        # Refreshing the time to live would write at each turn.
        return asking(self._store, "get", self._namespace, self._place, refresh_ttl=False, seconds=READ_SECONDS)

    def _report_unread(self, error: Exception) -> None:
        text = f"no answer within {READ_SECONDS:g} seconds" if isinstance(error, TimeoutError) else str(error)
        log.warning("summary.not_read", thread=self._thread, error=f"{type(error).__name__}: {text}")


def _value(item: Item | None, keys: Collection[str], read: Callable[[Any], V]) -> V | None:
    """What is inside an item, None when it is of another key; an item that somebody damaged may raise anything."""
    if item is None or item.value["key"] not in keys:
        return None
    return read(json.loads(item.value["written"]))


@runtime_checkable
class Lease(Protocol):
    """Lets one of several processes do a piece of work; may be asked by any thread."""

    def acquire(self, key: str, ttl_seconds: float) -> bool:
        """Return True when the work is ours until `ttl_seconds` have passed, False when another process has it."""
        ...

    def release(self, key: str) -> None:
        """Let others do a piece of work that came to nothing; no effect on a lease that another process has."""
        ...


class RedisLease:
    """A lease kept by a Redis server, or any server that speaks its protocol.

    While the server fails, `SummaryJobs` takes every lease as granted, with a warning: work done twice is better than
    work never done.

    Setup:
        ```bash
        pip install "langchain-ctxwin[redis]"
        ```

    Key init args:
        client: a `redis.Redis` client of your own; give it time-outs.
        prefix: start of every key.

    Instantiate:
        ```python
        lease = RedisLease.from_url("redis://localhost:6379/0")
        ```

    Use:
        ```python
        jobs = SummaryJobs(lease=lease)
        ```
    """

    def __init__(self, client: Any, *, prefix: str = PREFIX) -> None:
        self._client = client
        self._prefix = prefix
        # By key; each operation is atomic by itself, so that no lock can be held by another thread at a fork.
        self._tokens: OrderedDict[str, str] = OrderedDict()

    @classmethod
    def from_url(cls, url: str, *, prefix: str = PREFIX, **options: Any) -> RedisLease:
        """Connect at the first use; `options` go to `redis.Redis.from_url`.

        Unless options say otherwise, the server has a second to answer and is asked once.

        Raises:
            ConfigError: the URL is no URL of a Redis server, or the extra `redis` is not installed.
        """
        return cls(redis_client(url, **options), prefix=prefix)

    def acquire(self, key: str, ttl_seconds: float) -> bool:
        """Return True when nobody else holds the key; the error of a broken server is raised.

        A client that repeats a request whose answer got lost is not refused by its own first attempt.
        """
        name, token = f"{self._prefix}{key}", uuid4().hex
        self._tokens[key] = token  # also before a failure: the server may have set it before its answer got lost
        if len(self._tokens) > MAX_HELD:
            self._tokens.popitem(last=False)
        is_set = self._client.set(name, token, nx=True, px=max(1, ceil(ttl_seconds * 1000)))
        return bool(is_set) or self._client.get(name) in (token, token.encode())

    def release(self, key: str) -> None:
        """Delete our lease; one that ran out, or that another process has, is left alone."""
        token = self._tokens.pop(key, None)
        if token is not None:
            self._client.eval(RELEASE_SCRIPT, 1, f"{self._prefix}{key}", token)


def count(value: object) -> int:
    """Return a number of tokens or calls that somebody reported; 0 for what is none."""
    return value if isinstance(value, int) and value > 0 else 0
