"""What one provider refuses of a message that another takes is repaired on the way; what all take stays as it is.

Each case is a history whose payload an integration makes as it is, with what its provider would refuse of that.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin import ContextEngine, ModelLimits
from langchain_ctxwin.core.history import Before, show_step
from langchain_ctxwin.core.model_info import Rules
from langchain_ctxwin.core.tokens import pieces
from langchain_ctxwin.core.turns import split_steps
from langchain_ctxwin.core.view import View

ENGINE = ContextEngine(ModelLimits(40_000, max_output_tokens=1_000))
MODELS = {
    "anthropic": ChatAnthropic(model="claude-sonnet-4-5", api_key="x", max_tokens=500),
    "chat": ChatOpenAI(model="gpt-4o", api_key="x"),
    "responses": ChatOpenAI(
        model="gpt-5",
        api_key="x",
        use_responses_api=True,
        output_version="responses/v1",
    ),
    "gemini": ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key="x"),
}
ASKED, GO_ON = HumanMessage("Look.", id="u"), HumanMessage("Go on.", id="v")
PNG = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}


def call(key, name="look", **args):
    return {"type": "tool_call", "id": key, "name": name, "args": args}


def use(key):
    return {"type": "tool_use", "id": key, "name": "look", "input": {"a": 1}}


def result(key, content="a door", **more):
    return ToolMessage(content, tool_call_id=key, **more)


def answer(content="", *calls, **more):
    return AIMessage(content, tool_calls=calls, id="a", **more)


def asked(*blocks):
    return [HumanMessage([{"type": "text", "text": "Look."}, *blocks], id="u")]


def text(said):
    return {"type": "text", "text": said}


def custom(key):
    block = {"type": "custom_tool_call", "id": "ct", "call_id": key, "name": "look"}
    return {**block, "input": "abc"}


HISTORIES = {
    "ids that only others take": [
        ASKED,
        answer("", call("functions.look:0"), call("functions.look:1")),
        result("functions.look:0"),
        result("functions.look:1"),
        GO_ON,
    ],
    "some ids missing": [
        ASKED,
        answer("", call(None, "a"), call("x", "b"), call("", "c")),
        result("x", name="b"),
        result("", name="a"),
        result("", name="c"),
        GO_ON,
    ],
    "ids missing in two answers": [
        ASKED,
        answer("", call(None)),
        result(""),
        AIMessage("", tool_calls=[call(None)], id="b"),
        result(""),
        GO_ON,
    ],
    "a block of a call without an id": [ASKED, answer([use(None)]), result(""), GO_ON],
    "a custom call in a block": [ASKED, answer([custom("k")]), result("k"), GO_ON],
    "a broken call in a block": [
        ASKED,
        answer(
            [
                {
                    "type": "function_call",
                    "id": "fc",
                    "call_id": "f",
                    "name": "look",
                    "arguments": "{oops",
                }
            ]
        ),
        result("f"),
        GO_ON,
    ],
    "blanks and a call in blocks": [
        ASKED,
        answer([text(" \n"), use("b")], call("b", a=1)),
        result("b"),
        GO_ON,
    ],
    "no text and a call in blocks": [
        ASKED,
        answer([text(""), use("b")], call("b", a=1)),
        result("b"),
        GO_ON,
    ],
    "a picture under no text": [HumanMessage([text(""), PNG], id="u")],
    "a picture under blanks": [HumanMessage([text("  "), PNG], id="u")],
    "nothing but texts without text": [HumanMessage([text(""), text("")], id="u")],
    "a blank answer": [ASKED, answer(" \n"), GO_ON],
    "a result of no blocks": [ASKED, answer("", call("b")), result("b", []), GO_ON],
    "a result without text": [
        ASKED,
        answer("", call("b")),
        result("b", [text("")]),
        GO_ON,
    ],
    "a picture in a result": [
        ASKED,
        answer("", call("b")),
        result("b", [text(""), PNG]),
        GO_ON,
    ],
    "spoken": [
        ASKED,
        answer(
            "", additional_kwargs={"audio": {"id": "x", "transcript": "It is red."}}
        ),
        GO_ON,
    ],
    "reasoning and nothing else": [
        ASKED,
        answer(
            [
                {"type": "reasoning", "id": "r1", "summary": []},
                {"type": "reasoning", "id": "r2", "summary": []},
            ]
        ),
        GO_ON,
    ],
}


def refused_by_anthropic(model, messages):
    waiting = []
    for message in model._get_request_payload(messages)["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [text(content)]
        inner = [
            part
            for block in blocks
            if isinstance(block.get("content"), list)
            for part in block["content"]
        ]
        said = [block["text"] for block in (*blocks, *inner) if block["type"] == "text"]
        if "" in said or not blocks:
            yield "empty"
        if len(said) == len(blocks) and not any(one.strip() for one in said):
            yield "blank"
        done = [block["tool_use_id"] for block in blocks if "tool_use_id" in block]
        if sorted(waiting) != sorted(done):
            yield f"calls {waiting}, results {done}"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if not all(re.fullmatch(r"[\w-]+", key) for key in waiting):
            yield f"ids {waiting}"
        kinds = {block["type"] for block in (*blocks, *inner)}
        if more := kinds - {"text", "image", "tool_use", "tool_result"}:
            yield f"blocks {more}"
        if "@@@" in str(content):
            yield "no base64"


def refused_by_chat(model, messages):
    waiting = []
    for message in model._get_request_payload(messages)["messages"]:
        content = message.get("content")
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            parts = content if isinstance(content, list) else [text(content)]
            if {part["type"] for part in parts} != {"text"}:
                yield "content of a result"
            continue
        if waiting:
            yield f"calls {waiting}"
        waiting = [one["id"] for one in message.get("tool_calls") or ()]
        if not (content or waiting or message.get("audio")):
            yield "empty"
        parts = content if isinstance(content, list) else []
        if more := {part["type"] for part in parts} - {"text", "image_url", *CUSTOM}:
            yield f"parts {more}"
        if "@@@" in str(content):
            yield "no base64"


# Chat Completions has no such calls: who calls a model that makes them uses the Responses API.
CUSTOM = ["custom_tool_call"]


def refused_by_responses(model, messages):
    items = model._get_request_payload(messages)["input"]
    kinds = [item.get("type") or item.get("role") for item in items]
    calls = [one["call_id"] for one in items if str(one.get("type")).endswith("_call")]
    done = [one["call_id"] for one in items if str(one.get("type")).endswith("_output")]
    if sorted(calls) != sorted(done) or not all(calls):
        yield f"calls {calls}, results {done}"
    follows = zip(kinds, [*kinds[1:], ""], strict=True)
    if any(one == "reasoning" and two in {"user", ""} for one, two in follows):
        yield "loose reasoning"
    if "@@@" in str(items):
        yield "no base64"


def refused_by_gemini(model, messages):
    asked = 0
    for content in model._prepare_request(messages)["contents"]:
        if not content.parts or any(part.text == "" for part in content.parts):
            yield "empty"
        done = sum(part.function_response is not None for part in content.parts)
        if asked != done:
            yield f"{asked} calls, {done} results"
        asked = sum(part.function_call is not None for part in content.parts)


REFUSED = {
    "anthropic": refused_by_anthropic,
    "chat": refused_by_chat,
    "responses": refused_by_responses,
    "gemini": refused_by_gemini,
}


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.filterwarnings("ignore")
def test_no_provider_gets_what_it_refuses(name, provider):
    model = MODELS[provider]
    request = ENGINE.build(ENGINE.measure(HISTORIES[name], called=model))
    assert [*REFUSED[provider](model, request)] == []


def test_a_spoken_answer_that_is_sent_in_writing_counts_once():
    spoken = HISTORIES["spoken"]
    request = ENGINE.build(ENGINE.measure(spoken, called=MODELS["gemini"]))
    assert [*pieces(request[1])] == ["It is red."]


RULES = [
    Rules(provider=provider, is_stateless=is_stateless, loads_tools=loads)
    for provider in ("", "anthropic", "openai", "gemini", "other")
    for is_stateless in (False, True)
    for loads in (False, True)
]
SAID = st.builds(
    AIMessage,
    st.sampled_from(["", " ", "x"]),
    additional_kwargs=st.sampled_from(
        [
            {},
            {"audio": {"id": "a", "transcript": "said"}},
            {"reasoning": {"type": "reasoning", "summary": []}},
        ]
    ),
    response_metadata=st.just({"model_provider": "openai"}),
    tool_calls=st.sampled_from([[], [call("c")]]),
    id=st.just("a"),
)


@given(answer=SAID, content=st.sampled_from(["", "ok", [PNG]]))
def test_a_step_in_standard_form_is_one_that_no_provider_needs_otherwise(
    answer, content
):
    """Such a step is sent as it is, and nobody looks at it again."""
    results = [result("c", content)] if answer.tool_calls else []
    step = next(split_steps([answer, *results]))
    before = [Before(message=ASKED, rules=rules, is_answered=True) for rules in RULES]
    sent = [show_step(step, View(), one) for one in before]
    assert not step.is_standard or all(one is step for one in sent)
