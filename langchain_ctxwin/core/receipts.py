"""What left the view without a summary, in numbers, by position, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.core.pending import uncovered
from langchain_ctxwin.core.pins import step_at
from langchain_ctxwin.core.turns import Step, split_steps
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
    begin = uncovered(view, first)
    steps = split_steps(messages, begin, view.start.index)
    return _receipt(_count(messages, steps, begin, _pinned(view)), tokens)


def extended_receipt(messages: Sequence[AnyMessage], before: View, view: View, *, first: int, tokens: int) -> Receipt:
    """Return `receipt_of` for a view that starts later than `before`, whose receipt is right.

    Only what left since, and steps whose pins changed, are looked at: the rest may be a very long conversation.
    """
    if before.start is None or view.start is None or before.covered != view.covered:
        return receipt_of(messages, view, first=first, tokens=tokens)
    begin, old = uncovered(view, first), before.start.index
    was, now = _pinned(before), _pinned(view)
    changed = {step_at(messages, index, old).index: index for index in was ^ now if begin <= index < old}
    touched = [step_at(messages, index, old) for index in changed.values()]
    left = split_steps(messages, max(begin, old), view.start.index)
    known = (before.receipt.turns, before.receipt.steps, before.receipt.messages)
    more, again = _count(messages, left, begin, now), _count(messages, touched, begin, now)
    less = _count(messages, touched, begin, was)
    return _receipt([a + b + c - d for a, b, c, d in zip(known, more, again, less, strict=True)], tokens)


def newly_left(messages: Sequence[AnyMessage], before: View, after: View, *, first: int) -> Receipt:
    """Count what leaves without a summary from one view to the next."""
    if before.covered == after.covered:
        was, now = before.receipt, after.receipt
        differences = (now.turns - was.turns, now.steps - was.steps, now.messages - was.messages)
        return _receipt([max(0, number) for number in differences], 0)
    shown_from = before.start.index if before.start else first
    begin = max(shown_from, uncovered(after, first))
    stop = after.start.index if after.start else begin
    return _receipt(_count(messages, split_steps(messages, begin, stop), begin, _pinned(after)), 0)


def _pinned(view: View) -> frozenset[int]:
    return frozenset(position.index for position in view.pinned)


def _count(
    messages: Sequence[AnyMessage], steps: Iterable[Step], begin: int, pinned: Collection[int]
) -> tuple[int, int, int]:
    """User messages, steps and messages that are gone."""
    gone = [[i for i in range(max(begin, step.index), step.stop) if i not in pinned] for step in steps]
    turns = sum(isinstance(messages[index], HumanMessage) for indexes in gone for index in indexes)
    return turns, sum(map(bool, gone)), sum(map(len, gone))


def _receipt(counts: Sequence[int], tokens: int) -> Receipt:
    turns, steps, left = counts
    return Receipt(turns=turns, steps=steps, messages=left, tokens=tokens) if left > 0 else Receipt()
