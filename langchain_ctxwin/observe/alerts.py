"""Alerts: a sink that tells once when a measure passes its threshold, and once when it is back."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from operator import ge, gt, lt
from statistics import fmean
from typing import Any

from langchain_ctxwin.config import AlertConfig, FileConfig, LiveConfig
from langchain_ctxwin.core.events import (
    AlertEvent,
    Event,
    ModelChangeEvent,
    NoticeEvent,
    RecoveryEvent,
    RefusalEvent,
    RouteEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.protocols import Clock, MetricsSink
from langchain_ctxwin.reporting import EXIT_SECONDS, LogSink, Reporter
from langchain_ctxwin.util.background import renew_after_fork
from langchain_ctxwin.util.memo import Lru, once

MAX_MEASURES = 10_000  # some 10 MB: utilization and cost of the 5,000 conversations that went on last
MAX_ACTIVE = 1_000  # alerts at a time, more than anybody reads; of more, the oldest are cleared without a value

BACK_SHARE = 0.5
"""A mean or share clears at half of what is allowed. At 100 samples that fail at random at the very rate of the
threshold, 5 %, an alert would come 17 times in 2,000 of them; so it comes 5 times. After a fall from 20 % to 2 % it
clears 30 samples later."""

Key = tuple[str, str, str, str]
"""Name of the alert, its thread and its model, each where it has one, and what it is about beyond those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How the newest samples of something become a value, and when that is an alert."""

    detail: str
    value: Callable[[Collection[float]], float] = fmean
    is_passed: Callable[[float, float], bool] = gt
    span: str = ""  # the setting that says how many samples a value takes that is no mean; empty for one
    adds_up: bool = False  # true for a running total, whose samples are added to it

    def clears_at(self, threshold: float) -> float:
        """Return what the value has to be back at once the alert stands."""
        if self.value is not fmean:
            return threshold
        return 1 - BACK_SHARE * (1 - threshold) if self.is_passed is lt else BACK_SHARE * threshold

    def samples(self, config: AlertConfig) -> tuple[int, int]:
        """Return how many samples it looks at, at most and at least."""
        if self.value is fmean:
            return config.window, config.least
        number = getattr(config, self.span) if self.span else 1
        return number, number


RULES = {
    "utilization": _Rule(
        detail="the smallest of the last requests over the input limit", value=min, span="utilization_steps"
    ),
    "accuracy": _Rule(detail="mean accuracy of the last counts", is_passed=lt),
    "failed_summaries": _Rule(
        detail="summaries that failed in a row", value=sum, is_passed=ge, span="failed_summaries"
    ),
    "stopped_compactions": _Rule(detail="no summary is tried any more", value=sum, is_passed=ge),
    "oversized_results": _Rule(detail="share of the last tool results"),
    "fallbacks": _Rule(detail="share of the last routed answers"),
    "refusals": _Rule(detail="share of the last requests"),
    "overflows": _Rule(detail="share of the last calls"),
    "conversation_cost": _Rule(detail="USD so far", value=sum, adds_up=True),
}
"""By name of the threshold in the configuration; those of models that changed have no samples."""


class Alerts:
    """A sink that raises one `AlertEvent` when a measure passes its threshold, and one when it is back within it.

    What is measured, and when it is an alert, says `AlertConfig`. Requests without a thread id count as one
    conversation, whose cost is not added up. Each process counts by itself, from its start.

    Key init args:
        config: an `AlertConfig`, a `FileConfig`, or a `ConfigFile`, which is followed; by default the environment's.
        then: takes the alerts: a sink, a function of one `AlertEvent`, or a list of them. It is called in the turn, so
            have what is slow done elsewhere; what it raises is logged. Alerts are logged in any case.
        clock: seconds since the epoch, for alerts about events without a time.

    Raises:
        ConfigError: an argument is of the wrong type.

    Instantiate:
        ```python
        alerts = Alerts(AlertConfig(conversation_cost=2.5), then=lambda alert: print(alert.alert, alert.value))
        ```

    Use:
        ```python
        agent = create_context_agent(model, tools, sinks=[alerts])
        alerts.active  # what stands now
        ```
    """

    def __init__(
        self,
        config: AlertConfig | FileConfig | LiveConfig | None = None,
        *,
        then: MetricsSink | Callable[[AlertEvent], object] | Sequence[Any] = (),
        clock: Clock = time.time,
    ) -> None:
        self._given: Any = AlertConfig() if config is None else config
        self._settings()
        listed = list(then) if isinstance(then, list | tuple) else [then]
        sinks = [one if hasattr(one, "emit") and not isinstance(one, type) else _Told(one) for one in listed]
        self._reporter, self._clock = Reporter(sinks, own=(LogSink,)), clock
        self._samples: Lru[deque[float]] = Lru(MAX_MEASURES)
        self._raised: dict[Key, AlertEvent] = {}
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the lock anew: in a forked process nobody would ever release it."""
        self._lock = threading.RLock()  # what is told of an alert may tell something in its turn

    @property
    def active(self) -> tuple[AlertEvent, ...]:
        """The alerts that stand now, with their values when they were raised, oldest first."""
        with self._lock:
            return tuple(self._raised.values())

    def flush(self, timeout_seconds: float = EXIT_SECONDS) -> bool:
        """Wait until the sinks of `then` that have a queue took the alerts; false when one needs longer."""
        return self._reporter.flush(timeout_seconds)

    def emit(self, event: Event) -> None:
        """Take one event."""
        config, at = self._settings(), event.time or self._clock()
        with self._lock:
            if isinstance(event, ModelChangeEvent):
                self._compare(event, at, is_on=config.model_changes)
            for key, sample in _samples_of(event):
                self._take(key, sample, config, at)

    def _settings(self) -> AlertConfig:
        given = self._given.current if isinstance(self._given, LiveConfig) else self._given
        settings = given.alerts if isinstance(given, FileConfig) else given
        if isinstance(settings, AlertConfig):
            return settings
        raise ConfigError(f"config={brief(given)}: pass an AlertConfig, a FileConfig or a ConfigFile, or None")

    def _take(self, key: Key, sample: float, config: AlertConfig, at: float) -> None:
        """Take up one sample, and raise or clear what follows from it."""
        rule, threshold = RULES[key[0]], getattr(config, key[0])
        if threshold is None or threshold is False:
            self._samples.drop(key)
            self._clear(key, at)
            return
        samples, (most, least) = once(self._samples, key, deque), rule.samples(config)
        samples.append(samples.pop() + sample if rule.adds_up and samples else sample)
        while len(samples) > most:
            samples.popleft()
        value, stands = rule.value(samples), key in self._raised
        if len(samples) < least or not rule.is_passed(value, rule.clears_at(threshold) if stands else threshold):
            self._clear(key, at, value=value, threshold=float(threshold))
        elif not stands:
            self._raise(key, at, value=value, threshold=float(threshold), detail=rule.detail)

    def _compare(self, event: ModelChangeEvent, at: float, *, is_on: bool) -> None:
        """Take up that a source states something else; what it stated at first is what it is compared with."""
        key = ("model_changes", "", event.model, f"{event.field}, as {event.source} states it")
        standing, value = self._raised.get(key), _number(event.after)
        first = _number(event.before) if standing is None else standing.threshold
        self._clear(key, at, value=value)
        if is_on and value != first:
            self._raise(key, at, value=value, threshold=first, detail=key[3])

    def _raise(self, key: Key, at: float, **facts: Any) -> None:
        self._raised[key] = AlertEvent(alert=key[0], thread=key[1], model=key[2], time=at, **facts)
        self._reporter.emit(self._raised[key])
        if len(self._raised) > MAX_ACTIVE:
            self._clear(next(iter(self._raised)), at)

    def _clear(self, key: Key, at: float, **facts: Any) -> None:
        if standing := self._raised.pop(key, None):
            self._reporter.emit(replace(standing, **{"value": None, **facts}, time=at, is_cleared=True))


