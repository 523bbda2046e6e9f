"""Does a thread that is pruned hold all that it held, whatever its channels are rebuilt from?"""

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_ctxwin import (
    ConfigError,
    ContextState,
    ContextWindowError,
    PlainContextState,
    create_context_agent,
)
from langchain_ctxwin.agent.state import MESSAGES_CHANNEL
from langchain_ctxwin.pruning import prune_thread, spare_of
from support.agents import LONG, THREAD, agent_on, ask, model_of, on_both, values
from support.checkpoints import async_sqlite_saver

NAME = THREAD["configurable"]["thread_id"]


def checkpoints(agent, thread=NAME):
    return list(agent.checkpointer.list({"configurable": {"thread_id": thread}}))


def talked(saver, adapter="nodes", turns=8):
    agent = agent_on(adapter, model_of(1500), checkpointer=saver)
    for number in range(turns):
        ask(agent, f"question {number} {LONG}")
    return agent


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request, open_sqlite):
    """Every kind of checkpointer that keeps a thread."""
    if request.param == "postgres":
        with PostgresSaver.from_conn_string(
            request.getfixturevalue("postgres_dsn")
        ) as saver:
            saver.setup()
            yield saver
    else:
        yield InMemorySaver() if request.param == "memory" else open_sqlite(strict=True)


@on_both
def test_a_pruned_thread_is_the_same_and_goes_on(saver, adapter):
    agent = talked(saver, adapter)
    before, count = values(agent), len(checkpoints(agent))
    assert prune_thread(agent, NAME) == count - 1 > 20
    assert values(agent) == before
    assert len(checkpoints(agent)) == 1
    assert not checkpoints(agent, spare_of(NAME))
    assert prune_thread(agent, NAME) == 0
    ask(agent, "and now?")
    after = values(agent)["messages"]
    assert after[: len(before["messages"])] == before["messages"]
    assert after[len(before["messages"])].text == "and now?"
    assert prune_thread(agent, NAME) > 0
    assert values(agent)["messages"] == after


def waiting(saver):
    """Return a graph whose subgraph asks a person in the middle of its work."""

    class Inner(TypedDict, total=False):
        messages: Annotated[list[Any], MESSAGES_CHANNEL]

    def begin(state):
        return {"messages": [HumanMessage("begun", id="b")]}

    def question(state):
        return {"messages": [HumanMessage(interrupt("go on?"), id="r")]}

    inner = StateGraph(Inner).add_node("begin", begin).add_node("ask", question)
    inner = (
        inner.add_edge(START, "begin")
        .add_edge("begin", "ask")
        .add_edge("ask", END)
        .compile()
    )
    outer = StateGraph(Inner).add_node("inner", inner).add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


def test_what_waits_for_a_person_in_a_subgraph_still_waits(saver):
    graph = waiting(saver)
    graph.invoke({"messages": [HumanMessage("hi", id="h")]}, THREAD)
    before = graph.get_state(THREAD)
    assert prune_thread(graph, NAME) > 0
    assert graph.get_state(THREAD).interrupts == before.interrupts
    result = graph.invoke(Command(resume="yes"), THREAD)
    assert [message.text for message in result["messages"]] == ["hi", "begun", "yes"]


class Dying(InMemorySaver):
    """A checkpointer whose process dies at a certain operation."""

    left = 10**9

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def put(self, *args):
        self._count()
        return super().put(*args)

    def delete_thread(self, *args):
        self._count()
        return super().delete_thread(*args)


def half_pruned(step):
    """Return an agent whose thread was being pruned when the process died, and what the thread held."""
    agent = talked(saver := Dying())
    before, saver.left = values(agent), step
    with pytest.raises(KeyboardInterrupt):
        prune_thread(agent, NAME)
    saver.left = 10**9
    return agent, before


@pytest.mark.parametrize("step", range(4))
def test_what_a_process_left_in_the_middle_is_finished_by_the_next(step):
    agent, before = half_pruned(step)
    prune_thread(agent, NAME)
    assert values(agent) == before
    assert (len(checkpoints(agent)), checkpoints(agent, spare_of(NAME))) == (1, [])


def test_a_thread_that_was_begun_anew_meanwhile_loses_nothing():
    agent, before = half_pruned(2)  # the thread is gone, the spare one is there
    ask(agent, "hello?")
    with pytest.raises(ContextWindowError, match="begun anew"):
        prune_thread(agent, NAME)
    assert values(agent)["messages"][0].text == "hello?"
    assert (
        agent.get_state({"configurable": {"thread_id": spare_of(NAME)}}).values
        == before
    )


async def test_async_checkpointers_are_pruned_alike(tmp_path):
    async with async_sqlite_saver(tmp_path / "a.db", strict=True) as saver:
        agent = agent_on("nodes", model_of(1500), checkpointer=saver)
        for number in range(8):
            await agent.ainvoke(
                {"messages": [("user", f"question {number} {LONG}")]}, THREAD
            )
        before = (await agent.aget_state(THREAD)).values
        assert await asyncio.to_thread(prune_thread, agent, NAME) > 0
        assert (await agent.aget_state(THREAD)).values == before


class Counting(InMemorySaver):
    """A checkpointer that prunes by itself, and counts how often."""

    pruned = 0

    def prune(self, thread_ids, *, strategy="keep_latest"):
        self.pruned += 1
        for checkpoint in list(
            self.list({"configurable": {"thread_id": thread_ids[0]}})
        )[1:]:
            del self.storage[thread_ids[0]][""][checkpoint.checkpoint["id"]]


@pytest.mark.parametrize(
    ("state", "times"), [(PlainContextState, 1), (ContextState, 0)]
)
def test_a_checkpointer_prunes_by_itself_where_nothing_has_to_be_rebuilt(state, times):
    saver = Counting()
    agent = create_context_agent(
        model_of(1500), [], state_schema=state, checkpointer=saver
    )
    for number in range(6):
        ask(agent, f"question {number}")
    before, count = values(agent), len(checkpoints(agent))
    assert prune_thread(agent, NAME) == count - 1
    assert (values(agent), saver.pruned) == (before, times)


def test_bad_input_is_refused_before_anything_is_removed():
    graph = waiting(InMemorySaver())
    with pytest.raises(ConfigError, match="checkpointer=None"):
        prune_thread(waiting(None), NAME)
    graph.invoke({"messages": [HumanMessage("hi", id="h")]}, THREAD)
    other = (
        StateGraph(PlainContextState)
        .add_node("another", lambda s: {})
        .add_edge(START, "another")
    )
    count = len(checkpoints(graph))
    with pytest.raises(ConfigError, match="belongs to no subgraph"):
        prune_thread(other.compile(checkpointer=graph.checkpointer), NAME)
    assert len(checkpoints(graph)) == count
    assert prune_thread(graph, "never was") == 0
