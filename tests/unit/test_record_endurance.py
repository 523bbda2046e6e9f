"""Does the record hold what was said first through a hundred compactions, within its share and without growing?"""

import json
from functools import cache

from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits, render_record
from langchain_ctxwin.core.compaction import LEAST_RECORD_SHARE, LEAST_RECORD_TOKENS
from support.conversations import CharCounter
from support.recording import called, result, said

WINDOW, RESERVE = 4_000, 500
COMPACTIONS = 100
SETTLED = 10
"""Compactions after which the record is full."""

RULE = "Never deploy on Friday; the key is DK-4411."


def turn(number):
    """A question, a call whose result is long and full of numbers, and an answer."""
    key = str(number)
    rows = [{"order": f"W-{number}{at:03}", "town": f"Town {number * at}"} for at in range(25)]
    return [
        HumanMessage(f"Please look up parcel P-{10_000 + number}. It is late again.", id=f"q{key}"),
        called("look_up", {"parcel": f"P-{10_000 + number}"}, call_id=key, key=f"c{key}"),
        result(json.dumps(rows), call_id=key, key=f"r{key}"),
        AIMessage(f"Parcel P-{10_000 + number} left depot D-{number % 7}11. " + "All is well. " * 20, id=f"a{key}"),
    ]


@cache
def endured():
    """The session after each of a hundred compactions in a row, of a conversation that goes on."""
    own = engine()
    history, session, sessions = [said("Hello.", "hello"), AIMessage("Hello.", id="hi"), said(RULE, "rule")], {}, []
    number = 0
    while len(sessions) < COMPACTIONS:
        number += 1
        history += turn(number)
        window = own.measure(history, session=session)
        compaction = own.plan(window) or own.emergency(window)
        if compaction:
            session = {**session, **own.apply(compaction, window)}
            sessions.append(session)
            assert CharCounter()(own.build(own.measure(history, session=session))) <= WINDOW - RESERVE
    return tuple(sessions)


def engine():
    return ContextEngine(
        ModelLimits(context_window=WINDOW, max_output_tokens=RESERVE),
        counter=CharCounter(),
        config=ContextConfig(output_reserve=RESERVE, pin_first_user=False),
    )


def tokens_of(session):
    empty, shown = HumanMessage(""), HumanMessage(render_record(session["context_record"]))
    return CharCounter()([shown]) - CharCounter()([empty])


def test_what_was_said_first_is_still_there():
    """A rule, and the key in it, outlive a hundred compactions, from the message that said them."""
    lines = endured()[-1]["context_record"]["lines"]
    kept = " ".join(text for kind, text, source, _ in lines if (kind, source) == ("said", "rule"))
    assert [word for word in ("Never", "deploy", "Friday", "DK-4411") if word not in kept] == []


def test_the_record_stays_within_its_share():
    """Or within the least that it is given where its share says too little."""
    room = WINDOW - RESERVE
    most = max(int(ContextConfig().record_share * room), min(LEAST_RECORD_TOKENS, int(LEAST_RECORD_SHARE * room)))
    assert max(map(tokens_of, endured())) <= most


SIZE_TOLERANCE = 1.5
"""A record that is full is refilled to a part, and its lines differ in length."""


def test_the_state_stops_growing():
    """After the first few compactions it is as large as it gets."""
    sizes = [len(json.dumps(session)) for session in endured()]
    assert max(sizes[SETTLED:]) <= SIZE_TOLERANCE * max(sizes[:SETTLED])


def test_what_left_is_counted_throughout():
    """The counts only grow; the lines are those of the newest that fit."""
    counts = [session["context_record"]["left"]["messages"] for session in endured()]
    assert counts == sorted(set(counts))


def test_the_newest_values_are_kept():
    """What the agent used last before it left the view is still there."""
    last = endured()[-1]
    start = last["context_view"]["start"]["id"]
    newest = int(start[1:]) - 1
    assert f"P-{10_000 + newest}" in render_record(last["context_record"])
