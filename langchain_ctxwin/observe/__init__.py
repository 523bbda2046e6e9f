"""What the package lets others see of its work: events and the sinks that take them, accuracy of counts, quality."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.callbacks import ContextCallbackHandler
from langchain_ctxwin.config import AlertConfig
from langchain_ctxwin.core.events import (
    AlertEvent,
    CompactionEvent,
    Event,
    ModelChangeEvent,
    NoticeEvent,
    RecoveryEvent,
    RefusalEvent,
    RouteEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
    ToolsEvent,
)
from langchain_ctxwin.core.spending import Usage
from langchain_ctxwin.observe.alerts import Alerts
from langchain_ctxwin.observe.gates import (
    DEFAULT_GATES,
    Gate,
    QualityReport,
    RequestEvents,
    RequestRecord,
    quality_report,
    requests_of,
)
from langchain_ctxwin.observe.history import History, HistorySink
from langchain_ctxwin.observe.reports import Report, report
from langchain_ctxwin.observe.validation import Accuracy, Validator, Verdict
from langchain_ctxwin.protocols import MetricsSink
from langchain_ctxwin.reporting import LogSink, MemorySink, Prices, Reporter, StreamSink

if TYPE_CHECKING:
    from langchain_ctxwin.observe.opentelemetry_sink import OpenTelemetrySink
    from langchain_ctxwin.observe.prometheus_sink import PrometheusSink

LAZY = {"OpenTelemetrySink": "opentelemetry_sink", "PrometheusSink": "prometheus_sink"}
"""Sinks whose packages are extras, and the modules that import them."""

__all__ = [
    "DEFAULT_GATES",
    "Accuracy",
    "AlertConfig",
    "AlertEvent",
    "Alerts",
    "CompactionEvent",
    "ContextCallbackHandler",
    "Event",
    "Gate",
    "History",
    "HistorySink",
    "LogSink",
    "MemorySink",
    "MetricsSink",
    "ModelChangeEvent",
    "NoticeEvent",
    "OpenTelemetrySink",
    "Prices",
    "PrometheusSink",
    "QualityReport",
    "RecoveryEvent",
    "RefusalEvent",
    "Report",
    "Reporter",
    "RequestEvents",
    "RequestRecord",
    "RouteEvent",
    "StepEvent",
    "StreamSink",
    "SummaryEvent",
    "ToolResultEvent",
    "ToolsEvent",
    "Usage",
    "Validator",
    "Verdict",
    "quality_report",
    "report",
    "requests_of",
]


def __getattr__(name: str) -> Any:
    """Import a sink whose package is an extra when it is asked for."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LAZY[name]}"), name)
