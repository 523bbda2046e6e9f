"""Do agents with talkative tools keep every request within the window, and read results to their end?"""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langchain_ctxwin import (
    ContextConfig,
    ModelLimits,
    ToolResultConfig,
    ToolResultGuard,
)
from langchain_ctxwin.tool_results.guard import MIN_TOKENS
from support.agents import agent_on, model_of
from support.fakes import script
from support.oracle import text_tokens
from support.tool_runs import both, call, facts, last_cursor, next_cursor

WINDOW = 8_000
ROWS = 400
agents = pytest.mark.parametrize("kind", ["nodes", "wrapped tools", "middleware"])


@tool
def query(table: str = "t") -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return [facts(index) for index in range(ROWS)]


@tool
def logs(name: str = "x") -> str:
    """Return the log of a service."""
    return "\n".join(
        f"2026-01-01 {name} line {index}: all is well, {index * 7919}"
        for index in range(1_500)
    )


def agent_of(kind, model, guard, tools):
    """Return an agent of one kind whose window is small."""
    options = {"limits": ModelLimits(max_input_tokens=WINDOW)}
    options["config"] = ContextConfig(summarize="inline")
    if kind == "wrapped tools":
        return agent_on("nodes", model, guard.wrap(tools), **options)
    return agent_on(kind, model, tools, guard=guard, **options)


def ask(agent, *, is_async, thread="1", text="What is there?"):
    config = {"configurable": {"thread_id": thread}, "recursion_limit": 400}
    given = {"messages": [HumanMessage(text)]}
    state = (
        asyncio.run(agent.ainvoke(given, config))
        if is_async
        else agent.invoke(given, config)
    )
    return state["messages"]


def results_of(messages):
    return [message for message in messages if isinstance(message, ToolMessage)]


def reader(first, parallel=1):
    """Return a policy that calls a tool, reads its result to the end, and answers."""

    def decide(messages, tools):
        last = messages[-1]
        if isinstance(last, HumanMessage):
            return AIMessage(
                "", tool_calls=[call(first, f"c{number}") for number in range(parallel)]
            )
        cursor = next_cursor(last.text) if isinstance(last, ToolMessage) else None
        if cursor is None:
            return AIMessage("done")
        return AIMessage(
            "", tool_calls=[call("read_more", f"c-{cursor}", cursor=cursor)]
        )

    return decide


@agents
@pytest.mark.parametrize(
    ("is_async", "one"), [(False, query), (True, logs)], ids=["sync-rows", "async-text"]
)
def test_every_request_fits_and_the_agent_reads_to_the_end(kind, is_async, one):
    model = model_of(WINDOW, policy=reader(one.name))
    guard = ToolResultGuard(ToolResultConfig(max_tokens=6_000, projection=False))
    messages = ask(agent_of(kind, model, guard, [one]), is_async=is_async)
    assert [request.refused for request in model.requests] == [False] * len(
        model.requests
    )
    assert messages[-1].text == "done"
    read = "\n".join(message.text for message in results_of(messages))
    if one is query:
        assert [index for index in range(ROWS) if str(index * 7919) not in read] == []
    else:
        assert "line 1499" in read


@agents
@both
def test_parallel_calls_share_the_room(kind, is_async):
    def once(count):
        calls = AIMessage(
            "", tool_calls=[call("logs", f"c{number}") for number in range(count)]
        )
        model = model_of(WINDOW, policy=script(calls, "done"))
        guard = ToolResultGuard(ToolResultConfig(max_tokens=6_000, max_share=0.5))
        messages = ask(agent_of(kind, model, guard, [logs]), is_async=is_async)
        assert not any(request.refused for request in model.requests)
        return [text_tokens(message.text) for message in results_of(messages)]

    (alone,), shared = once(1), once(4)
    assert WINDOW / 8 < alone < WINDOW / 2
    assert max(shared) <= alone / 2
    assert sum(shared) <= WINDOW / 2


@pytest.mark.parametrize("kind", ["nodes", "wrapped tools"])
def test_a_nearly_full_window_still_gets_a_page(kind):
    model = model_of(
        WINDOW, policy=script(AIMessage("", tool_calls=[call("logs")]), "done")
    )
    guard = ToolResultGuard(ToolResultConfig(max_tokens=6_000))
    long = "The quick brown fox jumps over the lazy dog. " * 680
    messages = ask(agent_of(kind, model, guard, [logs]), is_async=False, text=long)
    (message,) = results_of(messages)
    assert text_tokens(message.text) <= MIN_TOKENS
    assert last_cursor(message.text) is not None
    assert not any(request.refused for request in model.requests)
