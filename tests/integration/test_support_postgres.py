"""Is the database of each test empty, and is a class of one's own in the state noticed?"""

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from support.checkpoints import foreign_types

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

CONFIG = {"configurable": {"thread_id": "t"}}


class State(MessagesState):
    """Messages and one value of any type."""

    extra: Any


@dataclass
class Own:
    """A class that strict msgpack does not know."""

    size: int


def conversation(checkpointer, extra=None):
    """Compile a graph that answers each message with its position."""
    builder = StateGraph(State)
    builder.add_node(
        "answer",
        lambda state: {
            "messages": [AIMessage(f"answer {len(state['messages'])}")],
            "extra": extra,
        },
    )
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=checkpointer)


def say(graph):
    """Send a message and return the texts of the whole history."""
    return [
        message.text
        for message in graph.invoke({"messages": [HumanMessage("hi")]}, CONFIG)[
            "messages"
        ]
    ]


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_gets_an_empty_database(postgres_dsn, attempt):
    """No table is left over from another test."""
    with psycopg.connect(postgres_dsn) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()
        connection.execute("CREATE TABLE leftover (n int)")
    assert tables == (0,)


def test_strict_msgpack_gives_own_classes_back_as_plain_data(open_sqlite):
    """An own class in state is reported, and does not survive the strict serializer."""
    say(conversation(open_sqlite(strict=True), extra=Own(size=3)))
    with foreign_types() as found:
        state = conversation(open_sqlite(strict=True)).get_state(CONFIG)
    assert state.values["extra"] == {"size": 3}
    assert set(found) == {f"{Own.__module__}.Own"}
