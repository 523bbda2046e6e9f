"""Does a thread in a real Postgres survive restarts and kills, sync and async?"""

import pytest

from support.desk import CONFIG, agent_of, ask, not_json, payloads, state_of
from support.killing import LIMIT, QUESTIONS, check_resume, parts, saver_on, undisturbed

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]


@pytest.fixture
def control(tmp_path):
    """What one long-lived agent in memory sends and remembers."""
    model, state = undisturbed(tmp_path / "control.log")
    return sent(model), state


def sent(model):
    """Return what reached the model."""
    return payloads([request.messages for request in model.requests])


def test_a_connection_per_turn_changes_nothing(
    postgres_dsn, plain_state, tmp_path, control
):
    """Each turn has its own connection and agent; requests, report and messages are those of one process."""
    model, tools = parts(tmp_path / "tools.log")
    for question in QUESTIONS:
        with saver_on(postgres_dsn) as saver:
            agent = agent_of(model, LIMIT, tools=tools, checkpointer=saver)
            agent.invoke(ask(question), CONFIG)
            state = state_of(agent)
            checkpoints = [
                snapshot.values
                for snapshot in agent.get_state_history(CONFIG, limit=20)
            ]
    requests, expected = control
    assert sent(model) == requests
    assert state["context_report"] == expected["context_report"]
    assert payloads([state["messages"]]) == payloads([expected["messages"]])
    assert [place for values in checkpoints for place in not_json(values)] == []
    assert state["context_report"]["compactions"] >= 1


@pytest.mark.parametrize("point", ["model", "between"])
def test_a_killed_process_is_resumed_where_it_stopped(tmp_path, postgres_dsn, point):
    """After SIGKILL another process continues from the database as if nothing had happened."""
    check_resume(tmp_path, postgres_dsn, point)
