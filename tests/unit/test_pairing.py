"""What is sent is structurally valid, whatever arrives."""

import pytest
from hypothesis import given, settings
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.pairing import find_faults, is_empty, repair_step
from langchain_ctxwin.core.turns import split_steps
from support.conversations import conversations
from support.oracle import pairing_problem

RUNS = settings(deadline=None, max_examples=60)


def call(*ids, content=""):
    return AIMessage(content, tool_calls=[{"name": "f", "args": {}, "id": i} for i in ids], id="m")


def result(call_id, text="r"):
    return ToolMessage(text, tool_call_id=call_id)


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


def test_results_follow_their_calls_in_the_order_of_the_calls():
    """Whatever order they arrived in."""
    shown = repair_step([call("a", "b"), result("b"), result("a")], HumanMessage("q"))
    assert [getattr(m, "tool_call_id", None) for m in shown] == [None, "a", "b"]


def test_reused_ids_in_one_step_are_answered_in_order():
    """The first result answers the first call."""
    shown = repair_step([call("a"), call("a"), result("a", "1"), result("a", "2")], HumanMessage("q"))
    assert [m.content for m in shown] == ["", "1", "", "2"]


def test_an_unanswered_call_gets_a_marked_placeholder():
    """Its id is made from message and call, so that it is the same in every request."""
    _, placeholder = repair_step([call("a")], HumanMessage("q"))
    expected = ("[No result: this call was not answered.]", "a", "error", "m:a:unanswered")
    assert (placeholder.content, placeholder.tool_call_id, placeholder.status, placeholder.id) == expected


def test_a_second_result_of_one_call_is_left_out():
    """Providers take one result per call."""
    shown = repair_step([call("a"), result("a", "1"), result("a", "2")], HumanMessage("q"))
    assert [m.content for m in shown] == ["", "1"]


@pytest.mark.parametrize("message", [result("x"), RemoveMessage(id="1"), AIMessage(""), AIMessage([])])
def test_what_nobody_can_read_is_left_out(message):
    """Orphaned results, removals and empty answers."""
    assert repair_step([message], HumanMessage("q")) == ()


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": " "}], [""]])
def test_an_empty_question_says_so(content):
    """Providers refuse or silently drop empty user messages."""
    (shown,) = repair_step([HumanMessage(content, id="q")], None)
    assert (shown.id, shown.content) == ("q", "[empty message]")


def test_a_late_system_message_becomes_a_labelled_note():
    """It stays in place; hoisting it would rewrite the prefix."""
    (shown,) = repair_step([SystemMessage("be brief", id="s")], HumanMessage("q"))
    assert (shown.type, shown.content, shown.id) == ("human", "[System note]\nbe brief", "s")


def test_an_answer_first_gets_an_opening():
    """The first message of a request is a user message."""
    assert [m.content for m in repair_step([AIMessage("hi")], None)] == [
        "[The conversation continues from here.]",
        "hi",
    ]


def test_a_call_after_an_answer_gets_a_user_message_between():
    """A call may only follow a user message or a result."""
    assert [m.type for m in repair_step([call("a"), result("a")], AIMessage("hi"))] == ["human", "ai", "tool"]


@pytest.mark.parametrize("kind", [HumanMessage, AIMessage, SystemMessage])
def test_none_content_is_repaired(kind):
    """Integrations and counters expect text."""
    message = kind("", id="1")
    message.content = None
    assert all(m.content is not None for m in repair_step([message], HumanMessage("q")))
    with_calls = call("a")
    with_calls.content = None
    assert repair_step([with_calls, result("a")], HumanMessage("q"))[0].content == ""


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([AIMessage("a")], "the first message after the system prompt is ai, not human"),
        ([HumanMessage("q"), result("x")], "tool result 'x' answers no call"),
        ([HumanMessage("q"), SystemMessage("s")], "message 1 is a late system message"),
        ([HumanMessage("q"), AIMessage("")], "message 1 is empty"),
        ([HumanMessage("q"), call("a", "b"), result("a")], "calls ['a', 'b'] are answered by ['a']"),
    ],
)
def test_each_fault_is_found(messages, fault):
    """The check is not blind."""
    assert find_faults(messages) == [fault]


def test_media_alone_is_not_empty():
    """A picture needs no text."""
    assert not is_empty(HumanMessage([{"type": "image", "base64": "QUJD", "mime_type": "image/png"}]))
