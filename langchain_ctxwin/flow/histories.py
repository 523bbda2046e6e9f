"""What is known of a history that comes whole with each call? Found again by what its messages say, not by their ids.

    the longest beginning that was seen  ->  its session  ->  under the ids that its messages have now

Without a checkpointer a graph forgets its state between calls: each would drop the same turns and ask for the same
summary anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.edits import text_of
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.daemon import in_few_daemons
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.flow.place import Place
from langchain_ctxwin.flow.state import FLAGS, SESSION, State, Update, flags_of
from langchain_ctxwin.memo import Lru
from langchain_ctxwin.summarize.shelf import Shelf

MAX_HISTORIES = 256
"""Beginnings of histories that are remembered in the process, some 20 kB each."""

OPENING_MESSAGES = 4
"""Messages that tell conversations apart in a store: of those that open alike the one that was stored last is found."""

NAMESPACE = ("ctxwin", "histories")
"""Where the items stand in the store."""

_WORTH_STORING = ("context_view", "context_summary", "context_pending")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """A session, and the ids that its messages had."""

    ids: tuple[str, ...]
    session: Update

    @classmethod
    def from_json(cls, value: Any) -> _Known:
        """Read the JSON form; what a store holds may raise anything."""
        ids, session = value
        return cls(tuple(map(str, ids)), dict(session))

    def now(self, messages: Sequence[AnyMessage]) -> Update:
        """Return the session under the ids that the messages have now."""
        new = (message_id(messages, index) for index in range(len(self.ids)))
        names = {old: name for old, name in zip(self.ids, new, strict=True) if old != name}
        return _renamed(self.session, names) if names else dict(self.session)


class Histories:
    """Remembers the sessions of conversations whose callers do not; losing it costs time and money only.

    Sessions of other limits and settings are not mixed up in a store.
    """

    def __init__(self, engine: ContextEngine) -> None:
        self._about = repr((engine.model, engine.limits, engine.config)).encode("utf-8", "surrogatepass")
        self._known: Lru[_Known] = Lru(MAX_HISTORIES)

    def placed(self, state: State, place: Place) -> Place:
        """Return the place with a shelf for a conversation that has no name but its opening."""
        messages: Sequence[AnyMessage] = state.get("messages") or ()
        if place.thread or place.store is None or len(messages) < OPENING_MESSAGES:
            return place
        return replace(place, shelf=Shelf(place.store, self._keys(messages[:OPENING_MESSAGES])[-1]))

    def found(self, state: State, place: Place) -> Update:
        """Return the session of a history that comes without one; empty when it has one, or none is known."""
        keys = self._wanted(state, place)
        known = self._recalled(keys)
        if known is None and (shelf := self._shelf(keys, place)):
            known = shelf.get_one(keys, _Known.from_json)
        return known.now(state["messages"]) if known else {}

    async def afound(self, state: State, place: Place) -> Update:
        """Like `found`, without blocking the event loop."""
        keys = self._wanted(state, place)
        known = self._recalled(keys)
        if known is None and (shelf := self._shelf(keys, place)):
            known = await shelf.aget_one(keys, _Known.from_json)
        return known.now(state["messages"]) if known else {}

    def keep(self, state: State, place: Place) -> None:
        """Remember the session of a history, unless a checkpointer does, or there is nothing to remember."""
        messages: Sequence[AnyMessage] = state.get("messages") or ()
        if place.thread or not messages or not any(state.get(key) for key in SESSION):
            return
        keys = self._keys(messages)
        pending = {name: value for name, value in flags_of(state).items() if name not in FLAGS}
        session = {name: state[name] for name in SESSION if state.get(name)} | {"context_pending": pending}
        known = _Known(tuple(message_id(messages, index) for index in range(len(messages))), session)
        if self._known.get(keys[-1]) == known:
            return
        self._known.put(keys[-1], known)
        if any(session.get(key) for key in _WORTH_STORING) and (shelf := self._shelf(keys, place)):
            self._store(shelf, keys[-1], known)

    def _store(self, shelf: Shelf, key: str, known: _Known) -> None:
        value = json.loads(json.dumps([known.ids, known.session]))  # as it is now
        try:
            in_few_daemons(lambda: shelf.put_value(key, value))
        except RuntimeError as error:  # the store hangs
            _log.warning("history.not_stored", error=str(error))

    def _wanted(self, state: State, place: Place) -> list[str]:
        """The names of the beginnings of a history that has no session."""
        is_known = place.thread or any(state.get(key) for key in SESSION)
        messages: Sequence[AnyMessage] = state.get("messages") or ()
        is_new = not any(isinstance(message, AIMessage) for message in messages)
        return [] if is_known or is_new else self._keys(messages)

    def _recalled(self, keys: Sequence[str]) -> _Known | None:
        return next((known for key in reversed(keys) if (known := self._known.get(key))), None)

    def _shelf(self, keys: Sequence[str], place: Place) -> Shelf | None:
        if place.store is None or len(keys) < OPENING_MESSAGES:
            return None
        return Shelf(place.store, keys[OPENING_MESSAGES - 1], NAMESPACE)

    def _keys(self, messages: Sequence[AnyMessage]) -> list[str]:
        """A name for each beginning of a history, made from all that its messages say."""
        digest, keys = hashlib.blake2b(self._about, digest_size=16), list[str]()
        for message in messages:
            digest.update(_said(message))
            keys.append(digest.hexdigest())
        return keys


def _said(message: AnyMessage) -> bytes:
    """What a message says, in whatever form it comes back: a text in blocks is the text."""
    content: Any = message.content
    others = [] if isinstance(content, str) else [block for block in content if not text_of([block])]
    calls = [[call["name"], call["args"]] for call in message.tool_calls] if isinstance(message, AIMessage) else []
    return json.dumps([message.type, text_of(content), others, calls], default=str).encode()


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value
