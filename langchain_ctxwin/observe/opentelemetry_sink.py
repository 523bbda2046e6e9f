"""`OpenTelemetrySink`: events as spans and metrics, under the names of the GenAI conventions where those have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxwin.core import events
from langchain_ctxwin.core.events import Event

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as error:
    raise ImportError(
        "OpenTelemetrySink needs opentelemetry: pip install 'langchain-ctxwin[otel]'"
    ) from error

SCOPE = "langchain_ctxwin"
NANOSECONDS = 1_000_000_000

CHAT = "chat"
"""`gen_ai.operation.name` of a call of a chat model."""

COMPACTED = "gen_ai.conversation.compacted"
MODEL, PROVIDER, TOOL = (
    "gen_ai.request.model",
    "gen_ai.provider.name",
    "gen_ai.tool.name",
)

Attributes = dict[str, Any]

HISTOGRAMS = {
    "gen_ai.client.token.usage": ("{token}", [4.0**power for power in range(14)]),
    "gen_ai.client.operation.duration": ("s", [0.01 * 2**power for power in range(14)]),
}
"""Units and the boundaries that the GenAI conventions ask for: 1 to 67,108,864 tokens, 0.01 to 81.92
seconds."""

GAUGES = {
    "ctxwin.utilization": ("utilization", "1"),
    "ctxwin.input_limit": ("input_limit", "{token}"),
    "ctxwin.estimate.accuracy": ("accuracy", "1"),
}
"""The field of a step that each shows, and units."""

COUNTERS = {
    "ctxwin.input.tokens": "{token}",
    "ctxwin.cost": "USD",
    "ctxwin.compactions": "{compaction}",
    "ctxwin.summaries": "{summary}",
    "ctxwin.overflows": "{request}",
    "ctxwin.refusals": "{request}",
    "ctxwin.routes": "{answer}",
    "ctxwin.tool_results": "{result}",
    "ctxwin.alerts": "{alert}",
}
"""Units of what is counted."""

STEP_FIELDS = {
    "gen_ai.response.id": "answer_id",
    "gen_ai.response.model": "model",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
    "ctxwin.utilization": "utilization",
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
    "ctxwin.compaction.left_messages": "left_messages",
}
SUMMARY_FIELDS = {
    "ctxwin.summary.status": "status",
    "ctxwin.summary.reason": "reason",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
}
"""What spans say of their events as they are, beside model and thread."""


class OpenTelemetrySink:
    """Writes a span for each call of a model, each compaction and each summary, and counts all events as metrics.

    A span begins when its work began and is a child of the span in which the agent ran. Attributes of metrics name
    models, tools that the agent has, and kinds: threads and answers are on spans alone. The text of a message is in
    none of them. Exporters run as the SDK is set up: give it those that have a thread. A Prometheus server scrapes the
    metrics through `opentelemetry-exporter-prometheus`.

    Setup:
        ```bash
        pip install "langchain-ctxwin[otel]" opentelemetry-sdk
        ```

    Key init args:
        meter_provider: makes the instruments; by default the global one.
        tracer_provider: makes the spans; by default the global one.

    Instantiate:
        ```python
        sink = OpenTelemetrySink()
        ```

    Use:
        ```python
        agent = create_context_agent(model, tools, sinks=[sink])
        ```
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._histograms = {
            name: meter.create_histogram(
                name, unit=unit, explicit_bucket_boundaries_advisory=boundaries
            )
            for name, (unit, boundaries) in HISTOGRAMS.items()
        }
        self._counters = {
            name: meter.create_counter(name, unit=unit)
            for name, unit in COUNTERS.items()
        }
        self._gauges = {
            field: meter.create_gauge(name, unit=unit)
            for name, (field, unit) in GAUGES.items()
        }

    def emit(self, event: Event) -> None:
        """Write one event."""
        for name, amount, about in _counts(event):
            # an unknown amount is none, and a counter takes no negative one
            if amount is not None and amount > 0:
                number = amount if isinstance(amount, int) else float(amount)
                self._counters[name].add(number, _exportable(about))
        if isinstance(event, events.StepEvent):
            self._step(event)
        elif isinstance(event, events.CompactionEvent):
            about = {**_read(event, COMPACTION_FIELDS), COMPACTED: True}
            self._span("compact_messages", event, about, seconds=event.duration_seconds)
        elif isinstance(event, events.SummaryEvent) and event.status != "started":
            fault = "" if event.status == "ready" else event.reason or event.status
            about, seconds = _read(event, SUMMARY_FIELDS), event.seconds
            self._span("summarize_messages", event, about, seconds=seconds, fault=fault)

    def _step(self, event: events.StepEvent) -> None:
        about = _exportable(
            {
                "gen_ai.operation.name": CHAT,
                PROVIDER: event.provider,
                MODEL: event.model,
            }
        )
        usage = self._histograms["gen_ai.client.token.usage"]
        for kind in ("input", "output"):
            if (tokens := getattr(event, f"{kind}_tokens")) is not None:
                usage.record(tokens, about | {"gen_ai.token.type": kind})
        if (seconds := event.duration_seconds) is not None:
            self._histograms["gen_ai.client.operation.duration"].record(seconds, about)
        for field, gauge in self._gauges.items():
            if (value := getattr(event, field)) is not None:
                gauge.set(value, _exportable({MODEL: event.model}))
        about |= _read(event, STEP_FIELDS) | {
            f"ctxwin.{name}_tokens": tokens for name, tokens in event.regions.items()
        }
        about["gen_ai.response.finish_reasons"] = (
            [event.finish_reason] if event.finish_reason else None
        )
        about[COMPACTED] = True if event.compactions else None  # never said to be false
        about["ctxwin.cost"] = None if event.cost is None else float(event.cost)
        name = f"{CHAT} {event.model}".strip()
        self._span(
            name, event, about, seconds=event.duration_seconds, kind=SpanKind.CLIENT
        )

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
        about = _exportable({**attributes, "gen_ai.conversation.id": event.thread})
        span = self._tracer.start_span(
            name, kind=kind, attributes=about, start_time=begins
        )
        if fault:
            span.set_status(Status(StatusCode.ERROR, fault))
        span.end(ends)


