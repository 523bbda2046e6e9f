"""Where a conversation may be cut."""

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.pairing import note
from langchain_ctxwin.core.turns import call_ids, safe_boundary, split_steps, split_turns, starts_turn, turn_starts
from support.conversations import conversations

RUNS = settings(deadline=None, max_examples=60)


def call(*ids):
    return AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": i} for i in ids])


def result(call_id):
    return ToolMessage("r", tool_call_id=call_id)


def sizes(messages):
    return [(step.index, step.size) for step in split_steps(messages)]


@RUNS
@given(messages=conversations())
def test_turns_and_steps_cover_the_history_once(messages):
    """No message is lost, doubled or moved."""
    turns = split_turns(messages)
    assert [m for turn in turns for m in turn.messages] == messages
    assert [turn.index for turn in turns] == turn_starts(messages)
    assert [turn.stop for turn in turns[:-1]] == [turn.index for turn in turns[1:]]
    assert all(turn.tokens == 0 for turn in turns)


@RUNS
@given(messages=conversations(), target=st.integers(-5, 40))
def test_a_safe_boundary_is_the_nearest_cut(messages, target):
    """It is a turn start, or a step start when there is one turn, and never the end."""
    starts = turn_starts(messages)
    cuts = starts if len(starts) > 1 else [step.index for step in split_steps(messages)]
    boundary = safe_boundary(messages, target)
    assert boundary in cuts
    assert boundary < len(messages)
    assert abs(boundary - target) == min(abs(cut - target) for cut in cuts)


def test_on_a_tie_the_earlier_boundary_wins_unless_it_is_zero():
    """Cutting at 0 would cut nothing."""
    turns = [HumanMessage("q"), AIMessage("a")] * 3
    assert [safe_boundary(turns, target) for target in range(7)] == [0, 2, 2, 2, 4, 4, 4]
    assert safe_boundary([], 3) == 0


def test_a_step_holds_parallel_calls_and_their_results_in_any_order():
    """Both results stand or fall with the calls."""
    messages = [HumanMessage("q"), call("a", "b"), result("b"), result("a"), AIMessage("done")]
    assert sizes(messages) == [(0, 1), (1, 3), (4, 1)]


def test_consecutive_calling_messages_are_one_step():
    """Their results may come in any order after both."""
    assert sizes([call("a"), call("b"), result("b"), result("a")]) == [(0, 4)]


def test_a_system_note_between_call_and_result_belongs_to_the_step():
    """One after the result does not."""
    assert sizes([call("a"), SystemMessage("s"), result("a"), SystemMessage("t")]) == [(0, 3), (3, 1)]


def test_a_late_result_is_a_step_of_its_own():
    """A user message ends the step, answered or not."""
    assert sizes([call("a"), HumanMessage("q"), result("a")]) == [(0, 1), (1, 1), (2, 1)]


def test_messages_before_the_first_question_are_turn_zero():
    """An AI-first history starts with a turn without a question."""
    turns = split_turns([AIMessage("hello"), HumanMessage("q"), AIMessage("a")])
    assert [(turn.index, len(turn.steps)) for turn in turns] == [(0, 1), (1, 2)]


def test_a_note_of_this_package_starts_no_turn():
    """It looks like a user message to the provider only."""
    steps = list(split_steps([note("n", "1"), HumanMessage("q"), AIMessage("a")]))
    assert [starts_turn(step) for step in steps] == [False, True, False]


def test_malformed_calls_count_as_calls():
    """Providers want them answered; a call without an id has the empty one."""
    broken = {"name": "f", "args": "{", "id": "x", "error": None, "type": "invalid_tool_call"}
    calls = [{"name": "f", "args": {}, "id": None}]
    message = AIMessage("", tool_calls=calls, invalid_tool_calls=[broken])
    assert call_ids(message) == ("", "x")
    assert call_ids(HumanMessage("q")) == ()
