"""Alerts: a sink that reports once when a measure passes its threshold, and once when it is back."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from operator import ge, gt, lt
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from langchain_ctxwin.config import AlertConfig, FileConfig, LiveConfig, group_of
from langchain_ctxwin.core.events import (
    AlertEvent,
    Event,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
from langchain_ctxwin.errors import expect
from langchain_ctxwin.reporting import LogSink, Reporter
from langchain_ctxwin.util.memo import Lru, once

MAX_MEASURES = 10_000  # some 10 MB: utilization of the conversations that went on last

BACK_SHARE = 0.5
"""A mean or share clears at half of what is allowed. At 100 samples that fail at random at the very rate of the
threshold, 5 %, an alert would come 17 times in 2,000 of them; so it comes 5 times. After a fall from 20 % to 2 % it
clears 30 samples later."""

Key = tuple[str, str, str]
"""Name of the alert, its thread and its model, each where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How the newest samples of something become a value, and when that is an alert."""

    detail: str
    value: Callable[[Collection[float]], float] = fmean
    is_passed: Callable[[float, float], bool] = gt
    samples: str = ""
    """The setting that says how many samples a value takes that is no mean."""

    def bounds(self, config: AlertConfig) -> tuple[int, int]:
        """Return how many samples it looks at, at most and at least."""
        if self.value is fmean:
            return config.window, config.least
        number = getattr(config, self.samples)
        return number, number

    def clears_at(self, threshold: float) -> float:
        """Return what the value has to be back at once the alert stands."""
        if self.value is not fmean:
            return threshold
        return (
            1 - BACK_SHARE * (1 - threshold)
            if self.is_passed is lt
            else BACK_SHARE * threshold
        )


RULES = {
    "utilization": _Rule(
        detail="the smallest of the last requests over the input limit",
        value=min,
        samples="utilization_steps",
    ),
    "accuracy": _Rule(detail="mean accuracy of the last counts", is_passed=lt),
    "failed_summaries": _Rule(
        detail="summaries that failed in a row",
        value=sum,
        is_passed=ge,
        samples="failed_summaries",
    ),
    "oversized_results": _Rule(detail="share of the last tool results"),
    "fallbacks": _Rule(detail="share of the last routed answers"),
    "refusals": _Rule(detail="share of the last requests"),
    "overflows": _Rule(detail="share of the last calls"),
}
"""By name of the threshold in the configuration."""


class Alerts:
    """A sink that raises one `AlertEvent` when a measure passes its threshold, and one when it is back within it.

    What is measured, and when it is an alert, says `AlertConfig`. Requests without a thread id count as one
    conversation. Each process counts by itself, from its start.

    Key init args:
        config: an `AlertConfig`, a `FileConfig`, or a `ConfigFile`, which is followed; by default the environment's.
        then: takes each `AlertEvent`, such as the `emit` of a sink. It is called in the turn, so have what is slow done
            elsewhere; what it raises is logged. Alerts are logged in any case.

    Instantiate:
        ```python
        alerts = Alerts(
            AlertConfig(utilization=0.8),
            then=lambda alert: print(alert.alert, alert.value),
        )
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
        then: Callable[[AlertEvent], object] = lambda _: None,
    ) -> None:
        wanted = "a function of the alert, such as the emit of a sink"
        expect(then, Callable, "then", wanted)
        self._config: Any = AlertConfig() if config is None else config
        self._reporter = Reporter([SimpleNamespace(emit=then)], own=(LogSink,))
        self._samples: Lru[deque[float]] = Lru(MAX_MEASURES)
        self._raised: dict[Key, AlertEvent] = {}
        # what is told of an alert may tell something in its turn
        self._lock = threading.RLock()

    @property
    def active(self) -> tuple[AlertEvent, ...]:
        """The alerts that stand now, with their values when they were raised, oldest first."""
        with self._lock:
            return tuple(self._raised.values())

    def emit(self, event: Event) -> None:
        """Take one event."""
        config: AlertConfig = self._settings()
        with self._lock:
            for key, sample in _samples_of(event):
                self._take(key, sample, config, event.time or time.time())

    def _settings(self) -> Any:
        return group_of(self._config, "alerts")

    def _take(self, key: Key, sample: float, config: AlertConfig, at: float) -> None:
        """Add one sample to its measure, and raise or clear the alert."""
        name, thread, model = key
        rule, threshold = RULES[name], getattr(config, name)
        standing = self._raised.get(key)
        if threshold is None:
            self._clear(key, time=at, value=None)
            return
        samples = once(self._samples, key, deque)
        samples.append(sample)
        most, least = rule.bounds(config)
        while len(samples) > most:
            samples.popleft()
        value = rule.value(samples)
        bound = rule.clears_at(threshold) if standing else threshold
        if len(samples) < least or not rule.is_passed(value, bound):
            self._clear(key, time=at, value=value, threshold=float(threshold))
        elif standing is None:
            self._raised[key] = AlertEvent(
                alert=name,
                thread=thread,
                model=model,
                detail=rule.detail,
                value=value,
                threshold=float(threshold),
                time=at,
            )
            self._reporter.emit(self._raised[key])

    def _clear(self, key: Key, **facts: Any) -> None:
        if standing := self._raised.pop(key, None):
            self._reporter.emit(replace(standing, is_cleared=True, **facts))


def _samples_of(event: Event) -> Iterator[tuple[Key, float]]:
    """Yield what an event adds to which measures."""
    if isinstance(event, StepEvent):
        yield from _samples_of_step(event)
    elif isinstance(event, OverflowEvent):
        if event.is_recovered:
            yield ("overflows", "", event.model), 1.0
        else:
            yield ("refusals", "", ""), 1.0
    elif isinstance(event, SummaryEvent):
        if event.status in {
            "ready",
            "failed",
            "refused",
        }:  # one lost with its process says nothing about who writes
            yield ("failed_summaries", "", event.model), float(event.status != "ready")
    elif isinstance(event, ToolResultEvent):
        yield ("oversized_results", "", ""), float(event.is_oversized)


def _samples_of_step(step: StepEvent) -> Iterator[tuple[Key, float]]:
    if step.utilization is not None:
        yield ("utilization", step.thread, ""), step.utilization
    if step.accuracy is not None:
        yield ("accuracy", "", step.model), step.accuracy
    if step.route:
        yield ("fallbacks", "", ""), float(bool(step.route.get("fallbacks")))
    yield ("overflows", "", step.model), 0.0
    yield ("refusals", "", ""), 0.0
