"""`PrometheusSink`: events as metrics that a Prometheus server scrapes."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from langchain_ctxwin.core.events import (
    AlertEvent,
    CompactionEvent,
    Event,
    RecoveryEvent,
    RefusalEvent,
    RouteEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
from langchain_ctxwin.errors import ConfigError, brief

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise ImportError("PrometheusSink needs prometheus-client: pip install 'langchain-ctxwin[prometheus]'") from error

SHARES = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
"""Buckets of shares: fine where a window fills up, and where a count is good."""

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
"""Buckets of times: from a cached answer to one with much reasoning."""

MILLISECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10)
"""Buckets of a compaction's time: half a millisecond without a model, seconds with a summary."""


class Instruments:
    """The metrics of one registry; `ctxwin_` begins the name of each."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def made(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(f"ctxwin_{name}", text, labels, registry=registry, **options)

        self.utilization = made(Gauge, "utilization", "Last request over its input limit", "model")
        self.window_utilization = made(Gauge, "window_utilization", "Last request over the whole window", "model")
        self.input_limit = made(Gauge, "input_limit_tokens", "Largest input", "model")
        self.shares = made(Histogram, "request_utilization", "Requests over their limit", "model", buckets=SHARES)
        self.accuracy = made(Histogram, "estimate_accuracy", "1 - miss of our count", "model", buckets=SHARES)
        self.seconds = made(Histogram, "call_seconds", "Time of a call", "model", buckets=SECONDS)
        self.requests = made(Counter, "requests", "Answered requests", "model")
        self.input_tokens = made(Counter, "input_tokens", "Input, by what the cache had of it", "model", "part")
        self.output_tokens = made(Counter, "output_tokens", "Output", "model")
        self.cost = made(Counter, "cost_usd", "Cost of calls", "model", "purpose")
        self.unused_reserve = made(Counter, "unused_reserve_tokens", "Kept free and not written", "model")
        self.compactions = made(Counter, "compactions", "Compactions", "model", "kind")
        self.compaction_tokens = made(Counter, "compaction_freed_tokens", "Tokens that left requests", "model", "kind")
        self.compaction_seconds = made(
            Histogram, "compaction_seconds", "Time of a compaction", "kind", buckets=MILLISECONDS
        )
        self.summaries = made(Counter, "summaries", "What became of summaries", "model", "status")
        self.overflows = made(Counter, "overflows", "Requests that a provider refused as too large", "model")
        self.refusals = made(Counter, "refusals", "Requests that nothing could make fit", "model", "reason")
        self.routes = made(Counter, "routes", "Answers of routed models", "model", "fallback")
        self.tool_results = made(Counter, "tool_results", "Results that a guard saw", "tool", "oversized")
        self.alerts = made(Counter, "alerts", "Alerts", "alert")


_made: WeakKeyDictionary[CollectorRegistry, Instruments] = WeakKeyDictionary()
_lock = threading.Lock()


class PrometheusSink:
    """Counts events in a registry of `prometheus_client`, for whatever serves it to a Prometheus server.

    Labels name models, tools and kinds, never threads, so that their number stays small. Several sinks may share one
    registry: their events add up. `docs/grafana-dashboard.json` shows the metrics.

    Setup:
        ```bash
        pip install "langchain-ctxwin[prometheus]"
        ```

    Key init args:
        registry: holds the metrics; by default the global one.

    Instantiate:
        ```python
        sink = PrometheusSink()
        ```

    Use:
        ```python
        from prometheus_client import start_http_server

        start_http_server(9464)
        agent = create_context_agent(model, tools, sinks=[sink])
        ```

    Raises:
        ConfigError: `registry` is none.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        if not isinstance(registry, CollectorRegistry | None):
            raise ConfigError(f"registry={brief(registry)}: pass a CollectorRegistry of prometheus_client, or None")
        chosen = REGISTRY if registry is None else registry
        with _lock:
            self._to = _made.get(chosen) or Instruments(chosen)
            _made[chosen] = self._to

    def emit(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, StepEvent):
            self._step(event)
        elif isinstance(event, CompactionEvent):
            self._compaction(event)
        elif isinstance(event, SummaryEvent):
            self._to.summaries.labels(event.model, event.status).inc()
            _add(self._to.cost.labels(event.model, "summary"), event.cost)
        elif isinstance(event, RecoveryEvent):
            self._to.overflows.labels(event.model).inc()
        elif isinstance(event, RefusalEvent):
            self._to.refusals.labels(event.model, event.reason).inc()
        elif isinstance(event, RouteEvent) and event.has_answered:
            self._to.routes.labels(event.model, _flag(event.fallbacks)).inc()
        elif isinstance(event, ToolResultEvent):
            self._to.tool_results.labels(event.tool, _flag(event.is_oversized)).inc()
        elif isinstance(event, AlertEvent) and not event.is_cleared:
            self._to.alerts.labels(event.alert).inc()

    def _step(self, event: StepEvent) -> None:
        to, model = self._to, event.model
        to.requests.labels(model).inc()
        for gauge, value in (
            (to.utilization, event.utilization),
            (to.window_utilization, event.window_utilization),
            (to.input_limit, event.input_limit),
        ):
            if value is not None:
                gauge.labels(model).set(value)
        for histogram, value in (
            (to.shares, event.utilization),
            (to.accuracy, event.accuracy),
            (to.seconds, event.duration_seconds),
        ):
            if value is not None:
                histogram.labels(model).observe(value)
        parts = {"cached": event.cached_tokens, "written": event.cache_write_tokens, "new": event.new_tokens}
        for part, tokens in parts.items():
            _add(to.input_tokens.labels(model, part), tokens)
        _add(to.output_tokens.labels(model), event.output_tokens)
        _add(to.unused_reserve.labels(model), event.unused_reserve_tokens)
        _add(to.cost.labels(model, "agent"), event.cost)

    def _compaction(self, event: CompactionEvent) -> None:
        self._to.compactions.labels(event.model, event.kind).inc()
        _add(self._to.compaction_tokens.labels(event.model, event.kind), event.tokens_before - event.tokens_after)
        if event.duration_seconds is not None:
            self._to.compaction_seconds.labels(event.kind).observe(event.duration_seconds)


def _add(counter: Any, amount: Any) -> None:
    """Add an amount; an unknown one is none, and a counter takes no negative one."""
    if amount is not None and amount > 0:
        counter.inc(float(amount))


def _flag(value: object) -> str:
    return "true" if value else "false"
