"""Does a thread survive a process that is killed while a summary is written?"""

import os
import signal
import threading
import time
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.sqlite import SqliteStore

from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.testing import request_faults
from support.agents import THREAD
from support.checkpoints import sqlite_saver
from support.fakes import ScriptedChatModel
from support.graphs import chat_on
from support.spoiled import WINDOW, WORDS, engine_of

TURNS = 10
PATIENCE = 60.0  # importing LangGraph takes seconds on a busy machine


class Writer:
    """A summarizer that notes each call in a file, and may kill the process."""

    def __init__(self, log, *, dies=False):
        self.log, self.dies = Path(log), dies

    def summarize(self, messages, *, previous, max_tokens):
        with self.log.open("a") as lines:
            lines.write(f"{messages[0].content[:12]}\n")
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{len(messages)} messages were exchanged. {previous[-60:]}"


@contextmanager
def storage(target):
    """Open a checkpointer and a store on connections of their own."""
    with (
        sqlite_saver(Path(f"{target}.threads"), strict=True) as saver,
        SqliteStore.from_conn_string(f"{target}.store") as store,
    ):
        saver.setup()  # before a second process does: SQLite changes its journal for one connection alone
        store.setup()
        yield saver, store
        # A connection that is closed under a thread that writes to it takes the process with it.
        until = time.monotonic() + 1
        for thread in threading.enumerate():
            if thread.name.startswith("ctxwin"):
                thread.join(max(0, until - time.monotonic()))


def agent_on(model, writer, saver, store, *, jobs=None, **config):
    """Compile the graph of one process."""
    engine = engine_of(writer, jobs, **config)
    return chat_on(engine, model, checkpointer=saver, store=store)


def question(number):
    return f"question {number} {WORDS}"


def ask(graph, number):
    graph.invoke(
        {"messages": [HumanMessage(question(number))]}, THREAD, durability="sync"
    )


def work(target, log, has_store, dies=False, is_killed_in_model=False):
    """Be a process that takes turns of the thread, and dies in the middle of one."""
    model = ScriptedChatModel(input_limit=WINDOW)
    if is_killed_in_model:
        model.policy = lambda messages, tools: deadly(messages, log)
    with storage(target) as (saver, store):
        jobs = SummaryJobs()
        writer = Writer(log, dies=dies)
        graph = agent_on(model, writer, saver, store if has_store else None, jobs=jobs)
        for number in range(TURNS):
            ask(graph, number)
        jobs.drain(PATIENCE)


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


@pytest.mark.parametrize(
    "fate",
    [
        {"has_store": False, "dies": True},
        {"has_store": True, "dies": True},
        {"has_store": True, "is_killed_in_model": True},
    ],
    ids=["writing", "writing, with a store", "calling the model"],
)
def test_a_process_killed_while_a_summary_is_written_loses_no_message(tmp_path, fate):
    target, log = str(tmp_path / "data"), str(tmp_path / "log")
    doomed = get_context("spawn").Process(target=work, args=(target, log), kwargs=fate)
    doomed.start()
    doomed.join(PATIENCE)
    assert doomed.exitcode == -signal.SIGKILL
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
