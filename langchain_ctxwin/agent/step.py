"""`AgentStep`: what is done around one model call, the same for nodes, middleware and the ready agent.

AgentStep(state, setup)  ->  check  ->  [summarize]  ->  [compress]  ->  request  ->  ModelCall  ->  [summarize]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.agent.choices import Choices, limited_by
from langchain_ctxwin.agent.media import placing_media
from langchain_ctxwin.agent.spending import within_budget
from langchain_ctxwin.agent.state import (
    SESSION,
    State,
    Update,
    changed,
    flags_of,
    report_of,
    tools_of,
)
from langchain_ctxwin.agent.storage import NOWHERE, BackgroundSummaries, RunPlace
from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.events import NoticeEvent, OverflowEvent
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import MAX_INEFFECTIVE, read_key
from langchain_ctxwin.core.updates import after_measure, own_words
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ContextWindowError,
    NoModelFitsError,
)
from langchain_ctxwin.reporting import metadata_of
from langchain_ctxwin.util.work import Wait, Work

if TYPE_CHECKING:  # takes a while to import, and most agents have no selector
    from langchain_ctxwin.tools import ToolSelection

LARGE_CHARS = 200_000
"""Characters of a history that are looked at in a thread when awaited: some 50 ms at first sight, where a thread costs
a tenth of one."""

Destination = Literal["force_compress", "maybe_summarize", "build_messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSetup:
    """The model call that a step leads to, as its adapter describes it."""

    engine: ContextEngine
    choices: Choices
    """Chooses the tools and the model of each request."""

    system_prompt: str | SystemMessage = ""
    tools: Sequence[Any] = ()
    """All tools of the agent, those included that a selector chooses from."""

    format_tools: Sequence[Any] = ()
    """Definitions that a response format adds to the request."""

    model: Any = None
    """Whose limits hold when no router chooses; None takes those of the engine."""

    called: Any = None
    """What the request goes to, when no router chooses; None when that is unknown."""

    is_bounded: bool = True
    """Limits that were set on the engine as numbers hold for a chosen candidate, too."""

    bind: Callable[[Sequence[Any]], Any] = lambda _: None
    """Returns what the request goes to with these tools bound; None when that is unknown."""

    place: RunPlace = NOWHERE
    """Where the conversation runs."""

    state_messages: Sequence[AnyMessage] = ()
    """The messages of the state, where those of the request may be others."""


class AgentStep:
    """The state of one conversation on its way through a step, and the request measured for it."""

    def __init__(self, state: State, setup: CallSetup) -> None:
        self.state: Update = dict(state)
        self.news: Update = {}
        """What the step found out: the update of the state."""
        self.setup, self.engine, self.choices = setup, setup.engine, setup.choices
        self.summaries = BackgroundSummaries(
            setup.engine, setup.place, called=lambda: self.called
        )
        self._window: Window | None = None
        self._request: list[AnyMessage] | None = None
        self._planned: Compaction | None = None

    def take_over(self, before: AgentStep) -> None:
        """Take the request of an earlier node, where that measured this very state with this setup.

        LangGraph hands the nodes of a run the same list of messages until a node writes to it. Settings that changed
        since make another request.
        """
        is_current = (
            before._window is None or settings_of(before._window) is self.engine.config
        )
        if is_current and self._identity() == before._identity():
            self._window, self._request = before._window, before._request
            self._planned = before._planned

    def _identity(self) -> tuple[Any, ...]:
        """Identity of a request's parts; both objects of a comparison are alive, so equal ids mean the same object."""
        setup, session = self.setup, [self.state.get(key) for key in SESSION]
        ids = [
            id(one) for one in (self.state.get("messages"), setup.model, *setup.tools)
        ]
        return ids, setup.system_prompt, session

    @property
    def window(self) -> Window:
        """The request as the state is now, measured once."""
        if self._window is None:
            setup, model = self.setup, self.choices.model(self.state)
            tools = self.tools
            if model and setup.is_bounded:
                model = limited_by(self.engine, model)
            self._window = self.engine.measure(
                self.state.get("messages") or [],
                system_prompt=setup.system_prompt,
                tools=[*tools, *setup.format_tools] if setup.format_tools else tools,
                session=self.state,
                model=model or setup.model,
                called=self.choices.provider(self.state) or setup.called,
            )
        return self._window

    @property
    def tools(self) -> Sequence[Any]:
        """The tools of the request, without those of a response format."""
        setup, loads = self.setup, self._loads_tools()
        return self.choices.tools(self.state, setup.tools, loads_tools=loads)

    @property
    def called(self) -> Any:
        """What the request goes to, tools bound; None when that is unknown. A router's choice may change until then."""
        return None if self.choices.router else self.setup.bind(self.tools)

    def request(self) -> list[AnyMessage]:
        """Return the messages of the request, built once; one that holds nothing to answer is refused.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        window = self.window
        if self._request is None:
            if not window.messages:
                total = len(self.state.get("messages") or ())
                raise ContextWindowError(
                    f"nothing to send: none of the {total} messages in the history is one a model can answer; "
                    "add a user message"
                )
            self._request = self.engine.build(window)
        return self._request

    def update(self, update: Update, window: Window | None = None) -> None:
        """Apply an update of the state; without its `window` the request is measured anew at the next use."""
        if update or window is not None:
            self.news |= update
            self.state |= update
            self._window, self._request, self._planned = window, None, None

    @property
    def state_messages(self) -> Sequence[AnyMessage]:
        """The messages of the state, where those of the request may be others."""
        return self.setup.state_messages or self.state.get("messages") or ()

    def rewrite(
        self, keys: Collection[str | None], change: Callable[[AnyMessage], AnyMessage]
    ) -> None:
        """Replace the messages with these ids, in this step and in the state."""
        if not keys:
            return
        new = [change(one) for one in self.state_messages if one.id in keys]
        self.news["messages"] = [*self.news.get("messages", []), *new]
        self.state["messages"] = [
            change(one) if one.id in keys else one for one in self.state["messages"]
        ]
        self._window, self._request, self._planned = None, None, None

    def prepare(self) -> Work[None]:
        """Take every step that precedes the model call, in one go."""
        yield from self.check()
        if route_of(self.state) == "maybe_summarize":
            yield from self.summarize()
        if route_of(self.state) == "force_compress":
            yield from self.compressing()

    def check(self) -> Work[None]:
        """Choose tools and model, measure, collect and begin summaries, and say what has to happen before the call."""
        faults = read_key("context_tools", self.state.get("context_tools"))[1]
        yield from placing_media(self)
        yield from self.choose()
        within_budget(self)
        window = yield from self.engine.verifying(self.window)
        stored_summary = yield from self.summaries.stored(window)
        self._report_faults(window, (*window.session.faults, *faults))
        if (
            self.state.get("context_summary")
            and not window.session.summary
            and self.setup.place.summaries
        ):
            yield from self.setup.place.summaries.dropping()  # what it covered was edited, and it may tell of that
        key = flags_of(self.state).get("key")
        # this branch no longer wants it
        if isinstance(key, str) and window.session.pending is None:
            self.engine.jobs.cancel(key)
            self.engine.report_summary(window, "cancelled", key)
        if self.engine.in_background(window):
            window = self.summaries.advance(window, stored_summary)
        flags, planned = self._due(window)
        self._take(replace(window, session=after_measure(window)), flags)
        self._planned = planned

    def choose(self) -> Work[None]:
        """Choose the tools and the model of the request, where there are several.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        selection = yield from self.selected(self.window)
        if selection is not None:
            self.update(
                changed(self.state, self.choices.tools_update(self.state, selection))
            )
        if self.choices.router is not None and self.state.get("messages"):
            with self.reporting_refusal():
                self.choose_model()

    def choose_model(self) -> None:
        """Choose among the candidates of the router.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        self.update(
            changed(self.state, self.choices.model_update(self.state, self.window))
        )

    def selected(self, window: Window) -> Work[ToolSelection | None]:
        """Return the tools for a request, within its limit; None where there is nothing to choose."""
        selector = self.choices.selector
        if selector is None or (tools_of(self.state) and self._loads_tools()):
            return None
        messages, room = (
            list(self.state.get("messages") or ()),
            self.choices.room(self.state, window),
        )
        selection: ToolSelection = yield Wait(
            lambda: selector.select(messages, **room),
            lambda: selector.aselect(messages, **room),
        )
        return selection

    def summarize(self) -> Work[None]:
        """Write the summary that is due; in the background, begin one or write the one that was lost."""
        window, is_due = self.window, flags_of(self.state).get("due")
        if self.engine.in_background(window):
            pending = window.session.pending
            if is_due and pending is not None:
                self._take((yield from self.summaries.written_here(window, pending)))
            else:
                self._take(self.summaries.advance(window))
            return
        plan = self._planned
        if plan is None and (is_due or not self._may_move(window)):
            plan = self.engine.plan(window)
        if plan is None:
            self._take(window)
        else:
            self.compacted(
                window,
                (yield from self.engine.applying(plan, window, call=self.called)),
            )

    def compressing(self) -> Work[None]:
        """Make the request fit without calling a model.

        Raises:
            BudgetExceededError: nothing that may leave makes it fit.
        """
        window, compaction = self.window, self._planned
        if compaction is None:
            with self.reporting_refusal():
                compaction = self.engine.emergency(window) or self.engine.relieve(
                    window
                )
        if compaction is None:
            self._take(window)
        else:
            self.compacted(
                window, (yield from self.engine.applying(compaction, window))
            )

    def compacted(self, window: Window, after: Window) -> None:
        """Take up the request after a compaction."""
        reason = str(after.session.guard.get("reason", ""))
        if after.session.compactions <= window.session.compactions and reason:
            self.engine.report_summary(window, "refused", "", reason=reason)
        self._take(after, is_compacted=True)

    @contextmanager
    def reporting_refusal(self) -> Iterator[None]:
        """Report a request that cannot be sent, before the error leaves the step."""
        try:
            yield
        except (BudgetExceededError, NoModelFitsError) as error:
            self.report_refusal(error)
            raise

    def report_refusal(self, error: Exception) -> None:
        """Report a request that cannot be made to fit, by the size of its smallest form if that is known."""
        smallest = error.report if isinstance(error, BudgetExceededError) else None
        sizes: Mapping[str, Any] = smallest or self.window.report
        event = OverflowEvent(
            model=self.window.parts.model,
            reason=type(error).__name__,
            total_tokens=sizes["total_tokens"],
            input_limit=sizes["input_limit"],
        )
        self.engine.reporter.emit(event)

    def metadata(self) -> dict[str, Any]:
        """Return what the call of the model carries for tracers."""
        return metadata_of(
            self.window, getattr(self.choices.provider(self.state), "provider", None)
        )

    def _loads_tools(self) -> bool:
        """True when messages load further tools, so that the chosen ones stay as they are."""
        selector = self.choices.selector
        if selector is None or not selector.deferred_forms:
            return False
        return self.engine.rules_of(
            self.choices.provider(self.state) or self.setup.called
        ).loads_tools

    def _due(self, window: Window) -> tuple[Update, Compaction | None]:
        """The action due before the call, beside making an oversized request fit, and the plan for it."""
        # An application that has a say is asked when it happens, not when it is announced.
        relief = planning.relieve(window)
        in_background = self.engine.in_background(window)
        pending, failed = window.session.pending, window.session.failed_summaries
        # A summary tells more than the record alone, unless the last ones came to nothing.
        is_hopeless = relief is not None and failed >= MAX_INEFFECTIVE
        waits = not window.over_by and self._may_move(window)
        if not in_background and not is_hopeless and not waits:
            plan = planning.summary_due(window, is_local=self.engine.is_local)
            if plan is not None and plan.fits:
                return {"due": True}, plan
        if relief is not None:
            return {"compress": True}, relief
        # Hard need never waits: then what is left out is in the record, and the summary follows.
        is_free = in_background and not window.over_by
        if not is_free or pending is None or not self.summaries.is_lost(window):
            return {}, None
        self.engine.report_summary(
            window, "lost", pending.key, reason="the process that began it is gone"
        )
        return {"due": True}, None

    def _may_move(self, window: Window) -> bool:
        """True while the router is to be asked, once the request does not fit, whether the conversation moves."""
        return not planning.past_bound(window) and self.choices.may_move(
            self.state, window
        )

    def _take(
        self, window: Window, flags: Update | None = None, *, is_compacted: bool = False
    ) -> None:
        """Take up a request, its session and its report.

        Flags say what happens next; by default whether the request waits behind the step that was due.
        """
        pending = window.session.pending
        if flags is None:
            flags = {"request_waits": True} if flags_of(self.state).get("due") else {}
        update = {
            **window.session.to_json(),
            "context_pending": {**(pending.to_json() if pending else {}), **flags},
            "context_report": window.report,
        }
        self.update(update if is_compacted else changed(self.state, update), window)

    def _report_faults(self, window: Window, faults: Sequence[str]) -> None:
        """Report what in the stored state was not ours, and, once, why no summary is tried any more."""
        report = self.engine.reporter.emit
        for fault in faults:
            report(NoticeEvent(notice="session_mended", about={"fault": fault}))
        before = report_of(self.state).get("clamped") or {}
        cut = {
            name: sizes
            for name, sizes in window.report["clamped"].items()
            if name in window.view.without_media and before.get(name) != sizes
        }
        if cut:
            about = {"shown_tokens": cut, "input_limit": window.budget.input_limit}
            model = window.parts.model
            report(NoticeEvent(model=model, notice="newest_clamped", about=about))
        stopped = window.report["stopped"]
        if not stopped or stopped == report_of(self.state).get("stopped", ""):
            return
        reason = str(window.session.guard.get("reason", ""))
        about = {
            "fixed_tokens": window.fixed_tokens,
            "input_limit": window.budget.input_limit,
            "stopped": stopped,
            "reason": own_words(reason),
        }
        notice = NoticeEvent(
            model=window.parts.model,
            notice="compaction_stopped",
            about=about,
            quoting={"reason": reason},
        )
        report(notice)


def route_of(state: State) -> Destination:
    """Return the step that follows `check`."""
    pending = flags_of(state)
    if pending.get("due"):
        return "maybe_summarize"
    over_by = report_of(state).get("over_by") or 0
    return (
        "force_compress" if over_by > 0 or pending.get("compress") else "build_messages"
    )


def is_large(messages: Sequence[AnyMessage]) -> bool:
    """True for a history so long that measuring it for the first time would hold up other tasks of an event loop."""
    return (
        sum(
            len(message.content)
            for message in messages
            if isinstance(message.content, str)
        )
        > LARGE_CHARS
    )


def request_waits(state: State) -> bool:
    """Return whether a summary was made on the way to a model call, not after an answer."""
    return bool(flags_of(state).get("request_waits"))
