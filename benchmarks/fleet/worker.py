"""One worker of the drill: the graph that all of them serve, and the loop that takes turns from the driver."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatResult
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.postgres import PostgresStore

from fleet import script
from langchain_ctxwin import (
    ContextEngine,
    ContextNodes,
    ContextState,
    ModelLimits,
    TokenEstimator,
    ToolResultConfig,
    ToolResultGuard,
    add_context_nodes,
    pin,
)
from langchain_ctxwin.counting import VocabularyCounter
from langchain_ctxwin.testing import ScriptedChatModel
from langchain_ctxwin.tool_results.stores import RedisResultStore

LIMITS = ModelLimits(context_window=4_000, max_output_tokens=500)
SUMMARY_SECONDS = 1.0
PAGE_TOKENS = 900
CURSOR_SECONDS = 2 * 3600.0  # longer than anybody thinks between two turns
COUNT = VocabularyCounter("o200k_base")
"""The provider's own count; the agent has an estimator."""

PROMPT = (
    "You tell people what the depots have in stock, and read on where a list goes on."
)


def work(
    turns: Connection,
    *,
    worker: str,
    dsn: str,
    valkey: str,
    diary: Path,
    model_seconds: float,
) -> None:
    """Take turns until there are none, and tell of each why it failed; "" when it did not."""
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(kind: str, **fields: Any) -> None:
        line = {"kind": kind, "worker": worker, "pid": os.getpid(), **fields}
        # one call, so that no two lines mix, also when the worker is killed a moment later
        os.write(file, f"{json.dumps(line)}\n".encode())

    with (
        PostgresSaver.from_conn_string(dsn) as saver,
        PostgresStore.from_conn_string(dsn) as store,
    ):
        graph = built(note, valkey, model_seconds).compile(saver, store=store)
        while asked := turns.recv():
            thread, number = asked
            message = HumanMessage(
                script.question(thread, number), id=script.message_id(*asked)
            )
            if message.text.startswith(script.PIN_WORD):
                message = pin(message)
            place = {"configurable": {"thread_id": thread}}
            try:
                graph.invoke({"messages": [message]}, place)
            except Exception as error:  # noqa: BLE001  # whatever ends a turn is counted
                turns.send(f"{type(error).__name__}: {error}")
            else:
                turns.send("")


def built(note: Any, valkey: str, model_seconds: float) -> StateGraph[Any]:
    """Our nodes, a tool with large results, and cursors that all workers share."""
    guard = ToolResultGuard(
        ToolResultConfig(
            max_tokens=PAGE_TOKENS,
            ttl_seconds=CURSOR_SECONDS,
            cursor_keys=("shared by all workers",),
        ),
        store=RedisResultStore.from_url(valkey),
    )
    engine = ContextEngine(
        LIMITS,
        counter=TokenEstimator("openai"),
        summarizer=summarizer(note),
    )
    tools = [list_stock, *guard.tools]
    model = FleetModel(
        window=LIMITS.context_window,
        max_tokens=LIMITS.max_output_tokens,
        counter=COUNT,
        script=script.decide,
        note=note,
        seconds=model_seconds,
    )
    nodes = ContextNodes(engine, system_prompt=PROMPT, tools=tools)
    builder = StateGraph(ContextState)
    add_context_nodes(builder, nodes, model=model.bind_tools(tools))
    builder.add_node("tools", ToolNode(tools, wrap_tool_call=noted(guard, note)))
    builder.add_conditional_edges(
        START, where_it_stopped, ["tools", "budget_check", END]
    )
    builder.add_conditional_edges(
        "agent", tools_condition, {"tools": "tools", END: "maybe_summarize"}
    )
    builder.add_edge("tools", "budget_check")
    return builder


@tool
def list_stock(depot: str) -> list[dict[str, object]]:
    """List the stock of a depot."""
    return script.rows_of(depot)


def where_it_stopped(state: dict[str, Any]) -> str:
    """Where a turn goes on that a dead worker began: it is begun anew, with the same question by its id."""
    if not isinstance(state["messages"][-1], AIMessage):
        return "budget_check"
    return tools_condition(state)


class FleetModel(ScriptedChatModel):
    """Calls tools as the script of the thread says, and notes every request in the diary."""

    note: Any
    seconds: float
    """How long it takes to answer."""

    def _generate(
        self, messages: list[BaseMessage], *_: Any, **kwargs: Any
    ) -> ChatResult:
        thread = ensure_config().get("configurable", {}).get("thread_id", "")
        self.note(
            "request",
            thread=thread,
            tokens=COUNT(messages, tools=kwargs.get("tools") or []),
            limit=(self.window or 0) - (self.max_tokens or 0),
            **script.seen_in(messages, thread),
        )
        time.sleep(self.seconds)
        try:
            return super()._generate(messages, **kwargs)
        finally:
            self.requests.clear()  # the diary has them


def summarizer(note: Any) -> Any:
    """A short summary after a while; the diary knows which ones were finished."""

    async def summarized(messages: Sequence[AnyMessage]) -> str:
        text = "\n".join(message.text for message in messages)
        turns, rows = script.ABOUT.findall(text), script.ROW.findall(text)
        thread = turns[-1][1] if turns else rows[-1][0] if rows else ""
        await asyncio.sleep(SUMMARY_SECONDS)
        note("summary", thread=thread, snapshot=script.code(text, "snapshot"))
        last = max((int(turn) for turn, _ in turns), default=0)
        return f"Until turn {last} the user asked for the stock of depots, and was told how far each list was read."

    return summarized


def noted(guard: ToolResultGuard, note: Any) -> Any:
    """Run tools behind the guard, and note which result was read where, and what was wrong with the page."""

    def wrapped(request: Any, handler: Any) -> Any:
        result = guard.wrap_tool_call(request, handler)
        if isinstance(result, ToolMessage):
            thread = request.runtime.config["configurable"]["thread_id"]
            fault = script.page_fault(result.text, thread)
            if result.status == "error":
                fault = result.text
            cursors = script.CURSOR.findall(result.text)
            cursor = request.tool_call["args"].get("cursor") or "".join(cursors[:1])
            of = {"thread": thread, "result": cursor.partition(".")[0]}
            note("page", **of, fault=fault[:300])
        return result

    return wrapped
