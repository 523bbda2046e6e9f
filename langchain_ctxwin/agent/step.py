"""`AgentStep`: what is done around one model call, the same for nodes, middleware and the ready agent.

AgentStep  ->  check  ->  [summarize]  ->  [compress]  ->  request  ->  ModelCall  ->  [summarize]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langgraph.types import interrupt

from langchain_ctxwin.agent.choices import (
    limited_by,
    require_free_name,
    router_of,
)
from langchain_ctxwin.agent.state import (
    SESSION,
    State,
    Update,
    changed,
    flags_of,
    known_name,
    report_of,
    tools_of,
)
from langchain_ctxwin.agent.storage import (
    NOWHERE,
    RunPlace,
    advanced,
    is_lost,
    placing_media,
    written_here,
)
from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.events import OverflowEvent
from langchain_ctxwin.core.limits import NamedLimits, asking_for
from langchain_ctxwin.core.measuring import after_measure
from langchain_ctxwin.core.model_info import arguments_of, unbound
from langchain_ctxwin.core.provider_blocks import in_prompt
from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import MAX_INEFFECTIVE
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.core.usage import Usage, as_money
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ConfigError,
    ContextWindowError,
    NoModelFitsError,
    ThreadBudgetError,
    brief,
)
from langchain_ctxwin.routing.candidates import (
    Candidate,
    RouteRequest,
    Size,
    smallest_limits,
    thread_key,
)
from langchain_ctxwin.routing.chat_model import wish
from langchain_ctxwin.tools import ToolSelection, ToolSelector
from langchain_ctxwin.util.work import Wait, Work

Destination = Literal["force_compress", "maybe_summarize", "build_messages"]

TOOL_SHARE = 0.5
"""Most that selected tools may take of what the system prompt, the agent's own tools and other fixed parts leave: a
window that is full of definitions has no room to use them."""

COMPACTS = "compacts: the conversation stays with its model"
"""Why a full conversation does not move."""


def as_bound(call: Any, _: Sequence[Any]) -> Any:
    """Return a model whose tools are bound already."""
    return call


@dataclass(kw_only=True, eq=False)
class AgentStep:
    """The state of one conversation on its way through a step, and the request measured for it.

    An adapter says what the model call is that the step leads to.
    """

    state: Update
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
    """What is called, tools left out; None when that is unknown. The router of a `RoutedChatModel` chooses the model of
    each request, by what the call and the bindings around it ask for."""

    requires: tuple[str, ...] = ()
    """Capabilities that the model needs beside those that tools and media show."""

    bind: Callable[[Any, Sequence[Any]], Any] = as_bound
    """Returns the call with these tools bound; None when that is unknown."""

    place: RunPlace = NOWHERE
    """Where the conversation runs."""

    stored_messages: Sequence[AnyMessage] = ()
    """The messages of the state, where those of the request may be others."""

    news: Update = field(default_factory=dict, init=False)
    """What the step found out: the update of the state."""

    _window: Window | None = field(default=None, init=False)
    _request: list[AnyMessage] | None = field(default=None, init=False)
    _planned: Compaction | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.state = dict(self.state)
        self.router = router_of(self.call)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the request is made of: a step keeps it alive, so that equal ids mean the same objects.

        LangGraph hands the nodes of a run the same objects until a node writes others.
        """
        session = [self.state.get(key) for key in ("messages", *SESSION)]
        return *map(id, (*session, self.model, *self.all_tools)), str(
            self.system_prompt
        )

    def take_over(self, before: AgentStep) -> None:
        """Take the request of an earlier node, which measured it for this very state and call."""
        self._window, self._request = before._window, before._request
        self._planned = before._planned

    @property
    def window(self) -> Window:
        """The request as the state is now, measured once."""
        if self._window is None:
            model, tools, chosen = self.model, self.tools, self.chosen
            if self.router is not None:
                model = limited_by(self.engine, self._candidate_limits())
            self._window = self.engine.measure(
                self.state.get("messages") or [],
                system_prompt=self.system_prompt,
                tools=[*tools, *self.format_tools] if self.format_tools else tools,
                session=self.state,
                model=model,
                called=chosen.info if chosen else self.call,
            )
        return self._window

    @property
    def tools(self) -> Sequence[Any]:
        """The tools of the request, without those of a response format: the agent's, and those that were chosen.

        Where a message can load a tool, the others follow as deferred definitions, so that nothing changes when one of
        them is found.
        """
        selector = self.selector
        if selector is None:
            return self.all_tools
        require_free_name(selector, self.all_tools)
        search, names = selector.search_tools, tools_of(self.state)
        own = {
            name: tool
            for tool in self.all_tools
            if (name := name_of(tool)) in selector or name == search.name
        }
        offered = [tool for tool in self.all_tools if name_of(tool) not in own]
        chosen = selector.named(names)
        finds_more = len(chosen) < len(selector.tools) and search.name in own
        if finds_more:
            offered.append(search)
        offered += [
            own.get(name_of(tool), tool)
            for tool in chosen
            if isinstance(tool, Mapping) or name_of(tool) in own
        ]
        if finds_more and self._loads_tools():
            offered += [
                tool
                for tool in selector.deferred_forms
                if name_of(tool) in own and name_of(tool) not in names
            ]
        return offered

    @property
    def called(self) -> Any:
        """What the request goes to, tools bound; None when that is unknown. A router's choice may change until then."""
        if self.router is not None or self.call is None:
            return None
        return self.bind(self.call, self.tools)

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
        return self.stored_messages or self.state.get("messages") or ()

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
        faults = self.window.session.faults
        yield from placing_media(self)
        yield from self.choose()
        within_budget(self)
        window = self.window
        self._report_faults(window, faults)
        if self.engine.in_background(window):
            window = yield from advanced(self, window)
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
            self.show_tools(selection)
        if self.router is not None and self.state.get("messages"):
            with self.reporting_refusal():
                self.choose_model()

    def selected(self, window: Window) -> Work[ToolSelection | None]:
        """Return the tools for a request, within its limit; None where there is nothing to choose.

        They have room by the window of the conversation's model, else by the smallest one.
        """
        selector, names, parts = self.selector, tools_of(self.state), window.parts
        if selector is None or (names and self._loads_tools()):
            return None
        sent = in_prompt(parts.tools, parts.rules.provider)
        others = [tool for tool in sent if name_of(tool) not in names]
        price = parts.pricer.tool_set
        saved_tokens = price(sent).tokens - price(others).tokens
        fixed_tokens = window.fixed_tokens - saved_tokens
        left_tokens = int(TOOL_SHARE * (window.budget.input_limit - fixed_tokens))
        selection: ToolSelection = yield Wait.on(
            selector,
            "select",
            list(self.state.get("messages") or ()),
            previous=names,
            max_tool_tokens=max(1, min(selector.max_tool_tokens, left_tokens)),
        )
        return selection

    def show_tools(self, selection: ToolSelection) -> None:
        """Show the selected tools from now on."""
        self.update(changed(self.state, {"context_tools": list(selection.names)}))

    def choose_model(self) -> None:
        """Choose the candidate which takes the request as it stands, else the largest.

        With `RoutingConfig(when_full="compact")` a conversation that no longer fits its candidate stays with it while
        a compaction makes it fit.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        router, window, before = self.router, self.window, known_name(self.state)
        if router is None:
            return
        prefer, _ = wish(arguments_of(self.call).get("route"))
        stays = not prefer and self._is_compacted(window)
        request = RouteRequest(
            messages=window.assembled(),
            tools=window.parts.tools,
            conversation=thread_key(),
            kept=before,
            # Another one is taken when it is in trouble, or cannot do what is asked for.
            prefer=before if stays else prefer,
            prefer_reason=COMPACTS if stays else "",
            requires=self.requires,
            output_tokens=self._output_tokens,
            reserve=settings_of(window).output_reserve,
            sizes=self._sizes(window),
            shrinks=True,
        )
        route = router.decide(request)
        self._take_model(route.name, route.reason)

    def take_answerer(self, answer: Any) -> None:
        """Go on with the candidate which answered, when it is another one than was chosen."""
        route = getattr(answer, "response_metadata", {}).get("route")
        name, reason = wish(route)
        if self.router is not None and name not in {"", known_name(self.state)}:
            self._take_model(name, reason)

    def _take_model(self, name: str, reason: str) -> None:
        chosen = {"context_model": {"model": name, "reason": reason}}
        self.update(changed(self.state, chosen))

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that the state names, while it is one; None without a router."""
        name = known_name(self.state)
        return next((one for one in self._candidates() if one.name == name), None)

    def _candidates(self) -> tuple[Candidate, ...]:
        """The candidates as they are for the conversation of this run; none without a router."""
        return self.router.candidates_of(thread_key()) if self.router else ()

    @property
    def _output_tokens(self) -> int | None:
        own = {"max_tokens": getattr(unbound(self.call), "max_tokens", None)}
        return output_tokens_of({**own, **arguments_of(self.call)})

    def _candidate_limits(self) -> NamedLimits:
        """The limits of the chosen candidate, else the smallest ones."""
        output = self._output_tokens
        if (chosen := self.chosen) is None:
            smallest = smallest_limits(self._candidates())
            return NamedLimits(asking_for(smallest, output), "")
        limits = asking_for(chosen.limits, output)
        return NamedLimits(limits, chosen.info.name, chosen.family)

    def _is_compacted(self, window: Window) -> bool:
        """True when a full conversation is to stay with its candidate, and a compaction makes it fit there."""
        if self.router is None or self.router.config.when_full == "move":
            return False
        if not self.chosen:
            return False
        try:
            compaction = planning.emergency(window)
        except BudgetExceededError:
            return False
        return compaction is not None and compaction.fits

    def _sizes(self, window: Window) -> dict[str, Size]:
        """The size of the request for the tokenizers that it was measured for: before the first choice, for all."""
        size = Size(
            tokens=window.total_tokens,
            upper=window.upper_tokens,
            lower=window.lower_tokens,
        )
        chosen = self.chosen
        measured = (chosen,) if chosen else self._candidates()
        return {one.family: size for one in measured}

    def summarize(self) -> Work[None]:
        """Write the summary that is due; in the background, begin one or write the one that was lost."""
        window, is_due = self.window, flags_of(self.state).get("due")
        if self.engine.in_background(window):
            pending = window.session.pending
            if is_due and pending is not None:
                window = yield from written_here(self, window, pending)
            else:
                window = yield from advanced(self, window)
            self._take(window)
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

    def _loads_tools(self) -> bool:
        """True when messages load further tools, so that the chosen ones stay as they are."""
        if self.selector is None or not self.selector.deferred_forms:
            return False
        chosen = self.chosen
        return self.engine.rules_of(chosen.info if chosen else self.call).loads_tools

    def _due(self, window: Window) -> tuple[Update, Compaction | None]:
        """The action due before the call, beside making an oversized request fit, and the plan for it."""
        # An application that has a say is asked when it happens, not when it is announced.
        relief = planning.relieve(window)
        in_background = self.engine.in_background(window)
        failed = window.session.failed_summaries
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
        return ({"due": True} if is_free and is_lost(self, window) else {}), None

    def _may_move(self, window: Window) -> bool:
        """True while a conversation that no longer fits its candidate goes on whole with another that has room."""
        if self.router is None or self.router.config.when_full == "compact":
            return False
        if window.past_bound:
            return False
        reserve, least = settings_of(window).output_reserve, window.budget.input_limit
        name = known_name(self.state)
        others = (one.limits for one in self._candidates() if one.name != name)
        return any(limits.room(reserve) > least for limits in others)

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
        """Report what in the stored state was not ours, and what of the newest messages a limit of media left out."""
        report = self.engine.reporter.notice
        for fault in faults:
            report("session_mended", fault=fault)
        before = report_of(self.state).get("clamped") or {}
        cut = {
            name: sizes
            for name, sizes in window.report["clamped"].items()
            if name in window.view.without_media and before.get(name) != sizes
        }
        if cut:
            report(
                "newest_clamped",
                window.parts.model,
                shown_tokens=cut,
                input_limit=window.input_limit,
            )


