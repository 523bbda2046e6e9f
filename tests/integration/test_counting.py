"""The real clients' counters agree with what is billed."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI

from langchain_ctxwin.counting import GeminiCounter
from support.gemini_server import GeminiServer
from support.loopback import Answer, Loopback

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
    HumanMessage("What is here? Ça va, 你好?"),
    AIMessage(
        "Let me see.",
        tool_calls=[{"name": "look", "args": {"name": "door"}, "id": "1"}],
    ),
    ToolMessage("a door", tool_call_id="1", name="look"),
]
PICTURE = HumanMessage([{"type": "text", "text": "What is here?"}, PIXEL])
REQUESTS = [(HISTORY[1:2], []), (HISTORY[:2], []), (HISTORY, [look])]


class Vertex(Loopback):
    """Gives one and the same count, whatever it is asked."""

    def answer(self, call):
        return Answer(body={"totalTokens": 7})


def chat_gemini(url, **options):
    settings = {
        "model": "gemini-test",
        "google_api_key": "x",
        "max_retries": 1,
    } | options
    return ChatGoogleGenerativeAI(base_url=url, **settings)


@pytest.mark.parametrize(
    ("messages", "tools"),
    [*REQUESTS, ([HISTORY[0], PICTURE, *HISTORY[2:]], [look, plain])],
)
async def test_what_gemini_counts_is_what_is_sent_and_billed(messages, tools):
    """Contents, system instruction and tools go out in one question, as in the model's own request; nothing else."""
    with GeminiServer() as server:
        model = server.chat_model()
        counted = await GeminiCounter(model).acount_request(messages, tools=tools)
        billed = (
            (model.bind_tools(tools) if tools else model)
            .invoke(messages)
            .usage_metadata["input_tokens"]
        )
    question, request = server.requests
    assert ((question.method, counted), request.method) == (
        ("countTokens", billed),
        "generateContent",
    )
    whole, sent = question.body["generateContentRequest"], request.body
    assert question.body == {"contents": [], "generateContentRequest": whole}
    assert camel(whole) == {
        "model": "models/gemini-test",
        **{
            key: camel(sent[key])
            for key in ("contents", "systemInstruction", "tools")
            if key in sent
        },
    }


def camel(value):
    """Spell `mime_type` as the API's JSON does; the client writes both forms, and the API reads both."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if isinstance(value, dict):
        return {
            "mimeType" if key == "mime_type" else key: camel(item)
            for key, item in value.items()
        }
    return value


def test_vertex_is_asked_in_its_own_form():
    """There the SDK takes system instruction and tools itself."""
    with Vertex() as server:
        model = chat_gemini(server.url, vertexai=True)
        assert GeminiCounter(model).count_request(HISTORY[:2], tools=[plain]) == 7
    (asked,) = server.requests
    assert asked.path == "/v1beta1/publishers/google/models/gemini-test:countTokens"
    assert sorted(asked.body) == ["contents", "systemInstruction", "tools"]
