"""The loopback Gemini API works with the real client and refuses what the real API refuses."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai.chat_models import (
    GoogleInvalidRequestError,
)

from support.gemini_policy import tool_loop
from support.gemini_server import (
    GeminiServer,
)
from support.loopback import called, result

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

SIGNATURES = "__gemini_function_call_thought_signatures__"


@tool
def listen(name: str) -> str:
    """Listen to something."""
    return f"{name} is silent"


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
