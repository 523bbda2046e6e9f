"""Are events counted where a Prometheus server finds them, and does the dashboard show what there is?"""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from langchain_core.tools import tool
from prometheus_client import CollectorRegistry, generate_latest

from langchain_ctxwin import ConfigError, ToolResultGuard
from langchain_ctxwin.observe import CompactionEvent, PrometheusSink, StepEvent, ToolResultEvent
from langchain_ctxwin.reporting import MemorySink, Reporter
from support.told import EVERY
from support.tool_runs import results

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


def served(*events, sinks=1):
    """What a server scrapes, by metric and labels, when so many sinks of one registry have each told these events."""
    registry = CollectorRegistry()
    for sink in [PrometheusSink(registry) for _ in range(sinks)]:
        for event in events:
            sink.emit(event)
    lines = (line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_each_event_is_counted_once():
    """With amounts, labels and buckets; what several sinks of one registry tell adds up."""
    found, twice = served(*EVERY), served(*EVERY, sinks=2)
    expected = {
        'ctxwin_requests_total{model="small"}': 2.0,
        'ctxwin_requests_total{model="large"}': 1.0,
        'ctxwin_utilization{model="small"}': 0.8,
        'ctxwin_window_utilization{model="small"}': 0.4,
        'ctxwin_input_limit_tokens{model="small"}': 1_000.0,
        'ctxwin_input_tokens_total{model="small",part="cached"}': 100.0,
        'ctxwin_input_tokens_total{model="small",part="written"}': 60.0,
        'ctxwin_input_tokens_total{model="small",part="new"}': 1_040.0,
        'ctxwin_output_tokens_total{model="small"}': 100.0,
        'ctxwin_unused_reserve_tokens_total{model="small"}': 300.0,
        'ctxwin_cost_usd_total{model="small",purpose="agent"}': 0.04,
        'ctxwin_cost_usd_total{model="",purpose="summary"}': 0.01,
        'ctxwin_estimate_accuracy_sum{model="small"}': 1.75,
        'ctxwin_request_utilization_bucket{le="0.5",model="small"}': 1.0,
        'ctxwin_call_seconds_count{model="small"}': 2.0,
        'ctxwin_compactions_total{kind="force",model="small"}': 2.0,
        'ctxwin_compaction_freed_tokens_total{kind="force",model="small"}': 1_200.0,
        'ctxwin_compaction_seconds_count{kind="force"}': 2.0,
        'ctxwin_summaries_total{model="small",status="failed"}': 1.0,
        'ctxwin_overflows_total{model="small"}': 1.0,
        'ctxwin_refusals_total{model="large",reason="BudgetExceededError"}': 1.0,
        'ctxwin_routes_total{fallback="true",model="small"}': 1.0,
        'ctxwin_tool_results_total{oversized="true",tool="read"}': 1.0,
        'ctxwin_alerts_total{alert="accuracy"}': 1.0,
    }
    assert {name: found.get(name) for name in expected} == expected
    counted = {name: value for name, value in expected.items() if "_total" in name}
    assert {name: twice[name] / 2 for name in counted} == counted


def test_what_is_unknown_or_below_zero_is_not_counted():
    """A counter never falls."""
    less = StepEvent(model="m", output_tokens=-5, cost=Decimal(-1))
    found = served(StepEvent(model="m"), less, CompactionEvent(model="m", tokens_before=4, tokens_after=10))
    assert found['ctxwin_requests_total{model="m"}'] == 2
    parts = ("tokens_total", "cost_usd_total")
    assert {value for name, value in found.items() if any(part in name for part in parts)} == {0.0}


def test_names_that_are_made_up_are_no_series_of_their_own():
    """Whatever a model or a server calls a tool or itself: the number of series and their length are bounded."""
    names = [*(f"made-up-{n}" for n in range(5_000)), "word " * 10_000, "a\nb", "a\x1b[2Jb"]
    told = [event for name in names for event in (StepEvent(model=name), ToolResultEvent(tool=name))]
    found = served(*told, *told)
    assert found['ctxwin_tool_results_total{oversized="false",tool="made-up-0"}'] == 2
    assert found['ctxwin_tool_results_total{oversized="false",tool="other"}'] == 2 * (len(names) - 100)
    assert found['ctxwin_requests_total{model="other"}'] == 2 * (len(names) - 100)
    assert len([name for name in found if "tool_results_total" in name]) == 101
    assert max(map(len, found)) < 200


@tool
def read(words: int) -> str:
    """Read some words."""
    return "word " * words


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_the_agent_does_not_have_is_other(is_async):
    """Its name is a text of the model."""
    sink, registry = MemorySink(), CollectorRegistry()
    reporter = Reporter([sink, PrometheusSink(registry)])
    guard = ToolResultGuard(sinks=reporter)
    calls = [{"name": name, "args": {"words": 2}, "id": name, "type": "tool_call"} for name in ("read", "say " * 50)]
    results("node", guard, [read], *calls, is_async=is_async)
    assert reporter.flush()
    assert sorted(event.tool for event in sink.of(ToolResultEvent)) == ["other", "read"]
    assert "say" not in generate_latest(registry).decode()


def test_the_dashboard_shows_metrics_that_exist():
    """Every panel has a query, and every metric in it is one that the sink serves after one event of each kind."""
    names = {re.split(r"[{ ]", name)[0] for name in served(*EVERY)}
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
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
    with pytest.raises(ConfigError, match="registry=3: pass a CollectorRegistry"):
        PrometheusSink(3)