def route_of(state: State) -> Destination:
    """Return the step that follows `check`."""
    pending = flags_of(state)
    if pending.get("due"):
        return "maybe_summarize"
    over_by = report_of(state).get("over_by") or 0
    return (
        "force_compress" if over_by > 0 or pending.get("compress") else "build_messages"
    )


def request_waits(state: State) -> bool:
    """Return whether a summary was made on the way to a model call, not after an answer."""
    return bool(flags_of(state).get("request_waits"))


# ---- what a thread may spend, where that is bounded -----------------------------------------------------------------

NEAR_SHARE = Decimal("0.8")
"""Of a limit: it is reported while something is still left to decide about."""

AMOUNTS = {"max_thread_tokens": "tokens", "max_thread_cost": "cost"}
"""The settings that bound what a thread spends, with what `context_guard` calls each amount."""


class Bound(NamedTuple):
    """One limit of a thread, and what was spent of it; USD or tokens."""

    setting: str
    spent: Decimal
    limit: Decimal

    def about(self) -> dict[str, Any]:
        """Return it as JSON; numbers as text, so that money stays exact."""
        return {name: str(value) for name, value in self._asdict().items()}


def within_budget(step: AgentStep) -> None:
    """Return while the thread has something left to spend; else raise, or ask for more where that is set.

    Raises:
        ConfigError: the cost is bounded, and no source states the prices of a model.
        ThreadBudgetError: the thread spent all that it may.
    """
    settings, fault = settings_of(step.window), ""
    if settings.max_thread_cost is not None:
        _require_prices(step, settings.max_thread_cost)
    while over := next((one for one in _bounds(step) if one.spent >= one.limit), None):
        if settings.on_budget == "raise" or not step.place.thread:
            raise ThreadBudgetError(
                f"the thread spent {over.spent} of {over.setting}={over.limit}: raise {over.setting}, begin another "
                "thread, or set on_budget='interrupt' (with a checkpointer) to be asked"
            )
        answer = interrupt(
            {
                "reason": "thread_budget",
                **over.about(),
                "resume_with": {over.setting: str(2 * over.limit)},
                "fault": fault,
            }
        )
        fault = _allow(step, answer)


