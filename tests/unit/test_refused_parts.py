"""What one provider refuses of a message that another takes is repaired on the way; what all take stays as it is.

Each case is a history whose payload an integration makes as it is, with what its provider would refuse of that.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import ContextEngine, ModelLimits
from langchain_ctxwin.core.model_info import Rules
from langchain_ctxwin.core.tokens import pieces
from langchain_ctxwin.core.turns import Before, show_step, split_steps
from langchain_ctxwin.core.view import View
from support.payloads import MODELS, REFUSED

ENGINE = ContextEngine(ModelLimits(40_000, max_output_tokens=1_000))
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
