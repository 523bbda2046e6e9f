"""Does a thread on disk survive restarts, kills and edits without losing a message or changing its view?"""

import json

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from structlog.testing import capture_logs

from langchain_ctxwin.core.record import RECORD_ID
from langchain_ctxwin.testing import request_faults
from support.checkpoints import async_sqlite_saver
from support.desk import (
    CONFIG,
    TOOLS,
    agent_of,
    answered,
    ask,
    payloads,
    state_of,
)
from support.fakes import ScriptedChatModel, tool_loop
from support.killing import KILL_POINTS, check_resume
from support.oracle import exact_count

pytestmark = pytest.mark.enable_socket

LIMIT = 1500
QUESTIONS = [
    f"Question {number}: what is behind door {number}?" for number in range(10)
]


def scripted():
    """Return a strict model that calls two tools at once, twice in each turn."""
    policy = tool_loop(steps=2, parallel=2, args={"name": "the door", "depth": 2})
    return ScriptedChatModel(policy=policy, input_limit=LIMIT)


def sent(model):
    """Return what reached the model."""
    return payloads([request.messages for request in model.requests])


@pytest.fixture
def control():
    """What one process with one agent sends and remembers."""
    model = scripted()
    agent = agent_of(model, LIMIT, checkpointer=InMemorySaver())
    for question in QUESTIONS:
        agent.invoke(ask(question), CONFIG)
    return sent(model), state_of(agent)


@pytest.fixture
def thread(open_sqlite):
    """An agent on a file, whose view has already moved, and its model."""
    model = scripted()
    agent = agent_of(model, LIMIT, checkpointer=open_sqlite(strict=True))
    for question in QUESTIONS:
        agent.invoke(ask(question), CONFIG)
    assert state_of(agent)["context_view"]["start"]["index"] > 0
    return agent, model


def ask_and_check(agent, model, question, config=CONFIG):
    """Ask, check that every request of the turn is valid and holds the question, return the faults that were logged.

    One request may be refused for its size: an edit takes the anchor away, or makes it wrong.
    """
    before = len(model.requests)
    with capture_logs() as logs:
        agent.invoke(ask(question), config)
    assert sum(request.refused for request in model.requests[before:]) <= 1
    for request in model.requests[before:]:
        assert request_faults(request.messages) == []
        assert [
            m.text for m in request.messages if m.type == "human" and m.id != RECORD_ID
        ][-1] == question
    assert answered(agent)
    return [log["fault"] for log in logs if log["event"] == "context.session_mended"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_restart_at_every_turn_changes_nothing(
    is_async, tmp_path, open_sqlite, plain_state, control
):
    model = scripted()
    for question in QUESTIONS:
        if is_async:
            async with async_sqlite_saver(
                tmp_path / "async.sqlite", strict=True
            ) as saver:
                agent = agent_of(model, LIMIT, checkpointer=saver)
                await agent.ainvoke(ask(question), CONFIG)
                report = (await agent.aget_state(CONFIG)).values["context_report"]
        else:
            agent = agent_of(model, LIMIT, checkpointer=open_sqlite(strict=True))
            agent.invoke(ask(question), CONFIG)
            report = state_of(agent)["context_report"]
    requests, state = control
    assert sent(model) == requests
    assert report == state["context_report"]
    assert exact_count(state["messages"], TOOLS) > 2 * LIMIT


def test_every_checkpoint_holds_json_and_messages_only(thread):
    agent, _ = thread
    checkpoints = [snapshot.values for snapshot in agent.get_state_history(CONFIG)]
    assert len(checkpoints) > 4 * len(QUESTIONS)
    assert not any("llm_input_messages" in values for values in checkpoints)
    others = [{**values, "messages": []} for values in checkpoints]
    assert json.loads(json.dumps(others)) == others


@pytest.mark.parametrize("point", KILL_POINTS)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_process_is_resumed_where_it_stopped(tmp_path, request, kind, point):
    target = str(tmp_path / "thread.sqlite")
    if kind == "postgres":
        target = request.getfixturevalue("postgres_dsn")
    check_resume(tmp_path, target, point)


def test_forks_and_time_travel_keep_each_branch_valid(thread):
    agent, model = thread
    main = agent.get_state(CONFIG)
    ends = [
        snapshot for snapshot in agent.get_state_history(CONFIG) if not snapshot.next
    ]
    for past in (ends[-2], ends[len(ends) // 2], ends[1]):
        assert ask_and_check(agent, model, "Or instead?", past.config) == []
        branch = state_of(agent)
        texts = [
            message.text for message in branch["messages"] if message.type == "human"
        ]
        assert texts == [*QUESTIONS[: len(past.values["messages"]) // 8], "Or instead?"]
    assert ask_and_check(agent, model, "Where were we?", main.config) == []
    texts = [
        message.text
        for message in state_of(agent)["messages"]
        if message.type == "human"
    ]
    assert texts == [*QUESTIONS, "Where were we?"]


def test_pruned_checkpoints_are_reported_loudly(thread):
    agent, model = thread
    newest = agent.get_state(CONFIG).config["configurable"]["checkpoint_id"]
    with agent.checkpointer.cursor() as cursor:
        for table in ("checkpoints", "writes"):
            cursor.execute(f"DELETE FROM {table} WHERE checkpoint_id <> ?", (newest,))  # noqa: S608  # fixed names
    faults = ask_and_check(agent, model, "Hello?")
    assert len(faults) == 2
    assert "old checkpoints of this thread were deleted" in faults[0]
    assert "view, summary and anchor were dropped" in faults[1]
