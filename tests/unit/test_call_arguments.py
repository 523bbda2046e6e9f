"""How the arguments of a call are priced: as JSON, or as they are where models are shown them one by one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core.edits import Call, pieces
from langchain_ctxwin.core.tool_schemas import FRAMING

PROGRAM = 'def main():\n\tprint("a")\n' * 20


def call(**arguments):
    return AIMessage("", tool_calls=[{"name": "write", "args": arguments, "id": "1"}])


def test_plain_arguments_are_not_escaped():
    """A program is shown as it is; a nested value is JSON all the same."""
    piece = next(piece for piece in pieces(call(path="a.py", text=PROGRAM, tags=["x"])) if isinstance(piece, Call))
    assert piece.plain_text == f'write\npath\na.py\ntext\n{PROGRAM}\ntags\n["x"]'
    assert piece.text == "write" + json.dumps({"path": "a.py", "text": PROGRAM, "tags": ["x"]}, separators=(",", ":"))


@pytest.mark.parametrize("family", sorted(FRAMING))
def test_a_program_costs_its_text_where_arguments_are_plain_and_its_escapes_elsewhere(family):
    """The same call is a tenth cheaper without escapes."""
    estimator = TokenEstimator(family)
    tokens = estimator([call(text=PROGRAM)]) - estimator([AIMessage("")]) - FRAMING[family].call
    plain = abs(tokens - estimator.count_text(f"write\ntext\n{PROGRAM}")) <= 1
    escaped = abs(tokens - estimator.count_text("write" + json.dumps({"text": PROGRAM}, separators=(",", ":")))) <= 1
    assert (plain, escaped) == (FRAMING[family].plain_arguments, not FRAMING[family].plain_arguments)


def test_arguments_that_are_text_already_are_taken_as_they_are():
    """A provider's own shape may hold JSON that nobody parsed."""
    assert Call("f", '{"a": 1}').plain_text == Call("f", '{"a": 1}').text == 'f{"a": 1}'


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_every_argument_is_in_the_plain_text(arguments):
    """Nothing of a call is free."""
    text = Call("f", arguments).plain_text
    assert all(key in text and (not isinstance(value, str) or value in text) for key, value in arguments.items())
