"""`PrometheusSink`: events as metrics that a Prometheus server scrapes."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from langchain_ctxwin.core import events
from langchain_ctxwin.core.events import Event
from langchain_ctxwin.errors import ConfigError, brief

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise ImportError("PrometheusSink needs prometheus-client: pip install 'langchain-ctxwin[prometheus]'") from error

GAUGES = {
    "utilization": ("Last request over its input limit", "utilization"),
    "window_utilization": ("Last request over the whole window", "window_utilization"),
    "input_limit_tokens": ("Largest input", "input_limit"),
}
"""By model, each with the field of a step that it shows."""

COUNTERS = {
    "requests": ("Answered requests", "model"),
    "input_tokens": ("Input, by what the cache had of it", "model", "part"),
    "output_tokens": ("Output", "model"),
    "cost_usd": ("Cost of calls", "model", "purpose"),
    "unused_reserve_tokens": ("Kept free and not written", "model"),
    "compactions": ("Compactions", "model", "kind"),
    "compaction_freed_tokens": ("Tokens that left requests", "model", "kind"),
    "summaries": ("What became of summaries", "model", "status"),
    "overflows": ("Requests that a provider refused as too large", "model"),
    "refusals": ("Requests that nothing could make fit", "model", "reason"),
    "routes": ("Answers of routed models", "model", "fallback"),
    "tool_results": ("Results that a guard saw", "tool", "oversized"),
    "alerts": ("Alerts", "alert"),
}

SHARES = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
"""Buckets of shares: fine where a window fills up, and where a count is good."""

HISTOGRAMS = {
    "request_utilization": ("Requests over their limit", "model", SHARES),
    "estimate_accuracy": ("1 - miss of our count", "model", SHARES),
    # From a cached answer to one with much reasoning.
    "call_seconds": ("Time of a call", "model", (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)),
    # Half a millisecond without a model, seconds with a summary.
    "compaction_seconds": ("Time of a compaction", "kind", (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10)),
}

_made: WeakKeyDictionary[CollectorRegistry, dict[str, Any]] = WeakKeyDictionary()
"""The metrics of each registry, which takes a name only once."""

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
            self._metrics = _made.get(chosen) or _metrics_in(chosen)
            _made[chosen] = self._metrics

    def emit(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, events.StepEvent):
            self._step(event)
        elif isinstance(event, events.CompactionEvent):
            self._count("compactions", event.model, event.kind)
            freed = event.tokens_before - event.tokens_after
            self._count("compaction_freed_tokens", event.model, event.kind, amount=freed)
            self._observe("compaction_seconds", event.kind, event.duration_seconds)
        elif isinstance(event, events.SummaryEvent):
            self._count("summaries", event.model, event.status)
            self._count("cost_usd", event.model, "summary", amount=event.cost)
        elif isinstance(event, events.RecoveryEvent):
            self._count("overflows", event.model)
        elif isinstance(event, events.RefusalEvent):
            self._count("refusals", event.model, event.reason)
        elif isinstance(event, events.RouteEvent) and event.has_answered:
            self._count("routes", event.model, str(bool(event.fallbacks)).lower())
        elif isinstance(event, events.ToolResultEvent):
            self._count("tool_results", event.tool, str(event.is_oversized).lower())
        elif isinstance(event, events.AlertEvent) and not event.is_cleared:
            self._count("alerts", event.alert)

    def _step(self, event: events.StepEvent) -> None:
        model = event.model
        for name, (_, field) in GAUGES.items():
            if (value := getattr(event, field)) is not None:
                self._metrics[name].labels(model).set(value)
        self._observe("request_utilization", model, event.utilization)
        self._observe("estimate_accuracy", model, event.accuracy)
        self._observe("call_seconds", model, event.duration_seconds)
        self._count("requests", model)
        self._count("input_tokens", model, "cached", amount=event.cached_tokens)
        self._count("input_tokens", model, "written", amount=event.cache_write_tokens)
        self._count("input_tokens", model, "new", amount=event.new_tokens)
        self._count("output_tokens", model, amount=event.output_tokens)
        self._count("unused_reserve_tokens", model, amount=event.unused_reserve_tokens)
        self._count("cost_usd", model, "agent", amount=event.cost)

    def _observe(self, name: str, label: str, value: float | None) -> None:
        if value is not None:
            self._metrics[name].labels(label).observe(value)

    def _count(self, name: str, *labels: str, amount: Any = 1) -> None:
        """Add an amount; an unknown one is none, and a counter takes no negative one."""
        counter = self._metrics[name].labels(*labels)
        if amount is not None and amount > 0:
            counter.inc(float(amount))


def _metrics_in(registry: CollectorRegistry) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, (text, _) in GAUGES.items():
        made[name] = Gauge(f"ctxwin_{name}", text, ["model"], registry=registry)
    for name, (text, *labels) in COUNTERS.items():
        made[name] = Counter(f"ctxwin_{name}", text, labels, registry=registry)
    for name, (text, label, buckets) in HISTOGRAMS.items():
        made[name] = Histogram(f"ctxwin_{name}", text, [label], registry=registry, buckets=buckets)
    return made
