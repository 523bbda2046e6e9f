"""Reports events to sinks: what a sink does, raises or hangs on costs no turn anything."""

from __future__ import annotations

import atexit
import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import iscoroutinefunction
from math import inf
from typing import Any, TypeVar
from weakref import WeakSet

from langchain_core.runnables.config import ensure_config
from langgraph.config import get_stream_writer

from langchain_ctxwin.core.calibration import may_be
from langchain_ctxwin.core.events import Event
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError, UnknownModelError, brief
from langchain_ctxwin.protocols import Clock, MetricsSink
from langchain_ctxwin.util.background import ForkSafeLock, Worker, in_few_daemons
from langchain_ctxwin.util.failures import LONGEST_PAUSE_SECONDS, FailureLog, reason_of
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru

MAX_WAITING = 10_000  # events for a slow sink, some 10 MB; of more, the newest are lost, which is logged
IDLE_SECONDS = 1.0  # how long the thread of a sink waits for another event: steps follow each other faster
LINGER_SECONDS = 0.05  # how long events gather for a slow sink: a thread that wakes for each costs a step some 5 %
EXIT_SECONDS = 1.0  # how long the end of the process waits for slow sinks, all of them together
MAX_EVENTS = 10_000  # kept in memory unless told, some 10 MB: what happens in a long afternoon

E = TypeVar("E", bound=Event)


class LogSink:
    """Writes events to the log, as every engine does by itself; give one to write the events of level debug too.

    Args:
        steps: write `context.step` and `tool_result.guarded`, too, as level info.
    """

    inline = True

    def __init__(self, *, steps: bool = False) -> None:
        self._steps = steps

    def emit(self, event: Event) -> None:
        """Write the name of the event, with what belongs to it."""
        level = "info" if self._steps and event.level == "debug" else event.level
        if level != "debug":
            getattr(log, level)(event.name, **event.told())


class StreamSink:
    """Writes events to LangGraph's custom stream (`stream_mode="custom"`), as every engine does by itself.

    Args:
        steps: write `context.step` and `tool_result.guarded`, too.
    """

    inline = True

    def __init__(self, *, steps: bool = False) -> None:
        self._steps = steps

    def emit(self, event: Event) -> None:
        """Write a dict with the event's name as `type`; outside of a graph there is no stream."""
        if event.level == "debug" and not self._steps:
            return
        try:
            writer = get_stream_writer()
        except (RuntimeError, KeyError):  # a node that is called outside a graph has no stream
            return
        writer({"type": event.name, **event.told()})


