"""Is every call and every result found in whatever form it is stated, and is what each integration then sends valid?"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits, render_record
from langchain_ctxwin.core.pairing import (
    Before,
    call_ids,
    calls_of,
    repair_step,
    standard,
)
from langchain_ctxwin.core.provider_blocks import spoken
from langchain_ctxwin.core.tokens import pieces
from langchain_ctxwin.core.turns import is_pinned, pin, read_history
from support.payloads import MODELS, REFUSED, text

ASKED = "Compare the stock of all depots, and name the fullest one at the end."
STOCK = "apples pears plums " * 140
CALL = {"type": "tool_call", "name": "depot", "args": {"number": 1}, "id": "c1"}
BROKEN = {
    "type": "invalid_tool_call",
    "name": "depot",
    "args": "{",
    "id": "c1",
    "error": "no JSON",
}


def uses(*numbers):
    blocks = [
        {"type": "tool_use", "id": f"c{n}", "name": "depot", "input": {"number": n}}
        for n in numbers
    ]
    return AIMessage(blocks, id=f"a{numbers[0]}")


def item(number, **output):
    return {
        "type": "function_call",
        "id": f"fc{number}",
        "call_id": f"c{number}",
        **output,
    }


STATED = {
    "tool_calls": AIMessage("", tool_calls=[CALL]),
    "a block of Anthropic's": uses(1),
    "one that was streamed": AIMessage(
        [
            {
                "type": "tool_use",
                "id": "c1",
                "name": "depot",
                "input": {},
                "partial_json": '{"number": 1}',
            }
        ]
    ),
    "an item of the Responses API": AIMessage(
        [item(1, name="depot", arguments='{"number": 1}')]
    ),
    "a standard block": AIMessage([CALL]),
    "a block beside tool_calls": AIMessage(uses(1).content, tool_calls=[CALL]),
}


@pytest.mark.parametrize("message", STATED.values(), ids=STATED)
def test_a_call_is_found_in_every_form_that_is_sent(message):
    """Once, with its name, arguments and id; in LangChain's own form it stands in `tool_calls`."""
    (read,) = standard(message)
    assert calls_of(read) == (CALL,)
    assert read.tool_calls == [CALL]


def results(*numbers, said=""):
    blocks = [
        {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{n}: {STOCK}"}
        for n in numbers
    ]
    return HumanMessage(
        [*blocks, *([{"type": "text", "text": said}] if said else [])],
        id=f"r{numbers[0]}",
    )


def test_a_user_message_of_results_alone_is_no_question():
    """It belongs to the step of its calls; what it says beside results is a message of its own, which begins a turn."""
    history = [
        HumanMessage(ASKED),
        uses(1),
        results(1),
        uses(2, 3),
        results(2, 3, said="Hurry up."),
        AIMessage("Yes."),
    ]
    read = read_history(history)
    steps = [[message.type for message in step.messages] for step in read.steps]
    answers = ["ai", "tool", "tool"]
    assert steps == [["human"], answers[:2], answers, ["human"], ["ai"]]
    ids = [message.tool_call_id for message in read.messages if message.type == "tool"]
    assert ids == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    "message",
    [results(1), results(1, 2, said="Hurry up."), FunctionMessage(STOCK, name="depot")],
)
def test_what_a_pinned_message_is_read_as_is_pinned(message):
    assert all(map(is_pinned, standard(pin(message))))


def fitted(history, model):
    limits, config = (
        ModelLimits(8_000, max_output_tokens=1_000),
        ContextConfig(prompt_cache="off"),
    )
    engine, session = ContextEngine(limits, config=config), {}
    measured = engine.measure(history, called=model)
    if compaction := engine.plan(measured) or engine.emergency(measured):
        session = engine.apply(compaction, measured)
        measured = engine.measure(history, session=session, called=model)
    return engine.build(measured), session


def answered(number, text=STOCK):
    return ToolMessage(text, tool_call_id=f"c{number}", id=f"t{number}")


