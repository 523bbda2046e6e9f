"""Do the nodes and the middleware send the same requests, and do they leave the same session?"""

import asyncio
from dataclasses import replace
from typing import get_type_hints

from hypothesis import HealthCheck, example, given, settings

from langchain_ctxwin import ContextState
from langchain_ctxwin.middleware import ContextAgentState
from support.agents import THREAD, WAYS
from support.scenarios import LONG_ONE, SCENARIOS, plain, play

RUNS = settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


async def outcome(scenario, adapter, is_async):
    """Return what was sent, the history, the error, and the session.

    Without the time of day, and without the key of a summary: each agent has a summarizer of its own here.
    """
    agent, sent, error = await play(scenario, adapter, is_async)
    values = agent.get_state(THREAD).values
    session = {
        key: value for key, value in values.items() if key.startswith("context_")
    }
    pending = session.get("context_pending", {})
    session["context_pending"] = {
        name: value for name, value in pending.items() if name not in {"since", "key"}
    }
    return sent, [*map(plain, values["messages"])], error, {} if error else session


@RUNS
@given(scenario=SCENARIOS)
@example(scenario=replace(LONG_ONE, mode="inline"))
@example(scenario=LONG_ONE)
@example(scenario=replace(LONG_ONE, mode="off"))
def test_nodes_and_middleware_send_the_same_requests_and_leave_the_same_session_sync_and_async(
    scenario,
):
    first, *others = [asyncio.run(outcome(scenario, *way)) for way in WAYS]
    assert others == [first] * 3
    if scenario.turns == LONG_ONE.turns:  # the comparison is not empty
        requests, history, error, session = first
        assert (len(requests), len(history), error) == (24, 8 * 7, "")
        assert session["context_guard"]["compactions"] > 0
        assert bool(session.get("context_summary")) is (scenario.mode != "off")


def test_the_hidden_keys_are_those_of_the_nodes():
    nodes, agent = get_type_hints(ContextState), get_type_hints(ContextAgentState)
    names = nodes.keys() - {"llm_input_messages"}
    assert {name: agent[name] for name in names} == {
        name: nodes[name] for name in names
    }
