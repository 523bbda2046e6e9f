"""Cases that a careful reader found: each once lost something, or said something untrue."""

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda

from langchain_ctxwin import (
    BudgetedRetriever,
    ContextConfig,
    ContextEngine,
    ContextOverflow,
    ModelLimits,
    ToolResultConfig,
    ToolResultGuard,
    create_context_agent,
    pin,
)
from langchain_ctxwin.core import from_answer
from support import agents
from support.agents import called, compacted
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel
from support.oracle import text_tokens


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


def test_usage_of_something_else_is_not_the_size_of_this_request():
    answer = AIMessage(
        "hi",
        usage_metadata={"input_tokens": 30, "output_tokens": 1, "total_tokens": 31},
    )
    report = (
        engine_of(20_000)
        .measure([HumanMessage("x" * 100_000), answer, HumanMessage("go")])
        .report
    )
    assert report["counted_by"] != "usage"
    assert report["total_tokens"] > 20_000


def test_the_anchor_of_one_model_is_not_used_for_another():
    engine = engine_of(50_000)
    first, second = (
        ScriptedChatModel(model_name="first"),
        ScriptedChatModel(model_name="second"),
    )
    messages = talk(3)
    window = engine.measure([*messages, HumanMessage("x", id="x")], model=first)
    size = window.total_tokens + 300
    usage = {"input_tokens": size, "output_tokens": 1, "total_tokens": size + 1}
    reply = AIMessage("ok", id="ok", usage_metadata=usage)
    state = {"context_counts": from_answer(window, reply).counts}
    later = [*messages, HumanMessage("x", id="x"), reply, HumanMessage("go", id="go")]
    assert (
        engine.measure(later, session=state, model=first).report["counted_by"]
        == "usage"
    )
    assert (
        engine.measure(later, session=state, model=second).report["counted_by"]
        != "usage"
    )


@pytest.mark.parametrize("keep", [0.5, 1.0, 3000])
def test_a_trigger_by_messages_leaves_room_to_grow(keep):
    engine = engine_of(50_000, trigger_messages=10, keep=keep, summarize="background")
    state, messages, made = {}, [], 0
    for message in talk(40):
        messages.append(message)
        window = engine.measure(messages, session=state)
        if plan := engine.plan(window):
            made, state = made + 1, engine.apply(plan, window)
    assert 0 < made <= 16


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


def test_the_record_counts_a_message_once():
    """A message that is pinned after it left counts as left no more, until it leaves again."""
    engine, messages = engine_of(1000), talk(20)
    _, state = compacted(engine, messages)
    left = state["context_record"]["left"]
    messages[4] = pin(messages[4])
    window = engine.measure(messages, session=state)
    record = window.session.view.record
    assert record.messages == left["messages"] - 1
    messages[4] = HumanMessage(messages[4].content, id=messages[4].id)
    messages += talk(40)[40:]
    _, state = compacted(engine, messages, window.session.to_json())
    shown = (
        len(messages)
        - state["context_view"]["start"]["index"]
        + len(state["context_view"]["pinned"])
    )
    assert state["context_record"]["left"]["messages"] == len(messages) - shown


def test_the_remaining_question_is_shown_when_the_current_one_is_removed():
    engine = engine_of(800, pin_first_user=False)
    messages = [*talk(3), HumanMessage("QUESTION", id="q")]
    messages += [message for n in range(9) for message in called(n, "x" * 600)]
    _, state = compacted(engine, messages)
    messages = [message for message in messages if message.id != "q"]
    assert messages[4].text in texts(engine, messages, state)


def test_a_target_that_is_met_needs_no_compaction():
    engine = engine_of(3000)
    window = engine.measure(talk(2))
    assert engine.emergency(window, target_tokens=window.total_tokens) is None


@pytest.mark.parametrize("ids", [("same", "same"), ("one", "other")])
def test_two_messages_with_one_id_are_shortened_alike(ids):
    results = [
        ToolMessage("row " * 900, tool_call_id=f"c{n}", id=id_)
        for n, id_ in enumerate(ids)
    ]
    calls = [{"name": "look", "args": {"page": n}, "id": f"c{n}"} for n in range(2)]
    messages = [
        HumanMessage("question", id="h"),
        AIMessage("", tool_calls=calls, id="a"),
        *results,
    ]
    engine = engine_of(900)
    assert compacted(engine, messages)[0].over_by == 0


PLAIN = (
    "The customer asked twice whether the replacement would arrive before the weekend. "
    * 50
)
TAGS = "\U000e0041" * 112
DEAR_TEXTS = {
    "rare ideographs": "".join(
        chr(0x4E00 + number * 7 % 0x1A00) for number in range(60_000)
    ),
    "selectors behind a sentence": PLAIN[:83]
    + "".join(chr(0xFE00 + number % 15) for number in range(60_000)),
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


@pytest.mark.parametrize("text", DEAR_TEXTS.values(), ids=DEAR_TEXTS)
def test_a_page_has_no_more_tokens_than_it_may_however_many_its_characters_have(text):
    shown = ToolResultGuard(ToolResultConfig(max_tokens=4_000)).output(text, "read", {})
    assert text_tokens(shown) <= 4_000


@pytest.mark.parametrize("text", DEAR_TEXTS.values(), ids=DEAR_TEXTS)
def test_chunks_that_are_kept_have_at_most_twice_the_tokens_they_may(text):
    """The budget is one of estimates, which are never below half of the count."""
    chunks = [
        Document(text[start : start + 2_000]) for start in range(0, len(text), 2_000)
    ]
    kept = (
        BudgetedRetriever(
            base=RunnableLambda(lambda _: chunks), max_context_tokens=8_192
        )
        .retrieve("?")
        .documents
    )
    assert 0 < sum(text_tokens(chunk.page_content) for chunk in kept) <= 2 * 8_192
