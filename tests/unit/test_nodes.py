"""The nodes inside real LangGraph graphs."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START

from langchain_ctxwin import (
    ContextNodes,
)
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError
from support.agents import (
    LONG,
    THREAD,
    ask,
    engine_of,
    values,
)
from support.desk import TOOLS, agent_of
from support.fakes import (
    ScriptedChatModel,
    core_overflow,
    exact_count,
    openai_overflow,
    script,
)
from support.graphs import chat_on

PROMPT = "You are helpful."
NODES = {
    "budget_check",
    "maybe_summarize",
    "force_compress",
    "build_messages",
    "agent",
    "tools",
}
CONDITIONAL = {
    ("budget_check", "build_messages"),
    ("budget_check", "force_compress"),
    ("budget_check", "maybe_summarize"),
    ("maybe_summarize", "build_messages"),
    ("maybe_summarize", "force_compress"),
    ("maybe_summarize", END),
    ("agent", "tools"),
    ("agent", "maybe_summarize"),
}
FIXED = {
    (START, "budget_check"),
    ("force_compress", "build_messages"),
    ("build_messages", "agent"),
    ("tools", "budget_check"),
}


def graph_of(model, window=1000, *, tools=(), engine=None, **options):
    """Return the wiring that the documentation shows."""
    engine = engine or engine_of(window, exact_count)
    return chat_on(
        engine,
        model.bind_tools(tools) if tools else model,
        tools=tools,
        prompt=PROMPT,
        **options,
    )


def held(model, window, turns, chars=200, **options):
    """Return a graph after some turns."""
    graph = graph_of(model, window, **options)
    for number in range(turns):
        ask(graph, f"question {number} {LONG[:chars]}")
    return graph


def test_the_drawing_shows_the_nodes_and_edges():
    graph = agent_of(ScriptedChatModel(), 1000, tools=TOOLS).get_graph()
    assert set(graph.nodes) == NODES | {START, END}
    edges = {(edge.source, edge.target, edge.conditional) for edge in graph.edges}
    assert edges == {(*edge, True) for edge in CONDITIONAL} | {
        (*edge, False) for edge in FIXED
    }


@pytest.mark.parametrize(
    ("state", "destination"),
    [
        (
            {"context_pending": {"due": True}, "context_report": {"over_by": 9}},
            "maybe_summarize",
        ),
        ({"context_pending": {}, "context_report": {"over_by": 9}}, "force_compress"),
        ({"context_report": {"over_by": 0}}, "build_messages"),
        ({}, "build_messages"),
    ],
)
def test_the_route_follows_the_budget(state, destination):
    assert (
        ContextNodes(engine_of(500, exact_count)).route_on_budget(state) == destination
    )


@pytest.mark.parametrize("overflow", [core_overflow, openai_overflow])
@pytest.mark.parametrize("times", [1, 2])
def test_an_overflow_is_recovered_inside_the_model_node_which_learns_the_limit(
    overflow, times
):
    picture = {"type": "image", "base64": "QUJD", "mime_type": "image/png"}
    graph = held(model := ScriptedChatModel(), 2000, 8, 540)
    model.faults.extend(overflow(1500, 1250) for _ in range(times))
    question = HumanMessage([{"type": "text", "text": "what is it? "}, picture])
    result = graph.invoke({"messages": [question]}, THREAD)
    attempts = model.requests[8:]
    assert [request.refused for request in attempts] == [True] * times + [False]
    sizes = [request.tokens for request in attempts]
    assert sizes == sorted(set(sizes), reverse=True)
    assert picture in attempts[-1].messages[-1].content
    assert result["messages"][-1].content.endswith("what is it? ")
    limits = values(graph)["context_counts"]["limits"]
    assert list(
        limits["scripted"].values() if "scripted" in limits else limits[""].values()
    ) == [1250]


def test_retry_on_never_resends_an_oversized_request():
    final = [
        core_overflow(10, 5),
        openai_overflow(10, 5),
        BudgetExceededError("no"),
        ValueError("no"),
    ]
    assert [
        ContextNodes.retry_on(error) for error in (*final, ConnectionError("again"))
    ] == [False] * 4 + [True]


def test_model_input_rebuilds_what_is_missing_or_stale():
    nodes = ContextNodes(engine_of(1000), system_prompt=PROMPT)
    state = {"messages": [HumanMessage("one", id="1")]}
    built = nodes.build_messages.invoke(state)["llm_input_messages"]
    assert (
        nodes.model_input(state)
        == nodes.model_input(state | {"llm_input_messages": built})
        == built
    )
    later = [
        *state["messages"],
        AIMessage("two", id="2"),
        HumanMessage("three", id="3"),
    ]
    for messages in (later, [HumanMessage("uno", id="1")]):
        shown = nodes.model_input({"messages": messages, "llm_input_messages": built})
        assert [m.content for m in shown] == [PROMPT, *(m.content for m in messages)]


@pytest.mark.parametrize("messages", [[], [SystemMessage("Be brief.")]])
def test_nothing_to_send_is_a_typed_error(messages):
    graph = graph_of(model := ScriptedChatModel())
    with pytest.raises(ContextWindowError, match="nothing to send"):
        graph.invoke({"messages": messages}, THREAD)
    assert model.requests == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_inline_summary_is_shown_and_does_not_leak_into_the_stream(is_async):
    writer = ScriptedChatModel(policy=script("SUMMARY of what happened"))
    model = ScriptedChatModel(policy=script("fine"))
    graph = graph_of(
        model,
        engine=engine_of(
            4000, exact_count, writer, trigger_messages=6, summarize="inline"
        ),
    )
    streamed = ""
    for number in range(6):
        message = {"messages": [HumanMessage(f"question {number} {LONG}")]}
        if is_async:
            chunks = [
                c async for c in graph.astream(message, THREAD, stream_mode="messages")
            ]
        else:
            chunks = list(graph.stream(message, THREAD, stream_mode="messages"))
        streamed += "".join(chunk.text for chunk, _ in chunks)
    assert (len(writer.requests) > 0, streamed) == (True, "fine" * 6)
    assert any(
        "SUMMARY of what happened" in message.text
        for message in model.requests[-1].messages
    )
