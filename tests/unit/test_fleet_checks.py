"""Does the judge of the fleet find each fault that is planted, and none where there is none?"""

import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from fleet import script  # stands beside the other benchmarks

THREAD, TURNS = script.thread_id(0), 4
REQUEST = {
    "kind": "request",
    "thread": THREAD,
    "turn": 1,
    "worker": "w0",
    "tokens": 100,
    "limit": 100,
    "orphans": [],
    "missing": [],
    "earlier": [],
}
SUMMARY = {"kind": "summary", "pid": 1, "thread": THREAD, "snapshot": "S1"}
PAGE = {"kind": "page", "thread": THREAD, "fault": ""}


def turn_of(number):
    """The messages of a turn."""
    key = script.message_id(THREAD, number)
    calls = [
        {"name": "look", "args": {}, "id": f"{key}-{n}"} for n in range(script.CALLS)
    ]
    return [
        HumanMessage("Where?", id=key),
        AIMessage("", tool_calls=calls, id=f"{key}-look"),
        *(ToolMessage("Here.", tool_call_id=c["id"], id=c["id"]) for c in calls),
        AIMessage("There.", id=f"{key}-said"),
    ]


HISTORY = [message for number in range(TURNS) for message in turn_of(number)]
AGAIN = AIMessage("I looked again.", id="again")
LAST = script.message_id(THREAD, TURNS - 1)


def found(*lines, error="", history=HISTORY):
    """The faults of a run that has these lines in its diary beside those of a sound one."""
    told = {"thread": THREAD, "seconds": 1.0}
    turns = [script.Turn(**told, number=number) for number in range(TURNS)]
    turns += [script.Turn(**told, number=TURNS, error=error)] if error else []
    stored = script.Stored(thread=THREAD, history=history, compactions=2)
    faults = script.faults([REQUEST, SUMMARY, PAGE, *lines], turns, [stored])
    return {name for name, where in faults.items() if where}


PLANTED = {
    "a turn that failed": (found(error="no answer"), {script.FAILED}),
    "a request over the limit": (found({**REQUEST, "tokens": 101}), {script.OVER}),
    "an orphan": (found({**REQUEST, "orphans": ["c1"]}), {script.ORPHANS}),
    "a rule": (found({**REQUEST, "missing": ["rule"]}), {script.UNTOLD}),
    "a message that was shown": (found({**REQUEST, "earlier": ["x"]}), {script.LOST}),
    "an answer": (found(history=HISTORY[:-1]), {script.LOST}),
    "a question": (
        found(history=[message for message in HISTORY if message.id != LAST]),
        {script.LOST, script.TWICE},
    ),
    "a turn that was run again": (found(history=[*HISTORY, AGAIN]), {script.TWICE}),
    "a page that nobody could read": (found({**PAGE, "fault": "x"}), {script.UNREAD}),
    "a summary that was paid twice": (found({**SUMMARY, "pid": 2}), {script.PAID}),
}


def test_a_sound_run_has_no_fault():
    """What is shown beside the history, and the word that a question was answered, are no messages that are lost."""
    earlier = ["ctxwin-record", f"{LAST}:answered", LAST]
    assert found({**REQUEST, "earlier": earlier}) == set()


@pytest.mark.parametrize(("faults", "expected"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(faults, expected):
    assert faults == expected


def test_every_row_was_seen_red():
    assert set().union(*(faults for faults, _ in PLANTED.values())) == {*script.FAULTS}
