"""How one message is shown shorter than it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.edits import clamp_message, clamp_text, clampable_chars, edit
from langchain_ctxwin.core.view import Clamp, View

CLAMP = Clamp(head_chars=20, tail_chars=10)
LONG = "head " + "x" * 5000 + " tail"
PICTURE = {"type": "image", "base64": "QUJD", "mime_type": "image/png"}


def test_a_message_that_the_view_does_not_name_is_the_same_object():
    """Nothing is copied without need."""
    message = HumanMessage(LONG)
    assert edit(message, "1", View(clamped={"2": CLAMP}, cleared=frozenset({"1"}))) is message


def test_a_cleared_result_says_what_was_there_and_where_it_is():
    """Characters and id, never tokens; the artifact goes too."""
    message = ToolMessage([{"type": "text", "text": "abc"}, PICTURE], tool_call_id="c", artifact={"big": 1})
    shown = edit(message, "m1", View(cleared=frozenset({"m1"})))
    expected = "[Tool result cleared: 3 characters and 1 media items; still in the history as message m1.]"
    assert (shown.content, shown.artifact, shown.tool_call_id) == (expected, None, "c")
    assert message.content[1] == PICTURE


@given(text=st.text(st.characters(), max_size=400), head=st.integers(0, 100), tail=st.integers(0, 100))
def test_a_clamped_text_keeps_its_head_and_tail(text, head, tail):
    """It is never longer than the text."""
    shown = clamp_text(text, "k", Clamp(head_chars=head, tail_chars=tail))
    assert len(shown) <= len(text)
    assert shown.startswith(text[:head])
    assert shown.endswith(text[len(text) - tail :] if shown != text else text)


def test_clamping_blocks_keeps_media_and_reasoning():
    """Only text is cut."""
    thought = {"type": "reasoning", "reasoning": LONG, "extras": {"signature": "s"}}
    shown = clamp_message(AIMessage([thought, {"type": "text", "text": LONG}, PICTURE]), "k", CLAMP)
    assert [block["type"] for block in shown.content] == ["text", "reasoning", "image"]
    assert shown.content[1:] == [thought, PICTURE]


def test_clamped_arguments_stay_json_with_their_shape():
    """String values are cut in the calls and in the content blocks alike; the raw copy goes."""
    args = {"text": LONG, "list": [LONG, 1], "deep": {"n": None, "s": LONG}}
    block = {"type": "tool_use", "id": "c", "name": "f", "input": args, "partial_json": json.dumps(args)}
    raw = {"tool_calls": [{"function": {"arguments": LONG}}], "kept": 1}
    message = AIMessage([block], tool_calls=[{"name": "f", "args": args, "id": "c"}], additional_kwargs=raw)
    shown = clamp_message(message, "k", CLAMP)
    cut = clamp_text(LONG, "k", CLAMP)
    expected = {"text": cut, "list": [cut, 1], "deep": {"n": None, "s": cut}}
    assert shown.tool_calls[0]["args"] == expected
    assert shown.content == [{"type": "tool_use", "id": "c", "name": "f", "input": expected}]
    assert shown.additional_kwargs == {"kept": 1}
    assert message.tool_calls[0]["args"] == args


def test_malformed_arguments_are_cut_as_text():
    """They are no JSON anyway."""
    broken = {"name": "f", "args": LONG, "id": "c", "error": "bad", "type": "invalid_tool_call"}
    message = AIMessage("", invalid_tool_calls=[broken])
    assert clampable_chars(message) == len(LONG)
    assert clamp_message(message, "k", CLAMP).invalid_tool_calls[0]["args"] == clamp_text(LONG, "k", CLAMP)


@pytest.mark.parametrize("content", ["", []])
def test_an_empty_message_has_nothing_to_clamp(content):
    """Its longest text has no characters."""
    assert clampable_chars(HumanMessage(content)) == 0
