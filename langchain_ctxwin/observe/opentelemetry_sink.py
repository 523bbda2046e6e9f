"""`OpenTelemetrySink`: events as spans and metrics, under the names of the GenAI conventions where those have one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from langchain_ctxwin.core import events
from langchain_ctxwin.core.events import Event
from langchain_ctxwin.errors import ConfigError, brief

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
"""Units."""

SPAN_FIELDS = {
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
"""What the span of a call says of a step, beside what is put in other words."""


class OpenTelemetrySink:
    """Writes a span for each call of a model, each compaction and each summary, and counts all events as metrics.

    A span begins when its work began and is a child of the span in which the agent ran. A warning is an event of that
    span, or a span without length below it where it has ended. Attributes of metrics name the
    model only, so that their number stays small: threads and answers are on spans alone. The text of a message is in
    none of them. Exporters run as the SDK is set up; whatever they do costs no turn anything.

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
        self._latest: dict[str, events.StepEvent] = {}
        self._histograms = {
            name: meter.create_histogram(
                name, unit=unit, description=text, explicit_bucket_boundaries_advisory=boundaries
            )
            for name, (unit, text, boundaries) in HISTOGRAMS.items()
        }
        self._counters = {name: meter.create_counter(name, unit=unit) for name, unit in COUNTERS.items()}
        for name, (field, unit) in GAUGES.items():
            meter.create_observable_gauge(name, [partial(self._observed, field)], unit=unit)

    def _observed(self, field: str, _: Any) -> Iterator[Observation]:
        """The latest value of each model, read when metrics are collected: a step has nothing to do for it."""
        for event in list(self._latest.values()):
            if (value := getattr(event, field)) is not None:
                yield Observation(value, _model(event))

    def emit(self, event: Event) -> None:
        """Write one event."""
        model = _model(event)
        if isinstance(event, events.StepEvent):
            self._step(event, model)
        elif isinstance(event, events.CompactionEvent):
            self._compaction(event, model)
        elif isinstance(event, events.SummaryEvent):
            self._summary(event, model)
        elif isinstance(event, events.RecoveryEvent):
            self._count("ctxwin.overflows", model)
        elif isinstance(event, events.RefusalEvent):
            self._count("ctxwin.refusals", model | {"error.type": event.reason})
        elif isinstance(event, events.RouteEvent) and event.has_answered:
            self._count("ctxwin.routes", model | {"ctxwin.fallback": bool(event.fallbacks)})
        elif isinstance(event, events.ToolResultEvent):
            about = {"gen_ai.tool.name": event.tool, "ctxwin.oversized": event.is_oversized}
            self._count("ctxwin.tool_results", about)
        elif isinstance(event, events.AlertEvent) and not event.is_cleared:
            self._count("ctxwin.alerts", {"ctxwin.alert": event.alert})
        if event.level == "warning" and not isinstance(event, events.SummaryEvent):
            self._warning(event)

    def _step(self, event: events.StepEvent, model: Attributes) -> None:
        about = _known({"gen_ai.operation.name": CHAT, "gen_ai.provider.name": event.provider}) | model
        for kind, tokens in (("input", event.input_tokens), ("output", event.output_tokens)):
            if tokens is not None:
                self._histograms["gen_ai.client.token.usage"].record(tokens, about | {"gen_ai.token.type": kind})
        if event.duration_seconds is not None:
            self._histograms["gen_ai.client.operation.duration"].record(event.duration_seconds, about)
        self._latest[event.model] = event
        parts = {"cached": event.cached_tokens, "written": event.cache_write_tokens, "new": event.new_tokens}
        for part, tokens in parts.items():
            self._count("ctxwin.input.tokens", model | {"ctxwin.part": part}, tokens)
        self._count("ctxwin.cost", model | {"ctxwin.purpose": "agent"}, event.cost)
        if not self._chat_spans:
            return
        shown = {name: getattr(event, field) for name, field in SPAN_FIELDS.items()}
        shown |= {f"ctxwin.{name}_tokens": tokens for name, tokens in event.regions.items()}
        shown["gen_ai.response.finish_reasons"] = [event.finish_reason] if event.finish_reason else None
        shown["gen_ai.conversation.compacted"] = True if event.compactions else None  # never said to be false
        shown["ctxwin.cost"] = None if event.cost is None else float(event.cost)
        name = f"{CHAT} {event.model}".strip()
        self._span(name, event, event.duration_seconds, about | shown, SpanKind.CLIENT)

    def _compaction(self, event: events.CompactionEvent, model: Attributes) -> None:
        self._count("ctxwin.compactions", model | {"ctxwin.compaction.kind": event.kind})
        attributes = model | {
            "compaction.strategy": event.kind,
            "compaction.tokens_before": event.tokens_before,
            "compaction.tokens_after": event.tokens_after,
            "ctxwin.compaction.reason": event.reason,
            "ctxwin.compaction.actions": list(event.actions),
            "ctxwin.compaction.left_messages": event.left_messages,
            "gen_ai.conversation.compacted": True,
        }
        self._span("compact_messages", event, event.duration_seconds, attributes)

    def _summary(self, event: events.SummaryEvent, model: Attributes) -> None:
        self._count("ctxwin.summaries", model | {"ctxwin.summary.status": event.status})
        self._count("ctxwin.cost", model | {"ctxwin.purpose": "summary"}, event.cost)
        if event.status == "started":
            return
        attributes = model | {
            "ctxwin.summary.status": event.status,
            "ctxwin.summary.reason": event.reason,
            "ctxwin.summary.calls": event.calls,
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
        }
        fault = "" if event.status == "ready" else event.reason or event.status
        self._span("summarize_messages", event, event.seconds, attributes, fault=fault)

    def _warning(self, event: Event) -> None:
        told = {f"ctxwin.{name}": value for name, value in event.facts().items()}
        if (span := trace.get_current_span()).is_recording():
            span.add_event(event.name, _known(told), timestamp=int(event.time * NANOSECONDS))
        else:  # it ended before the thread of the sink came to this
            self._span(event.name, event, None, told)

    def _count(self, name: str, attributes: Attributes, amount: Any = 1) -> None:
        if amount:  # an unknown amount is none, and a counter takes no negative one
            self._counters[name].add(max(0, float(amount) if name == "ctxwin.cost" else int(amount)), attributes)

    def _span(
        self,
        name: str,
        event: Event,
        seconds: float | None,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
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


def _model(event: Event) -> Attributes:
    return _known({"gen_ai.request.model": event.model})


def _known(attributes: Attributes) -> Attributes:
    """The attributes that have a value of a kind that OpenTelemetry takes."""
    return {
        name: str(value) if isinstance(value, dict) else value
        for name, value in attributes.items()
        if value is not None and value not in ("", [])
    }
