"""Does a session come back from its checkpoints exactly as it was left, and what do agents in one graph share?"""

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
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from langchain_ctxwin import (
    ContextInput,
    ContextOutput,
    ContextState,
)
from support.checkpoints import strict_serializer

pytestmark = pytest.mark.integration
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


def answering(write=None, *, state=ContextState, checkpointer=None):
    """Return a graph whose one node writes `write`, by default a fresh numbered answer."""

    def answer(values):
        runs = values.get("context_guard", {}).get("compactions", 0) + 1
        fresh = AIMessage(f"answer {len(values['messages'])}")
        return {
            "messages": [fresh] if write is None else write,
            "context_guard": {"compactions": runs},
        }

    builder = StateGraph(state, input_schema=ContextInput, output_schema=ContextOutput)
    builder.add_node("agent", answer).add_edge(START, "agent").add_edge("agent", END)
    return builder.compile(checkpointer=checkpointer)


def stored(graph, config=CONFIG):
    return graph.get_state(config).values["messages"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("form", FORMS)
def test_every_input_form_has_the_same_ids_at_every_read(connect, form, durability):
    seed = answering(checkpointer=connect())
    seed.invoke(
        {"messages": [HumanMessage("first", id="first")]}, CONFIG, durability=durability
    )
    graph = answering(FORMS[form](), checkpointer=connect())
    told = graph.invoke({"messages": FORMS[form]()}, CONFIG, durability=durability)[
        "messages"
    ]
    assert (
        told
        == stored(graph)
        == stored(graph)
        == stored(answering(checkpointer=connect()))
    )
    assert all(message.id for message in told)
    assert len({message.id for message in told}) == len(told)


def test_the_output_shows_messages_only(connect):
    """The session's own keys stay inside, and stay stored."""
    graph = answering(checkpointer=connect())
    assert list(graph.invoke({"messages": ["hi"]}, CONFIG)) == ["messages"]
    assert graph.get_state(CONFIG).values["context_guard"] == {"compactions": 1}
    assert set(graph.get_output_jsonschema()["properties"]) == {"messages"}


def team(*agents, state=ContextState):
    """Return a parent that runs the agents in one step and collects their last messages."""
    builder = StateGraph(state)
    for number, child in enumerate(agents):
        name = f"agent{number}"
        builder.add_node(name, child).add_edge(START, name).add_edge(name, END)
    return builder.compile(checkpointer=InMemorySaver(serde=strict_serializer()))


@pytest.mark.parametrize(("own", "left"), [(True, "answer 3"), (None, "answer 1")])
def test_a_subgraph_agent_remembers_only_with_a_checkpointer_of_its_own(own, left):
    """Compiled with `checkpointer=True` it goes on where it stopped, without it starts again at every call."""
    child = answering(checkpointer=own)
    graph = team(
        lambda s: {"messages": child.invoke({"messages": ["task"]})["messages"]},
        state=Bare,
    )
    graph.invoke({"messages": []}, CONFIG)
    assert graph.invoke({"messages": []}, CONFIG)["messages"][-1].content == left


def test_parallel_writers_of_one_session_are_refused_and_separate_sessions_are_not():
    writer = lambda s: {"context_guard": {"compactions": 1}}  # noqa: E731  # two nodes need two plain callables
    with pytest.raises(InvalidUpdateError):
        team(writer, writer).invoke({"messages": ["hi"]}, CONFIG)
    result = team(answering([AIMessage("a")]), answering([AIMessage("b")])).invoke(
        {"messages": ["hi"]}, CONFIG
    )
    assert sorted(m.content for m in result["messages"]) == ["a", "b", "hi"]


class Bare(TypedDict):
    messages: Annotated[list, operator.add]
