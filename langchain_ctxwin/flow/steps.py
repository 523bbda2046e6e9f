"""The steps around one model call, the same for nodes and middleware: check, summarize, compress, build the request."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from langchain_core.messages import AnyMessage, BaseMessage

from langchain_ctxwin import planner
from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.outcome import after_failure, seen, with_cost
from langchain_ctxwin.core.planning import Snapshot, accepted_tokens
from langchain_ctxwin.core.session import MAX_INEFFECTIVE, Pending, content_digest, valid_view
from langchain_ctxwin.core.view import position_of
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ContextWindowError, SummarizationError
from langchain_ctxwin.flow.choices import Choices
from langchain_ctxwin.flow.events import announce_compaction, announce_faults, announce_stop, announce_summary
from langchain_ctxwin.flow.histories import Histories, Place
from langchain_ctxwin.flow.state import Measure, State, Update, changed, flags_of, report_of, turn_is_finished
from langchain_ctxwin.planner import settings_of
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.summarize import Written

PATIENCE = 1.25
"""Times its time-out after which a summary that another process was writing is given up: its queue and its store need
time too, and clocks differ."""


Called = Callable[[], Any]
"""Returns what the request goes to, tools bound; None when nobody knows. Asked only when a summary is begun."""


class Summaries:
    """The background summaries of an engine's conversations."""

    def __init__(self, engine: ContextEngine, *, clock: Clock = time.time) -> None:
        self._engine = engine
        self._clock = clock

    def wanted(self, window: Window, place: Place) -> str:
        """Return the key to look for on the shelf; empty when there is nothing to look for."""
        pending = window.session.pending
        if pending is None or pending.text or place.shelf is None:
            return ""
        job = self._engine.jobs.find(pending.key)
        return "" if job and job.state in {"running", "done"} else pending.key

    def advance(
        self, window: Window, place: Place, found: Written | None = None, *, called: Called = lambda: None
    ) -> Window:
        """Collect the summary on its way, or begin one when it is due; never waits.

        Args:
            window: the measured request.
            place: where the conversation runs.
            found: what the shelf holds of the summary on its way.
            called: what the request goes to.
        """
        pending = window.session.pending
        if pending is None:
            snapshot = self._engine.prepare(window)
            return self._begun(window, snapshot, place, called) if snapshot else window
        if pending.text:
            if not self._engine.may_show(window, pending):
                return self.failed(window, pending, "its messages were edited since")
            room = window.goal.room(window.survey)
            is_small = window.request.price_text(pending.text) < room
            return window if is_small else self._kept(window, pending, pending.text, room // 2)
        job = self._engine.jobs.find(pending.key)
        written = found or (job.written if job else None)
        if written:
            return self.finished(window, pending, written)
        if job and job.state == "failed":
            return self.failed(window, pending, job.reason)
        return window

    def is_lost(self, window: Window, place: Place) -> bool:
        """True when nobody writes the summary on its way any more, as far as can be known here."""
        pending = window.session.pending
        if pending is None or pending.text:
            return False
        job = self._engine.jobs.find(pending.key)
        if job and job.state != "elsewhere":  # one that ended at this moment is collected by the next step
            return False
        return not self._may_come(window, pending, place)

    def forget(self, state: State, window: Window) -> None:
        """Stop work on a summary that this branch of the conversation no longer wants."""
        key = flags_of(state).get("key")
        if isinstance(key, str) and window.session.pending is None:
            self._engine.jobs.cancel(key)

    def finished(self, window: Window, pending: Pending, written: Written) -> Window:
        """Return the window that knows the finished summary, cut where it is too long, or longer than its messages."""
        window = replace(window, session=with_cost(window.session, written.cost))
        most_tokens = min(accepted_tokens(pending.max_tokens), self._replaced_tokens(window, pending) - 1)
        window = self._kept(window, pending, written.text.strip(), most_tokens)
        if kept := window.session.pending:
            tokens = window.request.price_text(kept.text)
            announce_summary("ready", kept, seconds=round(written.seconds, 3), calls=written.calls, tokens=tokens)
        return window

    def _kept(self, window: Window, pending: Pending, text: str, most_tokens: int) -> Window:
        """The window with as much of a summary as may be shown."""
        kept = first_part(text, most_tokens, window.request.price_text)
        if not kept:
            return self.failed(window, pending, f"not a line of the summary fits in {most_tokens:,} tokens")
        return replace(window, session=replace(window.session, pending=replace(pending, text=kept)))

    def repeated(self, window: Window, pending: Pending, written: Written) -> Window:
        """Like `finished`, for a summary that was written here and now: of the messages as they are."""
        digest = content_digest(window.request.messages, pending.start.index, pending.stop)
        return self.finished(window, replace(pending, digest=digest), written)

    def failed(self, window: Window, pending: Pending, reason: str) -> Window:
        """Return the window after a summary that failed: nothing is lost, and it is counted."""
        announce_summary("failed", pending, reason=reason)
        self._engine.jobs.forget(pending.key)
        return replace(window, session=after_failure(window, reason))

    def _begun(self, window: Window, snapshot: Snapshot, place: Place, called: Called) -> Window:
        messages = window.request.messages
        pending = Pending(
            key=_key(place, snapshot.digest, window.session.summary),
            start=position_of(messages, snapshot.start),
            through=position_of(messages, snapshot.stop - 1),
            digest=snapshot.digest,
            since_seconds=self._clock(),
            max_tokens=snapshot.max_tokens,
        )
        timeout_seconds = settings_of(window).summary_timeout_seconds
        write = self._engine.writing(window, pending, call=called())
        if not self._engine.jobs.start(pending.key, write, timeout_seconds=timeout_seconds, shelf=place.shelf):
            return window
        announce_summary("started", pending, reason=snapshot.reason, messages=snapshot.stop - snapshot.start)
        return replace(window, session=replace(window.session, pending=pending))

    def _may_come(self, window: Window, pending: Pending, place: Place) -> bool:
        """True while another process may still put it on the shelf."""
        if place.shelf is None:
            return False
        age_seconds = abs(self._clock() - pending.since_seconds)
        return age_seconds <= PATIENCE * settings_of(window).summary_timeout_seconds

    def _replaced_tokens(self, window: Window, pending: Pending) -> int:
        """Tokens of the messages and of the earlier summary that a summary replaces."""
        request = window.request
        messages = request.messages[pending.start.index : pending.stop]
        return request.price_text(window.session.summary) + sum(map(request.price, messages))


def _key(place: Place, digest: str, previous: str) -> str:
    """Name the work: equal messages after another past, or in another branch, make another summary."""
    parts = f"{place.thread}\0{place.told}\0{digest}\0{previous}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(parts, digest_size=12).hexdigest()


Destination = Literal["force_compress", "maybe_summarize", "build_messages"]
Outcome = Written | SummarizationError | None


class Flow:
    """What happens to the session around one model call.

    Every step takes the state and returns an update of it. `measure` prices the next request of a state, and `called`
    says what it goes to, tools bound (None: nobody knows); `histories` remembers the sessions of callers that keep
    none. What else an adapter knows of its framework stays there.
    """

    def __init__(
        self,
        engine: ContextEngine,
        measure: Measure,
        choices: Choices | None = None,
        called: Callable[[State], Any] = lambda _: None,
        histories: Histories | None = None,
    ) -> None:
        self.engine = engine
        self.measure = measure
        self.choices = choices or Choices()
        self.called = called
        self._summaries = Summaries(engine)
        self._histories = histories or Histories(engine)

    def before(self, state: State, place: Place) -> Update:
        """Take every step that precedes the model call, in one go."""
        update = self.check(state, place)
        if self.route({**state, **update}) == "maybe_summarize":
            update |= self.summarize({**state, **update}, place)
        return self._fitted(state, update, place)

    async def abefore(self, state: State, place: Place) -> Update:
        """Like `before`, awaiting what the steps await."""
        update = await self.acheck(state, place)
        if self.route({**state, **update}) == "maybe_summarize":
            update |= await self.asummarize({**state, **update}, place)
        return self._fitted(state, update, place)

    def check(self, state: State, place: Place) -> Update:
        """Choose tools and model, measure, collect and begin summaries, and say what has to happen before the call."""
        place, known = self._histories.placed(state, place), self._histories.found(state, place)
        state = {**state, **known}
        chosen = self.choices.made(state, self.measure)
        state = {**state, **chosen}
        window = self.engine.verify(self.measure(state))
        key = self._summaries.wanted(window, place)
        found = place.shelf.get(key) if key and place.shelf else None
        return self._kept(state, known | chosen | self._checked(state, window, place, found), place)

    async def acheck(self, state: State, place: Place) -> Update:
        """Like `check`, awaiting embeddings, the provider's count and the store."""
        place, known = self._histories.placed(state, place), await self._histories.afound(state, place)
        state = {**state, **known}
        chosen = await self.choices.amade(state, self.measure)
        state = {**state, **chosen}
        window = await self.engine.averify(self.measure(state))
        key = self._summaries.wanted(window, place)
        found = await place.shelf.aget(key) if key and place.shelf else None
        return self._kept(state, known | chosen | self._checked(state, window, place, found), place)

    def route(self, state: State) -> Destination:
        """Return the step that follows `check`."""
        pending = flags_of(state)
        if pending.get("due"):
            return "maybe_summarize"
        over_by = report_of(state).get("over_by")
        if over_by is None:
            over_by = self.measure(state).report["over_by"]
        return "force_compress" if over_by > 0 or pending.get("compress") else "build_messages"

    def summarize(self, state: State, place: Place) -> Update:
        """Write the summary that is due; in the background, begin one or write the one that was lost."""
        window, place = self.measure(state), self._histories.placed(state, place)
        if self.engine.in_background(window):
            outcome = self._written(state, window) if _is_due(state) else None
            return self._kept(state, self._advanced(state, window, place, outcome), place)
        plan = self.engine.plan(window)
        if plan is None:
            return self._kept(state, self._uncompacted(state, window), place)
        applied = self.engine.apply(plan, window, call=self.called(state))
        return self._kept(state, self.compacted(state, window, plan, applied), place)

    async def asummarize(self, state: State, place: Place) -> Update:
        """Like `summarize`, awaiting the summarizer."""
        window, place = self.measure(state), self._histories.placed(state, place)
        if self.engine.in_background(window):
            outcome = await self._awritten(state, window) if _is_due(state) else None
            return self._kept(state, self._advanced(state, window, place, outcome), place)
        plan = self.engine.plan(window)
        if plan is None:
            return self._kept(state, self._uncompacted(state, window), place)
        applied = await self.engine.aapply(plan, window, call=self.called(state))
        return self._kept(state, self.compacted(state, window, plan, applied), place)

    def compress(self, state: State, place: Place) -> Update:
        """Make the request fit without calling a model.

        Raises:
            BudgetExceededError: nothing that may leave makes it fit.
        """
        window = self.measure(state)
        compaction = self.engine.emergency(window) or self.engine.relieve(window)
        if compaction is None:
            return self._uncompacted(state, window)
        applied = self.engine.apply(compaction, window)
        return self._kept(state, self.compacted(state, window, compaction, applied), place)

    def model_input(self, state: State) -> list[AnyMessage]:
        """Return the request of this state: the one that was built, or an identical one when it is missing or stale.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        return self.built(state) or self.request(self.measure(state))

    def built(self, state: State) -> list[AnyMessage] | None:
        """Return the request that was built for this state; None when it is missing, stale, or cannot be compared.

        By which of changing settings it was built is not known; with a line about the fill it does not end in a message
        of the history. Building one takes next to nothing.
        """
        if self.engine.is_live or self.engine.config.show_fill:
            return None
        built, messages = state.get("llm_input_messages"), state.get("messages") or ()
        is_request = isinstance(built, list) and all(isinstance(message, BaseMessage) for message in built)
        if not is_request or not built or not messages or not _is_current(built[-1], messages[-1], state):
            return None
        return list(built)

    def request(self, window: Window) -> list[AnyMessage]:
        """Return the message list of a measured request, refusing one that holds nothing to answer."""
        if not window.messages:
            total = len(window.request.messages)
            raise ContextWindowError(
                f"nothing to send: none of the {total} messages in the history is one a model can answer; "
                "add a user message"
            )
        return self.engine.build(window)

    def compacted(self, state: State, window: Window, compaction: Compaction, update: Update) -> Update:
        """Return the update of a compaction that was carried out, with the report of the request as it is now."""
        after = self.engine.continued(self.measure({**state, **update}), window)
        announce_compaction(compaction, after, refused=_refused(window, after))
        return {**update, **_pending(state, after), "context_report": after.report}

    def _fitted(self, state: State, update: Update, place: Place) -> Update:
        now = {**state, **update}
        return update | self.compress(now, place) if self.route(now) == "force_compress" else update

    def _kept(self, state: State, update: Update, place: Place) -> Update:
        """The update, which callers without a checkpointer find again."""
        self._histories.keep({**state, **update}, place)
        return update

    def _checked(self, state: State, window: Window, place: Place, found: Written | None) -> Update:
        announce_faults(window)
        announce_stop(window, report_of(state).get("stopped", ""))
        self._summaries.forget(state, window)
        if self.engine.in_background(window):
            window = self._summaries.advance(window, place, found, called=lambda: self.called(state))
        update, flags = seen(window), self._flags(window, place)
        return changed(state, {**update, "context_pending": {**update["context_pending"], **flags}})

    def _flags(self, window: Window, place: Place) -> Update:
        """What has to happen before the call, beside making an oversized request fit."""
        # An application that has a say is asked when it happens, not when it is announced.
        relief = planner.relieve(window)
        # A summary tells more than the record alone, unless the last ones came to nothing.
        is_hopeless = relief is not None and window.session.failed_summaries >= MAX_INEFFECTIVE
        is_off = self.engine.in_background(window) or is_hopeless
        plan = None if is_off else planner.due(window, is_local=self.engine.is_local)
        if plan is not None and window.fits_after(plan):
            return {"due": True, "reason": plan.reason}
        if relief is not None:
            return {"compress": True, "reason": relief.reason}
        if self.engine.in_background(window):
            # Hard need never waits: then what is left out is in the record, and the summary follows.
            if window.over_by or not window.session.pending or not self._summaries.is_lost(window, place):
                return {}
            announce_summary("lost", window.session.pending, reason="the process that began it is gone")
            return {"due": True, "reason": "the summary in progress was lost"}
        return {}

    def _written(self, state: State, window: Window) -> Outcome:
        pending = window.session.pending
        if pending is None:
            return None
        try:
            return self.engine.write(window, pending, call=self.called(state))
        except SummarizationError as error:
            return error

    async def _awritten(self, state: State, window: Window) -> Outcome:
        pending = window.session.pending
        if pending is None:
            return None
        try:
            return await self.engine.awrite(window, pending, call=self.called(state))
        except SummarizationError as error:
            return error

    def _advanced(self, state: State, window: Window, place: Place, outcome: Outcome) -> Update:
        """The state after a background summary was written here, or else after a look at the one on its way."""
        pending = window.session.pending
        if pending is None or outcome is None:
            window = self._summaries.advance(window, place, called=lambda: self.called(state))
        elif isinstance(outcome, Written):
            window = self._summaries.repeated(window, pending, outcome)
        else:
            window = self._summaries.failed(window, pending, str(outcome))
        return self._uncompacted(state, window)

    def _uncompacted(self, state: State, window: Window) -> Update:
        return changed(state, {**window.session.to_json(), **_pending(state, window), "context_report": window.report})


def _is_due(state: State) -> bool:
    return bool(flags_of(state).get("due"))


def _pending(state: State, window: Window) -> Update:
    """The summary on its way, and whether a request waits behind the step that was due."""
    pending = window.session.pending
    waits = {"request_waits": True} if _is_due(state) else {}
    return {"context_pending": {**(pending.to_json() if pending else {}), **waits}}


def request_waits(state: State) -> bool:
    """True when a summary was made on the way to a model call, not after an answer."""
    return bool(flags_of(state).get("request_waits")) or not turn_is_finished(state)


def _refused(before: Window, after: Window) -> str:
    """Why a summary was not taken; empty when the compaction happened."""
    if after.session.compactions > before.session.compactions:
        return ""
    return str(after.session.guard.get("reason", ""))


def _is_current(built: AnyMessage, newest: AnyMessage, state: State) -> bool:
    """True when a request that ends in `built` was made for a history that ends in `newest`."""
    if built.id is None or built.id != newest.id:
        return False
    view, _ = valid_view(state.get("context_view"))
    return built.content == newest.content or built.id in view.clamped
