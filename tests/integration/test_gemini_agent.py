"""Does what a Gemini server refuses leave the node as it came, and can the turn be taken again?"""

import pytest
from google.genai.errors import ServerError
from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError
from langgraph.checkpoint.memory import InMemorySaver

from support.desk import (
    CONFIG,
    SIZES,
    agent_of,
    ask,
    state_of,
)
from support.gemini_policy import tool_loop
from support.gemini_server import (
    RATE_LIMIT,
    RATE_LIMIT_NAMING_TOKENS,
    UNAVAILABLE,
    GeminiServer,
)
from support.loopback import RefusalError

pytestmark = pytest.mark.enable_socket

QUESTIONS = [f"Question {number}: what is behind door {number}?" for number in range(4)]
RESULTS = 6  # of a turn: every second step of four calls two tools at once


def gemini(limit):
    """Return a strict server whose model calls tools in each turn."""
    return GeminiServer(input_limit=limit, policy=tool_loop(steps=4))


def test_an_overflow_that_no_retry_cures_leaves_the_node_and_a_resume_works():
    """After `max_recoveries` smaller requests the provider's own exception arrives, and the thread is whole."""
    lie = RefusalError(f"The input token count (8100) {SIZES} (8000).")
    with gemini(8000) as server:
        agent = agent_of(server.chat_model(), 8000, checkpointer=InMemorySaver())
        for question in QUESTIONS:
            agent.invoke(ask(question), CONFIG)
        before = len(server.requests)
        server.faults += [lie] * 3
        with pytest.raises(ContextOverflowError, match="8100"):
            agent.invoke(ask("Still there?"), CONFIG)
        sizes = [request.tokens for request in server.requests[before:]]
        agent.invoke(None, CONFIG)
        state = state_of(agent)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes) == 3
    assert [m.text for m in state["messages"] if m.type == "human"] == [
        *QUESTIONS,
        "Still there?",
    ]
    assert "Still there?" in state["messages"][-1].text


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (RATE_LIMIT, ModelRateLimitError),
        (
            RATE_LIMIT_NAMING_TOKENS,
            ContextOverflowError,
        ),  # the client's own mistake; it is still a rate limit
        (UNAVAILABLE, ServerError),
    ],
)
async def test_a_fault_leaves_the_node_as_it_came_and_a_resume_repeats_the_request(
    fault, error
):
    """Nothing is compacted and nothing is sent twice; resuming sends the very same bytes, sync and async."""
    with gemini(3000) as server:
        agent = agent_of(server.chat_model(), 3000, checkpointer=InMemorySaver())
        agent.invoke(ask(QUESTIONS[0]), CONFIG)
        before = len(server.requests)
        server.faults.append(fault)
        with pytest.raises(error):
            agent.invoke(ask(QUESTIONS[1]), CONFIG)
        assert (len(server.requests), agent.get_state(CONFIG).next) == (
            before + 1,
            ("agent",),
        )
        server.faults.append(fault)
        with pytest.raises(error):
            await agent.ainvoke(None, CONFIG)
        agent.invoke(None, CONFIG)
        state = state_of(agent)
    bodies = [request.body for request in server.requests[before : before + 3]]
    assert bodies == [bodies[0]] * 3
    assert f"results {RESULTS}." in state["messages"][-1].text
    assert state["context_report"]["compactions"] == 0
    assert "limits" not in state["context_counts"]
