"""Session state as the steps read and write it: mappings, keyed as in the graph's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.session import valid_report, valid_tools
from langchain_ctxwin.core.turns import call_ids
from langchain_ctxwin.core.window import Window

State = Mapping[str, Any]
Update = dict[str, Any]

SESSION = (
    *("context_view", "context_record", "context_summary", "context_pending", "context_counts", "context_guard"),
    *("context_tools", "context_model"),
)
"""The keys that a conversation goes on from; `context_report` is made anew with each request."""

FLAGS = ("due", "compress", "reason", "request_waits")
"""What `context_pending` says of the request at hand, beside the summary on its way."""

Measure = Callable[[State], Window]
"""Measures the next request of a state."""


def changed(state: State, update: Update) -> Update:
    """Leave out what the state already says, so that a checkpoint stores only news."""
    return {key: value for key, value in update.items() if state.get(key) != value and (value or key in state)}


def flags_of(state: State) -> State:
    """Return `context_pending`; empty when something odd is stored there."""
    pending = state.get("context_pending")
    return pending if isinstance(pending, Mapping) else {}


def report_of(state: State) -> Mapping[str, Any]:
    """Return what the steps read of `context_report`; empty when something odd is stored there."""
    return valid_report(state.get("context_report"))[0]


def tools_of(state: State) -> list[str]:
    """Return `context_tools`; empty when something odd is stored there."""
    return valid_tools(state.get("context_tools"))[0]


def turn_is_finished(state: State) -> bool:
    """True when the last message is an answer, not a question or a call."""
    messages: Sequence[AnyMessage] = state.get("messages") or ()
    last = messages[-1] if messages else None
    return isinstance(last, AIMessage) and not call_ids(last)
