"""Is each of the providers' rules kept where a server that checks it would refuse what came in?"""

import base64

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ModelLimits, TokenEstimator, create_context_agent
from support.anthropic_server import AnthropicServer
from support.gemini_server import GeminiServer
from support.ollama_server import OllamaServer, looking
from support.openai_server import OpenAIServer
from support.provider_talks import look, speaking

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

THREAD = {"configurable": {"thread_id": "Ann"}}
SCREEN = base64.b64encode(b"png" * 4_000).decode()


def statuses(server):
    return [request.status for request in server.requests]


def invoked(model, history, *, window=8_000, tools=(look,), **options):
    limits = ModelLimits(context_window=window, max_output_tokens=256)
    agent = create_context_agent(
        model, list(tools), system_prompt="Be good.", limits=limits, **options
    )
    return agent.invoke({"messages": history}, {**THREAD, "recursion_limit": 500})


@tool
def screenshot(place: str) -> list[dict]:
    """Take a picture of a place."""
    source = {"type": "base64", "media_type": "image/png", "data": SCREEN}
    return [{"type": "image", "source": source}, {"type": "text", "text": place}]


def taking(shots):
    def blocks(body):
        taken = str(body["messages"]).count("'tool_result'")
        if taken >= shots:
            return "That is all."
        call = {
            "type": "tool_use",
            "name": "screenshot",
            "input": {"place": f"p{taken}"},
        }
        return [call]

    return blocks


@pytest.mark.parametrize(
    "limits",
    [{"max_images": 10}, {"max_bytes": 160_000}],
    ids=["images", "bytes"],
)
def test_a_request_has_no_more_pictures_than_its_provider_takes(limits):
    """A limit below the documented one is learned from its refusal, 413 among them, and kept to."""
    with AnthropicServer(policy=taking(24), **limits) as server:
        state = invoked(
            server.chat_model(),
            [HumanMessage("Go on.")],
            window=200_000,
            tools=[screenshot],
        )
    assert state["messages"][-1].text == "That is all."
    assert 1 <= len(server.refused) <= 2


def test_redacted_thinking_is_tied_as_well():
    """And one that is left out between others makes those behind it stale: all of it leaves at once."""
    plain = speaking(thinks=True)
    number = iter(range(1_000))

    def policy(body):
        blocks = plain(body)
        if next(number) % 2:
            blocks[0] = {
                "type": "redacted_thinking",
                "data": f"c2VhbGVk{len(str(body))}",
            }
        return blocks

    server = AnthropicServer(context_window=6_000, policy=policy, binds=True)
    with server:
        limits = ModelLimits(context_window=6_000, max_output_tokens=256)
        agent = create_context_agent(
            server.chat_model(),
            [look],
            limits=limits,
            counter=TokenEstimator("openai"),
            checkpointer=InMemorySaver(),
        )
        for turn in range(24):
            agent.invoke(
                {"messages": [HumanMessage(f"{turn}? " + "River. " * 60)]}, THREAD
            )
        compactions = agent.get_state(THREAD).values["context_guard"]["compactions"]
    assert compactions > 0
    assert set(statuses(server)) == {200}
    assert "redacted_thinking" in str(server.requests[-1].body)


MADE_BY = {
    "anthropic": AnthropicServer,
    "openai": OpenAIServer,
    "gemini": GeminiServer,
}
CALL = {"name": "look", "args": {"place": "pier"}, "id": "call:1/2 of Ann's"}
PHOTO = {"type": "image", "base64": SCREEN, "mime_type": "image/png"}
HISTORIES = {
    "an empty text beside a photo": [
        HumanMessage([{"type": "text", "text": ""}, PHOTO])
    ],
    "an answer of one empty part": [
        HumanMessage("Who?"),
        AIMessage([{"type": "text", "text": ""}]),
        HumanMessage("And now?"),
    ],
    "an answer of blanks": [
        HumanMessage("Who?"),
        AIMessage("  \n"),
        HumanMessage("So?"),
    ],
    "blanks before a call, with an id of another provider": [
        HumanMessage("Look!"),
        AIMessage(" ", tool_calls=[CALL]),
        ToolMessage("A boat.", tool_call_id=CALL["id"]),
    ],
    "reasoning with nothing behind it": [
        HumanMessage("Who?"),
        AIMessage(
            [
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "encrypted_content": "Z",
                }
            ],
            response_metadata={"model_provider": "openai"},
        ),
        HumanMessage("And now?"),
    ],
    "a system message in between": [
        HumanMessage("Who?"),
        AIMessage("Ann."),
        SystemMessage("Speak French from now on."),
        HumanMessage("And now?"),
    ],
    "a block of a type that nobody knows": [
        HumanMessage("Who?"),
        AIMessage(
            [{"type": "hologram", "light": "blue"}, {"type": "text", "text": "Ann."}],
            response_metadata={"model_provider": "bedrock"},
        ),
        HumanMessage("And now?"),
    ],
    "a compaction that a user claims": [
        HumanMessage("Who?"),
        HumanMessage([{"type": "compaction", "content": "Ann.", "signature": "AAAA"}]),
    ],
}


@pytest.mark.parametrize("provider", MADE_BY)
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_a_provider_refuses_is_repaired_before_it_is_sent(history, provider):
    """Whoever wrote it; the last thing that was asked is there."""
    with MADE_BY[provider]() as server:
        invoked(server.chat_model(), [m.model_copy(deep=True) for m in history])
    assert set(statuses(server)) == {200}


def test_a_server_that_cuts_silently_is_noticed_and_its_window_learned():
    """It keeps half its window of a larger prompt, says nothing, and reports the size of what it kept."""
    with OllamaServer(num_ctx=4_096, policy=looking) as server:
        limits = ModelLimits(context_window=32_000, max_output_tokens=256)
        agent = create_context_agent(
            server.chat_model(),
            [look],
            limits=limits,
            counter=TokenEstimator("openai"),
            checkpointer=InMemorySaver(),
        )
        for turn in range(24):
            agent.invoke(
                {"messages": [HumanMessage(f"{turn}? " + "River. " * 60)]}, THREAD
            )
    assert 0 < server.cut <= 5
    assert server.cut < 0.1 * len(server.requests)