ROUNDS = {
    "blocks of Anthropic's": lambda n: [uses(n), results(n)],
    "results with words": lambda n: [uses(n), results(n, said=f"Then number {n + 1}.")],
    "parallel": lambda n: [uses(2 * n, 2 * n + 1), results(2 * n + 1, 2 * n)],
    "one without its result": lambda n: [uses(2 * n, 2 * n + 1), results(2 * n)],
    "a result for nobody": lambda n: [AIMessage(f"Depot {n}.", id=f"a{n}"), results(n)],
    "blocks with tool messages": lambda n: [uses(n), answered(n)],
    "a tool message of blocks": lambda n: [
        uses(2 * n, 2 * n + 1),
        ToolMessage(
            results(2 * n, 2 * n + 1).content, tool_call_id=f"c{2 * n}", id=f"t{n}"
        ),
    ],
    "items of the Responses API": lambda n: [
        AIMessage(
            [item(n, name="depot", arguments="{}")],
            id=f"a{n}",
            response_metadata={"model_provider": "openai"},
        ),
        answered(n),
    ],
    "items both ways": lambda n: [
        AIMessage([item(n, name="depot", arguments="{}")], id=f"a{n}"),
        HumanMessage(
            [{"type": "function_call_output", "call_id": f"c{n}", "output": STOCK}],
            id=f"r{n}",
        ),
    ],
    "standard blocks": lambda n: [
        AIMessage([{**CALL, "id": f"c{n}"}], id=f"a{n}"),
        answered(n),
    ],
    "functions of old": lambda n: [
        AIMessage(
            "",
            additional_kwargs={"function_call": {"name": "depot", "arguments": "{}"}},
            id=f"a{n}",
        ),
        FunctionMessage(STOCK, name="depot", id=f"t{n}"),
    ],
    "without ids": lambda n: [
        AIMessage(
            "", tool_calls=[{**CALL, "id": None}, {**CALL, "id": ""}], id=f"a{n}"
        ),
        ToolMessage(STOCK, tool_call_id="", id=f"t{n}"),
        ToolMessage("plums", tool_call_id="", id=f"s{n}"),
    ],
    "blocks without ids": lambda n: [
        AIMessage(
            [{"type": "tool_use", "id": None, "name": "depot", "input": {}}] * 2,
            id=f"a{n}",
        ),
        HumanMessage(
            [{"type": "tool_result", "tool_use_id": None, "content": STOCK}] * 2,
            id=f"r{n}",
        ),
    ],
    "one id for all": lambda n: [
        uses(1, 1).model_copy(update={"id": f"a{n}"}),
        answered(1),
        answered(1, "plums"),
    ],
    "broken, without a name": lambda n: [
        AIMessage("I try.", invalid_tool_calls=[{**BROKEN, "name": None}], id=f"a{n}"),
        HumanMessage("Again.", id=f"u{n}"),
    ],
}


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("count", [3, 16])
def test_what_is_sent_is_paired_whatever_form_the_history_has(rounds, provider, count):
    """Whole and compacted; the question stays, and the record tells what came of the calls that left."""
    history = [
        HumanMessage(ASKED, id="u"),
        *(message for n in range(count) for message in ROUNDS[rounds](n)),
    ]
    shown, session = fitted(history, MODELS[provider])
    assert [*REFUSED[provider](MODELS[provider], shown)] == []
    assert any(ASKED in str(message.content) for message in shown)
    record = render_record(session.get("context_record"))
    assert not session or "depot" in record
    assert rounds == "one without its result" or "no result" not in record


@given(
    ids=st.lists(st.sampled_from([None, "", "a", "a_1", "b"]), min_size=1, max_size=12)
)
def test_every_call_has_an_id_of_its_own_and_one_result_by_it(ids):
    before, seen = Before(message=HumanMessage("q"), calls={"a", "a_1", "call_1"}), []
    for number, name in enumerate(ids):
        step = [
            AIMessage("", tool_calls=[{**CALL, "id": name}], id=f"m{number}"),
            ToolMessage("r", tool_call_id=""),
        ]
        asks, answer = repair_step(step, before)
        assert call_ids(asks) == (answer.tool_call_id,)
        seen.append(answer.tool_call_id)
    assert len({*seen, "a", "a_1", "call_1"}) == len(ids) + 3
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", name) for name in seen)


# ---- what its provider takes ---------------------------------------------------------------------------------------


