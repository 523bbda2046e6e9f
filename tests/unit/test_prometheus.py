"""Are events counted where a Prometheus server finds them, and does the dashboard show what there is?"""

from __future__ import annotations

import json
import re
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from langchain_ctxwin import ConfigError
from langchain_ctxwin.observe import (
    AlertEvent,
    CompactionEvent,
    NoticeEvent,
    PrometheusSink,
    RecoveryEvent,
    RefusalEvent,
    Reporter,
    RouteEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
    ToolsEvent,
)
from support.agents import PATIENCE, agent_on, ask, model_of, on_both
from support.conversations import CharCounter

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
STEP = StepEvent(
    model="m",
    input_limit=100,
    context_window=200,
    reserved_tokens=50,
    estimated_tokens=40,
    reported_tokens=50,
    cached_tokens=20,
    cache_write_tokens=10,
    output_tokens=5,
    cost=Decimal("0.25"),
    duration_seconds=0.3,
)
EVERY = [
    STEP,
    CompactionEvent(model="m", kind="force", tokens_before=10, tokens_after=4, duration_seconds=0.001),
    SummaryEvent(model="w", status="ready", cost=Decimal("0.5")),
    RecoveryEvent(model="m"),
    RefusalEvent(model="m", reason="BudgetExceededError"),
    RouteEvent(model="m", has_answered=True, fallbacks=("other: was busy",)),
    RouteEvent(model="m"),
    ToolResultEvent(tool="read", is_oversized=True),
    AlertEvent(alert="utilization"),
    AlertEvent(alert="utilization", is_cleared=True),
    NoticeEvent(notice="usage_ignored"),
    ToolsEvent(),
]


def served(registry: CollectorRegistry) -> dict[str, float]:
    """What a server scrapes, by metric and labels."""
    lines = (line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_each_event_is_counted_once():
    """With amounts, labels and buckets."""
    registry = CollectorRegistry()
    sink = PrometheusSink(registry)
    for event in EVERY:
        sink.emit(event)
    found = served(registry)
    expected = {
        'ctxwin_requests_total{model="m"}': 1.0,
        'ctxwin_utilization{model="m"}': 0.5,
        'ctxwin_window_utilization{model="m"}': 0.25,
        'ctxwin_input_limit_tokens{model="m"}': 100.0,
        'ctxwin_input_tokens_total{model="m",part="cached"}': 20.0,
        'ctxwin_input_tokens_total{model="m",part="written"}': 10.0,
        'ctxwin_input_tokens_total{model="m",part="new"}': 20.0,
        'ctxwin_output_tokens_total{model="m"}': 5.0,
        'ctxwin_unused_reserve_tokens_total{model="m"}': 45.0,
        'ctxwin_cost_usd_total{model="m",purpose="agent"}': 0.25,
        'ctxwin_cost_usd_total{model="w",purpose="summary"}': 0.5,
        'ctxwin_estimate_accuracy_sum{model="m"}': 0.8,
        'ctxwin_request_utilization_bucket{le="0.5",model="m"}': 1.0,
        'ctxwin_call_seconds_count{model="m"}': 1.0,
        'ctxwin_compactions_total{kind="force",model="m"}': 1.0,
        'ctxwin_compaction_freed_tokens_total{kind="force",model="m"}': 6.0,
        'ctxwin_compaction_seconds_count{kind="force"}': 1.0,
        'ctxwin_summaries_total{model="w",status="ready"}': 1.0,
        'ctxwin_overflows_total{model="m"}': 1.0,
        'ctxwin_refusals_total{model="m",reason="BudgetExceededError"}': 1.0,
        'ctxwin_routes_total{fallback="true",model="m"}': 1.0,
        'ctxwin_tool_results_total{oversized="true",tool="read"}': 1.0,
        'ctxwin_alerts_total{alert="utilization"}': 1.0,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_what_is_unknown_or_below_zero_is_not_counted():
    """A counter never falls."""
    registry = CollectorRegistry()
    sink = PrometheusSink(registry)
    sink.emit(StepEvent(model="m"))
    sink.emit(StepEvent(model="m", output_tokens=-5, cost=Decimal(-1)))
    sink.emit(CompactionEvent(model="m", kind="force", tokens_before=4, tokens_after=10))
    found = served(registry)
    assert found['ctxwin_requests_total{model="m"}'] == 2
    parts = ("tokens_total", "cost_usd_total")
    assert {value for name, value in found.items() if any(part in name for part in parts)} == {0.0}


@on_both
def test_an_agent_is_counted_while_it_works(adapter):
    """Two sinks over one registry add up, from several threads."""
    registry, count = CollectorRegistry(), CharCounter()
    model = model_of(1_000, counter=count)
    agents = []
    for _ in range(2):
        reporter = Reporter([PrometheusSink(registry)])
        agents.append((agent_on(adapter, model, sinks=reporter, counter=count), reporter))
    threads = [threading.Thread(target=ask, args=(agent, "hello")) for agent, _ in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert all(reporter.flush(PATIENCE) for _, reporter in agents)
    assert served(registry)['ctxwin_requests_total{model="scripted"}'] == 2
    tokens = sum(request.tokens for request in model.requests)
    assert served(registry)['ctxwin_input_tokens_total{model="scripted",part="new"}'] == tokens


def test_the_dashboard_shows_metrics_that_exist():
    """Every panel has a query, and every metric in it is one that the sink serves after one event of each kind."""
    registry = CollectorRegistry()
    sink = PrometheusSink(registry)
    for event in EVERY:
        sink.emit(event)
    names = {re.split(r"[{ ]", name)[0] for name in served(registry)}
    board: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert board["uid"]
    assert board["schemaVersion"] >= 39
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert len(queries) > len(board["panels"]) == len({panel["id"] for panel in board["panels"]})
    used = {name for query in queries for name in re.findall(r"ctxwin_\w+", query)}
    assert len(used) > 10
    assert used <= names
    sources = {json.dumps(panel["datasource"]) for panel in board["panels"]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}


def test_what_is_no_registry_is_refused():
    """With what to pass instead."""
    with pytest.raises(ConfigError, match="registry=3: pass a CollectorRegistry"):
        PrometheusSink(3)