def count_spent(step: AgentStep, window: Window, answers: Sequence[AIMessage]) -> None:
    """Add what the answers to a request cost to what the state says of the thread, where that is bounded."""
    before = _bounds(step)
    if not before:
        return
    spent, model = _amounts(step, "spent"), window.parts.model
    for answer in answers:
        usage = _usage(answer, window)
        spent["tokens"] += sum(map(_tokens, (usage, *usage.compactions)))
        spent["cost"] += usage.cost(step.engine.info_of(window)) or 0
    _store(step, "spent", spent)
    for old, new in zip(before, _bounds(step), strict=True):
        if old.spent < NEAR_SHARE * old.limit <= new.spent:
            step.engine.reporter.notice("budget_near", model, **new.about())


def _usage(answer: AIMessage, window: Window) -> Usage:
    """What a call used, by our own count where its provider does not say."""
    usage = Usage.of_answer(answer)
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return usage
    return Usage(
        input_tokens=window.total_tokens, output_tokens=window.parts.price(answer)
    )


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _bounds(step: AgentStep) -> list[Bound]:
    """The limits that are set, what was allowed since included, with what answers and summaries took."""
    settings = settings_of(step.window)
    spent, allowed = _amounts(step, "spent"), _amounts(step, "allowed")
    written = Usage.of(step.window.session.guard.get("summarizer"))
    spent["tokens"] += _tokens(written)
    spent["cost"] += written.cost(step.engine.summarizer_info()) or 0
    return [
        Bound(name, spent[amount], max(Decimal(limit), allowed[amount]))
        for name, amount in AMOUNTS.items()
        if (limit := getattr(settings, name))
    ]


