"""Milliseconds the nodes add to one step as the history grows, beside langchain's SummarizationMiddleware."""

from __future__ import annotations

import argparse
import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import structlog
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from langchain_ctxwin import ContextEngine, ContextNodes, ContextOutput, ContextState, ModelLimits, add_context_nodes
from langchain_ctxwin.graph.state import ContextInput
from transcripts import Transcript, generate, load

WINDOW = 32_768
REPEATS = 40
WARM_UP = 5  # steps that compact or fill the memo
SIZES = (100, 1_000, 10_000)
GOAL_MILLISECONDS = 1.0


def history(transcripts: list[Transcript], size: int) -> list[AnyMessage]:
    """The conversations one after the other, to `size` messages; ends on a tool result or a question."""
    messages: list[AnyMessage] = []
    while len(messages) < size:
        for transcript in transcripts:
            messages.extend(m.model_copy() for m in transcript.messages if m.type != "system")
    del messages[size:]
    while isinstance(messages[-1], AIMessage):
        messages.pop()
    for index, message in enumerate(messages):
        message.id = f"m{index}"
    return messages


def growing_steps(messages: list[AnyMessage], advance: Callable[[dict[str, Any], AIMessage], dict[str, Any]]) -> float:
    """Median milliseconds of one step: the history grows by a call and its result, as in an agent's loop."""
    state: dict[str, Any] = {"messages": messages}
    taken = []
    for number in range(REPEATS):
        call = {"name": "tool_1", "args": {"id": number}, "id": f"c{number}"}
        usage = {"input_tokens": WINDOW // 2 + 30 * number, "output_tokens": 9, "total_tokens": WINDOW // 2}
        reply = AIMessage("", id=f"a{number}", tool_calls=[call], usage_metadata=usage)
        began = time.perf_counter()
        state = advance(state, reply)
        taken.append(time.perf_counter() - began)
        result = ToolMessage(f"row {number}", tool_call_id=f"c{number}", id=f"t{number}")
        state = {**state, "messages": [*state["messages"], reply, result]}
    return median(taken[WARM_UP:]) * 1_000


def ours(messages: list[AnyMessage], tools: list[dict[str, Any]]) -> float:
    engine = ContextEngine(ModelLimits(context_window=WINDOW, requested_output_tokens=WINDOW // 4))
    nodes = ContextNodes(engine, tools=tools)
    answers: list[AIMessage] = []
    model = nodes.model_node(lambda _: answers[-1])

    def advance(state: dict[str, Any], reply: AIMessage) -> dict[str, Any]:
        answers.append(reply)
        state = {**state, **nodes.budget_check.invoke(state)}
        while (node := nodes.route_on_budget(state)) != "build_messages":
            state = {**state, **getattr(nodes, node).invoke(state), "context_pending": {}}
        state = {**state, **nodes.build_messages.invoke(state)}
        update = model.invoke(state)
        return {**state, "context_counts": update["context_counts"]}

    return growing_steps(messages, advance)


def peer(messages: list[AnyMessage]) -> float:
    """The same steps through the peer's check; its threshold is out of reach, so that only the check is timed."""
    from support_model import QuietModel

    middleware = SummarizationMiddleware(model=QuietModel(), trigger=("tokens", 10**9), keep=("messages", 20))

    def advance(state: dict[str, Any], _: AIMessage) -> dict[str, Any]:
        middleware.before_model(state, None)  # type: ignore[arg-type]
        return state

    return growing_steps(messages, advance)


def supersteps(messages: list[AnyMessage], *, with_nodes: bool) -> float:
    """Milliseconds of one whole graph step with an in-memory checkpointer: LangGraph's own share is the rest."""
    engine = ContextEngine(ModelLimits(context_window=WINDOW, requested_output_tokens=WINDOW // 4))
    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    if with_nodes:
        nodes = ContextNodes(engine)
        add_context_nodes(builder, nodes, model=lambda _: AIMessage("ok"))
        builder.add_edge(START, "budget_check")
        builder.add_edge("agent", END)
    else:
        builder.add_node("agent", lambda _: {"messages": [AIMessage("ok")]})
        for name in ("a", "b"):
            builder.add_node(name, lambda _: {"context_report": {"n": time.perf_counter()}})
        builder.add_edge(START, "a")
        builder.add_edge("a", "b")
        builder.add_edge("b", "agent")
        builder.add_edge("agent", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    graph.update_state(config, {"messages": messages})
    graph.invoke({"messages": [HumanMessage("go")]}, config)
    taken = []
    for _ in range(REPEATS // 3):
        began = time.perf_counter()
        graph.invoke({"messages": [HumanMessage("go")]}, config)
        taken.append(time.perf_counter() - began)
    return median(taken) * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with transcripts/*.jsonl.gz; generated ones without it")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    transcripts = list(load(options.data, limit=5)) if options.data else [generate(seed) for seed in range(4)]
    tools = next(t.tools for t in transcripts if t.tools)
    gc.collect()
    print(
        f"{'messages':>10}{'ours ms':>10}{'langchain ms':>14}{'ratio':>8}{'  graph step ms':>16}{'  without us ms':>16}"
    )
    for size in SIZES:
        messages = history(transcripts, size)
        mine, theirs = ours(messages, tools), peer(messages)
        whole, bare = supersteps(messages, with_nodes=True), supersteps(messages, with_nodes=False)
        print(f"{size:>10,}{mine:>10.2f}{theirs:>14.2f}{theirs / mine:>8.1f}{whole:>16.2f}{bare:>16.2f}")
    print(
        f"ours: budget_check, route, build_messages and the model node; goal {GOAL_MILLISECONDS} ms at 10,000 messages"
    )


if __name__ == "__main__":
    main()
