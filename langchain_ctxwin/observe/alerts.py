"""Alerts: a sink that reports once when a measure passes its threshold, and once when it is back."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
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
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.util.memo import Lru, once

MAX_MEASURES = 10_000  # some 10 MB: utilization of the conversations that went on last

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
        if not self.samples:
            return config.window, config.least
        number = getattr(config, self.samples)
        return number, number


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
    "overflows": _Rule(detail="share of the last requests"),
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
        group_of(self._config, "alerts")  # refuses what holds no thresholds
        self._reporter = Reporter([SimpleNamespace(emit=then)])
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
        config: AlertConfig = group_of(self._config, "alerts")
        with self._lock:
            for key, sample in _samples_of(event):
                if getattr(config, key[0]) is not None:
                    self._take(key, sample, config, event.time or time.time())

    def _take(self, key: Key, sample: float, config: AlertConfig, at: float) -> None:
        """Add one sample to its measure, and raise or clear the alert."""
        name, thread, model = key
        rule, threshold = RULES[name], getattr(config, name)
        samples = once(self._samples, key, deque)
        samples.append(sample)
        most, least = rule.bounds(config)
        while len(samples) > most:
            samples.popleft()
        value = rule.value(samples)
        is_alert = len(samples) >= least and rule.is_passed(value, threshold)
        if is_alert == (key in self._raised):
            return
        alert = AlertEvent(
            alert=name,
            thread=thread,
            model=model,
            detail=rule.detail,
            value=value,
            threshold=float(threshold),
            time=at,
            is_cleared=not is_alert,
        )
        if is_alert:
            self._raised[key] = alert
        else:
            del self._raised[key]
        self._reporter.emit(alert)


def _samples_of(event: Event) -> Iterator[tuple[Key, float]]:
    """Yield what an event adds to which measures."""
    if isinstance(event, StepEvent):
        if event.utilization is not None:
            yield ("utilization", event.thread, ""), event.utilization
        if event.accuracy is not None:
            yield ("accuracy", "", event.model), event.accuracy
        if event.route:
            yield ("fallbacks", "", ""), float(bool(event.route.get("fallbacks")))
        yield ("overflows", "", ""), 0.0
    elif isinstance(event, OverflowEvent):
        yield ("overflows", "", ""), 1.0
    elif isinstance(event, SummaryEvent):
        # one lost with its process says nothing about who writes
        if event.status in {"ready", "failed", "refused"}:
            yield ("failed_summaries", "", event.model), float(event.status != "ready")
    elif isinstance(event, ToolResultEvent):
        yield ("oversized_results", "", ""), float(event.is_oversized)
