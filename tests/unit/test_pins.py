"""What stays in every request, verbatim: marked messages and constraints; or an error that names them."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxwin import pin
from langchain_ctxwin.core.turns import is_pinned
from support import agents
from support.agents import RUNS, compacted
from support.conversations import conversations, ready

WORDS = "lorem ipsum dolor sit amet "


def engine_of(window=800, counter=None, **options):
    def digest(messages):
        return f"{len(messages)} more messages"

    return agents.engine_of(window, counter, digest, **{"summarize": "off", **options})


def ids(window):
    return [message.id for message in window.messages]


def test_a_pin_is_a_copy_with_the_same_id():
    message = HumanMessage("keep", id="1", additional_kwargs={"a": 1})
    marked = pin(message)
    assert (marked.id, marked.content, is_pinned(marked), is_pinned(message)) == (
        "1",
        "keep",
        True,
        False,
    )
    assert marked.additional_kwargs["a"] == 1


@pytest.mark.parametrize(
    ("pins_first", "answer", "shown"),
    [
        (True, "ready", ["first", "ready"]),
        (True, "long " * 300, ["first", "first:answered"]),
        (False, "ready", None),
    ],
    ids=[
        "with its short answer",
        "a marker for its long answer",
        "when the setting says so",
    ],
)
def test_the_first_question_stays_and_does_not_look_open(pins_first, answer, shown):
    window, _ = compacted(
        engine_of(600, pin_first_user=pins_first),
        chat(ready=AIMessage(answer, id="ready")),
    )
    assert (ids(window)[:2] == shown) is ("first" in ids(window)) is pins_first
    assert ids(window)[-1] == "now"
    assert answer == "ready" or window.messages[1].content == "[left out]"


def test_a_pin_covers_its_whole_step():
    step = [
        *(
            AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": i}], id=f"c{i}")
            for i in ("x", "y")
        ),
        SystemMessage("note", id="s"),
        ToolMessage("result x", tool_call_id="x", id="rx"),
        pin(ToolMessage("result y", tool_call_id="y", id="ry")),
    ]
    window, _ = compacted(
        engine_of(600, pin_first_user=False),
        [HumanMessage("go", id="go"), *step, *chat()],
    )
    shown = {m.id: m.content for m in window.messages}
    assert (shown["rx"], shown["ry"]) == ("result x", "result y")
    assert not any("not answered" in str(content) for content in shown.values())


def test_a_new_pin_takes_effect_at_once_on_what_had_left_and_counts_as_one_compaction():
    engine, messages = engine_of(), chat()
    shown, _, state = sent(engine, messages)
    assert "q2" not in shown
    pinned = [pin(m) if m.id == "q2" else m for m in messages]
    shown, report, state = sent(engine, pinned, json.loads(json.dumps(state)))
    assert (shown["q2"], report["compactions"]) == (messages[6].content, 2)
    assert sent(engine, pinned, state)[1]["compactions"] == 2


def text(what, tokens):
    """Return a text of about so many tokens."""
    return f"{what} " + (WORDS * tokens)[: 4 * tokens]


def chat(turns=10, **replaced):
    """Return a history of questions q0.. and answers a0.. of about 50 tokens, some messages replaced by id."""
    messages = [HumanMessage("start", id="first"), AIMessage("ready", id="ready")]
    for number in range(turns):
        messages += [HumanMessage(text(f"question {number}", 50), id=f"q{number}")]
        messages += [AIMessage(text(f"answer {number}", 50), id=f"a{number}")]
    messages += [HumanMessage("the current question", id="now")]
    return [replaced.get(message.id, message) for message in messages]


def sent(engine, messages, state=None):
    """Return what the engine sends, by id, its report, and the state."""
    fitted = engine.fit(messages, session=state)
    shown = {message.id: message.content for message in fitted.request}
    return shown, fitted.report, fitted.session


@pytest.mark.parametrize("tokens", [700, 900])
def test_a_pin_that_exceeds_the_room_is_clamped_reported_and_stays_alike(tokens):
    """Also where it would fit without the frame of the first record."""
    engine, messages = (
        engine_of(),
        chat(q3=pin(HumanMessage(text("keep this", tokens), id="q3"))),
    )
    assert "q3" in engine.emergency(engine.measure(messages)).after.report["clamped"]
    shown, _, state = sent(engine, messages)
    assert "characters left out; in the history as message q3" in shown["q3"]
    assert (shown["now"], state["context_view"]["clamped"]["q3"]["pin"]) == (
        "the current question",
        True,
    )
    messages += [AIMessage("yes", id="yes"), HumanMessage("and?", id="and")]
    later, report, _ = sent(engine, messages, json.loads(json.dumps(state)))
    assert (later["q3"], report["compactions"]) == (shown["q3"], 1)


def test_what_stays_leaves_room_for_the_frame_of_a_first_record():
    messages = [HumanMessage("Go on."), AIMessage("Yes.")] * 99
    assert sent(engine_of(keep=0.98), messages[:-1])[1]["over_by"] == 0


@st.composite
def pinned_conversations(draw):
    """Return a random conversation with one explicit pin."""
    messages = draw(conversations(pins=False, huge=True, broken=False))
    index = draw(st.integers(0, len(messages) - 1))
    return [*messages[:index], pin(messages[index]), *messages[index + 1 :]]


@RUNS
@given(messages=pinned_conversations(), window=st.sampled_from((1200, 2000)))
@example(
    messages=[
        pin(HumanMessage(text("keep this", 1500), id="q")),
        AIMessage("", id="b", tool_calls=[{"name": "read", "args": {}, "id": "c"}]),
        ToolMessage(text("found", 50), tool_call_id="c", id="r"),
    ],
    window=1200,
)
def test_a_single_pin_never_causes_a_refusal(messages, window):
    engine, state = engine_of(window), {}
    for stop in range(1, len(messages) + 1):
        if ready(messages[:stop]):
            _, report, state = sent(engine, messages[:stop], state)
            assert report["over_by"] == 0
