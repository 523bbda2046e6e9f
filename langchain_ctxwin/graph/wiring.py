"""Puts the nodes into a graph: one call adds the five nodes and their conditional edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import Runnable
from langgraph.graph import END, StateGraph
from langgraph.types import RetryPolicy

from langchain_ctxwin.flow.state import State
from langchain_ctxwin.flow.steps import request_waits
from langchain_ctxwin.graph.nodes import ContextNodes


def add_context_nodes(
    builder: StateGraph[Any, Any, Any, Any],
    nodes: ContextNodes,
    *,
    model_node: str = "agent",
    model: Runnable[Any, Any] | Callable[[list[AnyMessage]], Any],
    after: str = END,
    retry_policy: RetryPolicy | None = None,
) -> None:
    """Add `budget_check`, `maybe_summarize`, `force_compress`, `build_messages` and the model node to a graph.

    The entry is `budget_check`: lead `START` and the tools to it, and the finished answer to `maybe_summarize`.

    Args:
        builder: the graph; its state needs the keys of `ContextState`.
        nodes: the nodes of one agent.
        model_node: name of the model node.
        model: what the model node calls, tools bound.
        after: where `maybe_summarize` goes when the turn is finished.
        retry_policy: for the model node; use `nodes.retry_on` in it, or oversized requests are sent again.

    Example:
        ```python
        builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
        add_context_nodes(builder, nodes, model=model.bind_tools(tools))
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "budget_check")
        builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "maybe_summarize"})
        builder.add_edge("tools", "budget_check")
        ```
    """
    builder.add_node("budget_check", nodes.budget_check)
    builder.add_node("maybe_summarize", nodes.maybe_summarize)
    builder.add_node("force_compress", nodes.force_compress)
    builder.add_node("build_messages", nodes.build_messages)
    builder.add_node(model_node, nodes.model_node(model), retry_policy=retry_policy)
    builder.add_conditional_edges(
        "budget_check", nodes.route_on_budget, ["maybe_summarize", "force_compress", "build_messages"]
    )
    builder.add_conditional_edges(
        "maybe_summarize",
        _after_summary,
        {"finished": after, "force_compress": "force_compress", "build_messages": "build_messages"},
    )
    builder.add_edge("force_compress", "build_messages")
    builder.add_edge("build_messages", model_node)


def _after_summary(state: State) -> str:
    if not request_waits(state):
        return "finished"
    return "force_compress" if state["context_report"]["over_by"] > 0 else "build_messages"