class MemorySink:
    """Keeps the newest events; several threads may write at once.

    Args:
        max_events: of more, the oldest are forgotten.

    Raises:
        ConfigError: `max_events` is not a whole number above 0.

    Examples:
        >>> sink = MemorySink()
        >>> sink.emit(Event(thread="1"))
        >>> [event.thread for event in sink.events]
        ['1']
    """

    inline = True

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        if not isinstance(max_events, int) or max_events < 1:
            raise ConfigError(f"max_events={max_events!r}: give a whole number of events, at least 1")
        self._events: deque[Event] = deque(maxlen=max_events)
        self._lock = ForkSafeLock()

    def emit(self, event: Event) -> None:
        """Keep an event."""
        with self._lock.held:
            self._events.append(event)

    @property
    def events(self) -> list[Event]:
        """The events that are kept, oldest first."""
        with self._lock.held:
            return list(self._events)

    def of(self, kind: type[E]) -> list[E]:
        """Return the kept events of one kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    def clear(self) -> None:
        """Forget all events."""
        with self._lock.held:
            self._events.clear()


class Reporter:
    """Hands events to sinks, with the thread of the run and the time.

    Args:
        sinks: take the events.
        own: kinds of sinks that are always among them.
        clock: seconds since the epoch.

    Raises:
        ConfigError: one of the sinks has no `emit`, or `sinks` is no list of them.
    """

    def __init__(
        self,
        sinks: Iterable[MetricsSink] = (),
        *,
        own: Iterable[type[LogSink | StreamSink]] = (LogSink, StreamSink),
        clock: Clock = time.time,
    ) -> None:
        self.sinks = tuple(_checked(sinks))
        """The sinks that were given."""
        always = [kind() for kind in own if not any(isinstance(one, kind) for one in self.sinks)]
        self._clock = clock
        self._outlets = [_Outlet.of(sink) for sink in (*always, *self.sinks)]

    @classmethod
    def of(cls, sinks: Iterable[MetricsSink] | Reporter) -> Reporter:
        """Return a reporter for sinks; one that is a reporter already is shared."""
        return sinks if isinstance(sinks, Reporter) else cls(sinks)

    def emit(self, event: Event) -> None:
        """Hand an event to every sink; never raises, and never waits for a slow one."""
        event = event.reported(thread=thread_of_run(), time=self._clock())
        for outlet in self._outlets:
            outlet.emit(event)

    def flush(self, timeout_seconds: float = EXIT_SECONDS) -> bool:
        """Wait until the slow sinks have taken what was reported; false when one needs longer. Blocks its thread."""
        return _flushed(self._outlets, timeout_seconds)


def _checked(sinks: Any) -> Iterator[MetricsSink]:
    if isinstance(sinks, str | bytes) or not isinstance(sinks, Iterable | None):
        raise ConfigError(f"sinks={brief(sinks)}: pass a list of sinks, for example sinks=[MemorySink()]")
    for sink in sinks or ():
        if isinstance(sink, type) or not callable(getattr(sink, "emit", None)):
            raise ConfigError(f"sinks holds {brief(sink)}: a sink is an object with a method emit(event)")
        if iscoroutinefunction(sink.emit):
            raise ConfigError(
                f"sinks holds {brief(sink)}, whose emit is async: make it a plain method, it has a thread"
            )
        yield sink


def thread_of_run() -> str:
    """Return the thread id of the run; empty outside of one."""
    return str(ensure_config().get("configurable", {}).get("thread_id") or "")


_outlets: WeakSet[_Outlet] = WeakSet()
_outlets_lock = ForkSafeLock()


class _Outlet:
    """The way to one sink, shared by all who report to it: so it takes one event after the other."""

    @classmethod
    def of(cls, sink: MetricsSink) -> _Outlet:
        """Return the way to a sink; one that there is already is shared."""
        with _outlets_lock.held:
            return next((one for one in _outlets if one.sink is sink), None) or cls(sink)

    def __init__(self, sink: MetricsSink) -> None:
        self.sink, self._failures = sink, FailureLog(sink=type(sink).__name__)
        self.worker: Worker | None = None
        if not getattr(sink, "inline", False):
            times = {"idle_seconds": IDLE_SECONDS, "linger_seconds": LINGER_SECONDS}
            self.worker = Worker("ctxwin-sink", max_waiting=MAX_WAITING, **times)
        _outlets.add(self)

    def emit(self, event: Event) -> None:
        if self.worker is None:
            self._hand_over(event)
            return
        # The context has the caller's trace; what is written to a stream from there still goes to the caller's run.
        task = partial(contextvars.copy_context().run, self._hand_over, event)
        try:
            is_taken = self.worker.submit(task)
        except RuntimeError:  # no thread to be had: the process is about to end
            is_taken = False
        if not is_taken:
            self._failures.note("metrics.lost", "the sink is too slow, or no thread can be started")

    def _hand_over(self, event: Event) -> None:
        try:
            self.sink.emit(event)
        except BaseException as error:  # whatever a sink does, the turn and its thread go on
            if self.worker is None and not isinstance(error, Exception):
                raise
            self._failures.note("metrics.sink_failed", reason_of(error))
        else:
            self._failures.note("metrics.sink_failed", "")


def _flushed(outlets: Iterable[_Outlet], timeout_seconds: float) -> bool:
    ends = time.monotonic() + timeout_seconds
    workers = [outlet.worker for outlet in outlets if outlet.worker]
    done = [worker.flush(max(0.0, ends - time.monotonic())) for worker in workers]
    return all(done)


atexit.register(lambda: _flushed(list(_outlets), EXIT_SECONDS))


class Prices:
    """Says what the models cost, as far as it is known; it never waits.

    Args:
        source: a `ModelInfo` of the agent's model, a `ModelRegistry`, a function that returns the `ModelInfo` for a
            name, or None. A registry or function may be slow: it is asked in the background, for each model at most
            every five minutes.
        is_instant: the function answers at once, and is asked each time.
        clock: monotonic seconds.

    Raises:
        ConfigError: it is none of these.
    """

    def __init__(self, source: Any = None, *, is_instant: bool = False, clock: Clock = time.monotonic) -> None:
        self._is_instant, self._clock = is_instant, clock
        self._info = source if isinstance(source, ModelInfo) else None
        ask = source if callable(source) else getattr(source, "lookup", None)
        self._ask: Callable[[str], ModelInfo | None] | None = ask
        is_known = source is None or self._info is not None or ask is not None
        if not is_known or isinstance(source, type) or iscoroutinefunction(source):
            raise ConfigError(
                f"prices={brief(source)}: pass a ModelInfo, a ModelRegistry, or a function that returns a ModelInfo"
            )
        self._known: Lru[tuple[ModelInfo | None, float]] = Lru(MAX_TEXTS)
        """What was answered last, and when; never, while it is being asked."""
        self._failures = FailureLog()

    @classmethod
    def made(cls, source: Any) -> Prices:
        """Return prices by a source; those that are made already are shared."""
        return source if isinstance(source, Prices) else cls(source)

    def of(self, model: str, stated: Any = None) -> ModelInfo | None:
        """Return what is known of a model now; `stated` is what its adapter knows, if that has prices."""
        if isinstance(stated, ModelInfo) and stated.input_price is not None:
            return stated
        if self._ask is None or not model:
            return self._info
        if self._is_instant:
            return self._ask(model)
        info, at = self._known.get(model) or (None, -inf)
        # Asked for again after a while, because prices change, and a service that was down is back.
        if self._clock() - at < LONGEST_PAUSE_SECONDS:
            return info
        self._known.put(model, (info, inf))
        try:
            in_few_daemons(partial(self._look_up, self._ask, model, info))
        except RuntimeError as error:
            self._known.put(model, (info, self._clock()))
            self._failures.note("metrics.no_prices", reason_of(error))
        return info

    def of_other(self, model: str) -> ModelInfo | None:
        """Like `of`, for another model than the agent's: a single `ModelInfo` has to be of its name."""
        if self._info is not None and not may_be(self._info.name, model):
            return None
        return self.of(model)

    def _look_up(self, ask: Callable[[str], Any], model: str, info: ModelInfo | None) -> None:
        """Ask, and keep what was known where no answer comes."""
        try:
            answer = ask(model)
        except UnknownModelError:
            info = None
        except BaseException as error:  # noqa: BLE001  # costs are unknown then, nothing else
            self._failures.note("metrics.no_prices", f"{model}: {reason_of(error)}")
        else:
            if isinstance(answer, ModelInfo | None):
                info = answer
            else:
                self._failures.note("metrics.no_prices", f"{model}: a {type(answer).__name__} instead of a ModelInfo")
        self._known.put(model, (info, self._clock()))
