"""Is what was archived in a real store found again, by another process's connection, too?"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import SqliteStore

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.archive import NAMESPACE, adelete_archive, afull_history, delete_archive, full_history
from support.agents import LONG, THREAD, agent_on, ask, model_of, on_both, values

pytestmark = pytest.mark.integration
NAME = THREAD["configurable"]["thread_id"]
ODD = "\x00 \U0001f600 "  # what some databases refuse as text
QUESTIONS = [f"question {number} {ODD if number else ''}{LONG}" for number in range(12)]
ARCHIVED = {"config": ContextConfig(history="archive", output_reserve=0)}
EXPIRING = {"default_ttl": 0.0001, "refresh_on_read": True}


@pytest.fixture(params=["sqlite", "postgres", "memory with an index"])
def opened(request, tmp_path):
    """Return a function that opens the store anew."""
    if request.param == "sqlite":
        return lambda: SqliteStore.from_conn_string(str(tmp_path / "store.db"))
    if request.param == "postgres":
        dsn = request.getfixturevalue("postgres_dsn")
        return lambda: PostgresStore.from_conn_string(dsn, ttl=EXPIRING)
    store = InMemoryStore(index={"dims": 2, "embed": refuses, "fields": ["$"]})
    return lambda: nullcontext(store)


def refuses(texts):
    raise AssertionError("messages are embedded")


def asked(messages):
    return [message.text for message in messages if isinstance(message, HumanMessage)]


@on_both
def test_real_stores_hold_what_left_for_as_long_as_the_thread(opened, adapter):
    saver = InMemorySaver()
    with opened() as store:
        if hasattr(store, "setup"):
            store.setup()
        agent = agent_on(adapter, model_of(1500), store=store, checkpointer=saver, **ARCHIVED)
        for question in QUESTIONS:
            ask(agent, question)
        assert len(values(agent)["messages"]) < len(QUESTIONS)
    with opened() as store:
        if hasattr(store, "sweep_ttl"):
            store.sweep_ttl()
        assert asked(full_history(values(agent), store)) == QUESTIONS
        delete_archive(store, NAME)
        assert not store.search(NAMESPACE)


@on_both
async def test_an_async_store_is_written_and_read_on_its_own_loop(postgres_dsn, adapter):
    async with AsyncPostgresStore.from_conn_string(postgres_dsn) as store:
        await store.setup()
        agent = agent_on(adapter, model_of(1500), store=store, **ARCHIVED)
        for question in QUESTIONS:
            await agent.ainvoke({"messages": [HumanMessage(question)]}, THREAD)
        assert len(values(agent)["messages"]) < len(QUESTIONS)
        assert asked(await afull_history(values(agent), store)) == QUESTIONS
        await adelete_archive(store, NAME)
        assert not await store.asearch(NAMESPACE)
