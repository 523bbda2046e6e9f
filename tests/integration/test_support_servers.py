"""Do the loopback servers of providers refuse what the real APIs refuse, with the real clients in between?"""

import pytest
from langchain_anthropic.chat_models import AnthropicInvalidRequestError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai.chat_models import GoogleInvalidRequestError
from langchain_openai.chat_models.base import OpenAIInvalidRequestError

from support.anthropic_server import AnthropicServer
from support.gemini_policy import tool_loop
from support.gemini_server import GeminiServer
from support.loopback import called, result, script
from support.openai_server import OpenAIServer

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

MARK = {"type": "ephemeral"}
SIGNATURES = "__gemini_function_call_thought_signatures__"
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}
HI = HumanMessage("hi")
SERVERS = {
    "anthropic": (AnthropicServer, AnthropicInvalidRequestError),
    "openai": (OpenAIServer, OpenAIInvalidRequestError),
    "gemini": (GeminiServer, GoogleInvalidRequestError),
}


@tool
def look(name: str) -> str:
    """Look at something."""
    return name


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


def test_anthropics_thinking_comes_back_as_it_was_issued():
    """Edited thinking beside a pending call is refused, and a missing one; old one may be left out."""
    thought = {"type": "thinking", "thinking": "Hm."}
    use = {"type": "tool_use", "name": "look", "input": {}}
    with AnthropicServer(policy=script([thought, use], "Seen.")) as server:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        chat = server.chat_model(max_tokens=2048, thinking=thinking).bind_tools([look])
        first = chat.invoke("Where?")
        thinks, call = first.content
        done = ToolMessage("here", tool_call_id=first.tool_calls[0]["id"])
        edited = [thinks | {"thinking": "Ha!"}, call]
        for content in (edited, [call]):
            broken = first.model_copy(update={"content": content})
            with pytest.raises(
                AnthropicInvalidRequestError, match=r"cannot be modified|must start"
            ):
                chat.invoke(["Where?", broken, done])
        last = chat.invoke(["Where?", first, done])
        lost = first.model_copy(update={"content": [call]})
        chat.invoke(["Where?", lost, done, last, "Sure?"])


def test_anthropics_block_of_a_compaction_is_signed_and_comes_first():
    with AnthropicServer() as server:
        chat = server.chat_model(betas=["compact-2026-09-04"])
        reply = chat.invoke("Hello", compaction={"type": "summarize"})
        chat.invoke([reply, "And now?"])
        forged = [reply.content[0] | {"signature": "AAAA"}]
        forged = reply.model_copy(update={"content": forged})
        for history, code in (
            (["Hm.", reply, "And now?"], "block_misplaced"),
            ([reply, "So?", reply, "And now?"], "block_ambiguous"),
            ([forged, "And now?"], "signature_invalid"),
        ):
            with pytest.raises(AnthropicInvalidRequestError) as error:
                chat.invoke(history)
            assert error.value.error_code == f"compaction_{code}"


def test_gemini_refuses_a_lost_or_forged_signature_of_the_current_turn():
    with GeminiServer(policy=tool_loop(steps=1), model="gemini-3-test") as server:
        chat = server.chat_model().bind_tools([look])
        first = chat.invoke("What is here?")
        (call_id,) = first.additional_kwargs[SIGNATURES]
        done = ToolMessage("silence", tool_call_id=call_id)
        for kept in ({}, {SIGNATURES: {call_id: "Zm9yZ2Vk"}}):
            broken = first.model_copy(update={"additional_kwargs": kept})
            with pytest.raises(GoogleInvalidRequestError, match=r"hought.signature"):
                chat.invoke(["What is here?", broken, done])
        assert chat.invoke(["What is here?", broken, done, "And now?"]).tool_calls


def test_openais_encrypted_reasoning_comes_back_as_it_was_and_where_it_was():
    """Edited content, a lost item and a moved item are refused; untouched ones pass."""
    call = {"type": "function_call", "name": "look", "arguments": {"name": "x"}}
    thinks = [{"type": "reasoning", "text": "Hm, the mill."}, call]
    with OpenAIServer(policy=script(thinks, "Seen.")) as server:
        chat = server.chat_model(**STATELESS).bind_tools([look])
        reply = chat.invoke("Where?")
        thought, call = reply.content
        done = ToolMessage("done", tool_call_id=reply.tool_calls[0]["id"])
        for content, text in (
            ([thought | {"encrypted_content": "AAAA"}, call], "could not be verified"),
            ([call], "required 'reasoning' item"),
        ):
            broken = reply.model_copy(update={"content": content})
            with pytest.raises(OpenAIInvalidRequestError, match=text):
                chat.invoke(["Where?", broken, done])
        moved = reply.model_copy(update={"content": [thought], "tool_calls": []})
        with pytest.raises(OpenAIInvalidRequestError, match="required following item"):
            chat.invoke(["Where?", moved, HumanMessage("So?")])
        assert chat.invoke(["Where?", reply, done]).text == "Seen."


def test_openai_refuses_what_its_window_does_not_hold():
    with (
        OpenAIServer(context_window=100) as server,
        pytest.raises(OpenAIInvalidRequestError) as error,
    ):
        server.chat_model().invoke("a " * 999)
    assert error.value.code == "context_length_exceeded"
