"""The graph that the fleet serves: our nodes, a tool with large results, and cursors that all workers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from fleet import script
from fleet.model import COUNT, Diary, FleetModel, Summarizer, decide
from langchain_ctxwin import (
    ContextEngine,
    ContextNodes,
    ContextState,
    ModelLimits,
    TokenEstimator,
    ToolResultConfig,
    ToolResultGuard,
    add_context_nodes,
)
from langchain_ctxwin.summarize import ModelSummarizer
from langchain_ctxwin.tool_results.stores import RedisResultStore

LIMITS = ModelLimits(context_window=4_000, max_output_tokens=500)
SUMMARIZER_TOKENS = 100_000  # one call for each summary
PAGE_TOKENS = 900
CURSOR_SECONDS = 2 * 3600.0  # longer than anybody thinks between two turns
PROMPT = (
    "You tell people what the depots have in stock, and read on where a list goes on."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker runs."""

    worker: str
    valkey: str
    diary: Path
    model_seconds: float = 0.1


@tool
def list_stock(depot: str) -> list[dict[str, object]]:
    """List the stock of a depot."""
    return script.rows_of(depot)


def build(place: Place) -> StateGraph[Any, Any, Any, Any]:
    """The graph, for whoever brings a checkpointer and a store."""
    diary = Diary(place.diary, place.worker)
    guard = ToolResultGuard(
        ToolResultConfig(
            max_tokens=PAGE_TOKENS,
            ttl_seconds=CURSOR_SECONDS,
            cursor_keys=("shared by all workers",),
        ),
        store=RedisResultStore.from_url(place.valkey),
    )
    engine = ContextEngine(
        LIMITS,
        counter=TokenEstimator("openai"),
        summarizer=ModelSummarizer(
            Summarizer(diary), max_input_tokens=SUMMARIZER_TOKENS
        ),
    )
    tools = [list_stock, *guard.tools]
    model = FleetModel(
        window=LIMITS.context_window,
        max_tokens=LIMITS.max_output_tokens,
        counter=COUNT,
        script=decide,
        diary=diary,
        seconds=place.model_seconds,
    )
    nodes = ContextNodes(engine, system_prompt=PROMPT, tools=tools)
    builder = StateGraph(ContextState)
    add_context_nodes(builder, nodes, model=model.bind_tools(tools))
    builder.add_node("tools", ToolNode(tools, awrap_tool_call=_noted(guard, diary)))
    builder.add_conditional_edges(
        START, where_it_stopped, ["tools", "budget_check", END]
    )
    builder.add_conditional_edges(
        "agent", tools_condition, {"tools": "tools", END: "maybe_summarize"}
    )
    builder.add_edge("tools", "budget_check")
    return builder


def where_it_stopped(state: Mapping[str, Any]) -> str:
    """Where a run goes on that a dead worker began: the server starts it anew, with the same question by its id."""
    last = state["messages"][-1]
    if not isinstance(last, AIMessage):
        return "budget_check"
    return "tools" if last.tool_calls else END


def _noted(guard: ToolResultGuard, diary: Diary) -> Any:
    """Run tools behind the guard, and note which result was read where, and what was wrong with the page."""

    async def wrapped(request: Any, handler: Any) -> Any:
        result = await guard.awrap_tool_call(request, handler)
        if isinstance(result, ToolMessage):
            thread = request.runtime.config["configurable"]["thread_id"]
            fault = script.page_fault(result.text, thread)
            if result.status == "error":
                fault = result.text
            cursors = script.CURSOR.findall(result.text)
            cursor = request.tool_call["args"].get("cursor") or "".join(cursors[:1])
            of = {"thread": thread, "result": cursor.partition(".")[0]}
            diary.note("page", **of, fault=fault[:300])
        return result

    return wrapped
