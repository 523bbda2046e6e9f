"""Which process of a fleet writes a summary that several of them find due?"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import Any, Protocol
from uuid import uuid4

import structlog

from langchain_ctxwin.daemon import in_few_daemons
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.redis_clients import redis_client

PREFIX = "ctxwin:lease:"
"""Start of every Redis key, so that leases stand apart from other keys of the same server."""

LEASE_SECONDS = 2.0
"""Longest wait for a lease: a healthy server answers within milliseconds."""

MAX_HELD = 256
"""Tokens of granted leases that are kept, far more than summaries are written at a time; a lease whose token is gone
runs out by itself."""

RELEASE_SCRIPT = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
"""Deletes a lease that is still ours, in one step: after a late answer it may be another process's by now."""

_log = structlog.get_logger(__name__)


class Lease(Protocol):
    """Lets one of several processes do a piece of work; may be asked by any thread."""

    def acquire(self, key: str, ttl_seconds: float) -> bool:
        """Return True when the work is ours until `ttl_seconds` have passed, False when another process has it."""
        ...

    def release(self, key: str) -> None:
        """Let others do a piece of work that came to nothing; no effect on a lease that another process has."""
        ...


def check_lease(lease: Any) -> None:
    """Raise `ConfigError` for what is no lease; None is none."""
    if lease is None:
        return
    if isinstance(lease, type) or not all(callable(getattr(lease, name, None)) for name in ("acquire", "release")):
        raise ConfigError(
            f"lease={lease!r:.80} has no methods acquire and release: pass RedisLease.from_url(url), or None"
        )


def granted(lease: Lease | None, key: str, ttl_seconds: float) -> bool:
    """Ask a lease, for `LEASE_SECONDS` at most; one that fails or hangs grants, and so does None."""
    if lease is None:
        return True
    try:
        asked = in_few_daemons(lambda: lease.acquire(key, ttl_seconds))
        return bool(asked.result(LEASE_SECONDS))
    except Exception as error:  # noqa: BLE001  # a lease may be anybody's code: work twice rather than never
        _log.warning("summary.lease_failed", key=key, error=f"{type(error).__name__}: {error}")
        return True


def give_back(lease: Lease, key: str, *, wait_seconds: float = 0.0) -> None:
    """Release a lease, waiting for the answer as long as said; one that fails runs out by itself."""

    def release() -> None:
        try:
            lease.release(key)
        except Exception as error:  # noqa: BLE001  # see granted
            _not_released(key, error)

    try:
        asked = in_few_daemons(release)
        if wait_seconds:
            asked.result(wait_seconds)
    except Exception as error:  # noqa: BLE001  # see granted
        _not_released(key, error)


def _not_released(key: str, error: Exception) -> None:
    _log.warning("summary.lease_not_released", key=key, error=f"{type(error).__name__}: {error}")


class RedisLease:
    """A lease kept by a Redis server, or any server that speaks its protocol.

    A server that fails grants every lease, with a warning: work done twice is better than work never done.

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
        """Return True when the work is ours: nobody holds the key, we got it, or the server is broken."""
        name, token = f"{self._prefix}{key}", uuid4().hex
        try:
            # A client that repeats a request whose answer got lost is refused by its own first attempt.
            if not self._client.set(name, token, nx=True, px=max(1, ceil(ttl_seconds * 1000))) and (
                self._client.get(name) not in (token, token.encode())
            ):
                return False
        except Exception as error:  # noqa: BLE001  # clients have no common error, and no failure may stop the work
            _log.warning("summary.lease_failed", key=key, error=f"{type(error).__name__}: {error}")
        self._tokens[key] = token  # also after a failure: the server may have set it before its answer got lost
        if len(self._tokens) > MAX_HELD:
            self._tokens.popitem(last=False)
        return True

    def release(self, key: str) -> None:
        """Delete our lease; one that ran out, or that another process has, is left alone."""
        token = self._tokens.pop(key, None)
        if token is not None:
            self._client.eval(RELEASE_SCRIPT, 1, f"{self._prefix}{key}", token)