class _Told:
    """A function as a sink."""

    def __init__(self, call: Any) -> None:
        if isinstance(call, type) or not callable(call) or iscoroutinefunction(call):
            raise ConfigError(f"then={brief(call)}: pass a sink, a function of one AlertEvent, or a list of them")
        self.emit = call


def _samples_of(event: Event) -> Iterator[tuple[Key, float]]:
    """Yield what an event adds to which measures."""
    if isinstance(event, StepEvent | RecoveryEvent | RefusalEvent):
        yield from _samples_of_request(event)
    elif isinstance(event, SummaryEvent):
        if event.status in {"ready", "failed", "refused"}:  # one lost with its process says nothing about who writes
            yield ("failed_summaries", "", event.model, ""), float(event.status != "ready")
        if event.status in {"started", "ready"}:
            yield ("stopped_compactions", event.thread, "", ""), 0.0
    elif isinstance(event, NoticeEvent) and event.notice == "compaction_stopped":
        yield ("stopped_compactions", event.thread, "", ""), 1.0
    elif isinstance(event, ToolResultEvent):
        yield ("oversized_results", "", "", ""), float(event.is_oversized)
    elif isinstance(event, RouteEvent) and event.has_answered:
        yield ("fallbacks", "", "", ""), float(bool(event.fallbacks))
    if isinstance(event, StepEvent | SummaryEvent) and event.thread and event.cost is not None:
        yield ("conversation_cost", event.thread, "", ""), float(event.cost)


def _samples_of_request(event: StepEvent | RecoveryEvent | RefusalEvent) -> Iterator[tuple[Key, float]]:
    if isinstance(event, StepEvent) and event.utilization is not None:
        yield ("utilization", event.thread, "", ""), event.utilization
    if isinstance(event, StepEvent) and event.accuracy is not None:
        yield ("accuracy", "", event.model, ""), event.accuracy
    if not isinstance(event, RefusalEvent):
        yield ("overflows", "", event.model, ""), float(isinstance(event, RecoveryEvent))
    if not isinstance(event, RecoveryEvent):
        yield ("refusals", "", "", ""), float(isinstance(event, RefusalEvent))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
