"""The background summaries of conversations: when one is begun, what became of it, and what of it may be shown."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from langchain_ctxwin.agent.state import State, flags_of
from langchain_ctxwin.agent.storage import Place
from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.compaction import accepted_tokens
from langchain_ctxwin.core.outcome import after_failure, with_cost
from langchain_ctxwin.core.planning import Snapshot
from langchain_ctxwin.core.session import Pending, content_digest
from langchain_ctxwin.core.view import position_of
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.summarize import Written

PATIENCE = 1.25
"""Times its time-out after which a summary that another process was writing is given up: its queue and its store need
time too, and clocks differ."""


class Summaries:
    """The background summaries of an engine's conversations."""

    def __init__(self, engine: ContextEngine, *, clock: Clock = time.time) -> None:
        self._engine = engine
        self._clock = clock

    def wanted(self, window: Window, place: Place) -> str:
        """Return the key to look for in the store; empty when there is nothing to look for."""
        pending = window.session.pending
        if pending is None or pending.text or place.summaries is None:
            return ""
        job = self._engine.jobs.find(pending.key)
        return "" if job and job.state in {"running", "done"} else pending.key

    def advance(
        self, window: Window, place: Place, found: Written | None = None, *, called: Callable[[], Any] = lambda: None
    ) -> Window:
        """Collect the summary on its way, or begin one when it is due; never waits.

        Args:
            window: the measured request.
            place: where the conversation runs.
            found: what the store holds of the summary on its way.
            called: returns what the request goes to, tools bound; asked only when a summary is begun.
        """
        pending = window.session.pending
        if pending is None:
            snapshot = self._engine.prepare(window)
            return self._begun(window, snapshot, place, called) if snapshot else window
        if pending.text:
            if not self._engine.may_show(window, pending):
                return self.failed(window, pending, "its messages were edited since")
            room = window.goal.room(window.priced_view)
            is_small = window.request.price_text(pending.text) < room
            return window if is_small else self._kept(window, pending, pending.text, room // 2)
        job = self._engine.jobs.find(pending.key)
        if written := found or (job.written if job else None):
            return self.finished(window, pending, written)
        return self.failed(window, pending, job.reason) if job and job.state == "failed" else window

    def is_lost(self, window: Window, place: Place) -> bool:
        """True when nobody writes the summary on its way any more, as far as can be known here."""
        pending = window.session.pending
        if pending is None or pending.text:
            return False
        job = self._engine.jobs.find(pending.key)
        if job and job.state != "elsewhere":  # one that ended at this moment is collected by the next step
            return False
        age_seconds = abs(self._clock() - pending.since_seconds)
        return place.summaries is None or age_seconds > PATIENCE * settings_of(window).summary_timeout_seconds

    def forget(self, state: State, window: Window) -> None:
        """Stop work on a summary that this branch of the conversation no longer wants."""
        key = flags_of(state).get("key")
        if isinstance(key, str) and window.session.pending is None:
            self._engine.jobs.cancel(key)

    def finished(self, window: Window, pending: Pending, written: Written) -> Window:
        """Return the window that knows the finished summary, cut where it is too long, or longer than its messages."""
        window = replace(window, session=with_cost(window.session, written.cost))
        request = window.request
        replaced = request.messages[pending.start.index : pending.stop]
        replaced_tokens = request.price_text(window.session.summary) + sum(map(request.price, replaced))
        most_tokens = min(accepted_tokens(pending.max_tokens), replaced_tokens - 1)
        window = self._kept(window, pending, written.text.strip(), most_tokens, written=written)
        if kept := window.session.pending:
            self._engine.report_summary(window, "ready", kept.key, replace(written, text=kept.text))
        return window

    def _kept(
        self, window: Window, pending: Pending, text: str, most_tokens: int, *, written: Written | None = None
    ) -> Window:
        """The window with as much of a summary as may be shown; what was written is told where nothing may."""
        kept = first_part(text, most_tokens, window.request.price_text)
        if not kept:
            return self.failed(window, pending, f"not a line of the summary fits in {most_tokens:,} tokens", written)
        return replace(window, session=replace(window.session, pending=replace(pending, text=kept)))

    def repeated(self, window: Window, pending: Pending, written: Written) -> Window:
        """Like `finished`, for a summary that was written here and now: of the messages as they are."""
        digest = content_digest(window.request.messages, pending.start.index, pending.stop)
        return self.finished(window, replace(pending, digest=digest), written)

    def failed(self, window: Window, pending: Pending, reason: str, written: Written | None = None) -> Window:
        """Return the window after a summary that failed: nothing is lost, and it is counted, with its cost if known."""
        self._engine.report_summary(window, "failed", pending.key, written, reason=reason)
        self._engine.jobs.forget(pending.key)
        return replace(window, session=after_failure(window, reason))

    def _begun(self, window: Window, snapshot: Snapshot, place: Place, called: Callable[[], Any]) -> Window:
        messages = window.request.messages
        # Equal messages after another past, or in another branch, make another summary.
        work = f"{place.thread}\0{place.prompt_scope}\0{snapshot.digest}\0{window.session.summary}"
        pending = Pending(
            key=hashlib.blake2b(work.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest(),
            start=position_of(messages, snapshot.start),
            through=position_of(messages, snapshot.stop - 1),
            digest=snapshot.digest,
            since_seconds=self._clock(),
            max_tokens=snapshot.max_tokens,
        )
        timeout_seconds = settings_of(window).summary_timeout_seconds
        write = self._engine.writing(window, pending, call=called())
        if not self._engine.jobs.start(pending.key, write, timeout_seconds=timeout_seconds, store=place.summaries):
            return window
        size = snapshot.stop - snapshot.start
        self._engine.report_summary(window, "started", pending.key, reason=snapshot.reason, messages=size)
        return replace(window, session=replace(window.session, pending=pending))
