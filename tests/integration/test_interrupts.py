"""Does an agent that waits for a human send valid requests, whatever the human does?"""

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from support.desk import (
    CONFIG,
    SIZES,
    agent_of,
    answered,
    ask,
    look,
    refusals,
    state_of,
    tool_outputs,
    user_texts,
)
from support.gemini_policy import tool_loop
from support.gemini_server import GeminiServer

pytestmark = pytest.mark.enable_socket

LIMIT = 3000


@tool
def approve(name: str) -> str:
    """Ask a human."""
    return f"{name}: {interrupt('May I?')}"


@pytest.fixture
def server():
    """A strict server whose model calls one tool, then two at once, in each turn."""
    with GeminiServer(
        input_limit=LIMIT, policy=tool_loop(steps=2), model="gemini-3-test"
    ) as running:
        yield running
    assert [text for text in refusals(running) if SIZES not in text] == []


def pausing(server, saver=None, *, tools=None, **options):
    return agent_of(
        server.chat_model(),
        LIMIT,
        tools=tools or [look, approve],
        checkpointer=saver or InMemorySaver(),
        **options,
    )


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_interrupt_inside_a_tool_gets_its_answer(server, is_async):
    agent = pausing(server)
    paused = agent.invoke(ask("Open the door?"), CONFIG)
    assert [each.value for each in paused["__interrupt__"]] == ["May I?"]
    yes = Command(resume="yes")
    await agent.ainvoke(yes, CONFIG) if is_async else agent.invoke(yes, CONFIG)
    assert answered(agent)
    assert [
        text.rpartition(": ")[2]
        for text in tool_outputs(server.requests[-1])
        if "yes" in text
    ] == ["yes"]
    assert len(tool_outputs(server.requests[-1])) == 3


def test_an_approval_in_another_process_finds_the_call_that_waits(server, open_sqlite):
    agent = pausing(server, open_sqlite(strict=True))
    for number in range(10):
        agent.invoke(ask(f"Open door {number}? {'It is heavy. ' * 40}"), CONFIG)
        agent = pausing(server, open_sqlite(strict=True))
        waiting = state_of(agent)
        agent.invoke(
            Command(resume="yes" if number else "yes, and mind the step " * 60), CONFIG
        )
        assert (
            state_of(agent)["messages"][: len(waiting["messages"])]
            == waiting["messages"]
        )
        assert answered(agent)
    assert state_of(agent)["context_report"]["compactions"] >= 1
    assert len(refusals(server)) <= 1


def test_a_late_result_is_shown_where_it_comes(server):
    """The placeholder was sent already; a result that comes later is a note behind what the model has seen."""
    agent = pausing(server)
    agent.invoke(ask("Open the door?"), CONFIG)
    abandoned = state_of(agent)["messages"][-1]
    agent.invoke(ask("Never mind."), CONFIG)
    before = server.requests[-1]
    late = [
        ToolMessage("opened at last", tool_call_id=call["id"], name=call["name"])
        for call in abandoned.tool_calls
    ]
    agent.invoke({"messages": [*late, HumanMessage("And now?")]}, CONFIG)
    assert user_texts(server.requests[-1])[-1] == "And now?"
    assert [
        text for text in tool_outputs(server.requests[-1]) if "at last" in text
    ] == []
    assert sum(
        "opened at last" in text for text in user_texts(server.requests[-1])
    ) == len(late)
    assert (
        server.requests[-1].body["contents"][: len(before.body["contents"])]
        == before.body["contents"]
    )
    assert "opened at last" in [message.text for message in state_of(agent)["messages"]]
