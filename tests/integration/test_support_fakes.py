"""The scripted chat model meters, refuses and records like a strict provider."""

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from support.fakes import (
    InvalidRequestError,
    ScriptedChatModel,
    SdkError,
    digest,
    exact_count,
    llama_overflow,
    openai_overflow,
    pairing_problem,
    script,
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
    return AIMessage("", tool_calls=[{"name": "look", "args": {"name": "x"}, "id": each} for each in ids])


def result(call_id):
    """Build the result of a call."""
    return ToolMessage("done", tool_call_id=call_id)


SYSTEM, USER = SystemMessage("s"), HumanMessage("hi")


def test_usage_is_exact_and_requests_are_recorded():
    """input_tokens is the exact count, and the record holds messages, tools and size."""
    model = ScriptedChatModel()
    reply = model.bind_tools([look]).invoke([SYSTEM, USER])
    (request,) = model.requests
    expected = exact_count([SYSTEM, USER], tools=[look])
    assert reply.text == f"seen {digest('hi')}: hi"
    assert reply.usage_metadata["input_tokens"] == request.tokens == model.largest_tokens == expected
    assert reply.usage_metadata["output_tokens"] == text_tokens(reply.text)
    assert [message.text for message in request.messages] == ["s", "hi"]
    assert [each["function"]["name"] for each in request.tools] == ["look"]


def test_exact_count_adds_frames_calls_results_and_tools():
    """Each region has its own price, and media costs the same whatever its bytes."""
    history = [USER, called("1"), result("1")]
    call = text_tokens("look") + text_tokens('{"name":"x"}')
    assert exact_count(history) == text_tokens("hi") + call + text_tokens("done") + text_tokens("1") + 3 * 4 + 3
    assert exact_count([HumanMessage("\ud800")]) == exact_count([HumanMessage("?")])
    images = [HumanMessage([{"type": "image", "base64": "A" * size, "mime_type": "image/png"}]) for size in (4, 4000)]
    assert exact_count(images[:1]) == exact_count(images[1:])
    assert exact_count([USER], tools=[look]) > exact_count([USER]) + 20


@pytest.mark.parametrize(
    ("overflow", "error", "numbers"),
    [
        (None, ContextOverflowError, r"\(\d+\) exceeds the maximum number of tokens allowed \(50\)"),
        (openai_overflow, SdkError, "maximum context length is 50 tokens"),
        (llama_overflow, SdkError, r"available context size \(50 tokens\)"),
    ],
)
def test_an_oversized_request_raises_the_chosen_error(overflow, error, numbers):
    """The limit is enforced to the token, and the refused request is recorded as such."""
    model = ScriptedChatModel(input_limit=50, **({"overflow": overflow} if overflow else {}))
    with pytest.raises(error, match=numbers):
        model.invoke("a " * 43)
    model.invoke("a " * 42 + "a")
    assert [(request.tokens, request.refused) for request in model.requests] == [(51, True), (50, False)]


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([SYSTEM], "no message besides system messages"),
        ([SYSTEM, AIMessage("a")], "first non-system message is ai, not human"),
        ([USER, SYSTEM], "system message at 1 behind the start"),
        ([USER, result("1")], "result '1' at 1 follows no call"),
        ([USER, called("1")], "calls ['1'] are answered by results []"),
        ([USER, called("1", "2"), result("1")], "calls ['1', '2'] are answered by results ['1']"),
        ([USER, called("1"), result("1"), result("1")], "calls ['1'] are answered by results ['1', '1']"),
        ([USER, called("1"), USER, result("1")], "calls ['1'] are answered by results []"),
    ],
)
def test_broken_pairs_are_refused(history, problem):
    """Orphaned calls and results and a wrong start never reach the policy."""
    with pytest.raises(InvalidRequestError) as caught:
        ScriptedChatModel().invoke(history)
    assert str(caught.value) == problem


def test_complete_steps_are_accepted():
    """Parallel calls may be answered in any order, and ids may be used again."""
    steps = [called("1", "2"), result("2"), result("1"), called("1"), result("1"), AIMessage("done"), USER]
    assert pairing_problem([SYSTEM, USER, *steps]) is None


async def test_async_and_streams_equal_invoke():
    """ainvoke, stream and astream give the same text, calls and usage."""
    model = ScriptedChatModel(policy=script(AIMessage("word " * 20, tool_calls=called("1").tool_calls)))
    whole = model.invoke("hi")
    chunks = list(model.stream("hi"))
    async_chunks = [chunk async for chunk in model.astream("hi")]
    assert len(chunks) > 3
    for other in (await model.ainvoke("hi"), sum(chunks[1:], chunks[0]), sum(async_chunks[1:], async_chunks[0])):
        assert (other.text, other.tool_calls) == (whole.text, whole.tool_calls)
        assert other.usage_metadata == whole.usage_metadata


def test_every_call_builds_a_fresh_message():
    """One scripted message never reaches two histories, and a caller's change does not reach the record."""
    model = ScriptedChatModel(policy=script(AIMessage("same", id="scripted")))
    question = HumanMessage("hi")
    first, second = model.invoke([question]), model.invoke([question])
    question.content = "changed"
    assert first.id != second.id
    assert model.requests[0].messages[0].text == "hi"


def test_faults_come_first_and_once():
    """A planned fault is raised once, then the model answers."""
    model = ScriptedChatModel(faults=[SdkError("slow down", status_code=429, code="rate_limit_exceeded")])
    with pytest.raises(SdkError, match="slow down"):
        model.invoke("hi")
    assert model.invoke("hi").text == f"seen {digest('hi')}: hi"


def test_tool_loop_counts_the_steps_it_sees():
    """It calls in parallel, as often as asked in each turn, and repeats a step that was lost."""
    model = ScriptedChatModel(policy=tool_loop(steps=2, parallel=2, args={"name": "x"})).bind_tools([look])
    history = [USER]
    for _ in range(2):
        history.append(model.invoke(history))
        history += [result(call["id"]) for call in history[-1].tool_calls]
    assert [len(message.tool_calls) for message in history if isinstance(message, AIMessage)] == [2, 2]
    assert model.invoke(history).text == f"seen {digest('hi')}: hi"
    assert len(model.invoke(history[:1] + history[-3:]).tool_calls) == 2
