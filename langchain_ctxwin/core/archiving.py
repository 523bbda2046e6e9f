"""Archiving: which messages leave the state for good, the session without them, and the history put together again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.core.calibration import Measured
from langchain_ctxwin.core.priced_view import step_at
from langchain_ctxwin.core.session import Session, uncovered
from langchain_ctxwin.core.view import Archived, Position, View, message_id


def leaving(view: View, messages: Sequence[AnyMessage], first: int, *, needs_summary: bool) -> list[int]:
    """Return the positions of the messages that the state need not hold any more.

    They are before the start of the view and neither pinned nor waiting to be summarized. What the session reads its
    bearings from stays: the last step that a summary covers, and where the turn of a pinned question ends. With
    `needs_summary`, what no summary covers yet is still to be read by one. `first` follows the system messages.
    """
    if view.start is None:
        return []
    stop = min(view.start.index, uncovered(view, first)) if needs_summary else view.start.index
    kept = {position.index for position in view.pinned}
    if view.covered is not None and view.covered.index < view.start.index:
        step = step_at(messages, view.covered.index, view.start.index)
        kept |= {*range(step.index, step.stop)}
    for index in [index for index in kept if isinstance(messages[index], HumanMessage)]:
        following = (i for i in range(index + 1, view.start.index) if isinstance(messages[i], HumanMessage))
        end = next(following, view.start.index)
        kept |= {end - 1, end}  # its answer, perhaps, and the next question
    return [index for index in range(first, stop) if index not in kept and messages[index].id]


def without(session: Session, messages: Sequence[AnyMessage], gone: Sequence[int], archived: Archived) -> Session:
    """Return the session without the messages at these positions: every stored position says where it is now."""

    def now(index: int) -> int:
        return index - bisect_left(gone, index)

    def moved(position: Position) -> Position:
        return Position(id=position.id, index=now(position.index))

    view, pending = session.view, session.pending
    moved_view = replace(
        view,
        start=view.start and moved(view.start),
        pinned=tuple(map(moved, view.pinned)),
        covered=view.covered and moved(view.covered),
        archived=archived,
    )
    missing = {*gone}
    first = next((index for index in range(len(messages)) if index not in missing), None)
    counts: dict[str, Any] = {**session.counts, "messages": len(messages) - len(missing), "first": None}
    if first is not None:
        counts["first"] = message_id(messages, first)
    if (anchor := counts.get("anchor")) and "index" in anchor:
        counts["anchor"] = {**anchor, "index": now(anchor["index"])}
    if measured := counts.get("measured"):
        counts["measured"] = {name: _moved_spans(Measured.from_json(value), now) for name, value in measured.items()}
    guard = dict(session.guard)
    if since := guard.get("since"):
        guard["since"] = {**since, "index": now(since["index"])}
    if guard.get("asked") is not None:
        guard["asked"] = max(0, now(guard["asked"] + 1) - 1)
    pending = pending and replace(pending, start=moved(pending.start), through=moved(pending.through))
    return replace(session, view=moved_view, counts=counts, guard=guard, pending=pending)


def _moved_spans(measured: Measured, now: Callable[[int], int]) -> dict[str, Any]:
    last = measured.last and Position(id=measured.last.id, index=now(measured.last.index))
    moved = (span._replace(start=now(span.start), stop=now(span.stop)) for span in measured.spans)
    return Measured(last=last, spans=tuple(span for span in moved if span.start < span.stop)).to_json()


def runs_of(messages: Sequence[AnyMessage], gone: Sequence[int]) -> list[tuple[str, int]]:
    """Return how many of the messages stand together, and the id of the message that is left before each such run.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> runs_of([HumanMessage(text, id=text) for text in "abcde"], [0, 2, 3])
        [('', 1), ('b', 2)]
    """
    runs, missing = list[tuple[str, int]](), {*gone}
    for index in gone:
        if index - 1 in missing:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((message_id(messages, index - 1) if index else "", 1))
    return runs


def put_back(messages: Sequence[AnyMessage], gone: Sequence[AnyMessage], runs: Sequence[tuple[str, int]]) -> list[Any]:
    """Return the history with messages where they were; a run whose message before it is gone begins the history.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> a, b, c, d, e = [HumanMessage(text, id=text) for text in "abcde"]
        >>> [message.id for message in put_back([b, e], [a, c, d], [("", 1), ("b", 2)])]
        ['a', 'b', 'c', 'd', 'e']
    """
    following, rest = dict[str, list[AnyMessage]](), iter(gone)
    known = {message.id for message in messages}
    for before, count in runs:
        following.setdefault(before if before in known else "", []).extend(islice(rest, count))
    return [*following.get("", ()), *chain.from_iterable((m, *following.get(m.id or "", ())) for m in messages)]
