"""Does an agent on a real llama.cpp server fit its window, by the server's own counts and errors?"""

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.models.probing import probe_limit
from support.desk import CONFIG, Calls, agent_of, ask, state_of

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

STORY = "The river ran past the mill, and the miller's daughter counted the boats. " * 8
BABBLE_TOKENS = 8  # what the client asks for, and what is kept for the answer
# at temperature 0 random weights say nothing but line breaks
WORDY = {"temperature": 1.0, "seed": 1}


def watched(calls):
    """Return the config of the thread with a recorder of its model calls."""
    return {**CONFIG, "callbacks": [calls]}


def fits(server, calls, *, tools=()):
    """Tell for each request that was answered whether the server's own count is within its window."""
    sizes = [server.count(request, tools) for request in calls.requests]
    return [size + BABBLE_TOKENS <= server.n_ctx for size in sizes]


@pytest.mark.parametrize(("n_ctx", "turns"), [(2048, 24), (4096, 48)])
def test_a_long_conversation_fits_by_the_servers_own_count(start_llama, n_ctx, turns):
    """A conversation several times larger than the window is never refused, but for its first large request."""
    server, calls = start_llama(n_ctx), Calls()
    agent = agent_of(
        server.chat_model(**WORDY),
        n_ctx - BABBLE_TOKENS,
        tools=[],
        checkpointer=InMemorySaver(),
    )
    for number in range(turns):
        agent.invoke(ask(f"Part {number}. {STORY} What then?"), watched(calls))
    state = state_of(agent)
    assert server.count(state["messages"]) > 2 * n_ctx
    assert len(calls.errors) <= 1
    assert fits(server, calls).count(False) == len(calls.errors)
    assert len(calls.usages) == turns
    assert all(
        f"Part {n}." in request[-1].text
        for n, request in enumerate(_answered_requests(server, calls))
    )
    assert state["context_report"]["compactions"] >= 2


def _answered_requests(server, calls):
    sound = zip(calls.requests, fits(server, calls), strict=True)
    return [request for request, fitting in sound if fitting]


def test_a_probe_finds_the_window_of_a_real_server(start_llama):
    """By its own counts and its own errors."""
    server = start_llama(2048)
    found = probe_limit(server.chat_model(**WORDY), low=100, high=8_000)
    assert 2048 * 0.95 <= found.limit <= 2048
