"""The scripted chat model meters, refuses and records like a strict provider."""

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from support.fakes import (
    ScriptedChatModel,
    SdkError,
    digest,
    exact_count,
    llama_overflow,
    openai_overflow,
    tool_loop,
)
from support.oracle import text_tokens

pytestmark = pytest.mark.integration


@tool
def look(name: str) -> str:
    """Look at something."""
    return name


def called(*ids):
    """Build an AI message that calls a tool once per id."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": "look", "args": {"name": "x"}, "id": each} for each in ids
        ],
    )


def result(call_id):
    """Build the result of a call."""
    return ToolMessage("done", tool_call_id=call_id)


SYSTEM, USER = SystemMessage("s"), HumanMessage("hi")


def test_exact_count_adds_frames_calls_results_and_tools():
    """Each region has its own price, and media costs the same whatever its bytes."""
    history = [USER, called("1"), result("1")]
    call = text_tokens("look") + text_tokens('{"name":"x"}')
    assert (
        exact_count(history)
        == text_tokens("hi") + call + text_tokens("done") + text_tokens("1") + 3 * 4 + 3
    )
    assert exact_count([HumanMessage("\ud800")]) == exact_count([HumanMessage("?")])
    images = [
        HumanMessage(
            [{"type": "image", "base64": "A" * size, "mime_type": "image/png"}]
        )
        for size in (4, 4000)
    ]
    assert exact_count(images[:1]) == exact_count(images[1:])
    assert exact_count([USER], tools=[look]) > exact_count([USER]) + 20


@pytest.mark.parametrize(
    ("overflow", "error", "numbers"),
    [
        (
            None,
            ContextOverflowError,
            r"\(\d+\) exceeds the maximum number of tokens allowed \(50\)",
        ),
        (openai_overflow, SdkError, "maximum context length is 50 tokens"),
        (llama_overflow, SdkError, r"available context size \(50 tokens\)"),
    ],
)
def test_an_oversized_request_raises_the_chosen_error(overflow, error, numbers):
    """The limit is enforced to the token, and the refused request is recorded as such."""
    model = ScriptedChatModel(
        input_limit=50, **({"overflow": overflow} if overflow else {})
    )
    with pytest.raises(error, match=numbers):
        model.invoke("a " * 43)
    model.invoke("a " * 42 + "a")
    assert [(request.tokens, request.refused) for request in model.requests] == [
        (51, True),
        (50, False),
    ]


def test_faults_come_first_and_once():
    """A planned fault is raised once, then the model answers."""
    model = ScriptedChatModel(
        faults=[SdkError("slow down", status_code=429, code="rate_limit_exceeded")]
    )
    with pytest.raises(SdkError, match="slow down"):
        model.invoke("hi")
    assert model.invoke("hi").text == f"seen {digest('hi')}: hi"


def test_tool_loop_counts_the_steps_it_sees():
    """It calls in parallel, as often as asked in each turn, and repeats a step that was lost."""
    model = ScriptedChatModel(
        policy=tool_loop(steps=2, parallel=2, args={"name": "x"})
    ).bind_tools([look])
    history = [USER]
    for _ in range(2):
        history.append(model.invoke(history))
        history += [result(call["id"]) for call in history[-1].tool_calls]
    assert [
        len(message.tool_calls) for message in history if isinstance(message, AIMessage)
    ] == [2, 2]
    assert model.invoke(history).text == f"seen {digest('hi')}: hi"
    assert len(model.invoke(history[:1] + history[-3:]).tool_calls) == 2
