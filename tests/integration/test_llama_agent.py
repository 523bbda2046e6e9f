"""Does an agent on a real llama.cpp server fit its window, by the server's own counts and errors?"""

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from openai import BadRequestError

from langchain_ctxwin.models.probing import probe_limit
from support.desk import CONFIG, Calls, agent_of, answered, ask, state_of

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


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
async def test_a_window_that_is_four_times_too_large_heals_after_one_error(
    start_llama, way
):
    """The body of the error states the window; it is learned, and the conversation goes on."""
    server, calls = start_llama(2048), Calls()
    model = server.chat_model(stream_usage=True, **WORDY)
    agent = agent_of(model, 4 * 2048, tools=[], checkpointer=InMemorySaver())
    for number in range(24):
        given = ask(f"Part {number}. {STORY} What then?")
        if way == "invoke":
            agent.invoke(given, watched(calls))
        elif way == "stream":
            _ = list(agent.stream(given, watched(calls), stream_mode="messages"))
        else:
            await agent.ainvoke(given, watched(calls))
    assert [
        (isinstance(error, BadRequestError), error.body["n_ctx"])
        for error in _refused(calls)
    ] == [(True, 2048)]
    state = state_of(agent)
    assert [
        sorted(limits.values()) for limits in state["context_counts"]["limits"].values()
    ] == [[2048]]
    assert (
        len([message for message in state["messages"] if message.type == "human"]) == 24
    )
    assert answered(agent)


def _refused(calls):
    """Return the errors, each one once although a wrapped model reports it at every level."""
    return list({id(error): error for error in calls.errors}.values())


def test_a_probe_finds_the_window_of_a_real_server(start_llama):
    """By its own counts and its own errors."""
    server = start_llama(2048)
    found = probe_limit(server.chat_model(**WORDY), low=100, high=8_000)
    assert found.is_certain
    assert 2048 * 0.95 <= found.accepted_tokens <= 2048
