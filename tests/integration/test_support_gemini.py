"""The loopback Gemini API works with the real client and refuses what the real API refuses."""

import pytest
from google.genai.errors import ServerError
from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai.chat_models import (
    GoogleInvalidRequestError,
)

from support.gemini_policy import answer, tool_loop
from support.gemini_server import (
    RATE_LIMIT,
    RATE_LIMIT_NAMING_TOKENS,
    UNAVAILABLE,
    GeminiServer,
)
from support.loopback import called, result
from support.oracle import text_tokens

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

SIGNATURES = "__gemini_function_call_thought_signatures__"


@tool
def listen(name: str) -> str:
    """Listen to something."""
    return f"{name} is silent"


def test_invoke_reports_the_true_count():
    """The client's input_tokens is the server's own count, output text is cut at max_output_tokens."""
    with GeminiServer(
        policy=answer("one two three four five six"), thought_tokens=5
    ) as server:
        reply = server.chat_model(max_output_tokens=3).invoke(
            [SystemMessage("Be brief."), HumanMessage("Count!")]
        )
    assert (
        server.requests[-1].tokens
        == text_tokens("Be brief.") + text_tokens("Count!") + 4
    )
    assert reply.usage_metadata["input_tokens"] == server.requests[-1].tokens
    assert reply.usage_metadata["total_tokens"] == server.requests[-1].tokens + 3 + 5
    assert reply.usage_metadata["output_token_details"] == {"reasoning": 5}
    assert reply.text == "one two three"
    assert reply.response_metadata["finish_reason"] == "MAX_TOKENS"


@pytest.mark.parametrize("model", ["gemini-test", "gemini-3-test"])
def test_a_lost_or_forged_signature_is_refused(model):
    """A call of the current turn must bring back the signature it was handed out with."""
    with GeminiServer(policy=tool_loop(steps=1), model=model) as server:
        chat = server.chat_model().bind_tools([listen])
        first = chat.invoke("What is here?")
        (call_id,) = first.additional_kwargs[SIGNATURES]
        lost = first.model_copy(update={"additional_kwargs": {}})
        forged = first.model_copy(
            update={"additional_kwargs": {SIGNATURES: {call_id: "Zm9yZ2Vk"}}}
        )
        result = ToolMessage("silence", tool_call_id=call_id)
        for broken in (lost, forged):
            with pytest.raises(
                GoogleInvalidRequestError, match=r"[Tt]hought.signature"
            ):
                chat.invoke(["What is here?", broken, result])
        later = chat.invoke(["What is here?", lost, result, "And now?"])
    assert later.tool_calls


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([AIMessage("hello"), HumanMessage("hi")], "start with a user turn"),
        (
            [HumanMessage("hi"), AIMessage("x"), called("a"), result("a")],
            "comes immediately after a user turn",
        ),
        (
            [HumanMessage("hi"), called("a", "b"), result("a")],
            "number of function response parts",
        ),
        (
            [HumanMessage("hi"), called("a", "b"), result("b"), result("a")],
            "in the order",
        ),
        (
            [HumanMessage("hi"), called("a"), HumanMessage("and?")],
            "number of function response parts",
        ),
        ([HumanMessage("hi"), called("a")], "followed by a function response turn"),
    ],
)
def test_invalid_histories_are_refused(history, text):
    """What breaks the API's order of turns gets its 400 error; what keeps it passes."""
    with GeminiServer() as server:
        with pytest.raises(GoogleInvalidRequestError, match=text):
            server.chat_model().invoke(history)
        server.chat_model().invoke(
            [HumanMessage("hi"), called("a", "b"), result("a"), result("b")]
        )
    assert [request.status for request in server.requests] == [400, 200]


def test_an_oversized_request_raises_the_real_overflow_error():
    """The client recognises the API's own wording, and one token less passes."""
    with GeminiServer(input_limit=100) as server:
        fitting = "a " * 97
        with pytest.raises(
            ContextOverflowError,
            match=r"The input token count \(1002\) exceeds .* allowed \(100\)",
        ):
            server.chat_model().invoke("a " * 999)
        assert server.chat_model().invoke(fitting).usage_metadata["input_tokens"] == 100
        assert server.largest_tokens == 100


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (RATE_LIMIT, ModelRateLimitError),
        (RATE_LIMIT_NAMING_TOKENS, ContextOverflowError),  # the client is wrong here
        (UNAVAILABLE, ServerError),
    ],
)
def test_faults_arrive_as_the_client_maps_them(fault, error):
    """An injected fault fails as many requests as asked, then the server answers again."""
    with GeminiServer() as server:
        server.fail_next(fault, times=2)
        for _ in range(2):
            with pytest.raises(error):
                server.chat_model().invoke("hello")
        assert server.chat_model().invoke("hello").text.startswith("seen")
