"""Where a conversation may be cut, and whether what is sent is structurally valid, whatever arrives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.pairing import Rules, find_faults, is_empty, is_valid_step, note, repair_step
from langchain_ctxwin.core.turns import call_ids, safe_boundary, split_steps, split_turns, starts_turn, turn_starts
from support.conversations import conversations
from support.oracle import pairing_problem

RUNS = settings(deadline=None, max_examples=60)


def call(*ids):
    return AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": i} for i in ids], id="m")


def result(call_id, text="r"):
    return ToolMessage(text, tool_call_id=call_id)


@RUNS
@given(messages=conversations(), target=st.integers(-5, 40))
def test_turns_and_steps_cover_the_history_once_and_a_boundary_is_the_nearest_cut(messages, target):
    """No message is lost; a boundary is a turn start, or a step start when there is one turn, and never the end."""
    turns, starts = split_turns(messages), turn_starts(messages)
    assert [m for turn in turns for m in turn.messages] == messages
    assert [turn.index for turn in turns] == starts
    assert [turn.stop for turn in turns[:-1]] == starts[1:]
    assert all(turn.tokens == 0 for turn in turns)
    cuts = starts if len(starts) > 1 else [step.index for step in split_steps(messages)]
    boundary = safe_boundary(messages, target)
    assert boundary in cuts
    assert abs(boundary - target) == min(abs(cut - target) for cut in cuts)


def test_on_a_tie_the_earlier_boundary_wins_unless_it_is_zero():
    """Cutting at 0 would cut nothing."""
    turns = [HumanMessage("q"), AIMessage("a")] * 3
    assert [safe_boundary(turns, target) for target in range(7)] == [0, 2, 2, 2, 4, 4, 4]
    assert safe_boundary([], 3) == 0


NOTE = SystemMessage("s")


@pytest.mark.parametrize(
    ("messages", "steps"),
    [
        pytest.param(
            [HumanMessage("q"), call("a", "b"), result("b"), result("a"), AIMessage("done")],
            [(0, 1), (1, 3), (4, 1)],
            id="parallel calls and their results in any order",
        ),
        pytest.param([call("a"), call("b"), result("b"), result("a")], [(0, 4)], id="calling messages in a row"),
        pytest.param([call("a"), NOTE, result("a"), NOTE], [(0, 3), (3, 1)], id="a note between call and result"),
        pytest.param([call("a"), HumanMessage("q"), result("a")], [(0, 1), (1, 1), (2, 1)], id="a late result"),
    ],
)
def test_a_step_holds_what_stands_or_falls_together(messages, steps):
    assert [(step.index, step.size) for step in split_steps(messages)] == steps


def test_a_user_message_starts_a_turn_and_a_note_of_this_package_none():
    """What stands before the first question is turn 0."""
    turns = split_turns([AIMessage("hello"), HumanMessage("q"), AIMessage("a")])
    assert [(turn.index, len(turn.steps)) for turn in turns] == [(0, 1), (1, 2)]
    steps = list(split_steps([note("n", "1"), HumanMessage("q"), AIMessage("a")]))
    assert [starts_turn(step) for step in steps] == [False, True, False]


def test_malformed_calls_count_as_calls():
    """Providers want them answered; a call without an id has the empty one."""
    broken = {"name": "f", "args": "{", "id": "x", "error": None, "type": "invalid_tool_call"}
    calls = [{"name": "f", "args": {}, "id": None}]
    assert call_ids(AIMessage("", tool_calls=calls, invalid_tool_calls=[broken])) == ("", "x")
    assert call_ids(HumanMessage("q")) == ()


# ---- repairs ----------------------------------------------------------------------------------------------------


def repaired(messages):
    shown = []
    for step in split_steps(messages):
        shown.extend(repair_step(step.messages, shown[-1] if shown else None))
    return shown


@RUNS
@given(messages=conversations())
def test_a_repaired_history_has_no_faults(messages):
    """Neither by our own check nor by an independent one."""
    shown = repaired(messages)
    assert find_faults(shown) == []
    has_invalid = any(getattr(message, "invalid_tool_calls", None) for message in shown)
    assert not shown or has_invalid or pairing_problem(shown) is None


@RUNS
@given(messages=conversations(broken=False))
def test_a_valid_history_is_left_alone(messages):
    """Every message is the same object."""
    shown = [message for message in repaired(messages) if "ctxwin_note" not in message.additional_kwargs]
    assert {id(message) for message in shown} == {id(message) for message in messages}


ASKED, SAID = HumanMessage("q"), AIMessage("hi")
OPENAI, GEMINI = Rules(starts_with_ai=True, takes_system=True), Rules(starts_with_ai=True, calls_after_ai=False)
UNANSWERED = "[No result: this call was not answered.]"


@pytest.mark.parametrize(
    ("step", "previous", "shown"),
    [
        ([call("a", "b"), result("b", "2"), result("a", "1")], ASKED, [("ai", ""), ("tool", "1"), ("tool", "2")]),
        (
            [call("a"), call("a"), result("a", "1"), result("a", "2")],
            ASKED,
            [("ai", ""), ("tool", "1"), ("ai", ""), ("tool", "2")],
        ),
        ([call("a")], ASKED, [("ai", ""), ("tool", UNANSWERED)]),
        ([call("a"), result("a", "1"), result("a", "2")], ASKED, [("ai", ""), ("tool", "1")]),
        *(([message], ASKED, []) for message in (result("x"), RemoveMessage(id="1"), AIMessage(""), AIMessage([]))),
        *(
            ([HumanMessage(content)], None, [("human", "[empty message]")])
            for content in ("", " \n", [], [{"type": "text", "text": " "}], [""])
        ),
        ([SystemMessage("be brief", id="s")], ASKED, [("human", "[System note]\nbe brief")]),
        ([SAID], None, [("human", "[The conversation continues from here.]"), ("ai", "hi")]),
        ([call("a"), result("a")], SAID, [("ai", ""), ("tool", "r")]),
    ],
)
def test_a_step_is_shown_as_providers_take_it(step, previous, shown):
    """One result per call in the order of the calls, what nobody can read left out, a user message where one is due."""
    assert [(m.type, m.content) for m in repair_step(step, previous)] == shown


@pytest.mark.parametrize(
    ("rules", "step", "previous", "shown"),
    [
        (OPENAI, [SystemMessage("be brief")], ASKED, [("system", "be brief")]),
        (OPENAI, [SystemMessage("")], ASKED, [("human", "[System note]\n")]),
        (OPENAI, [SAID], None, [("ai", "hi")]),
        (OPENAI, [call("a"), result("a")], None, [("ai", ""), ("tool", "r")]),
        (GEMINI, [SAID], None, [("ai", "hi")]),
        (GEMINI, [SystemMessage("be brief")], ASKED, [("human", "[System note]\nbe brief")]),
        (GEMINI, [call("a"), result("a")], SAID, [("human", "[Continue.]"), ("ai", ""), ("tool", "r")]),
        (
            GEMINI,
            [call("a"), result("a")],
            None,
            [("human", "[The conversation continues from here.]"), ("ai", ""), ("tool", "r")],
        ),
    ],
)
def test_what_a_provider_takes_is_left_alone(rules, step, previous, shown):
    """No invented user turn, no rewritten system message, where nobody would refuse."""
    repaired_step = repair_step(step, previous, rules)
    assert [(m.type, m.content) for m in repaired_step] == shown
    if is_valid_step(step, previous, rules):
        assert list(repaired_step) == step


def test_a_result_that_comes_late_is_shown_where_it_comes():
    """What was sent stays as it was; what nobody called for is still left out."""
    late = ToolMessage("booked, ref B-42", tool_call_id="a", id="r")
    (shown,) = repair_step([late], ASKED, unanswered={"a"})
    assert (shown.type, shown.content) == ("human", "[Result of an earlier call, which came late]\nbooked, ref B-42")
    assert repair_step([late], ASKED, unanswered={"b"}) == ()
    blocks = late.model_copy(update={"content": [{"type": "text", "text": "booked"}]})
    assert [block["text"] for block in repair_step([blocks], ASKED, unanswered={"a"})[0].content][1:] == ["booked"]


def test_what_is_made_up_has_the_same_id_in_every_request():
    _, placeholder = repair_step([call("a")], ASKED)
    assert (placeholder.tool_call_id, placeholder.status, placeholder.id) == ("a", "error", "m:a:unanswered")
    (late,) = repair_step([SystemMessage("be brief", id="s")], ASKED)
    assert late.id == "s"


@pytest.mark.parametrize("message", [HumanMessage(""), AIMessage(""), NOTE.model_copy(), call("a")])
def test_none_content_is_repaired(message):
    """Integrations and counters expect text."""
    missing = message.model_copy(update={"content": None})
    assert all(m.content is not None for m in repair_step([missing], ASKED))


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([SAID], "the first message after the system prompt is ai, not human"),
        ([ASKED, result("x")], "tool result 'x' answers no call"),
        ([ASKED, NOTE], "message 1 is a late system message"),
        ([ASKED, AIMessage("")], "message 1 is empty"),
        ([ASKED, call("a", "b"), result("a")], "calls ['a', 'b'] are answered by ['a']"),
    ],
)
def test_each_fault_is_found(messages, fault):
    """The check is not blind."""
    assert find_faults(messages) == [fault]


def test_media_alone_is_not_empty():
    assert not is_empty(HumanMessage([{"type": "image", "base64": "QUJD", "mime_type": "image/png"}]))
