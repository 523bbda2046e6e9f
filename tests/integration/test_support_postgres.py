"""Checkpointers keep state in a real Postgres, and in SQLite across connections and strict msgpack."""

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph

from support.checkpoints import async_sqlite_saver, foreign_types

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


def test_postgres_keeps_a_thread_across_connections(postgres_dsn):
    """A second connection continues the conversation of the first."""
    with PostgresSaver.from_conn_string(postgres_dsn) as saver:
        saver.setup()
        say(conversation(saver))
    with PostgresSaver.from_conn_string(postgres_dsn) as saver:
        assert say(conversation(saver)) == ["hi", "answer 1", "hi", "answer 3"]


async def test_postgres_works_async(postgres_dsn):
    """The async saver reads what it wrote."""
    async with AsyncPostgresSaver.from_conn_string(postgres_dsn) as saver:
        await saver.setup()
        graph = conversation(saver)
        await graph.ainvoke({"messages": [HumanMessage("hi")]}, CONFIG)
        state = await graph.aget_state(CONFIG)
    assert [message.text for message in state.values["messages"]] == ["hi", "answer 1"]


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_gets_an_empty_database(postgres_dsn, attempt):
    """No table is left over from another test."""
    with psycopg.connect(postgres_dsn) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()
        connection.execute("CREATE TABLE leftover (n int)")
    assert tables == (0,)


@pytest.mark.parametrize("strict", [False, True])
def test_sqlite_keeps_a_thread_across_connections(open_sqlite, plain_state, strict):
    """A fresh connection to the same file continues the conversation, with JSON values and messages only."""
    say(conversation(open_sqlite(strict=strict), extra={"start": ["id", 3]}))
    graph = conversation(open_sqlite(strict=strict))
    assert graph.get_state(CONFIG).values["extra"] == {"start": ["id", 3]}
    assert say(graph) == ["hi", "answer 1", "hi", "answer 3"]


async def test_async_sqlite_keeps_a_thread_across_connections(tmp_path):
    """The async saver opens the same file again."""
    for _ in range(2):
        async with async_sqlite_saver(tmp_path / "state.sqlite", strict=True) as saver:
            result = await conversation(saver).ainvoke(
                {"messages": [HumanMessage("hi")]}, CONFIG
            )
    assert len(result["messages"]) == 4


def test_strict_msgpack_gives_own_classes_back_as_plain_data(open_sqlite):
    """An own class in state is reported, and does not survive the strict serializer."""
    say(conversation(open_sqlite(strict=True), extra=Own(size=3)))
    with foreign_types() as found:
        state = conversation(open_sqlite(strict=True)).get_state(CONFIG)
    assert state.values["extra"] == {"size": 3}
    assert set(found) == {f"{Own.__module__}.Own"}
