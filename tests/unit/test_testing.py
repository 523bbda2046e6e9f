"""Does the scripted chat model meter, refuse and record like a strict provider?"""

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import ValidationError

from langchain_ctxwin import ModelLimits, classify_overflow, testing
from langchain_ctxwin.testing import (
    InvalidRequestError,
    RequestTooLargeError,
    ScriptedChatModel,
    count_tokens,
    request_faults,
)

SYSTEM, USER = SystemMessage("s"), HumanMessage("hi")


@tool
def look(name: str) -> str:
    """Look at something."""
    return name


def called(*ids):
    return AIMessage(
        "",
        tool_calls=[
            {"name": "look", "args": {"name": "x"}, "id": each} for each in ids
        ],
    )


def result(call_id):
    return ToolMessage("done", tool_call_id=call_id)


def test_its_names_are_what_is_promised():
    assert testing.__all__ == [
        "ScriptedChatModel",
        "ScriptedRequest",
        "count_tokens",
        "request_faults",
    ]


def test_an_argument_or_a_script_that_it_does_not_know_is_an_error():
    with pytest.raises(ValidationError, match="context_window"):
        ScriptedChatModel(context_window=8192)
    with pytest.raises(TypeError, match=r"script=\{\}: pass a text, an AIMessage"):
        ScriptedChatModel(script={}).invoke("Hi")


def test_a_script_is_played_in_order_and_its_last_part_for_ever():
    """Texts, messages, exceptions, and functions of the request; every answer is a message of its own."""
    busy = ConnectionError("busy")
    script = [
        "one",
        busy,
        AIMessage("two", id="x"),
        lambda messages, tools: f"{messages[-1].text}, {len(tools)}",
    ]
    model = ScriptedChatModel(script=script).bind_tools([look])
    first = model.invoke("hi")
    with pytest.raises(ConnectionError, match="busy"):
        model.invoke("hi")
    assert [first.text, *(model.invoke(text).text for text in ("a", "b", "c"))] == [
        "one",
        "two",
        "b, 1",
        "c, 1",
    ]
    assert first.id != "x"


def test_every_request_is_recorded_as_it_was():
    """With its tools, its size, and what was raised; what is changed later does not reach the record."""
    model, question = (
        ScriptedChatModel(
            window=20, counter=lambda messages, tools=(): 30 if tools else 7
        ),
        HumanMessage("hi"),
    )
    reply = model.invoke([question])
    with pytest.raises(RequestTooLargeError):
        model.bind_tools([look]).invoke("hi")
    question.content = "changed"
    (small,), (refusal,) = model.answered, model.refusals
    assert (
        small.messages[0].text,
        reply.usage_metadata["input_tokens"],
        model.largest_tokens,
    ) == ("hi", 7, 7)
    assert [tools["function"]["name"] for tools in model.requests[1].tools] == ["look"]
    assert (
        "maximum context length is 20 tokens. However, you requested 30 tokens"
        in refusal
    )


@pytest.mark.parametrize("max_tokens", [None, 100])
def test_what_its_window_does_not_hold_is_refused_to_the_token(max_tokens):
    """Together with the answer that is asked for, in a form that overflows are known by; and it states its limits."""
    sizes = iter([1_001 - (max_tokens or 0), 1_000 - (max_tokens or 0)])
    counter = lambda messages, tools=None: next(sizes, 5)  # noqa: E731
    model = ScriptedChatModel(window=1_000, max_tokens=max_tokens, counter=counter)
    with pytest.raises(ContextOverflowError) as caught:
        model.invoke("hi")
    overflow = classify_overflow(caught.value)
    assert (overflow.limit, caught.value.code, caught.value.body["code"]) == (
        1_000,
        *2 * [caught.value.code],
    )
    assert model.invoke("hi").text == "Done."
    limits = ModelLimits.of(model)
    assert (limits.context_window, limits.output_reserve()) == (
        1_000,
        max_tokens or 250,
    )


@pytest.mark.parametrize(
    ("history", "faults"),
    [
        ([SYSTEM], ["there is no message beside the system prompt"]),
        (
            [SYSTEM, AIMessage("a")],
            ["the first message after the system prompt is ai, not human"],
        ),
        ([USER, SYSTEM], ["message 1 is a late system message"]),
        ([USER, AIMessage(" ")], ["message 1 is empty"]),
        ([USER, result("1")], ["tool result '1' answers no call"]),
        ([USER, called("1", "2"), result("1"), USER], ["calls ['2'] are not answered"]),
        (
            [USER, called("1"), USER, result("1")],
            ["calls ['1'] are not answered", "tool result '1' answers no call"],
        ),
        (
            [
                SYSTEM,
                USER,
                called("1", "2"),
                result("2"),
                result("1"),
                called("1"),
                result("1"),
                AIMessage("a"),
                USER,
            ],
            [],
        ),
        (
            [
                HumanMessage([{"type": "image", "url": "x"}]),
                AIMessage("", additional_kwargs={"audio": {"id": "a"}}),
            ],
            [],
        ),
    ],
)
def test_broken_pairs_are_refused_and_complete_steps_are_not(history, faults):
    model = ScriptedChatModel()
    assert request_faults(history) == faults
    if faults:
        with pytest.raises(InvalidRequestError) as caught:
            model.invoke(history)
        assert str(caught.value) == "; ".join(faults)
    assert (
        ScriptedChatModel(strict=False).invoke(history).text == model.invoke("hi").text
    )


@pytest.mark.parametrize(
    "content", ["word " * 20, [{"type": "reasoning", "id": "r"}], ""]
)
async def test_async_calls_and_streams_give_what_invoke_gives(content):
    answer = AIMessage(content, tool_calls=called("1").tool_calls)
    model = ScriptedChatModel(script=answer)
    whole, chunks = model.invoke("hi"), list(model.stream("hi"))
    async_chunks = [chunk async for chunk in model.astream("hi")]
    assert len(chunks) > 3 or len(content) < 3
    for other in (
        await model.ainvoke("hi"),
        sum(chunks[1:], chunks[0]),
        sum(async_chunks[1:], async_chunks[0]),
    ):
        for name in ("content", "tool_calls", "usage_metadata"):
            assert getattr(other, name) == getattr(whole, name)


def test_texts_calls_and_tools_count():
    history = [USER, called("1"), result("1")]
    parts = [count_tokens([message]) for message in history]
    assert (
        count_tokens(history),
        count_tokens(history, tools=[look]) > sum(parts) + 20,
    ) == (sum(parts), True)
    assert min(parts) > count_tokens([AIMessage("")]) > 0
