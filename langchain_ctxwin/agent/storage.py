"""Where a conversation is kept outside of its state: its place in the graph's store, what lies there, what is recalled.

- `RunPlace`: the names under which a conversation's summaries and archived messages stand in the store.
- `Archives`: messages that left the view move from the state to the store, when the settings say so.
- `Histories`: sessions of histories that come whole with each call, found again by what their messages say, not by
  their ids. Without a checkpointer a graph forgets its state between calls: each would drop the same turns and ask for
  the same summary anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langchain_ctxwin.agent.state import FLAGS, SESSION, State, Update, flags_of
from langchain_ctxwin.archive import archive, leaving, place_in, without
from langchain_ctxwin.core.calls import is_user
from langchain_ctxwin.core.edits import text_of
from langchain_ctxwin.core.provider_call import compacts_itself
from langchain_ctxwin.core.session import MAX_INEFFECTIVE
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.summarize import SummaryStore
from langchain_ctxwin.util.background import in_few_daemons
from langchain_ctxwin.util.failures import BackOff, reason_of
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, PerMessage, Seen
from langchain_ctxwin.util.work import Work

# Where LangGraph (1.0) says in a run's configuration what keeps its state; it has no public name for that.
CHECKPOINTER = "__pregel_checkpointer"
NO_STORE = 'history="archive" needs a checkpointer and a store: compile the graph with both, or set history="keep"'

MAX_HISTORIES = 512
"""Beginnings of histories that are remembered in the process, two for each turn, some 20 kB each."""

OPENING_MESSAGES = 4
"""Messages that tell conversations apart in a store: of those that open alike the one that was stored last is found."""

NAMESPACE = ("ctxwin", "histories")
"""Where the items stand in the store."""

_WORTH_STORING = ("context_view", "context_summary", "context_pending")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a conversation runs."""

    thread: str = ""
    """Name of the conversation; empty without a checkpointer."""

    summaries: SummaryStore | None = None
    """Where other processes put finished summaries; None when there is no store."""

    store: BaseStore | None = None

    archive: str = ""
    """Name of the thread's place in the store for messages that leave the state; empty without a checkpointer."""

    prompt_scope: str = ""
    """System prompt, where there is no name: part of the key, so that no summary is shown under another prompt."""


def place_of(runtime: Runtime[Any] | None, prompt: str | SystemMessage) -> RunPlace:
    """Return the place of a graph run with this system prompt; an empty one outside of a graph."""
    info = runtime.execution_info if runtime else None
    if runtime is None or info is None:
        return RunPlace()
    # A thread id alone keeps nothing: servers pass one as a label.
    if not info.thread_id or not get_config()["configurable"].get(CHECKPOINTER):
        return RunPlace(store=runtime.store, prompt_scope=prompt if isinstance(prompt, str) else repr(prompt.content))
    # Subgraphs share the thread: the names on the way to this one, without this node and the ids of the run.
    names = [part.partition(":")[0] for part in info.checkpoint_ns.split("|")[:-1]]
    thread = "|".join([info.thread_id, *names])
    summaries = SummaryStore(runtime.store, thread) if runtime.store is not None else None
    return RunPlace(thread, summaries, runtime.store, place_in(info.thread_id))


class Archives:
    """Writes what may leave the state; a store that fails is left alone for a while, and nothing leaves meanwhile."""

    def __init__(self, engine: ContextEngine) -> None:
        self._engine = engine
        self._pause = BackOff(time.monotonic)
        self._said = Seen()

    def moved(self, window: Window, place: RunPlace, held: Collection[str] | None) -> Work[Update]:
        """Write what may leave and return the update that removes it, with the messages that stay; empty when none may.

        `held` are the ids of the messages that the state holds; None when those are all of the window's.
        """
        if settings_of(window).history != "archive" or self._pause.is_on:
            return {}
        if place.store is None or not place.archive:
            if self._said.is_new(NO_STORE):
                log.warning("history.not_archived", reason=NO_STORE)
            return {}
        messages, session = window.request.messages, window.session
        is_written = settings_of(window).summarize != "off" and not self._engine.is_local
        by_provider = self._engine.is_native and compacts_itself(window)
        is_to_come = is_written and not by_provider and session.failed_summaries < MAX_INEFFECTIVE
        needs_summary = bool(session.pending) or is_to_come  # what no summary tells of is still to be read by one
        old = leaving(session.view, messages, window.request.first, needs_summary=needs_summary)
        gone = [index for index in old if held is None or messages[index].id in held]
        if not gone:
            return {}
        try:
            archived = yield from archive(place.store, place.archive, session.view.archived, messages, gone)
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may cost a message
            self._pause.failed()
            log.warning("history.not_archived", thread=place.thread, reason=reason_of(error))
            return {}
        self._pause.succeeded()
        left = {*gone}
        return {
            **without(replace(session, faults=()), messages, gone, archived).to_json(),
            "messages": [message for index, message in enumerate(messages) if index not in left],
        }


def removals(before: Update, after: Update) -> list[RemoveMessage]:
    """Return the write that makes a state hold only the messages that stay."""
    kept = {message.id for message in after["messages"]}
    return [RemoveMessage(id=message.id) for message in before["messages"] if message.id not in kept]


