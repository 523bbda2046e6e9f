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

from langgraph.store.base import BaseStore

from langchain_ctxwin.core.spending import Usage
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.stores import asking, redis_client
from langchain_ctxwin.util.work import Work, arun, run

NAMESPACE = ("ctxwin", "summaries")
READ_SECONDS = 1.0  # a turn waits for the store, and a healthy one answers within milliseconds
TTL_MINUTES = 7 * 24 * 60.0  # where the store removes items: a conversation idle for a week summarizes again if it must
MAX_HELD = 256  # tokens of leases that are kept: more than are written at a time, and one without its token runs out
RELEASE_SCRIPT = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
COUNTS = ("calls", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished summary and what it cost; failed calls are counted, too."""

    text: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
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
        """Read what `to_json` returned; None without a text, and any other field that is damaged counts as 0."""
        if not isinstance(value, Mapping) or not isinstance(text := value.get("text"), str) or not text.strip():
            return None
        given = {name: value.get(name) for name in COUNTS}
        counts = {name: count if isinstance(count, int) and count > 0 else 0 for name, count in given.items()}
        seconds = value.get("seconds")
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
        return run(self.found((key,), Written.from_json))

    async def aget(self, key: str) -> Written | None:
        """Like `get`, without blocking the event loop."""
        return await arun(self.found((key,), Written.from_json))

    def found(self, keys: Collection[str], read: Callable[[Any], V]) -> Work[V | None]:
        """Return what `read` makes of the value stored under any of these keys, or None."""
        # Refreshing the time to live would write at each turn.
        options = {"refresh_ttl": False, "seconds": READ_SECONDS}
        try:
            item = yield asking(self._store, "get", self._namespace, self._place, **options)
            return read(json.loads(item.value["written"])) if item and item.value["key"] in keys else None
        except Exception as error:  # noqa: BLE001  # stores have no common error, and an item may be damaged
            text = f"no answer within {READ_SECONDS:g} seconds" if isinstance(error, TimeoutError) else str(error)
            log.warning("summary.not_read", thread=self._thread, error=f"{type(error).__name__}: {text}")
            return None


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
        `pip install "langchain-ctxwin[redis]"`

    Key init args:
        client: a `redis.Redis` client of your own; give it time-outs.
        prefix: start of every key.

    Use:
        ```python
        jobs = SummaryJobs(lease=RedisLease.from_url("redis://localhost:6379/0"))
        ```
    """

    def __init__(self, client: Any, *, prefix: str = "ctxwin:lease:") -> None:
        self._client = client
        self._prefix = prefix
        # By key; each operation is atomic by itself, so that no lock can be held by another thread at a fork.
        self._tokens: OrderedDict[str, str] = OrderedDict()

    @classmethod
    def from_url(cls, url: str, *, prefix: str = "ctxwin:lease:", **options: Any) -> RedisLease:
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
        """Delete our lease, in one step; one that ran out, or that another process has, is left alone."""
        if token := self._tokens.pop(key, None):
            self._client.eval(RELEASE_SCRIPT, 1, f"{self._prefix}{key}", token)
