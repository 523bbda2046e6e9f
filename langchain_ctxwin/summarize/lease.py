"""Which process of a fleet writes a summary that several of them find due?"""

from __future__ import annotations

from math import ceil
from typing import Any, Protocol
from uuid import uuid4

import structlog

PREFIX = "ctxwin:lease:"
"""Start of every Redis key, so that leases stand apart from other keys of the same server."""

ANSWER_SECONDS = 1.0  # a healthy Redis answers within milliseconds; a broken one must not cost the summary's time

_log = structlog.get_logger(__name__)


class Lease(Protocol):
    """Lets one of several processes do a piece of work; may be asked by any thread."""

    def acquire(self, key: str, ttl_seconds: float) -> bool:
        """Return True when the work is ours until `ttl_seconds` have passed, False when another process has it."""
        ...


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

    @classmethod
    def from_url(cls, url: str, *, prefix: str = PREFIX, **options: Any) -> RedisLease:
        """Connect at the first use; `options` go to `redis.Redis.from_url`.

        Unless options say otherwise, the server has a second to answer and is asked once.
        """
        from redis import Redis  # noqa: PLC0415  # an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415

        patience = {
            "socket_timeout": ANSWER_SECONDS,
            "socket_connect_timeout": ANSWER_SECONDS,
            "retry": Retry(NoBackoff(), 0),
        }
        return cls(Redis.from_url(url, **(patience | options)), prefix=prefix)

    def acquire(self, key: str, ttl_seconds: float) -> bool:
        """Return True when the work is ours: nobody holds the key, we got it, or the server is broken."""
        name, token = f"{self._prefix}{key}", uuid4().hex
        try:
            if self._client.set(name, token, nx=True, px=max(1, ceil(ttl_seconds * 1000))):
                return True
            # A client that repeats a request whose answer got lost is refused by its own first attempt.
            return self._client.get(name) in (token, token.encode())
        except Exception as error:  # noqa: BLE001  # clients have no common error, and no failure may stop the work
            _log.warning("summary.lease_failed", key=key, error=f"{type(error).__name__}: {error}")
            return True
