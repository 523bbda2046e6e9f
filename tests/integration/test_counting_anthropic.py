"""The Anthropic counter agrees with what a real server bills through the real client."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from langchain_ctxwin.counting import AnthropicCounter

pytest.importorskip("langchain_anthropic", reason="the Anthropic integration is not installed")
from langchain_anthropic import ChatAnthropic

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]


@tool
def look(name: str) -> str:
    """Look at something."""
    return name


HISTORY = [
    SystemMessage("You look around."),
    HumanMessage("What is here? Ça va, 你好?"),
    AIMessage("", tool_calls=[{"name": "look", "args": {"name": "door"}, "id": "1"}]),
    ToolMessage("a door", tool_call_id="1"),
]
REQUESTS = [(HISTORY[1:2], []), (HISTORY[:2], []), (HISTORY, [look])]


@pytest.fixture
def model(start_llama):
    """Return the Anthropic client, pointed at a llama.cpp server, which speaks the same protocol."""
    url = start_llama().url.removesuffix("/v1")
    return ChatAnthropic(model="tiny", api_key="x", base_url=url, max_retries=0, max_tokens=8)


@pytest.mark.parametrize(("messages", "tools"), REQUESTS)
def test_the_count_is_the_size_that_is_billed(messages, tools, model):
    """System prompt, tools, calls and results are in it."""
    counted = AnthropicCounter(model).count_request(messages, tools=tools)
    billed = (model.bind_tools(tools) if tools else model).invoke(messages).usage_metadata["input_tokens"]
    assert counted == billed


@pytest.mark.parametrize(("messages", "tools"), REQUESTS)
async def test_async_counts_the_same(messages, tools, model):
    """Whoever awaits gets the same figure."""
    counted = await AnthropicCounter(model).acount_request(messages, tools=tools)
    assert counted == AnthropicCounter(model).count_request(messages, tools=tools)
