"""What left the state: written to the graph's store part by part, and read back from it.

    what leaves  ->  a part, which names the one before it  ->  the store;  newest part .. first  ->  the whole history

A part is never changed and is named by what it holds. So a step that runs again writes the same part again, and a
checkpoint that is gone back to finds the parts that were there at its time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxwin.core.calibration import Measured
from langchain_ctxwin.core.calls import is_user
from langchain_ctxwin.core.priced_view import step_at
from langchain_ctxwin.core.session import Session, read_session, uncovered
from langchain_ctxwin.core.view import Archived, Position, View, message_id
from langchain_ctxwin.errors import ArchiveError
from langchain_ctxwin.util.stores import MessageSerializer, asking
from langchain_ctxwin.util.work import Work, arun, run

__all__ = ["adelete_archive", "afull_history", "delete_archive", "full_history"]

NAMESPACE = ("ctxwin", "archive")  # of the parts in the store; below it one place per thread

WRITE_SECONDS = 2.0
"""Longest wait of a turn for the store: a healthy one writes a part of some 100 kB within milliseconds. What is not
written stays in the state, and is tried again."""

READ_SECONDS = 10.0
"""Longest wait for one part: whoever reads the whole history has asked for it, and has no use for a piece."""

MAX_PART_BYTES = 64 << 20
"""Largest part, unpacked: what leaves in one step was in one window, pictures included. Whoever can write to the store
could have a few kilobytes unpack to gigabytes."""

DELETED_AT_ONCE = 100  # parts that are listed before they are deleted


def place_in(thread_id: str) -> str:
    """Return the name of a thread's place: ids may hold what a database refuses, and stores refuse periods."""
    return _digest(thread_id)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def archive(
    store: BaseStore, place: str, before: Archived | None, messages: Sequence[AnyMessage], gone: Sequence[int]
) -> Work[Archived]:
    """Write the messages at the positions `gone` to their thread's place in the store, and return where they are.

    What the store raises is raised, or `TimeoutError`.
    """
    left = [messages[index] for index in gone]
    kind, packed = MessageSerializer().dumps_typed(left)
    if len(packed) > MAX_PART_BYTES:
        raise ValueError(f"{len(packed):,} bytes leave at once, a part holds at most {MAX_PART_BYTES:,}")
    part = {
        "previous": before.newest if before else "",
        "place": before.place if before else "",  # a thread that was copied goes on in a place of its own
        "runs": [list(one) for one in runs_of(messages, gone)],
        "kind": kind,
        # Text in ASCII: some databases refuse the control characters and surrogates that messages may hold.
        "messages": base64.b64encode(zlib.compress(packed)).decode("ascii"),
    }
    key = _digest(json.dumps(part))
    # It lasts as long as its thread: a store's own time to live would take it away in the middle.
    options: dict[str, Any] = {"ttl": None} if store.supports_ttl else {}
    yield asking(store, "put", (*NAMESPACE, place), key, part, index=False, seconds=WRITE_SECONDS, **options)
    return Archived(place=place, newest=key, messages=(before.messages if before else 0) + len(left))


def full_history(state: Mapping[str, Any], store: BaseStore | None) -> list[AnyMessage]:
    """Return the whole history of a state, with the messages that were moved to the store by `history="archive"`.

    Args:
        state: the values of a thread, such as `graph.get_state(config).values`.
        store: the graph's store; None when nothing was archived.

    Raises:
        ArchiveError: the store fails, or a part is not there any more.

    Examples:
        ```python
        messages = full_history(agent.get_state(config).values, store)
        ```
    """
    done: list[AnyMessage] = run(_whole(state, store))
    return done


async def afull_history(state: Mapping[str, Any], store: BaseStore | None) -> list[AnyMessage]:
    """Like `full_history`, for async stores."""
    done: list[AnyMessage] = await arun(_whole(state, store))
    return done


def delete_archive(store: BaseStore, thread_id: str) -> None:
    """Delete what was archived of a thread; call it where you delete the thread. What the store raises is raised."""
    run(_deleted(store, thread_id))


async def adelete_archive(store: BaseStore, thread_id: str) -> None:
    """Like `delete_archive`, for async stores."""
    await arun(_deleted(store, thread_id))


def archived_in(state: Mapping[str, Any]) -> Archived | None:
    """Return where the messages are that a state does not hold any more; None when it holds all."""
    view = state.get("context_view")
    if not view:
        return None
    return read_session({"context_view": view}, state.get("messages") or []).view.archived


def _whole(state: Mapping[str, Any], store: BaseStore | None) -> Work[list[AnyMessage]]:
    messages, archived = list[AnyMessage](state.get("messages") or ()), archived_in(state)
    place, key = (archived.place, archived.newest) if archived else ("", "")
    missing = archived.messages if archived else 0
    if key and store is None:
        raise ArchiveError("the older messages are in the store of the graph, and none was given: pass store=...")
    while key and store is not None:
        named = f"part {key[:8]} of the archive {'.'.join(NAMESPACE)}.{place[:8]}"
        try:
            item = yield asking(store, "get", (*NAMESPACE, place), key, refresh_ttl=False, seconds=READ_SECONDS)
        except Exception as error:
            raise ArchiveError(f"{named} cannot be read: {type(error).__name__}: {error}") from error
        if item is None:
            raise ArchiveError(
                f"{named} is not in this store: was it deleted, does it expire, or is this another store?"
            )
        part: Mapping[str, Any] = item.value
        try:
            left = _unpacked(part)
            missing -= len(left)
            if missing < 0:  # also where a part names itself, or one before it
                raise ValueError("it holds more messages than were archived")  # noqa: TRY301
            messages = put_back(messages, left, part["runs"])
            place, key = part["place"] or place, part["previous"]
        except Exception as error:  # anything may be stored
            raise ArchiveError(f"{named} was changed: {type(error).__name__}: {error}") from error
    return messages


def _unpacked(part: Mapping[str, Any]) -> list[AnyMessage]:
    """The messages of a part, which may have been written by anybody."""
    unpacker = zlib.decompressobj()
    packed = unpacker.decompress(base64.b64decode(part["messages"]), MAX_PART_BYTES)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("it is cut off, or too large")
    left: list[AnyMessage] = MessageSerializer().loads_typed((part["kind"], packed))
    if not left or not all(isinstance(message, BaseMessage) for message in left):
        raise TypeError("it holds something else than messages")
    return left


def _deleted(store: BaseStore, thread_id: str) -> Work[None]:
    namespace = (*NAMESPACE, place_in(thread_id))
    options: dict[str, Any] = {"limit": DELETED_AT_ONCE, "refresh_ttl": False, "seconds": READ_SECONDS}
    while items := (yield asking(store, "search", namespace, **options)):
        for item in items:
            yield asking(store, "delete", tuple(item.namespace), item.key, seconds=READ_SECONDS)


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
    for index in [index for index in kept if is_user(messages[index])]:
        following = (i for i in range(index + 1, view.start.index) if is_user(messages[i]))
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
    for key in ("since", "unbound"):
        if position := guard.get(key):
            guard[key] = {**position, "index": now(position["index"])}
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
