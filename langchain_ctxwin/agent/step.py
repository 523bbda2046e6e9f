"""`AgentStep`: what is done around one model call, the same for nodes, middleware and the ready agent.

AgentStep  ->  check  ->  [summarize]  ->  compressing  ->  request  ->  ModelCall  ->  [summarize]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.agent.state import (
    SESSION,
    changed,
    kept,
    mapping_of,
)
from langchain_ctxwin.agent.storage import (
    NOWHERE,
    RunPlace,
    advanced,
    placing_media,
    within_budget,
)
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.events import OverflowEvent
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.measuring import after_measure
from langchain_ctxwin.core.model_info import unbound
from langchain_ctxwin.core.provider_blocks import in_prompt
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import Json, Session, State
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ContextWindowError,
    NoModelFitsError,
)
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.routing.candidates import (
    Candidate,
    RouteRequest,
    Size,
    smallest_limits,
    thread_key,
)
from langchain_ctxwin.routing.chat_model import wish
from langchain_ctxwin.tools import ToolSelection, ToolSelector
from langchain_ctxwin.util.work import Wait, Work, run

TOOL_SHARE = 0.5
"""Most that selected tools may take of what the system prompt, the agent's own tools and other fixed parts leave: a
window that is full of definitions has no room to use them."""

COMPACTS = "compacts: the conversation stays with its model"
"""Why a full conversation does not move."""


@dataclass(kw_only=True, eq=False)
class AgentStep:
    """One conversation on its way through a step: its request, measured once, and what the state is to learn of it.

    An adapter says what the model call is that the step leads to.
    """

    state: State
    """The state as it is stored."""

    engine: ContextEngine
    selector: ToolSelector | None = None
    """Chooses of its tools those of each request."""

    system_prompt: str | SystemMessage = ""
    all_tools: Sequence[Any] = ()
    """All tools of the agent, those included that a selector chooses from. Those of the selector that are missing are
    not shown: other code left them out."""

    format_tools: Sequence[Any] = ()
    """Definitions that a response format adds to the request."""

    model: Any = None
    """Whose limits hold when no router chooses; None takes those of the engine."""

    call: Any = None
    """What is called; with the tools in it unless `bind` binds them. None when that is unknown. The router of a
    `RoutedChatModel` chooses the model of each request, by what the call and the bindings around it ask for."""

    bind: Callable[[Any, Sequence[Any]], Any] | None = None
    """Returns the call with these tools bound, or None when that is unknown; None where they are bound already."""

    place: RunPlace = NOWHERE
    """Where the conversation runs."""

    stored_messages: Sequence[AnyMessage] = ()
    """The messages of the state, where those of the request may be others."""

    def __post_init__(self) -> None:
        self.router = router_of(self.call)
        self.messages: Sequence[Any] = self.state.get("messages") or ()
        self.stored_messages = self.stored_messages or self.messages
        self.rewritten: dict[str | None, AnyMessage] = {}
        """Messages of the state that are replaced, by id."""
        self.tool_names: list[str] = kept(self.state, "context_tools")
        """The chosen tools."""
        self.choice = mapping_of(self.state, "context_model")
        """The chosen candidate, and why."""
        pending = mapping_of(self.state, "context_pending")
        self.is_due = bool(pending.get("due"))
        """A summary is to be written before the call: until the request is built, `context_pending` says so."""
        self.report: Json = {}
        # as stored, until the first measure has read it
        self._session: Any = self.state
        self._window: Window | None = None

    # ---- the request, and what the state is to learn ----------------------------------------------------------------

    @property
    def window(self) -> Window:
        """The request as the conversation is now, measured once."""
        window = self._window
        if window is None:
            model, chosen = self.model, self.chosen
            if self.router is not None:
                model = limited_by(self.engine, self._candidate_limits())
            window = self.engine.measure(
                self.messages,
                system_prompt=self.system_prompt,
                tools=[*self.tools, *self.format_tools],
                session=self._session,
                model=model,
                called=chosen.info if chosen else self.call,
            )
            self.take(window)
        return window

    def take(self, window: Window) -> None:
        """Go on with another request, or another session of it."""
        self._window = window
        self._session, self.report = window.session, window.report

    def go_on(self, session: Session) -> None:
        """Go on with the same request, in another session."""
        self.take(replace(self.window, session=session))

    def anew(self, session: Session | None = None) -> None:
        """Have the request measured again, with another session where one is given."""
        self._session = session or self.window.session
        self._window = None

    def stored(self) -> Json:
        """Return what the state does not say yet, for a node to write; the step goes on from the state with it."""
        session = self._session.to_json()
        if self.is_due:
            session["context_pending"]["due"] = True
        session |= {
            "context_report": self.report,
            "context_tools": self.tool_names,
            "context_model": self.choice,
        }
        update = changed(self.state, session)
        if self.rewritten:
            update["messages"] = [*self.rewritten.values()]
        self.state = {**self.state, **update, "messages": self.messages}
        return update

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the request is made of: a step keeps it alive, so that equal ids mean the same objects.

        LangGraph hands the nodes of a run the same objects until a node writes others.
        """
        session = [self.state.get(key) for key in ("messages", *SESSION)]
        parts = (*session, self.model, self.call, *self.all_tools)
        return *map(id, parts), str(self.system_prompt)

    def request(self) -> list[AnyMessage]:
        """Return the messages of the request; one that holds nothing to answer is refused.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        if not self.window.messages:
            raise ContextWindowError(
                f"nothing to send: none of the {len(self.messages)} messages in the history is one a model can "
                "answer; add a user message"
            )
        return self.engine.build(self.window)

    @property
    def called(self) -> Any:
        """What the request goes to, tools bound; None when that is unknown. A router's choice may change until then."""
        if self.router is not None or self.call is None:
            return None
        return self.bind(self.call, self.tools) if self.bind else self.call

    def rewrite(
        self, keys: Collection[str | None], change: Callable[[AnyMessage], AnyMessage]
    ) -> None:
        """Replace messages with these ids that a change makes others of, in this step and in the state."""
        for one in self.stored_messages:
            if one.id in keys and (new := change(one)) is not one:
                self.rewritten[one.id] = new
        self.messages = [
            change(one) if one.id in keys else one for one in self.messages
        ]
        self.anew()

    # ---- the verbs of a step ----------------------------------------------------------------------------------------

    def prepare(self) -> Work[None]:
        """Take every step that precedes the model call, in one go."""
        yield from self.check()
        if self.is_due:
            yield from self.summarize()
        yield from self.compressing()

    def check(self) -> Work[None]:
        """Choose tools and model, measure, collect and begin summaries, and say what has to happen before the call.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        yield from placing_media(self)
        yield from self.choose_tools()
        if self.messages:
            self.do_or_report(self.choose_model)
        within_budget(self)
        told = kept(self.state, "context_report").get("clamped") or {}
        self.engine.reporter.cut(self.window, told)  # a limit of media may cut, too
        if self.engine.in_background(self.window):
            yield from advanced(self)
        self.go_on(after_measure(self.window))
        window, engine = self.window, self.engine
        plan = None if engine.is_local else self._summary(window)
        self.is_due = plan is not None and plan.fits
        if not self.is_due and (relief := engine.relieve(window)):
            self.take((yield from engine.applying(relief, window)))

    def _summary(self, window: Window) -> Compaction | None:
        """The summary that is to be written in the turn; none while the conversation can move to another model."""
        can_wait = self._moves and not (window.over_by or window.past_bound)
        waits = self.engine.in_background(window) or can_wait
        return None if waits else self.engine.plan(window)

    def summarize(self) -> Work[None]:
        """Write the summary that is due; in the background, collect or begin one."""
        window = self.window
        if self.engine.in_background(window):
            yield from advanced(self)
        elif plan := self._summary(window):
            after = yield from self.engine.applying(plan, window, call=self.called)
            self.take(after)

    def compressing(self) -> Work[None]:
        """Make the request fit without calling a model: the last thing before it is built.

        Raises:
            BudgetExceededError: nothing that may leave makes it fit.
        """
        yield from ()  # nodes do work, and nothing of this waits
        self.is_due = False
        self.do_or_report(self.fit)

    def fit(self) -> None:
        """Make a request fit that is too large, whatever changed since it was checked: state, tools or model."""
        window = self.window
        compaction = self.engine.emergency(window)
        if compaction is not None:
            self.take(run(self.engine.applying(compaction, window)))

    def do_or_report(self, act: Callable[[], None]) -> None:
        """Report a request that cannot be sent, before the error leaves the step."""
        try:
            act()
        except (BudgetExceededError, NoModelFitsError) as error:
            self.report_refusal(error)
            raise

    def report_refusal(self, error: Exception) -> None:
        """Report a request that cannot be made to fit."""
        self.report_overflow(self.window, reason=type(error).__name__)

    def report_overflow(self, window: Window, **about: Any) -> None:
        """Report a request that was too large, by its size."""
        event = OverflowEvent(
            model=window.model,
            total_tokens=window.total_tokens,
            input_limit=window.input_limit,
            **about,
        )
        self.engine.reporter.emit(event)

    # ---- tools and models that are chosen ---------------------------------------------------------------------------

    def choose_tools(self) -> Work[None]:
        """Choose the tools for the request, within its limit.

        They have room by the window of the conversation's model, else by the smallest one.
        """
        selector, names, window = self.selector, self.tool_names, self.window
        if selector is None:
            return
        sent = in_prompt(window.tools, window.rules.provider)
        others = [tool for tool in sent if name_of(tool) not in names]
        saved_tokens = window.tool_tokens - window.price_tools(others).tokens
        fixed_tokens = window.fixed_tokens - saved_tokens
        left_tokens = int(TOOL_SHARE * (window.input_limit - fixed_tokens))
        selection: ToolSelection = yield Wait.on(
            selector,
            "select",
            list(self.messages),
            previous=names,
            max_tool_tokens=max(1, min(selector.max_tool_tokens, left_tokens)),
        )
        self.tool_names = list(selection.names)
        if self.tool_names != names:
            self.anew()

    @property
    def tools(self) -> Sequence[Any]:
        """The tools of the request, without those of a response format: the agent's, and those that were chosen."""
        selector = self.selector
        if selector is None:
            return self.all_tools
        given = {name_of(tool): tool for tool in self.all_tools}
        search = given.pop(selector.search_tools.name, None)
        chosen = {name_of(tool): tool for tool in selector.named(self.tool_names)}
        offered = [tool for name, tool in given.items() if name not in selector]
        if search is not None and len(chosen) < len(selector.tools):
            offered.append(search)
        return offered + [
            given.get(name, tool)
            for name, tool in chosen.items()
            if isinstance(tool, Mapping) or name in given
        ]

    def choose_model(self) -> None:
        """Choose the candidate of a router which takes the request as it stands, else the largest.

        With `RoutingConfig(when_full="compact")` a full conversation stays with its candidate, unless what is fixed
        does not fit there.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        if self.router is None:
            return
        window = self.window
        prefer = reason = ""
        chosen = self.chosen
        can_fit = window.over_by and window.fixed_tokens < window.input_limit
        if chosen and not self._moves and can_fit:
            # Another one is taken when it is in trouble, or cannot do what is asked for.
            prefer, reason = chosen.name, COMPACTS
        size = Size(
            tokens=window.total_tokens,
            upper=window.upper_tokens,
            lower=window.lower_tokens,
        )
        # what it was measured for: before the first choice, all of them
        measured = (chosen,) if chosen else self._candidates()
        request = RouteRequest(
            messages=window.assembled(),
            tools=window.tools,
            conversation=thread_key(),
            kept=self.chosen_name,
            prefer=prefer,
            prefer_reason=reason,
            reserve=window.settings.output_reserve,
            sizes={one.family: size for one in measured},
            shrinks=True,
        )
        route = self.router.decide(request)
        self._go_with(route.name, route.reason)

    def take_answerer(self, answer: Any) -> None:
        """Go on with the candidate which answered, when it is another one than was chosen."""
        route = getattr(answer, "response_metadata", {}).get("route")
        name, reason = wish(route)
        if self.router is not None and name not in {"", self.chosen_name}:
            self._go_with(name, reason)

    def _go_with(self, name: str, reason: str) -> None:
        choice = {"model": name, "reason": reason}
        if choice != self.choice:
            self.choice = choice
            self.anew()

    @property
    def chosen_name(self) -> str:
        """Name of the candidate that was chosen; empty before the first choice."""
        return str(self.choice.get("model") or "")

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that was chosen, while it is one; None without a router."""
        named = (one for one in self._candidates() if one.name == self.chosen_name)
        return next(named, None)

    def _candidates(self) -> tuple[Candidate, ...]:
        """The candidates as they are for the conversation of this run; none without a router."""
        return self.router.candidates_of(thread_key()) if self.router else ()

    def _candidate_limits(self) -> Any:
        """The limits of the chosen candidate, else the smallest ones, as those of a model."""
        chosen = self.chosen
        limits = chosen.limits if chosen else smallest_limits(self._candidates())
        return SimpleNamespace(
            limits=limits,
            name=chosen.info.name if chosen else "",
            tokenizer_family=chosen.family if chosen else "",
        )

    @property
    def _moves(self) -> bool:
        """True where a conversation that no longer fits its candidate may go on whole with another."""
        return self.router is not None and self.router.config.when_full == "move"


def router_of(model: Any) -> ModelRouter | None:
    """Return the router of a `RoutedChatModel`, with tools bound or not; None for any other model."""
    inner = unbound(model)
    return inner.router if isinstance(inner, RoutedChatModel) else None


def limited_by(engine: ContextEngine, model: Any) -> Any:
    """Return the model of a request; None where its engine was given smaller limits, as numbers."""
    own, reserve = engine.limits, engine.config.output_reserve
    if engine.model or not own.known:
        return model
    limits = ModelLimits.of(model)
    is_smaller = limits.known and limits.room(reserve) < own.room(reserve)
    return model if is_smaller else None
