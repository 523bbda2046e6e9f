"""Does the judge of the fleet find each fault that is planted, and none where there is none?"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from fleet import script  # stands beside the other benchmarks
from fleet.check import FAULTS, Stored, Turn, faults

THREAD, TURNS = script.thread_id(0), 6
RESULT = "[Here: rows 1-2]\n<data abcdefghijkl>\n{}n0\n{}n1\n</data abcdefghijkl>\n[Next page: read_more(cursor={!r})]"
CURSOR = "abcdefghijkl.2c0ffee5.a0nSAA._CFGlnBlIZD0aXVkOneG3w"


def talk():
    """The history of a thread as the model and its tools make it."""
    history = []
    for turn in range(TURNS):
        history.append(
            HumanMessage(
                script.question(THREAD, turn), id=script.message_id(THREAD, turn)
            )
        )
        while not (isinstance(history[-1], AIMessage) and not history[-1].tool_calls):
            answer = script.decide(history)
            history.append(answer.model_copy(update={"id": f"m{len(history)}"}))
            for call in answer.tool_calls:
                topic = script.topic(THREAD, turn)
                text = RESULT.format(topic, topic, CURSOR)
                history.append(
                    ToolMessage(text, tool_call_id=call["id"], id=f"m{len(history)}")
                )
    return history


def requests(history):
    """What the diary says of the requests: one for each message of the model."""
    for index, message in enumerate(history):
        if isinstance(message, AIMessage):
            shown = history[:index]
            place = {
                "kind": "request",
                "worker": f"w{index % 2}",
                "pid": 1,
                "thread": THREAD,
                "limit": 100_000,
            }
            yield {**place, "tokens": 100 * index, **script.seen_in(shown, THREAD)}


def sound():
    """A diary, turns and a stored thread without a fault."""
    history = talk()
    summary = {"worker": "w0", "pid": 1, "thread": THREAD, "snapshot": "S1"}
    page = {
        "kind": "page",
        "thread": THREAD,
        "tool": "read_more",
        "result": "r1",
        "fault": "",
    }
    diary = [
        *requests(history),
        {"kind": "summary", **summary},
        {**page, "worker": "w0"},
        {**page, "worker": "w1"},
    ]
    turns = [
        Turn(thread=THREAD, number=number, seconds=1.0 + number)
        for number in range(TURNS)
    ]
    stored = Stored(thread=THREAD, history=history, compactions=2)
    return diary, turns, stored


def found(diary, turns, stored):
    return {
        name: len(where)
        for name, where in faults(diary, turns, [stored]).items()
        if where
    }


def with_request(sound_one, **changes):
    diary, turns, stored = sound_one
    return [{**diary[-4], **changes}, *diary], turns, stored  # the last request


def with_history(sound_one, history):
    diary, turns, stored = sound_one
    return diary, turns, replace(stored, history=history)


def with_line(sound_one, kind, **changes):
    diary, turns, stored = sound_one
    line = next(line for line in diary if line["kind"] == kind)
    return [*diary, {**line, **changes}], turns, stored


def without(history, *ids):
    return [message for message in history if message.id not in ids]


def doubled_answer(sound_one):
    history = sound_one[2].history
    return with_history(
        sound_one, [*history, AIMessage("I read it again.", id="again")]
    )


def lost_question(sound_one):
    """A question that is gone makes one turn of two, which is seen, too."""
    return with_history(
        sound_one, without(sound_one[2].history, script.message_id(THREAD, 3))
    )


def lost_answer(sound_one):
    return with_history(sound_one, sound_one[2].history[:-1])


PLANTED = {
    "a turn that failed": (
        lambda one: (
            one[0],
            [*one[1][:-1], replace(one[1][-1], error="no answer")],
            one[2],
        ),
        {"turns failed": 1},
    ),
    "a request over the limit": (
        lambda one: with_request(one, tokens=100_001),
        {"requests over the limit": 1},
    ),
    "an orphan": (
        lambda one: with_request(one, orphans=["c1"]),
        {"orphaned calls and results": 1},
    ),
    "a rule": (
        lambda one: with_request(one, missing=["rule"]),
        {"requests without a rule, a pin or a fact of the thread": 1},
    ),
    "a message that was shown": (
        lambda one: with_request(
            one,
            earlier=[
                "gone",
                "ctxwin-record",
                f"{script.message_id(THREAD, 0)}:answered",
            ],
        ),
        {"messages lost": 1},
    ),
    "an answer": (lost_answer, {"messages lost": 1}),
    "a question": (lost_question, {"messages lost": 2, "turns run twice": 1}),
    "a turn that was run again": (doubled_answer, {"turns run twice": 1}),
    "a cursor that nobody could read": (
        lambda one: with_line(one, "page", fault="the cursor expired"),
        {"cursors and results that could not be read": 1},
    ),
    "a summary that was paid twice": (
        lambda one: with_line(one, "summary", worker="w1", pid=2),
        {"summaries paid twice at one snapshot": 1},
    ),
}


def test_a_sound_run_has_no_fault():
    assert found(*sound()) == {}


@pytest.mark.parametrize(("plant", "expected"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(plant, expected):
    assert found(*plant(sound())) == expected


def test_every_row_was_seen_red():
    assert {name for _, expected in PLANTED.values() for name in expected} == {*FAULTS}
