"""Does a history come back from its checkpoints exactly as it was left, and what do agents in one graph share?"""

import operator
from functools import partial
from typing import Annotated

import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from langchain_ctxwin import ContextState
from support.checkpoints import strict_serializer

CONFIG = {"configurable": {"thread_id": "t"}}
FORMS = {
    "string": lambda: "hi",
    "tuple": lambda: ("user", "hi"),
    "dict": lambda: {"role": "user", "content": "hi"},
    "message": lambda: HumanMessage("hi"),
    "mixed": lambda: [
        "hi",
        ("ai", "hello"),
        {"role": "user", "content": "and?"},
        HumanMessage("bye"),
    ],
    "overwrite": lambda: Overwrite(["hi", ("ai", "hello")]),
    "removals": lambda: ["hi", RemoveMessage(id="unknown"), "bye"],
    "cleared": lambda: [
        RemoveMessage(id=REMOVE_ALL_MESSAGES),
        "hi",
        HumanMessage("kept", id="kept"),
    ],
}


@pytest.fixture
def connect(open_sqlite):
    """Return a function that opens the same database file anew, as another process would."""
    return partial(open_sqlite, strict=True)


def writing(write, checkpointer):
    """Return a graph whose one node writes this."""
    builder = StateGraph(ContextState)
    builder.add_node("agent", lambda _: {"messages": write}).add_edge(START, "agent")
    return builder.compile(checkpointer=checkpointer)


def stored(graph):
    return graph.get_state(CONFIG).values["messages"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("form", FORMS)
def test_every_input_form_has_the_same_ids_at_every_read(connect, form, durability):
    writing([AIMessage("fresh")], connect()).invoke(
        {"messages": [HumanMessage("first", id="first")]}, CONFIG, durability=durability
    )
    graph = writing(FORMS[form](), connect())
    told = graph.invoke({"messages": FORMS[form]()}, CONFIG, durability=durability)[
        "messages"
    ]
    assert told == stored(graph) == stored(graph) == stored(writing([], connect()))
    assert all(message.id for message in told)
    assert len({message.id for message in told}) == len(told)


class Bare(TypedDict):
    messages: Annotated[list, operator.add]


def team(*agents, state=ContextState):
    """Return a parent that runs the agents in one step."""
    builder = StateGraph(state)
    for number, agent in enumerate(agents):
        builder.add_node(str(number), agent).add_edge(START, str(number))
    return builder.compile(checkpointer=InMemorySaver(serde=strict_serializer()))


@pytest.mark.parametrize(("own", "left"), [(True, 4), (None, 2)])
def test_a_subgraph_agent_remembers_only_with_a_checkpointer_of_its_own(own, left):
    """Compiled with `checkpointer=True` it goes on where it stopped, without it starts again at every call."""
    agent = writing([("ai", "done")], own)
    graph = team(lambda _: agent.invoke({"messages": ["task"]}), state=Bare)
    first = graph.invoke({"messages": []}, CONFIG)["messages"]
    assert len(graph.invoke({"messages": []}, CONFIG)["messages"]) == len(first) + left


def test_parallel_writers_of_one_session_are_refused_and_separate_sessions_are_not():
    def writer(_):
        return {"context_guard": {"compactions": 1}}

    with pytest.raises(InvalidUpdateError):
        team(writer, writer).invoke({"messages": ["hi"]}, CONFIG)
    agents = (writing([AIMessage(text)], None) for text in "ab")
    messages = team(*agents).invoke({"messages": ["hi"]}, CONFIG)["messages"]
    assert sorted(message.content for message in messages) == ["a", "b", "hi"]
