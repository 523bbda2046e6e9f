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
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import BaseStore

from langchain_ctxwin.core.archiving import put_back, runs_of
from langchain_ctxwin.core.session import read_session
from langchain_ctxwin.core.view import Archived
from langchain_ctxwin.errors import ArchiveError
from langchain_ctxwin.util.stores import asking
from langchain_ctxwin.util.work import Work, arun, run

__all__ = ["adelete_archive", "afull_history", "delete_archive", "full_history"]

NAMESPACE = ("ctxwin", "archive")  # of the parts in the store; below it one place per thread

WRITE_SECONDS = 2.0
"""Longest wait of a turn for the store: a healthy one writes a part of some 100 kB within milliseconds. What is not
written stays in the state, and is tried again."""

READ_SECONDS = 10.0
"""Longest wait for one part: whoever reads the whole history has asked for it, and has no use for a piece."""

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
    kind, packed = JsonPlusSerializer().dumps_typed(left)
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
            packed = zlib.decompress(base64.b64decode(part["messages"]))
            messages = put_back(messages, JsonPlusSerializer().loads_typed((part["kind"], packed)), part["runs"])
            place, key = part["place"] or place, part["previous"]
        except Exception as error:  # anything may be stored
            raise ArchiveError(f"{named} was changed: {type(error).__name__}: {error}") from error
    return messages


def _deleted(store: BaseStore, thread_id: str) -> Work[None]:
    namespace = (*NAMESPACE, place_in(thread_id))
    options: dict[str, Any] = {"limit": DELETED_AT_ONCE, "refresh_ttl": False, "seconds": READ_SECONDS}
    while items := (yield asking(store, "search", namespace, **options)):
        for item in items:
            yield asking(store, "delete", tuple(item.namespace), item.key, seconds=READ_SECONDS)
