"""The Gemini counter asks the real client's endpoint for exactly the request that the model would send."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.counting import GeminiCounter
from support.counting_replies import Replies
from support.gemini_server import GeminiServer

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

PIXEL = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}


@tool
def look(name: str, depth: int = 3, how: list[str] | None = None) -> str:
    """Look at something."""
    return f"{name} at {depth}, {how}"


def plain(text):
    """A tool that is a function."""
    return text


HISTORY = [
    SystemMessage("You look around."),
    HumanMessage([{"type": "text", "text": "What is here? Ça va, 你好?"}, PIXEL]),
    AIMessage("Let me see.", tool_calls=[{"name": "look", "args": {"name": "door"}, "id": "1"}]),
    ToolMessage("a door", tool_call_id="1", name="look"),
]
REQUESTS = [(HISTORY[1:2], []), (HISTORY[:2], []), (HISTORY, [look]), (HISTORY, [look, plain])]


@pytest.mark.parametrize(("messages", "tools"), REQUESTS)
def test_the_count_is_the_size_that_is_billed(messages, tools):
    """System instruction, tools, calls and media are in it, in one question."""
    with GeminiServer() as server:
        model = server.chat_model()
        counted = GeminiCounter(model).count_request(messages, tools=tools)
        billed = (model.bind_tools(tools) if tools else model).invoke(messages).usage_metadata["input_tokens"]
    assert counted == billed
    assert [request.method for request in server.requests] == ["countTokens", "generateContent"]


@pytest.mark.parametrize(("messages", "tools"), REQUESTS)
def test_what_is_counted_is_what_is_sent(messages, tools):
    """Contents, system instruction and tools go out as in the model's own request, and nothing else does."""
    with GeminiServer() as server:
        model = server.chat_model()
        GeminiCounter(model).count_request(messages, tools=tools)
        (model.bind_tools(tools) if tools else model).invoke(messages)
    counted, sent = (request.body for request in server.requests)
    whole = counted["generateContentRequest"]
    assert counted == {"contents": [], "generateContentRequest": whole}
    assert camel(whole) == {
        "model": "models/gemini-test",
        **{key: camel(sent[key]) for key in ("contents", "systemInstruction", "tools") if key in sent},
    }


def camel(value):
    """Spell `mime_type` as the API's JSON does; the client writes both forms, and the API reads both."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if isinstance(value, dict):
        return {"mimeType" if key == "mime_type" else key: camel(item) for key, item in value.items()}
    return value


async def test_async_counts_the_same():
    """Whoever awaits gets the same figure from one question of its own."""
    with GeminiServer() as server:
        model = server.chat_model()
        counted = await GeminiCounter(model).acount_request(HISTORY, tools=[look])
        assert counted == GeminiCounter(model).count_request(HISTORY, tools=[look])
        await model.aclose()
    assert [request.method for request in server.requests] == ["countTokens"] * 2


def test_as_a_plain_counter_it_estimates_what_cannot_be_asked():
    """The constants of a request are no request."""
    with GeminiServer() as server:
        counter = GeminiCounter(server.chat_model())
        assert counter([("user", "hello")]) == server.requests[-1].tokens
        assert counter([], tools=[look]) == TokenEstimator("gemini")([], tools=[look])
    assert len(server.requests) == 1


def test_vertex_is_asked_in_its_own_form():
    """There the SDK takes system instruction and tools itself."""
    with Replies({"totalTokens": 7}) as server:
        model = ChatGoogleGenerativeAI(
            model="gemini-test", vertexai=True, google_api_key="x", base_url=server.url, max_retries=1
        )
        assert GeminiCounter(model).count_request(HISTORY[:2], tools=[plain]) == 7
    ((path, body),) = server.asked
    assert path == "/v1beta1/publishers/google/models/gemini-test:countTokens"
    assert sorted(body) == ["contents", "systemInstruction", "tools"]


def test_the_private_name_that_it_needs_is_there():
    """The conversion of messages has no public name: an update that moves it is noticed here."""
    with GeminiServer() as server:
        request = server.chat_model()._prepare_request(HISTORY[:2])
    assert (request["model"], len(request["contents"])) == ("gemini-test", 1)
    assert request["config"].system_instruction.parts[0].text == "You look around."


def test_without_that_name_the_estimate_stands(monkeypatch):
    """A missing conversion is one more reason to have no count."""
    monkeypatch.delattr(ChatGoogleGenerativeAI, "_prepare_request")
    with GeminiServer() as server:
        assert GeminiCounter(server.chat_model()).count_request(HISTORY) is None
    assert server.requests == []
