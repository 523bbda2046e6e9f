"""Does an agent on a real llama.cpp server fit its window, by the server's own counts and errors?"""

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import BadRequestError

from langchain_ctxwin import (
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextState,
    ModelLimits,
    add_context_nodes,
)
from langchain_ctxwin.models.probing import probe_limit
from support.desk import CONFIG, PROMPT, TOOLS, Calls, agent_of, answered, ask, state_of

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

STORY = "The river ran past the mill, and the miller's daughter counted the boats. " * 8
TURN_STEPS = 2  # tool steps before an answer
TOOL_TURNS = 20
BABBLE_TOKENS = 8  # what the client asks for, and what is kept for the answer
LARGEST_ANSWER_TOKENS = 96  # what an estimate may make of eight random tokens
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


async def test_reported_usage_anchors_the_report(start_llama):
    """After each answer the report is the server's count of the request plus an estimate of the answer."""
    server, calls = start_llama(), Calls()
    agent = agent_of(
        server.chat_model(**WORDY), 2048, tools=[], checkpointer=InMemorySaver()
    )
    reports = []
    for number in range(3):
        await agent.ainvoke(ask(f"Part {number}. {STORY}"), watched(calls))
        reports.append(state_of(agent)["context_report"])
    assert [report["counted_by"] for report in reports] == ["usage"] * 3
    assert calls.usages == [server.count(request) for request in calls.requests]
    answers = [
        report["total_tokens"] - usage
        for report, usage in zip(reports, calls.usages, strict=True)
    ]
    assert [0 < tokens < LARGEST_ANSWER_TOKENS for tokens in answers] == [True] * 3


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


def test_tool_steps_fit_with_their_definitions_counted(start_llama):
    """The model's wish to call tools is scripted; sizes, usage and refusals of every step are the server's."""
    server, calls = start_llama(2048), Calls()
    chat = server.chat_model(**WORDY).bind_tools(TOOLS)

    def decide(messages):
        reply = chat.invoke(messages)
        turn = messages[
            max(i for i, message in enumerate(messages) if message.type == "human") :
        ]
        done = sum(bool(getattr(message, "tool_calls", None)) for message in turn)
        if done >= TURN_STEPS:
            return reply
        wish = {
            "name": "look",
            "args": {"name": f"door {done}", "depth": done},
            "id": f"call_{done}",
        }
        return AIMessage("", tool_calls=[wish], usage_metadata=reply.usage_metadata)

    agent = _graph(decide, limit=2048)
    for number in range(TOOL_TURNS):
        agent.invoke(ask(f"Part {number}. What is behind the door?"), watched(calls))
    state = state_of(agent)
    assert server.count(state["messages"], TOOLS) > 2 * server.n_ctx
    assert len(_refused(calls)) <= 1
    assert [server.count(request, TOOLS) <= 2048 for request in calls.requests].count(
        False
    ) == len(_refused(calls))
    assert len(calls.usages) == TOOL_TURNS * (TURN_STEPS + 1)
    assert state["context_report"]["counted_by"] == "usage"


def _graph(call, *, limit):
    engine = ContextEngine(limits=ModelLimits(max_input_tokens=limit))
    nodes = ContextNodes(engine, system_prompt=PROMPT, tools=TOOLS)
    builder = StateGraph(
        ContextState, input_schema=ContextInput, output_schema=ContextOutput
    )
    add_context_nodes(builder, nodes, model_node="model", model=call)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_edge(START, "budget_check")
    builder.add_conditional_edges(
        "model", tools_condition, {"tools": "tools", END: "maybe_summarize"}
    )
    builder.add_edge("tools", "budget_check")
    return builder.compile(checkpointer=InMemorySaver())


def test_a_probe_finds_the_window_of_a_real_server(start_llama):
    """By its own counts and its own errors."""
    server = start_llama(2048)
    found = probe_limit(server.chat_model(**WORDY), low=100, high=8_000)
    assert found.is_certain
    assert 2048 * 0.95 <= found.accepted_tokens <= 2048
