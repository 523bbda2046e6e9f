"""What the package lets others see of its work: events and the sinks that take them, accuracy of counts, quality."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.config import AlertConfig
from langchain_ctxwin.core.events import (
    AlertEvent,
    CacheMissEvent,
    CompactionEvent,
    NoticeEvent,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
from langchain_ctxwin.observe.acp import acp_update
from langchain_ctxwin.observe.alerts import Alerts
from langchain_ctxwin.observe.history import History, HistorySink, MemorySink
from langchain_ctxwin.observe.reports import quality_report, report
from langchain_ctxwin.reporting import LogSink, StreamSink

if TYPE_CHECKING:
    from langchain_ctxwin.observe.opentelemetry_sink import OpenTelemetrySink

__all__ = [
    "AlertConfig",
    "AlertEvent",
    "Alerts",
    "CacheMissEvent",
    "CompactionEvent",
    "History",
    "HistorySink",
    "LogSink",
    "MemorySink",
    "NoticeEvent",
    "OpenTelemetrySink",
    "OverflowEvent",
    "StepEvent",
    "StreamSink",
    "SummaryEvent",
    "ToolResultEvent",
    "acp_update",
    "quality_report",
    "report",
]


def __getattr__(name: str) -> Any:
    """Import the sink whose package is an extra when it is asked for."""
    if name != "OpenTelemetrySink":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.opentelemetry_sink").OpenTelemetrySink
