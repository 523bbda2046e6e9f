"""Does a summary on its way stay only with the history that it was begun for?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin.core.session import Pending
from langchain_ctxwin.core.view import Position, View

CHAT = [kind(f"text {n}", id=f"m{n}") for n in range(4) for kind in (HumanMessage, AIMessage)]
for number, message in enumerate(CHAT):
    message.id = f"m{number}"


def position(index):
    """Where a message of the chat stands."""
    return Position(id=f"m{index}", index=index)


PENDING = Pending(key="key", start=position(2), through=position(5), digest="digest", since_seconds=0.0, max_tokens=100)


@pytest.mark.parametrize(
    ("covered", "known"),
    [(position(1), PENDING), (None, None), (position(0), None), (position(3), None), (position(5), None)],
)
def test_it_has_to_begin_where_the_summary_before_it_ends(covered, known):
    """Otherwise it would leave messages out, or tell them twice: another summary came or went meanwhile."""
    assert PENDING.located(CHAT, View(covered=covered), 0) == known


def test_without_a_summary_it_begins_with_the_history():
    """Leading system messages are no part of it."""
    assert PENDING.located(CHAT, View(), 2) == PENDING
