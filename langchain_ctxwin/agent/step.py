"""One step of a conversation: what is done around a model call, the same for the LangGraph nodes and the middleware.

    AgentStep(state, call)  ->  check  ->  [summarize]  ->  [compress]  ->  request  ->  model call  ->  [summarize]

A step holds the state as it is now, what of it is news, and the `Window` that was measured for it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.agent.choices import Choices, known_name, limited_by
from langchain_ctxwin.agent.events import refusal_event, report_mended, report_stop
from langchain_ctxwin.agent.state import (
    SESSION,
    State,
    Update,
    changed,
    flags_of,
    report_of,
    tools_of,
)
from langchain_ctxwin.agent.storage import RunPlace
from langchain_ctxwin.core import planning
from langchain_ctxwin.core.compaction import Compaction, accepted_tokens, first_part
from langchain_ctxwin.core.outcome import after_failure, update_after_measure, with_cost
from langchain_ctxwin.core.planning import Snapshot
from langchain_ctxwin.core.session import MAX_INEFFECTIVE, Pending, content_digest
from langchain_ctxwin.core.view import position_of
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError, NoModelFitsError, SummarizationError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.reporting import metadata_of
from langchain_ctxwin.summarize import Written
from langchain_ctxwin.util.memo import Lru
from langchain_ctxwin.util.work import Wait, Work

if TYPE_CHECKING:  # takes a while to import, and most agents have no selector
    from langchain_ctxwin.tools import ToolSelection

LARGE_CHARS = 200_000
"""Characters of a history that are looked at in a thread when awaited: some 50 ms at first sight, where a thread costs
a tenth of one."""

MAX_WINDOWS = 64
"""Conversations between two nodes of one step whose measured window is kept; losing it costs one measure."""

WindowAndPlan = tuple[Window, Compaction | None]
"""A window, and the summary that is due for it."""

NOWHERE = RunPlace()
"""Outside of a graph."""

Destination = Literal["force_compress", "maybe_summarize", "build_messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSetup:
    """What an adapter knows of the model call that a step leads to."""

    system_prompt: str | SystemMessage = ""
    tools: Sequence[Any] = ()
    """The agent's own tools, beside those that a selector chooses."""

    only_given: bool = False
    """Of the chosen tools show only those among `tools`: somebody may have left out the others."""

    format_tools: Sequence[Any] = ()
    """Definitions that a response format adds to the request."""

    model: Any = None
    """Whose limits hold when no router chooses; None takes those of the engine."""

    called: Any = None
    """What the request goes to, when no router chooses; None when nobody knows."""

    is_bounded: bool = True
    """Limits that were set on the engine as numbers hold for a chosen candidate, too."""

    bind: Callable[[Sequence[Any]], Any] = lambda _: None
    """Returns what the request goes to with these tools bound; None when nobody knows."""

    place: RunPlace = NOWHERE
    """Where the conversation runs."""


class AgentStep:
    """The state of one conversation on its way through a step, and the window measured for it."""

    def __init__(self, flow: Flow, state: State, call: CallSetup | None = None) -> None:
        self.call = call or CallSetup()
        self.place = self.call.place
        self.state: Update = dict(state)
        self.news: Update = {}
        """What the step found out: the update of the state."""
        self._flow = flow
        self._window: Window | None = None
        self.plan: Compaction | None = None
        """The summary that is due for the window, where a check has found one."""
        if kept := flow.kept_window(self.state, self.call):
            self._window, self.plan = kept

    @property
    def window(self) -> Window:
        """The request as the state is now, measured once."""
        if self._window is None:
            self._window = self._flow.measured(self.state, self.call)
        return self._window

    @property
    def tools(self) -> Sequence[Any]:
        """The tools of the request, without those of a response format."""
        return self._flow.tools(self.state, self.call)

    @property
    def called(self) -> Any:
        """What the request goes to, tools bound; None when nobody knows. A router's choice may change until then."""
        return None if self._flow.choices.router else self.call.bind(self.tools)

    def update(self, update: Update, window: Window | None = None) -> None:
        """Take up news, and the window that holds with it; without one it is measured when it is asked for."""
        if update or window is not None:
            self.news |= update
            self.state |= update
            self._window, self.plan = window, None


