"""Does a record of odd, huge, hostile or endless conversations fit, keep what was said, and take time by its input?"""

import json
import re
import sys

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits, render_record
from langchain_ctxwin.core.compaction import LEAST_RECORD_SHARE, LEAST_RECORD_TOKENS
from support.agents import engine_of
from support.conversations import CharCounter
from support.recording import called, result, said

WINDOW, RESERVE = 4_000, 500
MOST_GROWTH = 4.8
"""Of the work for four times the messages; what compares every statement with every other takes more than five."""


def step(number, content, **args):
    """One call and its result."""
    key = f"{number}"
    call = called("look", args or {"row": number}, call_id=key, key=f"a{key}")
    return [call, result(content, call_id=key, key=f"r{key}")]


@pytest.mark.parametrize(
    "many",
    [
        lambda size: [
            m
            for number in range(size)
            for m in step(number, f"row {number}0000", path="a.py")
        ],
        lambda size: [
            m
            for number in range(size)
            for m in step(number, f"row {number}0000 for A-{number}")
        ],
        lambda size: [
            said(f"Never ship parcel P-{number}.", f"u{number}")
            for number in range(size)
        ],
        lambda size: [
            said(f"The dose is now {number} mg.", f"u{number}")
            for number in range(size)
        ],
        lambda size: [
            said(f"Order {number} is now open.", f"u{number}") for number in range(size)
        ],
        lambda size: [
            m
            for at in range(size // 4)
            for m in step(at, json.dumps([{"id": 10_000 + at}] * 9))
        ],
    ],
    ids=["same calls", "calls", "rules", "changes", "orders", "rows"],
)
def test_work_grows_with_the_history_and_no_faster(many):
    small, large = (
        work_of(sent, [said("Go.", "u"), *many(size), said("So?", "q")], {})
        for size in (400, 1_600)
    )
    assert large <= MOST_GROWTH * small


def engine():
    return engine_of(WINDOW, output_reserve=RESERVE, pin_first_user=False)


def sent(history, session):
    """The next request, and the state after it."""
    own = engine()
    window = own.measure(history, session=session)
    for verb in (own.plan, own.emergency):
        if compaction := verb(window):
            session = {**session, **own.apply(compaction, window)}
            window = own.measure(history, session=session)
    return own.build(window), session


def work_of(function, *arguments):
    """How many lines of Python run, each time round a loop counted."""
    count = 0

    def counting(frame, event, arg):
        nonlocal count
        count += 1
        return counting

    before = sys.gettrace()
    sys.settrace(counting)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


COMPACTIONS = 100
SETTLED = 30
"""Compactions after which the record is full."""
RULE = "Never deploy on Friday; the key is DK-4411."


def turn(number):
    """A question, a call whose result is long and full of numbers, and an answer."""
    key = str(number)
    rows = [
        {"order": f"W-{number}{at:03}", "town": f"Town {number * at}"}
        for at in range(25)
    ]
    return [
        HumanMessage(
            f"Please look up parcel P-{10_000 + number}. It is late again.",
            id=f"q{key}",
        ),
        called(
            "look_up", {"parcel": f"P-{10_000 + number}"}, call_id=key, key=f"c{key}"
        ),
        result(json.dumps(rows), call_id=key, key=f"r{key}"),
        AIMessage(
            f"Parcel P-{10_000 + number} left depot D-{number % 7}11. "
            + "All is well. " * 20,
            id=f"a{key}",
        ),
    ]


def tokens_of(session):
    return CharCounter()(
        [HumanMessage(render_record(session["context_record"]))]
    ) - CharCounter()([HumanMessage("")])


def test_a_hundred_compactions_keep_what_was_said_first_and_grow_no_state():
    """A rule and the key in it, what was used last, and counts that only grow; the record stays within its share."""
    own = engine()
    history, session, sessions = (
        [said("Hello.", "hello"), AIMessage("Hello.", id="hi"), said(RULE, "rule")],
        {},
        [],
    )
    while len(sessions) < COMPACTIONS:
        history += turn(len(history))
        window = own.measure(history, session=session)
        if compaction := own.plan(window) or own.emergency(window):
            session = {**session, **own.apply(compaction, window)}
            sessions.append(session)
            assert (
                CharCounter()(own.build(own.measure(history, session=session)))
                <= WINDOW - RESERVE
            )
    record = render_record(session["context_record"])
    assert all(word in record for word in ("Never deploy on Friday", "DK-4411"))
    left = history[: session["context_view"]["start"]["index"]]
    newest = next(message for message in reversed(left) if message.type == "ai")
    assert re.search(r"P-\d+", newest.text)[0] in record
    room = WINDOW - RESERVE
    most = max(
        int(ContextConfig().record_share * room),
        min(LEAST_RECORD_TOKENS, int(LEAST_RECORD_SHARE * room)),
    )
    assert max(map(tokens_of, sessions)) <= most
    sizes = [len(json.dumps(stored)) for stored in sessions]
    # refilled to a part, by lines that differ in length
    assert max(sizes[SETTLED:]) <= 1.5 * max(sizes[:SETTLED])
    counts = [stored["context_record"]["left"]["messages"] for stored in sessions]
    assert counts == sorted(set(counts))


def small_talk(turns, said_at=None):
    """Turns that say nothing, but for what is said at some of them."""
    talks = (
        "Sounds good to me, thanks a lot.",
        "Let us go on with the next one then.",
        "Fine, as you think is best.",
    )
    for number in range(turns):
        text = (said_at or {}).get(
            number
        ) or f"{talks[number % 3]} {'abcdefghij'[number % 10] * 3}"
        yield from (
            HumanMessage(text, id=f"h{number}-{turns}"),
            AIMessage("Okay, done.", id=f"o{number}-{turns}"),
        )


def much_work(steps):
    """More calls, with more values that they use and find, than any record shows."""
    for number in range(steps):
        content = f'{{"item": "ITEM-{number:05}", "cost": {number}.95, "stored_at": "/srv/shelves/{number}/left"}}'
        yield from step(
            f"w{number}", content, order=f"/srv/orders/archive/{number}/order.json"
        )


LASTING = {
    "a fact with a value": (
        {5: "My customer number is C-47110."},
        "C-47110",
        "never said",
    ),
    "a rule with two spaces": (
        {5: "Please do  not delete the index."},
        "not delete",
        "never said",
    ),
    "a rule with an invisible sign": (
        {5: "You should ne\u200bver ship on Monday."},
        "never ship",
        "never said",
    ),
    "a corrected rule": (
        {10: "The cap must be 10 units.", 20: "The cap is now 25 units."},
        "25 units",
        "10 units",
    ),
    "a corrected fact": (
        {10: "The man wants 3 rooms.", 20: "Actually the man has 5 rooms."},
        "5 rooms",
        "3 rooms",
    ),
}


def met_at_once(history):
    """The record of a history that is met for the first time."""
    own = ContextEngine(ModelLimits(context_window=8_000, max_output_tokens=500))
    window = own.measure([*history, HumanMessage("And now?", id="now")])
    return render_record(own.apply(own.emergency(window), window)["context_record"])


@pytest.mark.parametrize("since", [small_talk, much_work])
@pytest.mark.parametrize("name", LASTING)
def test_what_a_person_said_lasts_in_a_long_history_that_is_met_at_once(name, since):
    """However much was said or done since, and as it was corrected."""
    said_at, shown, gone = LASTING[name]
    record = met_at_once([*small_talk(40, said_at), *since(1_000)])
    assert shown in record
    assert gone not in record
