"""Is each request measured once per node, and is what is too large asked for less output until it fits?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langchain_ctxwin import (
    ContextEngine,
    RoutedChatModel,
    ToolSelector,
)
from langchain_ctxwin.core import plan as planning
from support.agents import THREAD, agent_on, on_both
from support.routing import router, scripted


@tool
def look(item: int) -> str:
    """Look at an item."""
    return f"item {item}"


def calls_once(messages, _=None):
    """Call the tool after a question, answer after its result."""
    if isinstance(messages[-1], ToolMessage):
        return AIMessage("It is there.")
    return AIMessage(
        "",
        tool_calls=[{"name": "look", "args": {"item": 1}, "id": f"c{len(messages)}"}],
    )


@pytest.mark.parametrize("kind", ["nodes", "middleware", "router and selector"])
def test_a_model_call_takes_two_measures_where_nothing_compacts(kind, monkeypatch):
    """One before the call, which every node up to the answer goes by; one after the answer that ends the turn."""
    small, large = (
        scripted("small", 8_000, policy=calls_once),
        scripted("large", 16_000, policy=calls_once),
    )
    if kind == "router and selector":
        chosen = ToolSelector([look], max_tool_tokens=500)
        agent = agent_on(
            "nodes", RoutedChatModel(router(small, large)), tool_selector=chosen
        )
    else:
        agent = agent_on(kind, small, [look])
    agent.invoke({"messages": [HumanMessage("hello")]}, THREAD)
    measured, measure = [], ContextEngine.measure
    monkeypatch.setattr(
        ContextEngine,
        "measure",
        lambda *args, **given: measured.append(1) or measure(*args, **given),
    )
    agent.invoke({"messages": [HumanMessage("hello again")]}, THREAD)
    assert len(measured) == 2 + 1  # two model calls, one end of a turn


@on_both
def test_a_compaction_is_planned_once(adapter, monkeypatch):
    """The check plans what leaves before the limit is reached, and the step after it carries that plan out."""
    planned, plan = [], planning.smaller
    monkeypatch.setattr(
        planning, "smaller", lambda *args: planned.append(1) or plan(*args)
    )
    agent = agent_on(
        adapter, scripted("small", 2_000, policy=lambda *_: AIMessage("Yes."))
    )
    history = [
        one
        for number in range(20)
        for one in (HumanMessage(f"{number}? " + "why " * 60), AIMessage("Yes."))
    ]
    state = agent.invoke({"messages": [*history, HumanMessage("hello")]}, THREAD)
    assert state["messages"][-1].text == "Yes."
    assert len(planned) == 1
