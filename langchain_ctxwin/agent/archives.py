"""Moves messages that left the view from the state to the graph's store, when the settings say so."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from langchain_core.messages import RemoveMessage

from langchain_ctxwin.agent.place import Place
from langchain_ctxwin.agent.state import Update
from langchain_ctxwin.archive import archive
from langchain_ctxwin.core.archiving import leaving, without
from langchain_ctxwin.core.provider_call import compacts_itself
from langchain_ctxwin.core.session import MAX_INEFFECTIVE
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.util.failures import BackOff, reason_of
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Seen
from langchain_ctxwin.util.work import Work

NO_STORE = 'history="archive" needs a checkpointer and a store: compile the graph with both, or set history="keep"'


class Archives:
    """Writes what may leave the state; a store that fails is left alone for a while, and nothing leaves meanwhile."""

    def __init__(self, engine: ContextEngine) -> None:
        self._engine = engine
        self._pause = BackOff(time.monotonic)
        self._said = Seen()

    def moved(self, window: Window, place: Place, held: Collection[str] | None) -> Work[Update]:
        """Write what may leave and return the update that removes it, with the messages that stay; empty when none may.

        Args:
            window: the request as measured.
            place: where the conversation runs.
            held: ids of the messages that the state holds; None when those are all of the window's.
        """
        if settings_of(window).history != "archive" or self._pause.is_on:
            return {}
        if place.store is None or not place.archive:
            if self._said.is_new(NO_STORE):
                log.warning("history.not_archived", reason=NO_STORE)
            return {}
        messages, session = window.request.messages, window.session
        gone = leaving(session.view, messages, window.request.first, needs_summary=self._needs_summary(window))
        gone = [index for index in gone if held is None or messages[index].id in held]
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

    def _needs_summary(self, window: Window) -> bool:
        """True when what no summary tells of is still to be read by one."""
        if window.session.pending:
            return True
        is_written = settings_of(window).summarize != "off" and not self._engine.is_local
        by_provider = self._engine.is_native and compacts_itself(window)
        return is_written and not by_provider and window.session.failed_summaries < MAX_INEFFECTIVE


def removals(before: Update, after: Update) -> list[RemoveMessage]:
    """Return the write that makes a state hold only the messages that stay."""
    kept = {message.id for message in after["messages"]}
    return [RemoveMessage(id=message.id) for message in before["messages"] if message.id not in kept]
