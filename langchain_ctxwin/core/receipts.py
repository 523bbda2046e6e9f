"""What left the view without a summary, in numbers, recomputed from positions so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.core.turns import split_steps
from langchain_ctxwin.core.view import Receipt, View


def receipt_of(messages: Sequence[AnyMessage], view: View, *, first: int, tokens: int) -> Receipt:
    """Count the messages before the start of the view that are neither pinned nor covered by the summary.

    Args:
        messages: the full history.
        view: start, pins and what the summary covers.
        first: first position that is not a leading system message.
        tokens: what they cost when they left.
    """
    if view.start is None:
        return Receipt()
    begin = max(first, view.covered.index + 1) if view.covered else first
    gone = set(range(begin, view.start.index)).difference(position.index for position in view.pinned)
    if not gone:
        return Receipt()
    steps = split_steps(messages, begin, view.start.index)
    return Receipt(
        turns=_count(isinstance(messages[index], HumanMessage) for index in gone),
        steps=_count(not gone.isdisjoint(range(step.index, step.stop)) for step in steps),
        messages=len(gone),
        tokens=tokens,
    )


def _count(values: Iterable[bool]) -> int:
    return sum(1 for value in values if value)
