"""Do spans and metrics say what happened, under the names of the conventions, and never more?"""

import json
import re
from pathlib import Path

import pytest
from langchain_core.tools import tool
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from prometheus_client import REGISTRY, generate_latest

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.observe import OpenTelemetrySink
from support.agents import PRICED, agent_on, ask, call, model_of, on_both
from support.conversations import CharCounter
from support.fakes import script
from support.told import EVERY

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"

# in the conventions' own repository, not yet in the package
UPSTREAM = {"gen_ai.conversation.compacted"}
COUNT = CharCounter()


@tool
def read(words: int) -> str:
    """Read some words."""
    return "xyzzy " * words


class Watched:
    """A sink with exporters that keep what they get."""

    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sink = OpenTelemetrySink(MeterProvider([self.reader]), self.tracers)

    @property
    def spans(self):
        found = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    @property
    def metrics(self):
        data = self.reader.get_metrics_data()
        scopes = (
            [
                scope
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
            ]
            if data
            else []
        )
        return {
            metric.name: list(metric.data.data_points)
            for scope in scopes
            for metric in scope.metrics
        }


def conventional():
    """Every name that the installed conventions have."""
    modules = (gen_ai_attributes, gen_ai_metrics, error_attributes)
    return {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, str)
    }


def test_every_name_is_one_of_the_conventions_or_our_own():
    """A name that leaves the conventions has to leave the sink."""
    watched = Watched()
    with watched.tracers.get_tracer("test").start_as_current_span("agent"):
        for event in EVERY:
            watched.sink.emit(event)
    spans = [span for named in watched.spans.values() for span in named]
    names = {name for span in spans for name in span.attributes}
    names |= {*watched.metrics} | {
        name
        for points in watched.metrics.values()
        for p in points
        for name in p.attributes
    }
    assert len(names) > 30
    foreign = {
        name for name in names if not name.startswith(("ctxwin.", "compaction."))
    }
    assert foreign - UPSTREAM <= conventional()
    assert "gen_ai.usage.cache_read.input_tokens" in foreign
    models = {
        span.attributes.get("gen_ai.request.model")
        for span in watched.spans["summarize_messages"]
    }
    assert models == {None, "small"}


@on_both
def test_an_agent_leaves_spans_and_metrics(adapter):
    """A span for each call and each compaction, children of the span in which the agent ran."""
    watched = Watched()
    model = model_of(
        1_000,
        counter=COUNT,
        policy=script(*(call("read", f"c{n}", words=150) for n in range(8)), "done"),
    )
    config = ContextConfig(output_reserve=0)
    agent = agent_on(
        adapter,
        model,
        tools=[read],
        sinks=[watched.sink],
        prices=PRICED,
        counter=COUNT,
        config=config,
    )
    with watched.tracers.get_tracer("test").start_as_current_span("agent") as parent:
        ask(agent, "Read.")
    spans, metrics = watched.spans, watched.metrics
    assert len(spans["chat scripted"]) == len(model.requests)
    assert spans["compact_messages"]
    assert {
        span.parent.span_id
        for span in spans["chat scripted"] + spans["compact_messages"]
    } == {parent.get_span_context().span_id}
    first, last = spans["chat scripted"][0], spans["chat scripted"][-1]
    assert first.attributes["gen_ai.usage.input_tokens"] == model.requests[0].tokens
    assert "gen_ai.conversation.compacted" not in first.attributes
    assert last.attributes["gen_ai.conversation.compacted"] is True
    assert last.attributes["gen_ai.conversation.id"] == "1"
    assert all(span.start_time <= span.end_time for span in spans["chat scripted"])
    compacted = spans["compact_messages"][0].attributes
    assert compacted["compaction.tokens_after"] < compacted["compaction.tokens_before"]
    assert sum(point.value for point in metrics["ctxwin.input.tokens"]) == sum(
        one.tokens for one in model.requests
    )
    assert 0 < metrics["ctxwin.utilization"][0].value <= 1
    assert metrics["ctxwin.cost"][0].value > 0
    told = [
        *metrics.values(),
        *([span.attributes for span in named] for named in spans.values()),
    ]
    assert "xyzzy" not in repr(told)
    attributes = {
        name
        for points in metrics.values()
        for point in points
        for name in point.attributes
    }
    assert not attributes & {"gen_ai.conversation.id", "gen_ai.response.id"}


@pytest.fixture
def scraped():
    """What a Prometheus server scrapes after one event of each kind, by metric and labels."""
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    sink = OpenTelemetrySink(provider)
    for event in EVERY:
        sink.emit(event)
    lines = [
        line
        for line in generate_latest(REGISTRY).decode().splitlines()
        if line.startswith(("ctxwin_", "gen_ai_"))
    ]
    provider.shutdown()
    labels = re.compile(r',?otel_scope_\w+="[^"]*"')
    return {
        labels.sub("", name): float(value)
        for name, _, value in (line.rpartition(" ") for line in lines)
    }


def test_a_prometheus_server_scrapes_what_happened(scraped):
    """Through OpenTelemetry's own exporter."""
    model = 'gen_ai_request_model="small"'
    expected = {
        f'ctxwin_input_tokens_total{{ctxwin_part="cached",{model}}}': 200.0,
        f'ctxwin_cost_USD_total{{ctxwin_purpose="agent",{model}}}': 0.08,
        f'ctxwin_compactions_total{{ctxwin_compaction_kind="force",{model}}}': 2.0,
        f"ctxwin_overflows_total{{{model}}}": 1.0,
        f'ctxwin_routes_total{{ctxwin_fallback="true",{model}}}': 1.0,
        'ctxwin_refusals_total{error_type="BudgetExceededError",gen_ai_request_model="large"}': 1.0,
        'ctxwin_tool_results_total{ctxwin_oversized="true",gen_ai_tool_name="read"}': 1.0,
        'ctxwin_alerts_total{ctxwin_alert="accuracy"}': 1.0,
    }
    assert {name: scraped.get(name) for name in expected} == expected


def test_the_dashboard_shows_metrics_that_exist(scraped):
    """Every panel has a query, and every metric and label in it is one that is scraped."""
    text = "\n".join(scraped)
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [
        target["expr"] for panel in board["panels"] for target in panel["targets"]
    ]
    queries += [
        one["query"]["query"]
        for one in board["templating"]["list"]
        if one["type"] == "query"
    ]
    assert (
        len(queries)
        > len(board["panels"])
        == len({panel["id"] for panel in board["panels"]})
    )
    names = {
        name
        for query in queries
        for name in re.findall(r"(?:ctxwin|gen_ai|error)_\w+", query)
    }
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
    sources = {json.dumps(panel["datasource"]) for panel in board["panels"]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
