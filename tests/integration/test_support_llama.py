"""The llama.cpp server counts, limits and fails for real behind the OpenAI client."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from openai import BadRequestError

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


@pytest.mark.parametrize("tools", [[], [look]])
def test_usage_is_the_true_count(start_llama, tools):
    """The client's input_tokens include the template and the tools."""
    server = start_llama()
    model = server.chat_model()
    reply = (model.bind_tools(tools) if tools else model).invoke(HISTORY)
    assert reply.usage_metadata["input_tokens"] == server.count(HISTORY, tools)
    assert (
        server.count(HISTORY, [look])
        > server.count(HISTORY)
        > server.count(HISTORY[:2])
    )
    assert reply.usage_metadata["output_tokens"] <= 8


@pytest.mark.parametrize("n_ctx", [2048, 4096])
def test_an_oversized_request_raises_the_real_error(start_llama, n_ctx):
    """The error states size and limit in its body; what just fits is answered."""
    server = start_llama(n_ctx)
    with pytest.raises(BadRequestError) as caught:
        server.chat_model().invoke("word " * (n_ctx + 1))
    body = caught.value.body
    assert (body["type"], body["n_ctx"]) == ("exceed_context_size_error", n_ctx)
    assert body["n_prompt_tokens"] == server.count(
        [HumanMessage("word " * (n_ctx + 1))]
    )
    assert (
        server.chat_model()
        .invoke("word " * (n_ctx - 64))
        .usage_metadata["input_tokens"]
        > n_ctx - 64
    )
