"""Where a conversation is kept outside of its state: its place in the graph's store, and what lies there.

- `RunPlace`: the names under which a conversation's summaries and archived messages stand in the store.
- `Archives`: messages that left the view move from the state to the store, when the settings say so.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import RemoveMessage, SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from langchain_ctxwin.agent.state import Update
from langchain_ctxwin.archive import archive, leaving, place_in, without
from langchain_ctxwin.core.session import MAX_INEFFECTIVE
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.summarize import SummaryStore
from langchain_ctxwin.util.failures import BackOff, log_failure
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Seen
from langchain_ctxwin.util.work import Work

# Where LangGraph (1.0) says in a run's configuration what keeps its state; it has no public name for that.
CHECKPOINTER = "__pregel_checkpointer"
NO_STORE = 'history="archive" needs a checkpointer and a store: compile the graph with both, or set history="keep"'


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
        is_to_come = is_written and session.failed_summaries < MAX_INEFFECTIVE
        needs_summary = bool(session.pending) or is_to_come  # what no summary tells of is still to be read by one
        old = leaving(session.view, messages, window.request.first, needs_summary=needs_summary)
        gone = [index for index in old if held is None or messages[index].id in held]
        if not gone:
            return {}
        try:
            archived = yield from archive(place.store, place.archive, session.view.archived, messages, gone)
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may cost a message
            self._pause.failed()
            log_failure("history.not_archived", error, thread=place.thread)
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
