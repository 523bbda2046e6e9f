"""Does a history come back from its checkpoints exactly as it was left?"""

from functools import partial

import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
)
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from langchain_ctxwin import (
    ContextState,
)

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
