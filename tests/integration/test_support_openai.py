"""The loopback OpenAI Responses API works with the real client and refuses what the real API refuses."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai.chat_models.base import OpenAIInvalidRequestError

from support.loopback import answers, called, result, script
from support.openai_server import OpenAIServer
from support.oracle import text_tokens

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

# 1,400 tokens: more than the least that is cached
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}
THINKS = [
    {"type": "reasoning", "text": "Hm, the mill."},
    {"type": "function_call", "name": "look", "arguments": {"at": 1}},
]
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Look.",
    "parameters": {"type": "object", "properties": {}},
}


def size_of(*texts):
    """Return the tokens of a prompt of messages."""
    return sum(text_tokens(text) + 4 for text in texts)


def done(message):
    """Build the result of the only call of an answer."""
    return ToolMessage("done", tool_call_id=message.tool_calls[0]["id"])


def test_a_prompt_over_the_window_is_refused_or_loses_its_oldest_items():
    """The error has OpenAI's code; with `truncation="auto"` the instructions stay, and the oldest items go."""
    with OpenAIServer(context_window=100) as server:
        # the client does not know it as an overflow
        with pytest.raises(OpenAIInvalidRequestError) as error:
            server.chat_model().invoke("a " * 999)
        history = [
            SystemMessage("Be brief."),
            *(HumanMessage(f"Part {i} of the story.") for i in range(20)),
        ]
        reply = server.chat_model(truncation="auto").invoke(history)
    assert error.value.code == "context_length_exceeded"
    each = size_of("Part 1 of the story.")
    assert (
        reply.usage_metadata["input_tokens"]
        == size_of("Be brief.") + (100 - size_of("Be brief.")) // each * each
    )
    assert [request.status for request in server.requests] == [400, 200]


@pytest.mark.parametrize(
    ("history", "text"),
    [
        (
            [called("a", "b"), result("a")],
            "No tool output found for function call id-b",
        ),
        (
            [AIMessage("so"), result("a")],
            "No tool call found for function call output with call_id id-a",
        ),
    ],
)
def test_orphans_are_refused(history, text):
    """Calls and outputs need each other; pairs pass."""
    with OpenAIServer() as server:
        with pytest.raises(OpenAIInvalidRequestError, match=text):
            server.chat_model().invoke([HumanMessage("hi"), *history])
        server.chat_model().invoke(
            [HumanMessage("hi"), called("a", "b"), result("a"), result("b")]
        )


async def test_encrypted_reasoning_comes_back_as_it_was_and_where_it_was():
    """Edited content, a lost item and a moved item are refused in every way to ask; untouched ones pass."""
    with OpenAIServer(policy=script(THINKS)) as server:
        found = await answers(
            server.chat_model(**STATELESS).bind_tools([LOOK]), "Where?"
        )
        server.policy = script("Seen.")
        chat = server.chat_model(**STATELESS).bind_tools([LOOK])
        for reply in found:
            thinks, call = reply.content
            edited = [thinks | {"encrypted_content": "AAAA"}, call]
            for content, text in (
                (edited, "could not be verified"),
                ([call], "required 'reasoning' item"),
            ):
                with pytest.raises(OpenAIInvalidRequestError, match=text):
                    chat.invoke(
                        [
                            "Where?",
                            reply.model_copy(update={"content": content}),
                            done(reply),
                        ]
                    )
            moved = [
                reply.model_copy(update={"content": [thinks], "tool_calls": []}),
                HumanMessage("So?"),
            ]
            with pytest.raises(
                OpenAIInvalidRequestError, match="without its required following item"
            ):
                chat.invoke(["Where?", *moved])
            assert chat.invoke(["Where?", reply, done(reply)]).text == "Seen."
    counted = text_tokens("Hm, the mill.")
    assert server.requests[-1].tokens - server.requests[0].tokens > counted
