"""What do agents that work inside one graph share, and what does each remember?"""

import operator
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from langchain_ctxwin.graph.state import ContextInput, ContextOutput, ContextState

pytestmark = pytest.mark.integration

CONFIG = {"configurable": {"thread_id": "t"}}


class Parent(TypedDict):
    messages: Annotated[list, operator.add]


@pytest.fixture
def saver():
    return InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))


def agent(note, *, checkpointer=None):
    """Return a subgraph that remembers in `context_guard` how often it ran."""

    def run(state):
        runs = state.get("context_guard", {}).get("compactions", 0) + 1
        return {"messages": [AIMessage(f"{note} {runs}")], "context_guard": {"compactions": runs}}

    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    builder.add_node("run", run).add_edge(START, "run").add_edge("run", END)
    return builder.compile(checkpointer=checkpointer)


def team(*agents, saver, state=ContextState):
    """Return a parent that runs the agents in one step and collects their last messages."""
    builder = StateGraph(state)
    for number, child in enumerate(agents):
        name = f"agent{number}"
        builder.add_node(name, child).add_edge(START, name).add_edge(name, END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize(("own", "runs"), [(True, 2), (None, 1)])
def test_a_subgraph_agent_remembers_only_with_a_checkpointer_of_its_own(saver, own, runs):
    """Compiled with `checkpointer=True` it goes on where it stopped, without it starts again at every call."""
    child = agent("child", checkpointer=own)
    graph = team(lambda s: {"messages": child.invoke({"messages": ["task"]})["messages"]}, saver=saver, state=Parent)
    graph.invoke({"messages": []}, CONFIG)
    assert graph.invoke({"messages": []}, CONFIG)["messages"][-1].content == f"child {runs}"


def test_parallel_writers_of_one_session_are_refused_and_separate_sessions_are_not(saver):
    """Two nodes that write the same session keys in one step raise; two subgraph agents work side by side."""
    writer = lambda s: {"context_guard": {"compactions": 1}}  # noqa: E731  # two nodes need two plain callables
    with pytest.raises(InvalidUpdateError):
        team(writer, writer, saver=saver).invoke({"messages": ["hi"]}, CONFIG)
    result = team(agent("a"), agent("b"), saver=saver).invoke(
        {"messages": ["hi"]}, {"configurable": {"thread_id": "u"}}
    )
    assert sorted(m.content for m in result["messages"]) == ["a 1", "b 1", "hi"]