class Flow:
    """What happens to the session around one model call.

    Args:
        engine: decides.
        choices: chooses the tools and the model of each request.
    """

    def __init__(self, engine: ContextEngine, choices: Choices | None = None) -> None:
        self.engine = engine
        self.choices = choices or Choices(reporter=engine.reporter)
        self.summaries = BackgroundSummaries(engine)
        self._windows: Lru[tuple[tuple[Any, ...], CallSetup, WindowAndPlan]] = Lru(MAX_WINDOWS, of_conversations=True)

    def measured(self, state: State, call: CallSetup) -> Window:
        """Measure the next request of a state."""
        chosen = self.choices.model(state)
        tools = self.tools(state, call)
        return self.engine.measure(
            state.get("messages") or [],
            system_prompt=call.system_prompt,
            tools=[*tools, *call.format_tools] if call.format_tools else tools,
            session=state,
            model=limited_by(self.engine, chosen) if chosen and call.is_bounded else chosen or call.model,
            called=self.choices.provider(state) or call.called,
        )

    def tools(self, state: State, call: CallSetup) -> Sequence[Any]:
        """Return the tools of a request, without those of a response format."""
        loads_tools = self.defers_tools(state, call)
        return self.choices.tools(state, call.tools, only_given=call.only_given, loads_tools=loads_tools)

    def defers_tools(self, state: State, call: CallSetup) -> bool:
        """True when messages load further tools, so that the chosen ones stay as they are."""
        return self.choices.defers_tools(self.engine.rules_of(self.choices.provider(state) or call.called))

    def keep_window(self, step: AgentStep) -> None:
        """Keep the window for the next node of this step, in this process; see `kept_window`."""
        messages = step.state.get("messages")
        if messages and not self.engine.is_live:
            known = (messages, *map(step.state.get, SESSION))
            self._windows.put(id(messages), (known, step.call, (step.window, step.plan)))

    def kept_window(self, state: State, call: CallSetup) -> WindowAndPlan | None:
        """Return what an earlier node measured and planned for this very state and call; None when it did not.

        LangGraph hands the nodes of a run the same list of messages until somebody writes to it. A node that replaces
        messages in the list itself is noticed.
        """
        messages = state.get("messages") or ()
        kept = self._windows.get(id(messages))
        if kept is None:
            return None
        (known, *session), before, measured = kept
        # The list is kept alive, so an id cannot come to mean another one.
        if known is not messages or not self.engine.has_measured(messages):
            return None
        if before.model is not call.model or before.system_prompt != call.system_prompt:
            return None
        if [*map(id, before.tools)] != [*map(id, call.tools)] or before.format_tools != call.format_tools:
            return None
        return measured if session == [*map(state.get, SESSION)] else None

    def drop_window(self, step: AgentStep) -> None:
        """Let go of what was kept for the nodes of a step that is over."""
        self._windows.drop(id(step.state.get("messages")))

    def prepare(self, step: AgentStep) -> Work[None]:
        """Take every step that precedes the model call, in one go."""
        yield from self.check(step)
        if self.route(step.state) == "maybe_summarize":
            yield from self.summarize(step)
        if self.route(step.state) == "force_compress":
            self.compress(step)

    def check(self, step: AgentStep) -> Work[None]:
        """Choose tools and model, measure, collect and begin summaries, and say what has to happen before the call."""
        yield from self.choose(step)
        window = yield from self.engine.verifying(step.window)
        key = self.summaries.wanted(window, step.place)
        found = None
        if key and (store := step.place.summaries):
            found = yield Wait(lambda: store.get(key), lambda: store.aget(key))
        report_mended(self.engine.reporter, window.session.faults)
        report_stop(self.engine.reporter, window, report_of(step.state).get("stopped", ""))
        self.summaries.forget(step.state, window)
        if step.state.get("context_summary") and not window.session.summary and step.place.summaries:
            yield from step.place.summaries.dropping()  # what it covered was edited, and it may tell of that
        if self.engine.in_background(window):
            window = self.summaries.advance(window, step.place, found, called=lambda: step.called)
        update, (flags, plan) = update_after_measure(window), self._flags(step, window)
        update["context_pending"] = {**update["context_pending"], **flags}
        seen_as = replace(window, session=replace(window.session, counts=update["context_counts"], faults=()))
        step.update(changed(step.state, update), _still_measured(step, seen_as))
        step.plan = plan

    def choose(self, step: AgentStep) -> Work[None]:
        """Choose the tools and the model of the request, where there are several.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        selection = yield from self.selected(step, step.window)
        if selection is not None:
            step.update(changed(step.state, self.choices.tools_update(step.state, selection)))
        if self.choices.router is not None and step.state.get("messages"):
            with self.reporting_refusal(step):
                self.choose_model(step)

    def selected(self, step: AgentStep, window: Window) -> Work[ToolSelection | None]:
        """The tools for the request of a window, within its limit; None where there is nothing to choose."""
        selector = self.choices.selector
        if selector is None or (tools_of(step.state) and self.defers_tools(step.state, step.call)):
            return None
        messages, room = list(step.state.get("messages") or ()), self.choices.room(step.state, window)
        selection: ToolSelection = yield Wait(
            lambda: selector.select(messages, **room), lambda: selector.aselect(messages, **room)
        )
        return selection

    def choose_model(self, step: AgentStep) -> None:
        """Choose among the candidates of the router, by the request as each tokenizer family counts it.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        known, windows = self.choices.model(step.state), dict[str, Window]()
        families = self.choices.families(step.state)
        for family, name in families.items():
            is_known = known is not None and name == known_name(step.state)
            named = {**step.state, "context_model": {"model": name}}
            windows[family] = step.window if is_known else self.measured(named, step.call)
        is_written = settings_of(step.window).summarize != "off" and not self.engine.is_local
        summary_tokens = planning.summary_size(step.window) if is_written else 0
        route = self.choices.model_update(step.state, windows, shrunk=self.shrunk, summary_tokens=summary_tokens)
        update = changed(step.state, route)
        chosen = known_name({**step.state, **update})
        step.update(update, next((windows[family] for family, name in families.items() if name == chosen), None))

    @staticmethod
    def shrunk(window: Window) -> Compaction | None:
        """Return what would make a request fit; None when nothing that may leave does."""
        try:
            compaction = planning.emergency(window)
        except BudgetExceededError:
            return None
        return compaction if compaction is not None and window.fits_after(compaction) else None

    def route(self, state: State) -> Destination:
        """Return the step that follows `check`."""
        pending = flags_of(state)
        if pending.get("due"):
            return "maybe_summarize"
        over_by = report_of(state).get("over_by") or 0
        return "force_compress" if over_by > 0 or pending.get("compress") else "build_messages"

    def summarize(self, step: AgentStep) -> Work[None]:
        """Write the summary that is due; in the background, begin one or write the one that was lost."""
        window = step.window
        if self.engine.in_background(window):
            yield from self._summarize_in_background(step, window)
            return
        is_early = not flags_of(step.state).get("due") and self._is_asked_first(step, window)
        plan = None if is_early else self.engine.plan(window, planned=step.plan)
        if plan is None:
            self._uncompacted(step, window)
            return
        update = yield from self.engine.applying(plan, window, call=step.called)
        self.compacted(step, window, update)

    def compress(self, step: AgentStep) -> None:
        """Make the request fit without calling a model.

        Raises:
            BudgetExceededError: nothing that may leave makes it fit.
        """
        window = step.window
        with self.reporting_refusal(step):
            compaction = self.engine.emergency(window) or self.engine.relieve(window)
        if compaction is None:
            self._uncompacted(step, window)
        else:
            self.compacted(step, window, self.engine.apply(compaction, window))

    def request(self, step: AgentStep) -> list[AnyMessage]:
        """Return the request of a step, refusing one that holds nothing to answer.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        window = step.window
        if not window.priced_view.shown.messages and not window.messages:
            total = len(window.request.messages)
            raise ContextWindowError(
                f"nothing to send: none of the {total} messages in the history is one a model can answer; "
                "add a user message"
            )
        return self.engine.build(window)

    @contextmanager
    def reporting_refusal(self, step: AgentStep) -> Iterator[None]:
        """Report a request that cannot be sent, before the error leaves the step."""
        try:
            yield
        except (BudgetExceededError, NoModelFitsError) as error:
            self.engine.reporter.emit(refusal_event(step.window, error))
            raise

    def metadata(self, step: AgentStep) -> dict[str, Any]:
        """Return what the call of the model carries for tracers."""
        return metadata_of(step.window, getattr(self.choices.provider(step.state), "provider", None))

    def compacted(self, step: AgentStep, window: Window, update: Update) -> None:
        """Take up a compaction that was carried out, with the report of the request as it is now."""
        after = self.engine.continued(self.measured({**step.state, **update}, step.call), window)
        reason = str(after.session.guard.get("reason", ""))
        if after.session.compactions <= window.session.compactions and reason:
            self.engine.report_summary(window, "refused", "", reason=reason)
        update = {**update, **_pending(step.state, after), "context_report": after.report}
        step.update(update, after)

    def _uncompacted(self, step: AgentStep, window: Window) -> None:
        update = {**window.session.to_json(), **_pending(step.state, window), "context_report": window.report}
        step.update(changed(step.state, update), _still_measured(step, window))

    def _flags(self, step: AgentStep, window: Window) -> tuple[Update, Compaction | None]:
        """What has to happen before the call, beside making an oversized request fit; and the summary that is due."""
        # An application that has a say is asked when it happens, not when it is announced.
        relief = planning.relieve(window)
        # A summary tells more than the record alone, unless the last ones came to nothing.
        is_hopeless = relief is not None and window.session.failed_summaries >= MAX_INEFFECTIVE
        is_off = self.engine.in_background(window) or is_hopeless
        waits = not window.over_by and self._is_asked_first(step, window)
        plan = None if is_off or waits else self.engine.due(window)
        if plan is not None and window.fits_after(plan):
            return {"due": True, "reason": plan.reason}, plan
        if relief is not None:
            return {"compress": True, "reason": relief.reason}, None
        if self.engine.in_background(window):
            # Hard need never waits: then what is left out is in the record, and the summary follows.
            if window.over_by or not window.session.pending or not self.summaries.is_lost(window, step.place):
                return {}, None
            why = "the process that began it is gone"
            self.engine.report_summary(window, "lost", window.session.pending.key, reason=why)
            return {"due": True, "reason": "the summary in progress was lost"}, None
        return {}, None

    def _is_asked_first(self, step: AgentStep, window: Window) -> bool:
        """True while the router is to be asked, once the request does not fit, whether the conversation moves."""
        return not planning.past_bound(window) and self.choices.may_move(step.state, window)

    def _summarize_in_background(self, step: AgentStep, window: Window) -> Work[None]:
        """Write the summary that was lost, here and now; else begin or collect the one on its way."""
        pending, called = window.session.pending, step.called
        if pending is None or not flags_of(step.state).get("due"):
            self._uncompacted(step, self.summaries.advance(window, step.place, called=lambda: called))
            return
        try:
            written = yield from self.engine.written(window, pending, call=called)
        except SummarizationError as error:
            self._uncompacted(step, self.summaries.failed(window, pending, str(error)))
        else:
            self._uncompacted(step, self.summaries.repeated(window, pending, written))


def is_large(messages: Sequence[AnyMessage]) -> bool:
    """True for a history whose first look takes so long that other tasks of an event loop would notice."""
    return sum(len(message.content) for message in messages if isinstance(message.content, str)) > LARGE_CHARS


def request_waits(state: State) -> bool:
    """True when a summary was made on the way to a model call, not after an answer."""
    return bool(flags_of(state).get("request_waits"))


def _pending(state: State, window: Window) -> Update:
    """The summary on its way, and whether a request waits behind the step that was due."""
    pending = window.session.pending
    waits = {"request_waits": True} if flags_of(state).get("due") else {}
    return {"context_pending": {**(pending.to_json() if pending else {}), **waits}}


def _still_measured(step: AgentStep, window: Window) -> Window | None:
    """The window of a step with what became of its summaries; None where that changes what a measure says."""
    return window if window.session.guard == step.window.session.guard else None


PATIENCE = 1.25
"""Times its time-out after which a summary that another process was writing is given up: its queue and its store need
time too, and clocks differ."""


class BackgroundSummaries:
    """The background summaries of an engine's conversations."""

    def __init__(self, engine: ContextEngine, *, clock: Clock = time.time) -> None:
        self._engine = engine
        self._clock = clock

    def wanted(self, window: Window, place: RunPlace) -> str:
        """Return the key to look for in the store; empty when there is nothing to look for."""
        pending = window.session.pending
        if pending is None or pending.text or place.summaries is None:
            return ""
        job = self._engine.jobs.find(pending.key)
        return "" if job and job.state in {"running", "ready"} else pending.key

    def advance(
        self, window: Window, place: RunPlace, found: Written | None = None, *, called: Callable[[], Any] = lambda: None
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
            due = self._engine.prepare(window)
            return self._begun(window, due, place, called) if due else window
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

    def is_lost(self, window: Window, place: RunPlace) -> bool:
        """True when nobody writes the summary on its way any more, as far as can be known here."""
        pending = window.session.pending
        if pending is None or pending.text:
            return False
        job = self._engine.jobs.find(pending.key)
        if job:  # one that ended at this moment is collected by the next step
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

    def _begun(self, window: Window, due: Snapshot, place: RunPlace, called: Callable[[], Any]) -> Window:
        messages = window.request.messages
        # Equal messages after another past, in another branch, or read by another summarizer, make another summary.
        about = (place.thread, place.prompt_scope, due.digest, window.session.summary, self._engine.writer)
        work = "\0".join(about)
        pending = Pending(
            key=hashlib.blake2b(work.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest(),
            start=position_of(messages, due.start),
            through=position_of(messages, due.stop - 1),
            digest=due.digest,
            since_seconds=self._clock(),
            max_tokens=due.max_tokens,
        )
        timeout_seconds = settings_of(window).summary_timeout_seconds
        write = self._engine.writing(window, pending, call=called())
        is_begun = self._engine.jobs.start(
            pending.key, write, timeout_seconds=timeout_seconds, store=place.summaries, thread_id=place.thread_id
        )
        if not is_begun:
            return window
        size = due.stop - due.start
        self._engine.report_summary(window, "started", pending.key, reason=due.reason, messages=size)
        return replace(window, session=replace(window.session, pending=pending))
