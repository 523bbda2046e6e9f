"""The loopback Anthropic API works with the real client and refuses what the real API refuses."""

import pytest
from langchain_anthropic.chat_models import AnthropicInvalidRequestError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from support.anthropic_server import (
    AnthropicServer,
)
from support.loopback import called, result, script

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

# 1,400 tokens: more than the least that is cached
LONG = "The river ran past the mill. " * 200
EDITS, COMPACT = ["context-management-2025-06-27"], ["compact-2026-01-12"]
THINK = {"type": "enabled", "budget_tokens": 1024}
MARK = {"type": "ephemeral"}


def marked(text, **more):
    """Build a text block with a breakpoint."""
    return {"type": "text", "text": text, "cache_control": MARK | more}


def said(*blocks):
    """Build a human message of blocks."""
    return HumanMessage(list(blocks))


def tool(name, **more):
    """Build a tool definition in the API's own form."""
    return {
        "name": name,
        "description": LONG,
        "input_schema": {"type": "object", "properties": {}},
    } | more


def use(name, **args):
    """Build a call as a script writes it."""
    return {"type": "tool_use", "name": name, "input": args}


def thought(text):
    """Build thinking as a script writes it."""
    return {"type": "thinking", "thinking": text}


def test_a_fifth_breakpoint_is_refused_wherever_it_stands():
    """System, tools, messages, results and the automatic one count together."""
    with AnthropicServer() as server:
        chat = server.chat_model().bind_tools([tool("look", cache_control=MARK)])
        four = [SystemMessage([marked("rules")]), said(marked("a"), marked("b"))]
        chat.invoke(four)
        with pytest.raises(
            AnthropicInvalidRequestError, match=r"maximum of 4 blocks .* Found 5"
        ):
            chat.invoke([*four, AIMessage("so"), said(marked("c"))])
        chat.invoke(four, cache_control=MARK)  # the last block has one already
        with pytest.raises(AnthropicInvalidRequestError, match="Found 5"):
            chat.invoke([*four, AIMessage("so"), HumanMessage("c")], cache_control=MARK)
        with pytest.raises(AnthropicInvalidRequestError, match="another ttl"):
            chat.invoke(four, cache_control=MARK | {"ttl": "1h"})
        with pytest.raises(
            AnthropicInvalidRequestError, match=r"ttl='1h' .* must not come after"
        ):
            chat.invoke([said(marked("a", ttl="5m"), marked("b", ttl="1h"))])
        with pytest.raises(
            AnthropicInvalidRequestError, match="cannot be set for empty text"
        ):
            chat.invoke([SystemMessage([marked("")]), HumanMessage("hi")])
        with pytest.raises(
            AnthropicInvalidRequestError, match=r"thinking.cache_control: Extra inputs"
        ):
            chat.invoke(
                [
                    "hi",
                    AIMessage([thought("Hm.") | {"cache_control": MARK}]),
                    HumanMessage("hi"),
                ]
            )


@pytest.mark.parametrize(
    ("history", "text"),
    [
        (
            [called("a", "b"), result("a"), HumanMessage("and?")],
            "ids were found without .* id-b",
        ),
        ([called("a")], "ids were found without .* id-a"),
        ([AIMessage("so"), result("a")], "unexpected `tool_use_id` .* id-a"),
    ],
)
def test_orphans_are_refused(history, text):
    """A call needs its result in the next message, a result its call in the message before; pairs pass."""
    with AnthropicServer() as server:
        with pytest.raises(AnthropicInvalidRequestError, match=text):
            server.chat_model().invoke([HumanMessage("hi"), *history])
        server.chat_model().invoke(
            [HumanMessage("hi"), called("a", "b"), result("a"), result("b")]
        )


@pytest.mark.parametrize("kind", ["enabled", "adaptive"])
def test_thinking_comes_back_as_it_was_issued(kind):
    """Edited thinking beside a pending call is refused, missing one unless it is adaptive; old one may be left out."""
    thinking = THINK if kind == "enabled" else {"type": kind}
    with AnthropicServer(
        policy=script([thought("Hm."), use("look")], "Seen.")
    ) as server:
        chat = server.chat_model(max_tokens=2048, thinking=thinking).bind_tools(
            [tool("look")]
        )
        first = chat.invoke("Where?")
        thinks, call = first.content
        done = ToolMessage("here", tool_call_id=first.tool_calls[0]["id"])
        edited = first.model_copy(
            update={"content": [thinks | {"thinking": "Ha!"}, call]}
        )
        lost = first.model_copy(update={"content": [call]})
        for broken in (edited, lost) if kind == "enabled" else (edited,):
            with pytest.raises(
                AnthropicInvalidRequestError, match=r"cannot be modified|must start"
            ):
                chat.invoke(["Where?", broken, done])
        last = chat.invoke(["Where?", first, done])
        chat.invoke(["Where?", lost, done, last, "Sure?"])
        with pytest.raises(AnthropicInvalidRequestError, match="Invalid `signature`"):
            chat.invoke(["Where?", edited, done, last, "Sure?"])
        # thinking is off
        server.chat_model().bind_tools([tool("look")]).invoke(["Where?", edited, done])


def clearing(**options):
    """Build the request options of tool clearing."""
    return {
        "betas": EDITS,
        "context_management": {
            "edits": [{"type": "clear_tool_uses_20250919", **options}]
        },
    }


def test_a_requested_compaction_is_signed_and_comes_first():
    """The block answers alone; later requests begin with it, and with no second one."""
    native = {"type": "summarize"}
    with AnthropicServer() as server:
        chat = server.chat_model(betas=["compact-2026-09-04"])
        reply = chat.invoke(LONG, compaction=native)
        chat.invoke([reply, "And now?"])
        forged = reply.model_copy(
            update={"content": [reply.content[0] | {"signature": "AAAA"}]}
        )
        with pytest.raises(AnthropicInvalidRequestError, match="cannot be combined"):
            server.chat_model(**clearing()).invoke(LONG, compaction=native)
        for history, code in (
            (["Hm.", reply, "And now?"], "block_misplaced"),
            ([reply, "So?", reply, "And now?"], "block_ambiguous"),
            ([forged, "And now?"], "signature_invalid"),
        ):
            with pytest.raises(AnthropicInvalidRequestError) as error:
                chat.invoke(history)
            assert error.value.error_code == f"compaction_{code}"
    assert (reply.content[0]["type"], reply.response_metadata["stop_reason"]) == (
        "compaction",
        "compaction",
    )
