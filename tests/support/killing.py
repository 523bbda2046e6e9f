"""A process that works on a durable thread until it is killed at a chosen point, and the undisturbed run beside it."""

import json
import os
import signal
from collections import Counter
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver

from support.checkpoints import sqlite_saver
from support.desk import CONFIG, agent_of, ask, payloads, state_of
from support.fakes import ScriptedChatModel, echo

LIMIT = 1800  # a few turns fill it, and the steps of the last one stay in view
STEPS = 3  # tool steps of a turn, one call each
QUESTIONS = [f"Question {number}: what is behind door {number}?" for number in range(5)]
FATAL_CALL = f"{QUESTIONS[-1]} step 1"
KILL_POINTS = ("model", "tool", "between")
START_SECONDS = 60.0  # importing LangGraph takes seconds on a busy machine


def check_resume(folder, target, point):
    """Kill a child at `point`, resume from `target` in this process, and compare with a run that nothing disturbed."""
    log = kill_child(folder, target, point)
    model, tools = parts(log)
    with saver_on(target) as saver:
        agent = agent_of(model, LIMIT, tools=tools, checkpointer=saver)
        left = state_of(agent)
        resumed = agent.invoke(None, CONFIG)["messages"]
        now = state_of(agent)
    calm_model, calm = undisturbed(folder / "calm.log")
    assert left["context_view"]["start"]["index"] > 0
    assert _shape(now) == _shape(calm)
    assert resumed[: len(left["messages"])] == left["messages"]
    assert payloads([resumed]) == payloads([calm["messages"]])
    sent, calm_sent = (
        payloads([request.messages for request in one.requests])
        for one in (model, calm_model)
    )
    assert sent == calm_sent[-len(sent) :]
    runs, calm_runs = (
        Counter(file.read_text().splitlines()) for file in (log, folder / "calm.log")
    )
    assert runs == calm_runs + Counter({FATAL_CALL: 1} if point == "tool" else {})


def undisturbed(log):
    """Hold the conversation in memory; return the model and the state it ends in."""
    model, tools = parts(log)
    agent = agent_of(model, LIMIT, tools=tools, checkpointer=InMemorySaver())
    for question in QUESTIONS:
        agent.invoke(ask(question), CONFIG)
    return model, state_of(agent)


def kill_child(folder, target, point):
    """Let a child process work on the thread in `target` until it is killed at `point`; return its tool log.

    The target is a SQLite file, or the connection string of a Postgres database; the point is "model" in the middle of
    a model call, "tool" inside a tool, or "between" two steps.
    """
    log = folder / "tools.log"
    child = get_context("spawn").Process(target=work, args=(target, point, log))
    child.start()
    child.join(START_SECONDS)
    assert child.exitcode == -signal.SIGKILL
    return log


def work(target, point, log):
    """Hold the conversation and die at `point`; each step is on disk before the next one begins."""
    model, tools = parts(log, die_at=point)
    with saver_on(target) as saver:
        agent = agent_of(model, LIMIT, tools=tools, checkpointer=saver)
        for question in QUESTIONS:
            for update in agent.stream(
                ask(question), CONFIG, stream_mode="updates", durability="sync"
            ):
                results = update.get("tools", {}).get("messages", [])
                if (
                    point == "between"
                    and results
                    and results[-1].text.startswith(FATAL_CALL)
                ):
                    die()


def parts(log, *, die_at=""):
    """Return a strict model and a tool that notes each execution in `log`; one of them may die at the fatal call."""

    def decide(messages, tools):
        start = max(i for i, message in enumerate(messages) if message.type == "human")
        done = sum(message.type == "tool" for message in messages[start:])
        if done == STEPS:
            return echo(messages, tools)
        what = f"{messages[start].text} step {done}"
        if die_at == "model" and what == FATAL_CALL:
            die()
        return AIMessage(
            "",
            tool_calls=[
                {"name": "inspect", "args": {"what": what}, "id": f"{len(what)}-{what}"}
            ],
        )

    @tool
    def inspect(what: str) -> str:
        """Inspect a door."""
        with log.open("a") as lines:
            lines.write(f"{what}\n")
        if die_at == "tool" and what == FATAL_CALL:
            die()
        return f"{what}: " + "oak, brass hinges, a keyhole; " * 8

    return ScriptedChatModel(policy=decide, input_limit=LIMIT), [inspect]


@contextmanager
def saver_on(target):
    """Open a checkpointer on a connection of its own."""
    if target.startswith("postgresql:"):
        with PostgresSaver.from_conn_string(target) as saver:
            saver.setup()
            yield saver
    else:
        with sqlite_saver(Path(target), strict=True) as saver:
            yield saver


def die():
    """End this process at once, as a crash or the system's out-of-memory killer does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _shape(state):
    """Return the view and the record of a state, with places for ids, which differ between runs."""
    text = json.dumps([state["context_view"], state["context_record"]])
    for place, message in enumerate(state["messages"]):
        text = text.replace(message.id, str(place))
    return text
