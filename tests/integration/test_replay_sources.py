"""Are conversations read from where agents leave them, and is nothing written there?"""

import json
import os
import pickle
import sqlite3
from contextlib import closing
from typing import Any, TypedDict

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from langchain_ctxwin import ContextState, PlainContextState, create_context_agent
from langchain_ctxwin.replay import read_conversations
from support.agents import LONG, call, model_of
from support.fakes import script

TURNS = 8


@tool
def look(host: str) -> str:
    """Look something up."""
    return f"{host} is at 10.0.0.7"


def talk(saver, *threads, state=ContextState, turns=TURNS):
    """Let an agent talk on some threads; return their messages, as the whole history has them."""
    found = {}
    for thread in threads:
        answers = script(
            call("look", f"{thread}-call", host=thread),
            *[f"answer {n}" for n in range(turns)],
        )
        agent = create_context_agent(
            model_of(1500, policy=answers),
            [look],
            checkpointer=saver,
            recall=False,
            state_schema=state,
        )
        config = {"configurable": {"thread_id": thread}}
        for number in range(turns):
            agent.invoke(
                {"messages": [HumanMessage(f"{thread} question {number} {LONG}")]},
                config,
            )
        found[thread] = agent.get_state(config).values["messages"]
    return found


def told(messages):
    return [
        (message.type, message.text, getattr(message, "tool_calls", None))
        for message in messages
    ]


def read(*paths):
    faults = []
    return {
        one.name: told(one.messages)
        for one in read_conversations(paths, tell=faults.append)
    }, faults


@pytest.fixture
def database(tmp_path):
    return tmp_path / "any.name"


@pytest.mark.parametrize("state", [ContextState, PlainContextState])
def test_threads_of_a_sqlite_checkpointer_are_read(database, state):
    with SqliteSaver.from_conn_string(str(database)) as saver:
        said = talk(saver, "b", "a", state=state)
        while_open, _ = read(database)
    before = database.read_bytes()
    found, faults = read(database)
    assert (
        found == while_open == {name: told(messages) for name, messages in said.items()}
    )
    assert list(found) == ["b", "a"]
    assert (faults, database.read_bytes()) == ([], before)


@pytest.mark.parametrize("kind", ["msgpack", "json", "pickle"])
def test_a_file_that_names_code_runs_none_and_costs_its_own_thread_alone(
    database, tmp_path, kind
):
    """Whatever a file is called, everything in it may have been written by anybody."""
    with SqliteSaver.from_conn_string(str(database)) as saver:
        said = talk(saver, "good", "bad", turns=2)
    marker = tmp_path / "marker"
    code = ormsgpack.Ext(0, ormsgpack.packb(("os", "mkdir", str(marker))))
    state = {"v": 4, "id": "x", "channel_values": {"messages": [code]}}
    call = {"type": "constructor", "id": ["os", "mkdir"], "args": [str(marker)]}
    packed = {
        "msgpack": ormsgpack.packb({**state, "channel_versions": {}}),
        "json": json.dumps({"lc": 2, **call}).encode(),
        "pickle": pickle.dumps(Planted(str(marker))),
    }[kind]
    with closing(sqlite3.connect(database)) as connection, connection:
        for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
            connection.execute(
                f"UPDATE {table} SET type = ?, {column} = ? WHERE thread_id = 'bad'",  # noqa: S608
                (kind, packed),
            )
    found, faults = read(database)
    assert found == {"good": told(said["good"])}
    assert not marker.exists()
    assert len(faults) == 1
    assert "any.name: thread bad: left out the conversation" in faults[0]


class Planted:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def keep(database, messages):
    """Store messages as a graph without a reducer does."""
    plain = (
        StateGraph(TypedDict("Plain", {"messages": Any}))
        .add_node("a", lambda _: {})
        .add_edge(START, "a")
    )
    with SqliteSaver.from_conn_string(str(database)) as saver:
        plain.compile(checkpointer=saver).invoke(
            {"messages": messages}, {"configurable": {"thread_id": "t"}}
        )


@pytest.mark.parametrize("messages", ["a text", {"a": 1}, []])
def test_a_thread_of_another_program_is_told(database, messages):
    keep(database, messages)
    found, (fault,) = read(database)
    assert found == {}
    told = f"{database}: thread t: left out the conversation: no "
    assert fault.startswith(told)