def _amounts(step: AgentStep, name: str) -> dict[str, Decimal]:
    stored = step.window.session.guard.get(name) or {}
    return {amount: as_money(stored.get(amount, 0)) for amount in AMOUNTS.values()}


def _store(step: AgentStep, name: str, amounts: Mapping[str, Decimal]) -> None:
    stored = {"tokens": int(amounts["tokens"]), "cost": str(amounts["cost"])}
    step.update({"context_guard": {**step.window.session.guard, name: stored}})


def _allow(step: AgentStep, answer: Any) -> str:
    """Set the limits that a person gives on resuming, or return what is wrong with them."""
    given = answer if isinstance(answer, Mapping) else {}
    try:
        new = {
            AMOUNTS[name]: as_money(given[name])
            for name in AMOUNTS.keys() & given.keys()
        }
    except ValueError:
        new = {}
    if new:
        _store(step, "allowed", _amounts(step, "allowed") | new)
        return ""
    return f"resumed with {brief(answer)}: give a new limit by the name of its setting"


def _require_prices(step: AgentStep, most: Decimal) -> None:
    engine, model = step.engine, step.window.parts.model
    known = {model: engine.info_of(step.window)}
    if not engine.is_local:
        known.setdefault(engine.summarizer_model, engine.summarizer_info())
    for name, info in known.items():
        if info is None or info.input_price is None or info.output_price is None:
            raise ConfigError(
                f"max_thread_cost={most} needs the prices of {name or 'a model without a name'}, which nobody states: "
                "pass prices=ModelRegistry() or prices=ModelInfo(name=..., input_price=..., output_price=...), or "
                "bound max_thread_tokens"
            )
