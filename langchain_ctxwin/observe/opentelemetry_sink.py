"""`OpenTelemetrySink`: events as spans and metrics, under the names of the GenAI conventions where those have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from langchain_ctxwin.core import events
from langchain_ctxwin.core.events import Event
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.observe.counts import Labels, counts_of

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider, Observation
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ImportError("OpenTelemetrySink needs opentelemetry: pip install 'langchain-ctxwin[otel]'") from error

SCOPE = "langchain_ctxwin"
NANOSECONDS = 1_000_000_000

CHAT = "chat"
"""`gen_ai.operation.name` of a call of a chat model."""

COMPACTED = "gen_ai.conversation.compacted"

Attributes = dict[str, Any]

HISTOGRAMS = {
    "gen_ai.client.token.usage": ("{token}", "Tokens of a call", [4.0**power for power in range(14)]),
    "gen_ai.client.operation.duration": ("s", "Time of a call", [0.01 * 2**power for power in range(14)]),
}
"""Units, descriptions, and the boundaries that the GenAI conventions ask for: 1 to 67,108,864 tokens, 0.01 to 81.92
seconds."""

GAUGES = {
    "ctxwin.utilization": ("utilization", "1"),
    "ctxwin.window.utilization": ("window_utilization", "1"),
    "ctxwin.window.size": ("context_window", "{token}"),
    "ctxwin.input_limit": ("input_limit", "{token}"),
    "ctxwin.estimate.accuracy": ("accuracy", "1"),
}
"""The field of a step that each shows, and units."""

COUNTERS = {
    "input_tokens": ("ctxwin.input.tokens", "{token}"),
    "cost_usd": ("ctxwin.cost", "USD"),
    "compactions": ("ctxwin.compactions", "{compaction}"),
    "summaries": ("ctxwin.summaries", "{summary}"),
    "overflows": ("ctxwin.overflows", "{request}"),
    "refusals": ("ctxwin.refusals", "{request}"),
    "routes": ("ctxwin.routes", "{answer}"),
    "tool_results": ("ctxwin.tool_results", "{result}"),
    "alerts": ("ctxwin.alerts", "{alert}"),
}
"""What the counters of `counts_of` are called here, and units."""

LABELS = {
    "model": "gen_ai.request.model",
    "tool": "gen_ai.tool.name",
    "reason": "error.type",
    "kind": "ctxwin.compaction.kind",
    "status": "ctxwin.summary.status",
}
"""The same of labels; others only get our prefix."""

STEP_FIELDS = {
    "gen_ai.response.id": "answer_id",
    "gen_ai.response.model": "model",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
    "ctxwin.utilization": "utilization",
    "ctxwin.window.utilization": "window_utilization",
    "ctxwin.input_limit": "input_limit",
    "ctxwin.window.size": "context_window",
    "ctxwin.estimated_tokens": "estimated_tokens",
    "ctxwin.calls": "calls",
}
COMPACTION_FIELDS = {
    "compaction.strategy": "kind",
    "compaction.tokens_before": "tokens_before",
    "compaction.tokens_after": "tokens_after",
    "ctxwin.compaction.reason": "reason",
    "ctxwin.compaction.actions": "actions",
    "ctxwin.compaction.left_messages": "left_messages",
}
SUMMARY_FIELDS = {
    "ctxwin.summary.status": "status",
    "ctxwin.summary.reason": "reason",
    "ctxwin.summary.calls": "calls",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
}
"""What spans say of their events as they are, beside model and thread."""


class OpenTelemetrySink:
    """Writes a span for each call of a model, each compaction and each summary, and counts all events as metrics.

    A span begins when its work began and is a child of the span in which the agent ran. A warning is an event of that
    span, or a span without length below it where it has ended. Attributes of metrics name models, tools that the agent
    has, and kinds, at most a hundred of each, all others `other`: threads and answers are on spans alone. The text of a
    message is in none of them. Exporters run as the SDK is set up: give it those that have a thread.

    Setup:
        ```bash
        pip install "langchain-ctxwin[otel]" opentelemetry-sdk
        ```

    Key init args:
        meter_provider: makes the instruments; by default the global one.
        tracer_provider: makes the spans; by default the global one.
        chat_spans: write spans for the calls of models; turn them off where the provider's client is instrumented.

    Instantiate:
        ```python
        sink = OpenTelemetrySink()
        ```

    Use:
        ```python
        agent = create_context_agent(model, tools, sinks=[sink])
        ```

    Raises:
        ConfigError: a provider is none.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        *,
        chat_spans: bool = True,
    ) -> None:
        for name, given, method in (
            ("meter_provider", meter_provider, "get_meter"),
            ("tracer_provider", tracer_provider, "get_tracer"),
        ):
            if given is not None and not callable(getattr(given, method, None)):
                raise ConfigError(f"{name}={brief(given)}: pass a provider of the OpenTelemetry SDK, or None")
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._chat_spans = chat_spans
        self._labels = Labels()
        self._latest: dict[str, events.StepEvent] = {}
        self._histograms = {
            name: meter.create_histogram(
                name, unit=unit, description=text, explicit_bucket_boundaries_advisory=boundaries
            )
            for name, (unit, text, boundaries) in HISTOGRAMS.items()
        }
        self._counters = {name: meter.create_counter(its, unit=unit) for name, (its, unit) in COUNTERS.items()}
        for name, (field, unit) in GAUGES.items():
            meter.create_observable_gauge(name, [partial(self._observed, field)], unit=unit)

    def _observed(self, field: str, _: Any) -> Iterator[Observation]:
        """The latest value of each model, read when metrics are collected: a step has nothing to do for it."""
        for model, event in list(self._latest.items()):
            if (value := getattr(event, field)) is not None:
                yield Observation(value, _known({"gen_ai.request.model": model}))

    def emit(self, event: Event) -> None:
        """Write one event."""
        for name, amount, labels in counts_of(event):
            if name in COUNTERS and amount:  # an unknown amount is none, and a counter takes no negative one
                about = _known({LABELS.get(key, f"ctxwin.{key}"): self._shown(key, of) for key, of in labels.items()})
                self._counters[name].add(max(0, float(amount) if isinstance(amount, Decimal) else amount), about)
        if isinstance(event, events.StepEvent):
            self._step(event)
        elif isinstance(event, events.CompactionEvent):
            told = {**_read(event, COMPACTION_FIELDS), COMPACTED: True}
            self._span("compact_messages", event, told, seconds=event.duration_seconds)
        elif isinstance(event, events.SummaryEvent):
            if event.status != "started":
                fault = "" if event.status == "ready" else event.reason or event.status
                told = _read(event, SUMMARY_FIELDS)
                self._span("summarize_messages", event, told, seconds=event.seconds, fault=fault)
        elif event.level == "warning":
            self._warning(event)

    def _shown(self, label: str, value: str | bool) -> str | bool:
        return value if isinstance(value, bool) else self._labels.of(label, value)

    def _step(self, event: events.StepEvent) -> None:
        model = self._labels.of("model", event.model)
        named = {"gen_ai.operation.name": CHAT, "gen_ai.provider.name": event.provider}
        about = _known({**named, "gen_ai.request.model": model})
        for kind, tokens in (("input", event.input_tokens), ("output", event.output_tokens)):
            if tokens is not None:
                self._histograms["gen_ai.client.token.usage"].record(tokens, about | {"gen_ai.token.type": kind})
        if event.duration_seconds is not None:
            self._histograms["gen_ai.client.operation.duration"].record(event.duration_seconds, about)
        self._latest[model] = event
        if self._chat_spans:
            told = about | _read(event, STEP_FIELDS)  # with the model's own name
            told |= {f"ctxwin.{name}_tokens": tokens for name, tokens in event.regions.items()}
            told["gen_ai.response.finish_reasons"] = [event.finish_reason] if event.finish_reason else None
            told[COMPACTED] = True if event.compactions else None  # never said to be false
            told["ctxwin.cost"] = None if event.cost is None else float(event.cost)
            name = f"{CHAT} {event.model}".strip()
            self._span(name, event, told, seconds=event.duration_seconds, kind=SpanKind.CLIENT)

    def _warning(self, event: Event) -> None:
        told = {f"ctxwin.{name}": value for name, value in event.facts().items()}
        if (span := trace.get_current_span()).is_recording():
            span.add_event(event.name, _known(told), timestamp=int(event.time * NANOSECONDS))
        else:
            self._span(event.name, event, told)

    def _span(
        self,
        name: str,
        event: Event,
        attributes: Attributes,
        *,
        seconds: float | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        fault: str = "",
    ) -> None:
        """Write a span that ends when the event was reported."""
        ends = int(event.time * NANOSECONDS)
        begins = ends - int(max(0.0, seconds or 0.0) * NANOSECONDS)
        known = _known({**attributes, "gen_ai.conversation.id": event.thread})
        span = self._tracer.start_span(name, kind=kind, attributes=known, start_time=begins)
        if fault:
            span.set_status(Status(StatusCode.ERROR, fault))
        span.end(ends)


def _read(event: Event, names: Mapping[str, str]) -> Attributes:
    return {name: getattr(event, field) for name, field in names.items()} | _model(event)


def _model(event: Event) -> Attributes:
    return _known({"gen_ai.request.model": event.model})


def _known(attributes: Attributes) -> Attributes:
    """The attributes that have a value of a kind that OpenTelemetry takes."""
    return {
        name: str(value) if isinstance(value, dict) else value
        for name, value in attributes.items()
        if value is not None and value not in ("", [], ())
    }
