"""What holds for every conversation, however it arrives."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import BudgetExceededError
from langchain_ctxwin.core.compaction import after_undo
from langchain_ctxwin.core.measuring import after_measure
from langchain_ctxwin.core.pairing import is_empty
from langchain_ctxwin.core.record import Record
from langchain_ctxwin.core.turns import is_pinned, last_user
from langchain_ctxwin.core.view import VIEW, View, message_id
from langchain_ctxwin.testing import request_faults
from langchain_ctxwin.util.work import run
from support import agents
from support.conversations import TOOLS, CharCounter, conversations, payload, ready

COUNTER = CharCounter()
WINDOWS = st.sampled_from((200, 400, 800, 2000))
PROMPT = "You are a careful assistant."


class Digest:
    """A summarizer that says how much it was given."""

    def summarize(self, messages, *, previous, max_tokens):
        return f"{previous} {len(messages)} more messages".strip()[-max_tokens:]


def engine_of(window, *, summarizer=None, counter=COUNTER, **config):
    return agents.engine_of(
        window, counter=counter, summarizer=summarizer or Digest(), **config
    )


def measured(engine, messages, state):
    return engine.measure(messages, system_prompt=PROMPT, tools=TOOLS, session=state)


def advance(engine, messages, state):
    """Do what the nodes do before a model call; return the window that is sent, and the new state."""
    window = measured(engine, messages, state)
    state = state | after_measure(window).to_json()
    if plan := engine.plan(window):
        state = state | engine.apply(plan, window)
        window = measured(engine, messages, state)
    if compaction := engine.emergency(window):
        state = state | engine.apply(compaction, window)
        window = measured(engine, messages, state)
    return window, state


def requests(engine, messages):
    """Yield `(history, window, state)` for every request of a conversation that grows message by message."""
    state = {}
    for stop in range(1, len(messages) + 1):
        if not ready(messages[:stop]):
            continue
        try:
            window, state = advance(engine, messages[:stop], state)
        except BudgetExceededError:
            return
        yield messages[:stop], window, state


def final_state(engine, messages):
    """Return the state after the last request of a conversation."""
    states = [{}, *(state for _, _, state in requests(engine, messages))]
    return states[-1]


def frozen(messages):
    return [repr(message) for message in messages]


def shown(window, messages, index):
    """Return the message of the request that stands for `messages[index]`, or None."""
    original = messages[index]
    sent = window.messages
    if original.id is not None:
        return next((message for message in sent if message.id == original.id), None)
    # Call ids are not compared: a reused one gets another name in the request.
    return next((message for message in sent if said(message) == said(original)), None)


def said(message):
    calls = [
        (call["name"], call["args"]) for call in getattr(message, "tool_calls", ())
    ]
    return message.type, message.content, calls


def check_size(history, window, state, old):
    """No orphans, a user message first, and the exact size is at most the reported one, within the limit."""
    request = engine_of(window.budget.input_limit).build(window)
    assert not window.messages or request_faults(request) == []
    assert (
        COUNTER(request, tools=TOOLS)
        <= window.total_tokens
        <= window.budget.input_limit
    )
    assert window.over_by == 0


def check_questions(history, window, state, old):
    """The current user message and the pinned ones are there, verbatim unless the message itself was clamped."""
    wanted = {
        i
        for i, message in enumerate(history)
        if is_pinned(message) and message.type == "human"
    }
    for index in wanted | ({last_user(history)} - {None}):
        if message_id(history, index) not in window.view.clamped and not is_empty(
            history[index]
        ):
            assert shown(window, history, index).content == history[index].content


def check_pins(history, window, state, old):
    """A marked message that can be shown at all is neither dropped nor cleared."""
    fresh = measured(engine_of(10**6), history, None)
    for index, message in enumerate(history):
        if index < fresh.history.first or not is_pinned(message):
            continue
        before, after = shown(fresh, history, index), shown(window, history, index)
        if message_id(history, index) not in window.view.clamped:
            assert (before and said(before)) == (after and said(after))


def check_json(history, window, state, old):
    """State read back from JSON gives the same request."""
    engine = engine_of(window.budget.input_limit)
    again = measured(engine, history, json.loads(json.dumps(state)))
    assert list(map(payload, engine.build(again))) == list(
        map(payload, engine.build(window))
    )
    assert again.report == window.report


def check_monotonic(history, window, state, old):
    """The start never moves back, and what was cleared or clamped stays so while it is in view."""
    new = replace(
        VIEW.validate_python(state["context_view"]),
        record=Record.from_json(state.get("context_record")),
    )
    start = new.start.index if new.start else 0
    assert start >= (old.start.index if old.start else 0)
    shown = (*new.pinned, *range(start, len(history)))
    ids = {message_id(history, index) for index in shown}
    assert old.cleared & ids <= new.cleared
    assert old.clamped.keys() & ids <= new.clamped.keys()
    assert window.view == new


@pytest.mark.parametrize(
    "check",
    [check_size, check_questions, check_pins, check_json, check_monotonic],
)
@given(messages=conversations(), window=WINDOWS)
def test_every_request_of_a_conversation_holds(check, messages, window):
    old = View()
    for history, measured_, state in requests(engine_of(window), messages):
        check(history, measured_, state, old)
        old = measured_.view


@given(messages=conversations(huge=True), window=WINDOWS)
def test_a_compaction_leaves_the_request_that_a_measure_of_its_state_gives(
    messages, window
):
    """An emergency is made where the request does not fit, and says exactly what it costs afterwards."""
    engine = engine_of(window)
    before = measured(engine, messages, None)
    try:
        needed = engine.emergency(before)
    except BudgetExceededError:
        return
    assert (needed is None) is (before.over_by == 0)
    if compaction := needed or engine.plan(before):
        after = run(engine.applying(compaction, before))
        state = json.loads(json.dumps(after.session.to_json()))
        again = measured(engine, messages, state)
        assert (after.report, after.size, after.view, after.digest) == (
            *(again.report, again.size, again.view, again.digest),
        )
        assert after.assembled() == again.assembled()
        assert compaction.tokens_before == before.total_tokens
    if needed:
        assert again.total_tokens == needed.tokens_after <= window
        assert needed.tokens_after < before.total_tokens


@given(messages=conversations(), window=WINDOWS)
async def test_planning_changes_nothing_and_applying_says_the_same_every_time(
    messages, window
):
    """History, state and window stay as they were; a crash after `apply` costs nothing, and `aapply` does the same."""
    engine = engine_of(window)
    state = {}
    before = frozen(messages)
    window_ = measured(engine, messages, state)
    report = copy.deepcopy(window_.report)
    for make in (engine.plan, engine.emergency):
        try:
            compaction = make(window_)
        except BudgetExceededError:
            continue
        assert make(window_) == compaction
        if compaction is not None:
            assert engine.apply(compaction, window_) == engine.apply(
                compaction, window_
            )
            assert await engine.aapply(compaction, window_) == engine.apply(
                compaction, window_
            )
    assert frozen(messages) == before
    assert (window_.report, state) == (report, {})
    assert measured(engine, messages, state).report == report


@given(
    messages=conversations(pins=False),
    window=WINDOWS,
    placement=st.sampled_from(("system", "user")),
)
def test_between_compactions_each_request_extends_the_one_before(
    messages, window, placement
):
    """The prompt cache of the provider stays valid."""
    engine = engine_of(window, summary_placement=placement)
    last, compactions = [], 0
    for _, measured_, state in requests(engine, messages):
        request = list(map(payload, engine.build(measured_)))
        now = state.get("context_guard", {}).get("compactions", 0)
        if now == compactions:
            assert request[: len(last)] == last
        last, compactions = request, now


@given(
    messages=conversations(pins=False),
    window=WINDOWS,
    summarize=st.sampled_from(("off", "inline")),
)
def test_every_message_is_shown_counted_by_the_record_or_repaired_away(
    messages, window, summarize
):
    """Kept plus dropped is the whole history."""
    engine = engine_of(window, summarize=summarize)
    for history, measured_, _ in requests(engine, messages):
        view, first = measured_.view, measured_.history.first
        start = measured_.start
        left = [i for i in range(first, start) if i not in view.pinned]
        assert view.record.messages == len(left)
        everything = measured(engine_of(10**6), history, None)
        for index in range(start, len(history)):
            if history[index].id is None and not history[index].content:
                continue  # an empty message without an id looks like any other one
            assert (shown(measured_, history, index) is None) <= (
                shown(everything, history, index) is None
                or message_id(history, index) in {*view.cleared, *view.clamped}
            )


@given(messages=conversations(), other=conversations(), window=WINDOWS)
def test_a_session_of_another_history_is_dropped(messages, other, window):
    """View, summary and anchor go together when the start is not in this history."""
    engine = engine_of(window)
    state = final_state(engine, messages)
    foreign = [
        message.model_copy(update={"id": f"other-{i}"})
        for i, message in enumerate(other)
    ]
    got = measured(engine, foreign, state)
    if VIEW.validate_python(state.get("context_view") or {}).start is not None:
        assert (got.session.view, got.session.summary) == (View(), "")
        assert "anchor" not in got.session.counts
        assert any("edited or removed" in fault for fault in got.session.faults)
    request = engine.build(got)
    assert list(map(payload, request)) == list(
        map(payload, engine.build(measured(engine_of(window), foreign, None)))
    )


@given(messages=conversations(), window=WINDOWS)
def test_undo_restores_the_view_before_the_latest_compaction(messages, window):
    engine, state = engine_of(window, summarize="inline"), {}
    for stop in range(1, len(messages) + 1):
        if not ready(messages[:stop]):
            continue
        before = measured(engine, messages[:stop], state)
        try:
            compaction = engine.plan(before) or engine.emergency(before)
        except BudgetExceededError:
            return
        state = json.loads(
            json.dumps(engine.apply(compaction, before) or before.session.to_json())
        )
        if state["context_guard"].get("compactions", 0) > before.session.compactions:
            undone = after_undo(measured(engine, messages[:stop], state))
            assert undone is not None
            kept = replace(before.session, former={}).to_json()
            for key in ("context_view", "context_summary", "context_record"):
                assert undone.to_json()[key] == kept[key]
