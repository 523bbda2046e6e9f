"""A counter that anybody wrote, made safe: what it cannot count, in time or at all, is estimated."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from math import ceil
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.calibration import MAX_NUMBER
from langchain_ctxwin.protocols import Clock, TokenCounter
from langchain_ctxwin.util.background import ForkSafeLock, Worker
from langchain_ctxwin.util.failures import BackOff
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Seen

# Time for one count, and for slow counts together: local tokenizers need milliseconds, even for megabytes.
COUNT_TIMEOUT_SECONDS = 2.0
# A count that takes longer is slow: at that pace a thousand messages take a minute. Slow counts are added up over so
# long: one measure's come back to back, and a tokenizer that loads once is alone.
SLOW_SECONDS, SLOW_WINDOW_SECONDS = 0.05, 10.0
MAX_PAUSES = 5  # counts that never returned, after which a counter is left alone until one does: each holds a thread
# Messages of more characters have pauses of their own. A tokenizer may take the square of the length of a run of one
# character: minutes for the megabyte that one user sends, milliseconds for 16 kB, and other texts are still counted.
LARGE_CHARS = 16_384
IDLE_SECONDS = 5.0  # how long the thread waits for the next count: longer than the steps of a busy agent are apart


class GuardedCounter:
    """Passes on the counts of a counter that may raise, hang, or return what is no count; thread-safe.

    A fraction is rounded up. For anything else that is no count the estimator's is taken, and the event `count.failed`
    says why, once per reason. A counter that hangs or is slow is paused, each time for longer, and left alone while
    `MAX_PAUSES` of its counts hang. When that was over large messages, only those are estimated meanwhile.
    """

    def __init__(
        self,
        counter: TokenCounter,
        estimator: TokenCounter,
        *,
        timeout_seconds: float = COUNT_TIMEOUT_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._counter = counter
        self._estimator = estimator
        self._timeout_seconds = timeout_seconds
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._begin_worker()
        self._pauses = {is_large: _Pause(clock, timeout_seconds) for is_large in (False, True)}
        self._reasons = Seen()
        self.has_failed = False  # true once a count was estimated instead
        for name in ("upper", "lower"):
            if hasattr(counter, name):
                setattr(self, name, getattr(counter, name))
        self._turn = ForkSafeLock()

    def __call__(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the tokens of messages and tools."""
        tokens = self.attempt(messages, tools=tools)
        return self.estimate(messages, tools=tools) if tokens is None else tokens

    def estimate(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the estimator's count, for want of another."""
        self.has_failed = True
        return self._estimator(messages, tools=tools)

    def attempt(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int | None:
        """Return the counter's own count, or None."""
        # One at a time, so that nobody's time runs while others are counted.
        if not self._turn.acquire(timeout=self._timeout_seconds):
            self._tell(f"busy for {self._timeout_seconds:g} seconds")
            return None
        try:
            pause = self._pauses[_chars(messages) > LARGE_CHARS]
            return None if pause.is_on else self._counted(messages, {"tools": tools} if tools else {}, pause)
        finally:
            self._turn.release()

    def _counted(self, messages: Sequence[AnyMessage], arguments: dict[str, Any], pause: _Pause) -> int | None:
        started, tokens = self._clock(), None
        try:
            job = self._worker.run(lambda: self._counter(messages, **arguments))
            value = job.result(self._timeout_seconds)
            fault = _fault(value)
            tokens = None if fault else ceil(value)
        except TimeoutError:
            self._begin_worker()  # the thread that hangs is left to itself
            pause.hung(job)
            self._tell(f"no answer within {self._timeout_seconds:g} seconds")
            return None
        except Exception as error:  # noqa: BLE001  # a counter may be anybody's code, and there may be no thread for it
            fault = type(error).__name__
        if pause.was_slow(started):
            self._tell(f"slow counts took more than {self._timeout_seconds:g} seconds")
        if fault:
            self._tell(fault)
        return tokens

    def _begin_worker(self) -> None:  # one thread for all counts: one for each would cost more than most counts
        self._worker = Worker("ctxwin-count", idle_seconds=self._idle_seconds)

    def _tell(self, reason: str) -> None:
        if self._reasons.is_new(reason):
            name = getattr(self._counter, "__name__", type(self._counter).__name__)
            log.warning("count.failed", counter=name, reason=reason, instead="estimate")


class _Pause:
    """For how long messages of one kind are not given to the counter."""

    def __init__(self, clock: Clock, timeout_seconds: float) -> None:
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._back_off = BackOff(clock)
        self._slow: deque[tuple[float, float]] = deque()
        self._hanging: list[Future[Any]] = []

    @property
    def is_on(self) -> bool:
        return self._back_off.is_on or sum(not job.done() for job in self._hanging) >= MAX_PAUSES

    def hung(self, job: Future[Any]) -> None:
        """Begin a pause because of a count that did not return in time."""
        self._hanging = [*(one for one in self._hanging if not one.done()), job]
        self._back_off.failed()

    def was_slow(self, started: float) -> bool:
        """Begin a pause when slow counts together took as long as a single one may."""
        now = self._clock()
        if now - started <= SLOW_SECONDS:
            return False
        self._slow.append((now, now - started))
        while self._slow[0][0] < now - SLOW_WINDOW_SECONDS:
            self._slow.popleft()
        if sum(seconds for _, seconds in self._slow) <= self._timeout_seconds:
            return False
        self._slow.clear()
        self._back_off.failed()
        return True


def _chars(messages: Sequence[AnyMessage]) -> int:
    try:
        calls = (message.tool_calls for message in messages if isinstance(message, AIMessage) and message.tool_calls)
        return sum(len(str(message.content)) for message in messages) + sum(len(str(made)) for made in calls)
    except RecursionError:
        return LARGE_CHARS + 1


def _fault(value: object) -> str:
    """What is wrong with a count, in the same words for every value of a kind; nothing for one to reckon with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"returned {type(value).__name__}"
    if value < 0:
        return "returned a negative number"
    return "" if value < MAX_NUMBER else "returned a number that is not finite"