PHOTO = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "gAAAA",
}
SIGNED = {"type": "text", "text": "", "extras": {"signature": "c2ln"}}
OF_OPENAI = {"model_provider": "openai"}


VALID = {
    "gemini": [
        HumanMessage([{"type": "text", "text": "My cat."}, PHOTO]),
        AIMessage([SIGNED, {"type": "text", "text": "A cat."}]),
    ],
    "responses": [
        HumanMessage("q"),
        AIMessage(
            [THOUGHT, {"type": "text", "text": "x", "id": "msg_1"}],
            response_metadata=OF_OPENAI,
        ),
        AIMessage([THOUGHT], tool_calls=[CALL], response_metadata=OF_OPENAI),
        ToolMessage("r", tool_call_id="c1"),
    ],
    "anthropic": [
        HumanMessage("q"),
        AIMessage(
            [
                {"type": "thinking", "thinking": "", "signature": "s"},
                {"type": "text", "text": "x"},
            ]
        ),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("", tool_call_id="c1"),
    ],
}


@pytest.mark.parametrize("provider", VALID)
def test_what_the_provider_takes_is_the_same_object(provider):
    history = [SystemMessage("s"), *VALID[provider], HumanMessage("v")]
    shown, _ = fitted(history, MODELS[provider])
    assert all(one is other for one, other in zip(shown[1:], history[1:], strict=True))


# ---- what one provider refuses of a message that another takes ------------------------------------------------------


ENGINE = ContextEngine(ModelLimits(40_000, max_output_tokens=1_000))
LOOK, GO_ON = HumanMessage("Look.", id="u"), HumanMessage("Go on.", id="v")
PNG = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}


def call(key, name="look", **args):
    return {"type": "tool_call", "id": key, "name": name, "args": args}


def use(key):
    return {"type": "tool_use", "id": key, "name": "look", "input": {"a": 1}}


def result(key, content="a door", **more):
    return ToolMessage(content, tool_call_id=key, **more)


def answer(content="", *calls, **more):
    return AIMessage(content, tool_calls=calls, id="a", **more)


def custom(key):
    block = {"type": "custom_tool_call", "id": "ct", "call_id": key, "name": "look"}
    return {**block, "input": "abc"}


HISTORIES = {
    "ids that only others take": [
        LOOK,
        answer("", call("functions.look:0"), call("functions.look:1")),
        result("functions.look:0"),
        result("functions.look:1"),
        GO_ON,
    ],
    "some ids missing": [
        LOOK,
        answer("", call(None, "a"), call("x", "b"), call("", "c")),
        result("x", name="b"),
        result("", name="a"),
        result("", name="c"),
        GO_ON,
    ],
    "a custom call in a block": [LOOK, answer([custom("k")]), result("k"), GO_ON],
    "a broken call in a block": [
        LOOK,
        answer([item(1, name="look", arguments="{oops")]),
        result("c1"),
        GO_ON,
    ],
    "blanks and a call in blocks": [
        LOOK,
        answer([text(" \n"), use("b")], call("b", a=1)),
        result("b"),
        GO_ON,
    ],
    "a picture under blanks": [HumanMessage([text("  "), PNG], id="u")],
    "nothing but texts without text": [HumanMessage([text(""), text("")], id="u")],
    "a blank answer": [LOOK, answer(" \n"), GO_ON],
    "a result of no blocks": [LOOK, answer("", call("b")), result("b", []), GO_ON],
    "a result without text": [
        LOOK,
        answer("", call("b")),
        result("b", [text("")]),
        GO_ON,
    ],
    "a picture in a result": [
        LOOK,
        answer("", call("b")),
        result("b", [text(""), PNG]),
        GO_ON,
    ],
    "spoken": [
        LOOK,
        answer(
            "", additional_kwargs={"audio": {"id": "x", "transcript": "It is red."}}
        ),
        GO_ON,
    ],
    "reasoning and nothing else": [
        LOOK,
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
    """One whose audio is bytes, as Gemini's, has no words."""
    assert not spoken(AIMessage("", additional_kwargs={"audio": b"RIFF"}))
    window = ENGINE.measure(HISTORIES["spoken"], called=MODELS["gemini"])
    request = ENGINE.build(window)
    assert [*pieces(request[1])] == ["It is red."]
