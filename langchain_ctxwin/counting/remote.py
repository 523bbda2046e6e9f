"""What does the provider say this request costs, when it can be asked without holding anybody up?"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar

import structlog
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    MessageLikeRepresentation,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.core.tokens import tool_definition
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock, TokenCounter
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.failures import pause_seconds
from langchain_ctxwin.util.forks import ForkSafeLock, renew_after_fork
from langchain_ctxwin.util.memo import Lru

REQUESTS_PER_MINUTE = 60
"""Questions to the provider; the lowest published limit of a counting endpoint is 100 a minute (Anthropic, tier 1)."""

TIMEOUT_SECONDS = 5.0
"""How long a caller waits for one count: several times what the endpoints take, and short beside a model call."""

MAX_COUNTS = 1_024
"""Requests whose counts are remembered, about 200 bytes each."""

MAX_FACT_CHARS = 40
"""A status of an error is a code word; what is longer is a text, and may quote the request."""

MINUTE_SECONDS = 60.0

DIGEST_BYTES = 16
"""128 bits: two requests do not meet by chance."""

Ask = Callable[[list[AnyMessage], list[Any]], Any]
AsyncAsk = Callable[[list[AnyMessage], list[Any]], Coroutine[Any, Any, Any]]
"""Asks the provider for the tokens of messages and tools; any exception means that there is no count."""

_Answer = Future[int | None]

_log = structlog.get_logger(__name__)


class UnusableCountError(Exception):
    """The provider's answer is no count; it is logged here and goes no further, and its text quotes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """One question on its way; who asks the same meanwhile waits for its answer."""

    kind: str
    digest: str
    ticket: int
    messages: list[AnyMessage]
    tools: list[Any]
    answer: _Answer = field(default_factory=Future)