class Histories:
    """Remembers the sessions of conversations whose callers do not; losing it costs time and money only.

    Sessions of other limits, settings and system prompts are not mixed up. They are kept under the positions of their
    messages, because the same history may come back with other ids.
    """

    def __init__(self, engine: ContextEngine) -> None:
        self._engine = engine
        self.archives = Archives(engine)
        self._compacted: Lru[Update] = Lru(MAX_HISTORIES)
        self._whole: Lru[Update] = Lru(MAX_HISTORIES)
        self._digests = PerMessage(_digest)

    def placed(self, state: State, place: RunPlace) -> RunPlace:
        """Return the place with summaries for a conversation that has no name but its opening."""
        messages: Sequence[AnyMessage] = state.get("messages") or ()
        if place.thread or place.store is None or len(messages) < OPENING_MESSAGES:
            return place
        return replace(place, summaries=SummaryStore(place.store, self._keys(messages[:OPENING_MESSAGES], place)[-1]))

    def found(self, state: State, place: RunPlace) -> Work[Update]:
        """Return the session of a history that comes without one; empty when it has one, or none is known."""
        messages: Sequence[AnyMessage] = state.get("messages") or ()
        has_session = place.thread or any(state.get(key) for key in SESSION)
        if has_session or not any(isinstance(message, AIMessage) for message in messages):
            return {}
        keys = self._keys(messages, place)
        known = (self._compacted.get(key) or self._whole.get(key) for key in reversed(keys))
        if session := next(filter(None, known), None):
            return _renamed(session, _names(messages))
        if store := self._stored_at(keys, place):

            def read(value: Any) -> Update:  # whatever somebody made of it: it may raise anything
                return _renamed({name: value[name] for name in SESSION if name in value}, _names(messages))

            return (yield from store.found(keys, read)) or {}
        return {}

    def keep(self, state: State, place: RunPlace) -> None:
        """Remember the session of a history, unless a checkpointer does, or there is nothing to remember."""
        messages: Sequence[AnyMessage] = state.get("messages") or ()
        if place.thread or not messages or not any(state.get(key) for key in SESSION):
            return
        keys = self._keys(messages, place)
        pending = {name: value for name, value in flags_of(state).items() if name not in FLAGS}
        session = {name: state[name] for name in SESSION if state.get(name)} | {"context_pending": pending}
        try:
            known = _renamed(session, {name: position for position, name in _names(messages).items()})
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # damaged, as the step has said
            return
        is_compacted = any(session.get(key) for key in _WORTH_STORING)
        sessions = self._compacted if is_compacted else self._whole
        if sessions.get(keys[-1]) == known:
            return
        asked = max((index for index, message in enumerate(messages) if is_user(message)), default=0)
        for key in keys[asked + 1 :]:  # callers come back with the whole turn, or without all that was between
            self._compacted.drop(key)
            self._whole.drop(key)
        sessions.put(keys[-1], known)
        if is_compacted and (store := self._stored_at(keys, place)):
            value = json.loads(json.dumps(known))  # as it is now
            try:
                in_few_daemons(lambda: store.put_value(keys[-1], value))
            except RuntimeError as error:  # the store hangs
                log.warning("history.not_stored", error=str(error))

    def _stored_at(self, keys: Sequence[str], place: RunPlace) -> SummaryStore | None:
        if place.store is None or len(keys) < OPENING_MESSAGES:
            return None
        return SummaryStore(place.store, keys[OPENING_MESSAGES - 1], NAMESPACE)

    def _keys(self, messages: Sequence[AnyMessage], place: RunPlace) -> list[str]:
        """A name for each beginning of a history, made from all that its messages say."""
        engine = self._engine
        about = repr((engine.model, engine.limits, engine.config, place.prompt_scope))
        chain, keys = hashlib.blake2b(about.encode("utf-8", "surrogatepass"), digest_size=16), list[str]()
        calls = dict[str | None, int]()
        for message in messages:
            chain.update(self._digests(message))
            if isinstance(message, AIMessage):
                calls |= {call["id"]: len(calls) + number for number, call in enumerate(message.tool_calls)}
            elif isinstance(message, ToolMessage):
                chain.update(b"%d" % calls.get(message.tool_call_id, -1))
            keys.append(chain.hexdigest())
        return keys


def _digest(message: AnyMessage) -> bytes:
    """What a message says, in whatever form it comes back: a text in blocks is the text, ids are left out."""
    content: Any = message.content
    others = [block for block in content if not text_of([block])] if isinstance(content, list) else []
    said: list[Any] = [message.type, text_of(content), others]
    if isinstance(message, AIMessage):
        said += [[call["name"], call["args"]] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    elif isinstance(message, ToolMessage):
        said.append(message.status)
    else:
        said += [message.name, getattr(message, "role", None)]
    try:
        text = json.dumps(said, default=str)
    except (TypeError, ValueError, RecursionError):  # what no provider could have sent
        text = repr(said)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _names(messages: Sequence[AnyMessage]) -> dict[str, str]:
    """The messages' names by the name of their position, which is that of a message without an id."""
    return {f"#{index}": message_id(messages, index) for index in range(len(messages))}


def _renamed(session: Update, names: Mapping[str, str]) -> Update:
    """The session with other names of messages, only where names stand: texts and keys may be spelled like one."""

    def named(name: Any) -> Any:
        return names.get(name, name) if isinstance(name, str) else name

    def read(value: Any, field: str = "") -> Any:
        if isinstance(value, Mapping):
            return {key: read(item, key) for key, item in value.items()}
        return named(value) if field in {"id", "first"} else value

    now = {key: read(value) for key, value in session.items()}
    if view := now.get("context_view"):
        now["context_view"] = view | {
            "pinned": [[named(name), index] for name, index in view.get("pinned", ())],
            "cleared": [named(name) for name in view.get("cleared", ())],
            "clamped": {named(name): shown for name, shown in view.get("clamped", {}).items()},
        }
    if record := now.get("context_record"):
        lines = [[kind, text, named(source), uses] for kind, text, source, uses in record["lines"]]
        now["context_record"] = record | {"lines": lines}
    return now
