"""The nodes inside real LangGraph graphs."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_ctxwin import (
    ContextNodes,
)
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError
from support.agents import (
    THREAD,
    engine_of,
)
from support.desk import TOOLS, agent_of
from support.fakes import (
    ScriptedChatModel,
    core_overflow,
    openai_overflow,
)
from support.graphs import chat_on

PROMPT = "You are helpful."
EDGES = """
__start__ budget_check
agent tools sometimes
agent maybe_summarize sometimes
budget_check build_messages sometimes
budget_check force_compress sometimes
budget_check maybe_summarize sometimes
build_messages agent
force_compress build_messages
maybe_summarize __end__ sometimes
maybe_summarize build_messages sometimes
maybe_summarize force_compress sometimes
tools budget_check
"""


def test_the_drawing_shows_the_nodes_and_edges():
    drawn = agent_of(ScriptedChatModel(), 1000, tools=TOOLS).get_graph()
    edges = {
        f"{edge.source} {edge.target}{' sometimes' if edge.conditional else ''}"
        for edge in drawn.edges
    }
    assert edges == {*EDGES.strip().splitlines()}


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
    graph = chat_on(engine_of(1000), model := ScriptedChatModel())
    with pytest.raises(ContextWindowError, match="nothing to send"):
        graph.invoke({"messages": messages}, THREAD)
    assert model.requests == []
