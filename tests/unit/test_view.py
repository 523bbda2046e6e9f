"""The stored form of a view."""

import json

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin.core.view import Clamp, Position, View, message_id, position_of

IDS = st.text(min_size=1, max_size=4)
NUMBERS = st.integers(0, 10**6)
POSITIONS = st.builds(Position, id=IDS, index=NUMBERS)
VIEWS = st.builds(
    View,
    start=st.none() | POSITIONS,
    pinned=st.lists(POSITIONS, max_size=3).map(tuple),
    cleared=st.frozensets(IDS, max_size=3),
    clamped=st.dictionaries(IDS, st.builds(Clamp, head_chars=NUMBERS, tail_chars=NUMBERS), max_size=3),
    covered=POSITIONS,
    covered_digest=st.text(max_size=4),
    covered_tokens=NUMBERS,
)


@given(view=VIEWS)
def test_a_view_survives_json(view):
    """What is written is read back."""
    assert View.from_json(json.loads(json.dumps(view.to_json()))) == view


def test_the_whole_history_is_an_empty_mapping():
    """A fresh session stores nothing."""
    assert View().to_json() == {}
    assert View.from_json({}) == View()


def test_a_position_is_found_where_edits_moved_it():
    """The index is a hint; the id decides."""
    messages = [HumanMessage("a", id="1"), AIMessage("b", id="2"), HumanMessage("c", id="3")]
    assert [Position(id="3", index=i).find(messages) for i in (-1, 0, 2, 99)] == [2, 2, 2, 2]
    assert Position(id="gone", index=0).find(messages) is None


def test_a_message_without_an_id_is_named_by_its_position():
    """Its stored position is found again only at that place."""
    messages = [HumanMessage("a"), AIMessage("b")]
    assert message_id(messages, 1) == "#1"
    assert position_of(messages, 1).find(messages) == 1
    assert position_of(messages, 1).find(messages[:1]) is None
