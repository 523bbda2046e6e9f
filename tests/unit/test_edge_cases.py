"""Cases that a careful reader found: each once lost something, or said something untrue."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextOverflow,
    ModelLimits,
    create_context_agent,
)
from support import agents
from support.agents import called, compacted
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel


def engine_of(window=1000, summarizer=None, **options):
    return agents.engine_of(
        window,
        None,
        summarizer,
        **{"summarize": "off", "output_reserve": None, **options},
    )


def talk(count):
    pairs = (
        (HumanMessage("q" * 200, id=f"h{n}"), AIMessage("a" * 200, id=f"r{n}"))
        for n in range(count)
    )
    return [message for pair in pairs for message in pair]


def texts(engine, messages, state):
    return [
        message.text
        for message in engine.build(engine.measure(messages, session=state))
    ]


def test_a_late_system_note_does_not_hide_the_newest_result():
    messages = [HumanMessage("question", id="h")]
    messages += [message for n in range(6) for message in called(n, "old " * 400)]
    messages += [*called(9, "NEWEST " * 300), SystemMessage("be brief", id="s")]
    window, _ = compacted(engine_of(900), messages)
    assert any(message.text.startswith("NEWEST") for message in window.messages)


def test_a_pending_call_behind_a_system_note_stays():
    engine = engine_of(500)
    waiting = AIMessage(
        "y" * 1200, id="p", tool_calls=[{"name": "pay", "args": {}, "id": "cp"}]
    )
    messages = [
        HumanMessage("question", id="h"),
        *called(1, "x" * 3000),
        waiting,
        SystemMessage("note", id="s"),
    ]
    _, state = compacted(engine, messages)
    messages.append(ToolMessage("APPROVED", tool_call_id="cp", id="tp"))
    assert "APPROVED" in texts(engine, messages, state)


def test_removing_the_covered_message_skips_nothing():
    options = {
        "summarize": "inline",
        "trigger": 0.4,
        "keep": 0.3,
        "summary_max_tokens": 50,
    }
    engine = engine_of(1100, lambda given: f"[{len(given)} messages]", **options)
    messages = talk(20)
    window = engine.measure(messages)
    state = engine.apply(engine.plan(window), window)
    covered = state["context_view"]["covered"]["through"]
    messages += talk(40)[40:]
    _, state = compacted(engine, messages, state)
    messages = [message for message in messages if message.id != covered["id"]]
    window = engine.measure(
        [*messages, HumanMessage("z" * 1200, id="z")], session=state
    )
    # it told of what was removed; the record tells of all that left
    assert window.session.summary == ""
    window = engine.measure(
        [*messages, *talk(44)[80:]], session=engine.apply(None, window) or state
    )
    assert engine.plan(window).snapshot[0] <= covered["index"]


@pytest.mark.parametrize(
    ("limits", "reserve", "overflow", "input_limit"),
    [
        (
            ModelLimits(8192, max_output_tokens=1024),
            None,
            ContextOverflow(4096, 7000, "input"),
            4096 - 1024,
        ),
        (
            ModelLimits(16_384),
            4096,
            ContextOverflow(4096, 9096, "input_plus_output", 4096),
            3072,
        ),
    ],
    ids=[
        "room for the answer",
        "a reserve that it cannot hold becomes the usual share",
    ],
)
def test_a_learned_joint_limit_leaves_room_for_the_answer(
    limits, reserve, overflow, input_limit
):
    engine = ContextEngine(
        limits,
        CharCounter(),
        config=ContextConfig(summarize="off", output_reserve=reserve),
    )
    state = engine.recover(engine.measure(talk(16)), overflow)
    report = engine.measure(talk(16), session=state).report
    assert (report["context_window"], report["input_limit"]) == (4096, input_limit)


PLAIN = (
    "The customer asked twice whether the replacement would arrive before the weekend. "
    * 50
)
TAGS = "\U000e0041" * 112
DEAR_TEXTS = {
    "rare ideographs": "".join(
        chr(0x4E00 + number * 7 % 0x1A00) for number in range(60_000)
    ),
    "tags between windows": "".join(
        [
            PLAIN[:4_096],
            (TAGS[:48] + PLAIN[:32] + TAGS[:48]) * 32,
            (TAGS + PLAIN[:32] + TAGS) * 16,
        ]
    ),
}


@pytest.mark.parametrize("text", DEAR_TEXTS.values(), ids=DEAR_TEXTS)
def test_the_first_question_fits_however_many_tokens_its_characters_have(text):
    model = ScriptedChatModel(input_limit=8_192)
    agent = create_context_agent(
        model, [], limits=ModelLimits(context_window=8_192, max_output_tokens=512)
    )
    agent.invoke({"messages": [HumanMessage(text)]})
    assert [request.refused for request in model.requests] == [False]