class RemoteCounter:
    """Asks a provider for the size of whole requests: remembered, rarely, for a short time, and never failing.

    `count_request` returns None where a count could not be had: the endpoint failed or was too slow, it failed a
    moment ago, or it was asked often enough this minute. Each failure is logged once as `count.failed`.
    As a plain counter it falls back to the estimator, so its counts are not reported as exact.

    Raises:
        ConfigError: the rate or the time-out is not positive.
    """

    exact: ClassVar[bool] = False

    def __init__(
        self,
        provider: str,
        ask: Ask,
        aask: AsyncAsk,
        *,
        estimator: TokenCounter,
        requests_per_minute: int = REQUESTS_PER_MINUTE,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        if not (timeout_seconds > 0 and isfinite(timeout_seconds)):
            raise ConfigError(f"timeout_seconds={timeout_seconds!r}: give a positive number of seconds")
        self.provider = provider
        self.estimator = estimator
        self.timeout_seconds = timeout_seconds
        self._ask = ask
        self._aask = aask
        self._gate = Gate(requests_per_minute=requests_per_minute, clock=clock)
        self._counts: Lru[int] = Lru(MAX_COUNTS)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the lock anew and forget questions on their way; the threads that ask them do not survive a fork."""
        self._flights: dict[tuple[str, str], _Flight] = {}
        self._lock = threading.Lock()

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the provider's count, else the estimator's."""
        given: Any = convert_to_messages(list(messages))
        counted = self.count_request(given, tools=tools)
        return int(self.estimator(given, tools=tools)) if counted is None else counted

    def count_request(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int | None:
        """Return the input tokens of the request, or None: not to be had now, the estimate stands."""
        answer, flight = self._board("sync", messages, tools)
        return answer.result() if flight is None else self._fly(flight)

    async def acount_request(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int | None:
        """Like `count_request`, without blocking the event loop."""
        answer, flight = self._board("async", messages, tools)
        # Shielded: a caller that gives up would take the answer from the others.
        return await asyncio.shield(asyncio.wrap_future(answer)) if flight is None else await self._afly(flight)

    def upper(self, tokens: int) -> int:
        """Upper bound of the true count: what `__call__` returns may be an estimate."""
        bound: Callable[[int], int] = getattr(self.estimator, "upper", int)
        return bound(tokens)

    def lower(self, tokens: int) -> int:
        """Lower bound of the true count."""
        bound: Callable[[int], int] = getattr(self.estimator, "lower", int)
        return bound(tokens)

    def _board(self, kind: str, messages: Sequence[AnyMessage], tools: Any) -> tuple[_Answer, _Flight | None]:
        """The answer that is known or on its way; with the flight when this caller is the one to fetch it.

        Sync and async callers have flights of their own: a sync caller inside an event loop would wait for itself.
        """
        given, definitions = list(messages), list(tools or ())
        if all(isinstance(message, SystemMessage) for message in given):
            return _answered(None), None  # providers refuse a request that asks nothing
        digest = request_digest(given, definitions)
        with self._lock:
            known = self._counts.get(digest)
            if known is not None:
                return _answered(known), None
            if flight := self._flights.get((kind, digest)):
                return flight.answer, None
            ticket = self._gate.enter()
            if ticket is None:
                return _answered(None), None
            flight = _Flight(kind=kind, digest=digest, ticket=ticket, messages=given, tools=definitions)
            self._flights[kind, digest] = flight
        return flight.answer, flight

    def _fly(self, flight: _Flight) -> int | None:
        counted = None
        try:
            answer = in_daemon(lambda: self._ask(flight.messages, flight.tools)).result(self.timeout_seconds)
            counted = self._accepted(answer, flight)
        except Exception as error:  # noqa: BLE001  # counting is soft: any failure only means that the estimate stands
            self._refused(error, flight)
        finally:
            self._land(flight, counted)
        return counted

    async def _afly(self, flight: _Flight) -> int | None:
        counted = None
        try:
            async with asyncio.timeout(self.timeout_seconds):
                answer = await self._asked(flight)
            counted = self._accepted(answer, flight)
        except Exception as error:  # noqa: BLE001  # see _fly
            self._refused(error, flight)
        finally:
            self._land(flight, counted)
        return counted

    async def _asked(self, flight: _Flight) -> Any:
        asking = self._aask(flight.messages, flight.tools)
        # An empty context, as in a thread of its own: callbacks of the caller do not see this.
        return await asyncio.get_running_loop().create_task(asking, context=contextvars.Context())

    def _accepted(self, answer: Any, flight: _Flight) -> int:
        if isinstance(answer, bool) or not isinstance(answer, int):
            raise UnusableCountError(f"the count is a {type(answer).__name__}")
        if answer <= 0:
            raise UnusableCountError(f"the count is {answer}")
        self._gate.succeeded()
        return self._counts.put(flight.digest, answer)

    def _refused(self, error: Exception, flight: _Flight) -> None:
        self._gate.failed(flight.ticket)
        _log.warning("count.failed", provider=self.provider, reason=_reason(error, self.timeout_seconds))

    def _land(self, flight: _Flight, counted: int | None) -> None:
        with self._lock:
            self._flights.pop((flight.kind, flight.digest), None)
        flight.answer.set_result(counted)


def _answered(tokens: int | None) -> _Answer:
    answer: _Answer = Future()
    answer.set_result(tokens)
    return answer


def _reason(error: Exception, timeout_seconds: float) -> str:
    """The class and status of an error; its text may quote the request and is left out."""
    name = type(error).__name__
    if isinstance(error, UnusableCountError):
        return f"{name}: {error}"
    if isinstance(error, TimeoutError):
        return f"{name}: no answer within {timeout_seconds:g} seconds"
    stated = (getattr(error, key, None) for key in ("status_code", "code", "status"))
    facts = [str(fact) for fact in stated if _is_code(fact)]
    return f"{name}: {' '.join(facts)}" if facts else name


def _is_code(fact: Any) -> bool:
    return isinstance(fact, int) or (isinstance(fact, str) and fact.isupper() and len(fact) <= MAX_FACT_CHARS)


class Gate:
    """Admits so many questions a minute, and one at a time after each pause while nothing but failures come back.

    Thread-safe. It never waits: who is not admitted goes on without an answer. A clock that is set back opens it.

    Raises:
        ConfigError: not even one question a minute is allowed.

    Example:
        >>> gate = Gate(requests_per_minute=1, clock=lambda: 0.0)
        >>> gate.enter(), gate.enter()
        (0, None)
    """

    def __init__(self, *, requests_per_minute: int, clock: Clock) -> None:
        if isinstance(requests_per_minute, bool) or not requests_per_minute >= 1:
            raise ConfigError(f"requests_per_minute={requests_per_minute!r}: give a number of at least 1")
        self._per_minute = requests_per_minute
        self._clock = clock
        self._entered_at: deque[float] = deque()
        self._failures = 0
        self._closed_at = 0.0
        self._tickets = 0
        self._lock = ForkSafeLock()

    def enter(self) -> int | None:
        """Return a ticket to hand back to `failed`, or None when this is no time to ask."""
        now = self._clock()
        with self._lock:
            if self._is_paused(now) or self._is_full(now):
                return None
            self._entered_at.append(now)
            self._closed_at = now  # counts only after a failure: others wait for what this one finds out
            return self._tickets

    def failed(self, ticket: int) -> None:
        """Close for a while, twice as long as the last time; questions of the same round fail together."""
        with self._lock:
            if ticket == self._tickets:
                self._tickets += 1
                self._failures += 1
                self._closed_at = self._clock()

    def succeeded(self) -> None:
        """Forget the failures."""
        with self._lock:
            self._failures = 0

    def _is_paused(self, now: float) -> bool:
        if not self._failures:
            return False
        return 0 <= now - self._closed_at < pause_seconds(self._failures)

    def _is_full(self, now: float) -> bool:
        recent = (at for at in self._entered_at if 0 <= now - at < MINUTE_SECONDS)
        self._entered_at = deque(recent)
        return len(self._entered_at) >= self._per_minute


def request_digest(messages: Sequence[AnyMessage], tools: Sequence[Any]) -> str:
    """Return a short text that differs whenever content, calls, results or tools differ.

    The ids of messages and what a response said about itself do not count: they are not sent.
    """
    parts = [*map(_message_parts, messages), list(map(tool_definition, tools))]
    seen = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        seen.update(f"{compact_json(part)}\n".encode("utf-8", "surrogatepass"))
    return seen.hexdigest()


def _message_parts(message: BaseMessage) -> list[Any]:
    # Signatures of calls and calls in a provider's own form are kept in `additional_kwargs`.
    parts: list[Any] = [message.type, message.content, message.name, message.additional_kwargs]
    if isinstance(message, AIMessage):
        parts += [message.tool_calls, message.invalid_tool_calls]
    if isinstance(message, ToolMessage):
        parts += [message.tool_call_id, message.status]
    return parts