def _counts(event: Event) -> Iterator[tuple[str, Any, Attributes]]:
    """Yield what an event adds to which counters, with their attributes; an unknown amount is None."""
    model = {MODEL: event.model}
    if isinstance(event, events.StepEvent):
        parts = {
            "cached": event.cached_tokens,
            "written": event.cache_write_tokens,
            "new": event.new_tokens,
        }
        for part, tokens in parts.items():
            yield "ctxwin.input.tokens", tokens, {**model, "ctxwin.part": part}
        yield "ctxwin.cost", event.cost, {**model, "ctxwin.purpose": "agent"}
        if event.route:
            is_fallback = bool(event.route.get("fallbacks"))
            yield "ctxwin.routes", 1, {**model, "ctxwin.fallback": is_fallback}
    elif isinstance(event, events.CompactionEvent):
        yield "ctxwin.compactions", 1, {**model, "ctxwin.compaction.kind": event.kind}
    elif isinstance(event, events.SummaryEvent):
        yield "ctxwin.summaries", 1, {**model, "ctxwin.summary.status": event.status}
        yield "ctxwin.cost", event.cost, {**model, "ctxwin.purpose": "summary"}
    elif isinstance(event, events.OverflowEvent):
        if event.is_recovered:
            yield "ctxwin.overflows", 1, model
        else:
            yield "ctxwin.refusals", 1, {**model, "error.type": event.reason}
    elif isinstance(event, events.ToolResultEvent):
        about = {TOOL: event.tool, "ctxwin.oversized": event.is_oversized}
        yield "ctxwin.tool_results", 1, about
    elif isinstance(event, events.AlertEvent) and not event.is_cleared:
        yield "ctxwin.alerts", 1, {"ctxwin.alert": event.alert}


def _read(event: Event, names: Mapping[str, str]) -> Attributes:
    return {
        **{name: getattr(event, field) for name, field in names.items()},
        MODEL: event.model,
    }


def _exportable(attributes: Attributes) -> Attributes:
    """The attributes that have a value of a kind that OpenTelemetry takes."""
    return {
        name: value
        for name, value in attributes.items()
        if value is not None and value not in ("", [], ())
    }
