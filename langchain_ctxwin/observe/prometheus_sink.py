"""`PrometheusSink`: events as metrics that a Prometheus server scrapes."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from langchain_ctxwin.core.events import CompactionEvent, Event, StepEvent
from langchain_ctxwin.errors import expect
from langchain_ctxwin.observe.counts import Labels, counts_of

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

CALL_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)  # from a cached answer to one with much reasoning
COMPACTION_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10)  # without a model, and with a summary

HISTOGRAMS: dict[str, tuple[str, type[Event], str, str, tuple[float, ...]]] = {
    "request_utilization": ("Requests over their limit", StepEvent, "model", "utilization", SHARES),
    "estimate_accuracy": ("1 - miss of our count", StepEvent, "model", "accuracy", SHARES),
    "call_seconds": ("Time of a call", StepEvent, "model", "duration_seconds", CALL_SECONDS),
    "compaction_seconds": ("Time of a compaction", CompactionEvent, "kind", "duration_seconds", COMPACTION_SECONDS),
}
"""With the events, their fields that are the label and the value, and buckets."""

_made: WeakKeyDictionary[CollectorRegistry, tuple[dict[str, Any], Labels]] = WeakKeyDictionary()
"""The metrics of each registry, which takes a name only once, and the values of their labels."""

_lock = threading.Lock()


class PrometheusSink:
    """Counts events in a registry of `prometheus_client`, for whatever serves it to a Prometheus server.

    Labels name models, tools that the agent has, and kinds, never threads, and at most a hundred of each: all others
    are `other`. Several sinks may share one registry: their events add up. `docs/grafana-dashboard.json` shows them.

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
        expect(registry, CollectorRegistry | None, "registry", "a CollectorRegistry of prometheus_client, or None")
        chosen = REGISTRY if registry is None else registry
        with _lock:
            if chosen not in _made:
                _made[chosen] = _metrics_in(chosen), Labels()
            self._metrics, self._labels = _made[chosen]

    def emit(self, event: Event) -> None:
        """Count one event."""
        for name, amount, labels in counts_of(event):
            shown = {label: self._labels.of(label, value) for label, value in labels.items()}
            counter = self._metrics[name].labels(**shown)
            if amount is not None and amount > 0:  # an unknown amount is none, and a counter takes no negative one
                counter.inc(float(amount))
        if isinstance(event, StepEvent):
            for name, (_, field) in GAUGES.items():
                if (value := getattr(event, field)) is not None:
                    self._metrics[name].labels(self._labels.of("model", event.model)).set(value)
        for name, (_, kind, label, field, _) in HISTOGRAMS.items():
            if isinstance(event, kind) and (value := getattr(event, field)) is not None:
                self._metrics[name].labels(self._labels.of(label, getattr(event, label))).observe(value)


def _metrics_in(registry: CollectorRegistry) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, (text, _) in GAUGES.items():
        made[name] = Gauge(f"ctxwin_{name}", text, ["model"], registry=registry)
    for name, (text, *labels) in COUNTERS.items():
        made[name] = Counter(f"ctxwin_{name}", text, labels, registry=registry)
    for name, (text, _, label, _, buckets) in HISTOGRAMS.items():
        made[name] = Histogram(f"ctxwin_{name}", text, [label], registry=registry, buckets=buckets)
    return made
