"""By which names are messages called, when an id of 36 characters would cost more than what it names?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from os.path import commonprefix

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.view import message_id

LONG_ID_CHARS = 16
"""Ids up to this length are short enough."""

SHORTEST_HANDLE_CHARS = 8
"""Least that is shown of a longer id, so that it is unlikely that a later id begins like it."""


def handles(messages: Sequence[AnyMessage]) -> list[str]:
    """Return for each message its id, or the beginning of a long one that no other id shares.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> handles([HumanMessage("a", id="4dd9dc63-ae48-41de"), HumanMessage("b", id="m2"), HumanMessage("c")])
        ['4dd9dc63', 'm2', '#2']
    """
    ids = [message_id(messages, index) for index in range(len(messages))]
    shared = dict.fromkeys(ids, SHORTEST_HANDLE_CHARS - 1)
    for one, other in pairwise(sorted(shared)):
        same = len(commonprefix((one, other)))  # noqa: RUF071  # by character is meant
        shared[one], shared[other] = max(shared[one], same), max(shared[other], same)
    return [key if len(key) <= LONG_ID_CHARS else key[: shared[key] + 1] for key in ids]


def positions_called(messages: Sequence[AnyMessage], wanted: str) -> list[int]:
    """Return the positions of the messages with this id; without one, of those whose id begins like it."""
    ids = [message_id(messages, index) for index in range(len(messages))]
    exact = [index for index, key in enumerate(ids) if key == wanted]
    if exact or len(wanted) < SHORTEST_HANDLE_CHARS:
        return exact[:1]
    return [index for index, key in enumerate(ids) if key.startswith(wanted)]
