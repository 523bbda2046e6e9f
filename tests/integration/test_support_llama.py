"""The llama.cpp server counts, limits and fails for real behind the OpenAI client."""

import pytest
import quicktok
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


@pytest.mark.parametrize(
    "text",
    [
        "hello there, World!",
        "def add(a, b):\n    return a + b\n",
        "12345 > 0.5",
        '{"id": [1, 2], "name": null}',
    ],
)
def test_common_text_gets_the_published_token_ids(start_llama, text):
    """Text made of common tokens is split as the vocabulary's own tokenizer splits it."""
    published = quicktok.get_encoding("qwen3").encode_ordinary(text)
    assert start_llama().tokenize(text) == published


def test_rare_text_costs_more_tokens_than_published(start_llama):
    """What the short vocabulary lacks is spelled in smaller pieces, never lost."""
    text = "你好世界 🙂"
    assert len(text) < len(start_llama().tokenize(text)) <= len(text.encode())


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


async def test_async_and_streams_report_usage(start_llama):
    """ainvoke, stream and astream agree on the size of the prompt."""
    server = start_llama()
    model = server.chat_model(stream_usage=True)
    expected = server.count(HISTORY)
    chunks = list(model.stream(HISTORY))
    async_chunks = [chunk async for chunk in model.astream(HISTORY)]
    assert (await model.ainvoke(HISTORY)).usage_metadata["input_tokens"] == expected
    assert sum(chunks[1:], chunks[0]).usage_metadata["input_tokens"] == expected
    assert (
        sum(async_chunks[1:], async_chunks[0]).usage_metadata["input_tokens"]
        == expected
    )


def test_servers_stop_and_start_again(start_llama):
    """Two servers run beside each other, each with its own window."""
    small, large = start_llama(2048), start_llama(4096)
    question = "word " * 3000
    with pytest.raises(BadRequestError):
        small.chat_model().invoke(question)
    assert large.chat_model().invoke(question).usage_metadata["input_tokens"] > 3000
