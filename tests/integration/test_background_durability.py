"""Does a summary in the background survive kills, restarts, second processes, interrupts and edits of the past?"""

import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.testing import request_faults
from support.agents import THREAD
from support.checkpoints import sqlite_saver
from support.fakes import ScriptedChatModel
from support.forking import copier
from support.graphs import chat_on
from support.spoiled import WINDOW, WORDS, engine_of

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

TURNS = 10
PATIENCE = 60.0  # importing LangGraph takes seconds on a busy machine


class Writer:
    """A summarizer that notes each call in a file, and may kill the process or dawdle."""

    def __init__(self, log, *, dies=False, seconds=0.0):
        self.log, self.dies, self.seconds = Path(log), dies, seconds

    def summarize(self, messages, *, previous, max_tokens):
        with self.log.open("a") as lines:
            lines.write(f"{messages[0].content[:12]}\n")
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return f"{len(messages)} messages were exchanged. {previous[-60:]}"


@contextmanager
def storage(target):
    """Open a checkpointer and a store on connections of their own."""
    with ExitStack() as stack:
        if target.startswith("postgresql:"):
            saver = stack.enter_context(PostgresSaver.from_conn_string(target))
            store = stack.enter_context(PostgresStore.from_conn_string(target))
        else:
            saver = stack.enter_context(
                sqlite_saver(Path(f"{target}.threads"), strict=True)
            )
            store = stack.enter_context(SqliteStore.from_conn_string(f"{target}.store"))
        saver.setup()  # before a second process does: SQLite changes its journal for one connection alone
        store.setup()
        yield saver, store
        # A connection that is closed under a thread that writes to it takes the process with it.
        until = time.monotonic() + 1
        for thread in threading.enumerate():
            if thread.name.startswith("ctxwin"):
                thread.join(max(0, until - time.monotonic()))


def agent_on(model, writer, saver, store=None, *, jobs=None, tools=(), **config):
    """Compile the graph of one process."""
    call = model.bind_tools(tools) if tools else model
    return chat_on(
        engine_of(writer, jobs, **config),
        call,
        tools=tools,
        checkpointer=saver,
        store=store,
    )


def question(number):
    return f"question {number} {WORDS}"


def ask(graph, number):
    graph.invoke(
        {"messages": [HumanMessage(question(number))]}, THREAD, durability="sync"
    )


def work(
    target,
    log,
    has_store,
    first,
    last,
    dies=False,
    is_killed_in_model=False,
    name="",
    seconds=0.0,
):
    """Be a process that takes some turns of the thread, and perhaps dies in the middle of one."""
    model = ScriptedChatModel(input_limit=WINDOW)
    if is_killed_in_model:
        model.policy = lambda messages, tools: deadly(messages, log)
    with storage(target) as (saver, store):
        jobs = SummaryJobs()
        writer = Writer(log, dies=dies, seconds=seconds)
        graph = agent_on(model, writer, saver, store if has_store else None, jobs=jobs)
        for number in range(first, last):
            ask(graph, f"{name}{number}")
        if has_store:  # while it is open
            assert jobs.drain(PATIENCE) == 0
    check_requests(model)
    assert len(model.requests) == last - first


def deadly(messages, log):
    """Answer, but die in the first model call after a summary was begun; the last one waits for a slow thread."""
    until = time.monotonic() + PATIENCE
    while (
        str(messages[-1].content).startswith(f"question {TURNS - 1}")
        and time.monotonic() < until
    ):
        if Path(log).exists():
            break
        time.sleep(0.01)
    if Path(log).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return AIMessage("answered")


def check_requests(model):
    assert [request.refused for request in model.requests if request.refused] == []
    assert [request_faults(request.messages) for request in model.requests] == [
        []
    ] * len(model.requests)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Runs `work` in processes of their own."""
    with copier(
        "test_background_durability", tmp_path_factory.mktemp("copier") / "errors"
    ) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def target(request, tmp_path):
    """Where threads and summaries are kept."""
    if request.param == "sqlite":
        return str(tmp_path / "data")
    return request.getfixturevalue("postgres_dsn")


@pytest.mark.parametrize(
    "fate",
    [
        {"has_store": False, "dies": True},
        {"has_store": True, "dies": True},
        {"has_store": True, "is_killed_in_model": True},
    ],
    ids=["writing", "writing, with a store", "calling the model"],
)
def test_a_process_killed_while_a_summary_is_written_loses_no_message(
    processes, target, tmp_path, fate
):
    log = str(tmp_path / "log")
    doomed = {"target": target, "log": log, "first": 0, "last": TURNS, **fate}
    assert processes.run(doomed) == [-signal.SIGKILL], processes.errors()
    model = ScriptedChatModel(input_limit=WINDOW)
    with storage(target) as (saver, store):
        # The dead one's summary is given up after twice its time.
        options = {
            "store": store if fate["has_store"] else None,
            "summary_timeout_seconds": 0.01,
        }
        graph = agent_on(model, Writer(log), saver, **options)
        left = graph.get_state(THREAD).values["messages"]
        graph.invoke(None, THREAD)
        resumed = graph.get_state(THREAD).values["messages"]
        for number in range(len(resumed) // 2, TURNS):
            ask(graph, number)
        state = graph.get_state(THREAD)
    assert resumed[: len(left)] == left
    assert [m.content for m in state.values["messages"][::2]] == [
        question(n) for n in range(TURNS)
    ]
    assert (state.next, len(state.values["messages"])) == ((), 2 * TURNS)
    check_requests(model)
