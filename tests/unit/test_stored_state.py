"""State that holds something odd: its key is dropped whole, with a line, and the thread goes on."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextEngine, ModelLimits
from langchain_ctxwin.core.measuring import after_measure, from_answer
from langchain_ctxwin.core.session import read_key
from langchain_ctxwin.core.sizing import Sizes
from langchain_ctxwin.core.view import Position

HISTORY = [
    HumanMessage("question " * 40, id="q"),
    AIMessage("answer " * 40, id="a"),
    HumanMessage("next", id="n"),
]


def engine():
    return ContextEngine(ModelLimits(8192))


def counts():
    """What a conversation of this package stores."""
    window = engine().measure(HISTORY[:1])
    usage = {"input_tokens": 70, "output_tokens": 1, "total_tokens": 71}
    return from_answer(window, AIMessage("answer " * 40, id="a", usage_metadata=usage))[
        0
    ]


@settings(deadline=None)
@given(
    reported=st.integers(1, 200_000),
    offset=st.floats(-(10**5), 10**5),
    ratio=st.floats(0.1, 4),
    prompt=st.sampled_from(["", "rule " * 2000]),
)
def test_measuring_again_changes_nothing(reported, offset, ratio, prompt):
    known = Sizes(offset=offset, ratio=ratio, learned=900.0, reports=3)
    usage = {"input_tokens": reported, "output_tokens": 1, "total_tokens": reported + 1}
    answered = HISTORY[1].model_copy(update={"usage_metadata": usage})
    history = [HISTORY[0], answered, HISTORY[2]]
    state = {"context_counts": {"sizes": {"": known.to_json()}}}
    once = after_measure(
        engine().measure(history, system_prompt=prompt, session=state)
    ).to_json()
    twice = after_measure(
        engine().measure(history, system_prompt=prompt, session=once)
    ).to_json()
    assert twice == once


@pytest.mark.parametrize(
    ("extra", "kept", "faults"),
    [
        ({"messages": 2, "first": "q"}, {"messages": 2, "first": "q"}, ()),
        (
            {"corrections": {"|": [0]}, "messages": 3},
            {"messages": 3},
            (),
        ),  # a key of earlier versions is no fault
        (
            {"anchor": "x", "limits": {"m": {"context_window": 4096}}},
            None,
            ("context_counts holds nothing of ours: it was dropped",),
        ),
    ],
)
def test_what_we_store_is_read_back_whole_and_one_bad_value_costs_its_key(
    extra, kept, faults
):
    others = {key: value for key, value in counts().items() if key not in extra}
    kept = {} if kept is None else others | kept
    assert read_key("context_counts", json.loads(json.dumps(others | extra))) == (
        kept,
        faults,
    )
    guard = {
        "compactions": 1,
        "dropped_turns": 2,
        "ineffective": 0,
        "asked": 4,
        "since": {"id": "a", "index": 1, "of": "another version"},
    }
    assert read_key("context_guard", guard) == (guard, ())
    session = engine().measure(HISTORY, session={"context_guard": guard}).session
    assert session.since == Position("a", 1)


def test_what_is_said_of_removed_messages_is_forgotten():
    clamps = {
        "gone": {"head_chars": 9, "tail_chars": 9},
        "q": {"head_chars": 9, "tail_chars": 9},
    }
    state = {"context_view": {"start": {"id": "q", "index": 0}, "clamped": clamps}}
    assert {*engine().measure(HISTORY, session=state).session.view.clamped} == {"q"}


def test_a_pending_summary_of_what_is_summarized_already_is_dropped():
    covered = {"through": {"id": "q", "index": 0}, "digest": ""}
    pending = {
        "key": "k",
        "start": {"id": "q", "index": 0},
        "through": {"id": "q", "index": 0},
        "digest": "",
    }
    state = {"context_pending": pending | {"since": 0.0, "text": "", "max_tokens": 9}}
    assert engine().measure(HISTORY, session=state).session.pending is not None
    state |= {
        "context_summary": "They asked.",
        "context_view": {"start": {"id": "a", "index": 1}, "covered": covered},
    }
    assert engine().measure(HISTORY, session=state).session.pending is None
