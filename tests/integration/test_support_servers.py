"""Do the loopback servers of providers refuse orphans and breakpoints as the real APIs do, real clients in between?"""

import pytest
from langchain_anthropic.chat_models import AnthropicInvalidRequestError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_google_genai.chat_models import GoogleInvalidRequestError
from langchain_openai.chat_models.base import OpenAIInvalidRequestError

from support.anthropic_server import AnthropicServer
from support.gemini_server import GeminiServer
from support.loopback import called, result
from support.openai_server import OpenAIServer

pytestmark = pytest.mark.enable_socket

MARK = {"type": "ephemeral"}
HI = HumanMessage("hi")
SERVERS = {
    "anthropic": (AnthropicServer, AnthropicInvalidRequestError),
    "openai": (OpenAIServer, OpenAIInvalidRequestError),
    "gemini": (GeminiServer, GoogleInvalidRequestError),
}


@pytest.mark.parametrize(
    ("provider", "history", "text"),
    [
        ("anthropic", [called("a", "b"), result("a"), HI], "found without .* id-b"),
        ("anthropic", [called("a")], "ids were found without .* id-a"),
        ("anthropic", [AIMessage("so"), result("a")], "unexpected `tool_use_id`"),
        ("openai", [called("a", "b"), result("a")], "No tool output found for .* id-b"),
        ("openai", [AIMessage("so"), result("a")], "No tool call found for .* id-a"),
        ("gemini", [AIMessage("x"), called("a"), result("a")], "after a user turn"),
        ("gemini", [called("a", "b"), result("a")], "number of function response"),
        ("gemini", [called("a", "b"), result("b"), result("a")], "in the order"),
        ("gemini", [called("a")], "followed by a function response turn"),
    ],
)
def test_orphans_are_refused(provider, history, text):
    """Calls and results need each other; pairs pass."""
    serve, error = SERVERS[provider]
    with serve() as server:
        with pytest.raises(error, match=text):
            server.chat_model().invoke([HI, *history])
        pair = [HI, called("a", "b"), result("a"), result("b")]
        server.chat_model().invoke(pair)


def marked(text, **more):
    """A text block with a breakpoint."""
    return {"type": "text", "text": text, "cache_control": MARK | more}


def test_anthropic_refuses_a_fifth_breakpoint_and_a_longer_life_behind_a_shorter():
    """System, tools and messages count together."""
    with AnthropicServer() as server:
        chat = server.chat_model()
        four = [marked("a"), marked("b"), marked("c")]
        four = [SystemMessage([marked("rules")]), HumanMessage(four)]
        chat.invoke(four)
        with pytest.raises(AnthropicInvalidRequestError, match="Found 5"):
            chat.invoke([*four, AIMessage("so"), HumanMessage([marked("d")])])
        lives = [marked("a", ttl="5m"), marked("b", ttl="1h")]
        with pytest.raises(AnthropicInvalidRequestError, match="must not come after"):
            chat.invoke([HumanMessage(lives)])
