"""Choice of tools and model for each request, made before it is measured and kept in the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from langchain_ctxwin.agent.events import report_mended
from langchain_ctxwin.agent.state import State, Update, tools_of
from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.events import NoticeEvent, RouteEvent
from langchain_ctxwin.core.limits import ModelLimits, NamedLimits
from langchain_ctxwin.core.model_info import family_of, model_name
from langchain_ctxwin.core.native import is_deferred
from langchain_ctxwin.core.pairing import Rules
from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.core.session import read_key
from langchain_ctxwin.core.spending import MOST_CALLS, CostComparison, Course, compared
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import ConfigError, NoModelFitsError, RemainingTooSmallError, expect
from langchain_ctxwin.reporting import Reporter

if TYPE_CHECKING:  # both take a while to import, and most agents have neither
    from langchain_ctxwin.routing import Candidate, ModelRouter, Request, Route, Size
    from langchain_ctxwin.tools import ToolSelection, ToolSelector

TOOL_SHARE = 0.5
"""Most that selected tools may take of what the system prompt, the agent's own tools and other fixed parts leave: a
window that is full of definitions has no room to use them."""

Shrunk = Callable[[Window], Compaction | None]
"""Plans the compaction that makes a request fit; None when nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of a call that decide which candidate may answer."""

    output_tokens: int | None = None
    route: str = ""  # a candidate that the caller asks for by name
    requires: tuple[str, ...] = ()  # capabilities beside those that tools and media show


def asked_by(call: Any, settings: Mapping[str, Any] | None = None, requires: Iterable[str] = ()) -> Asked:
    """Read what a model, the bindings around it and the settings of one call ask for; the outermost counts."""
    inner, bound = _unbound(call)
    arguments = {"max_tokens": getattr(inner, "max_tokens", None), **bound, **(settings or {})}
    route = arguments.get("route")
    name = route.get("model") if isinstance(route, Mapping) else route
    return Asked(output_tokens=output_tokens_of(arguments), route=str(name or ""), requires=tuple(requires))


def require_router(call: Any, router: ModelRouter | None) -> None:
    """Raise `ConfigError` for a model that does not ask the candidates of this router."""
    inner, _ = _unbound(call)
    if router is not None and router_of(inner) is not router:
        raise ConfigError(
            f"model={type(inner).__name__} does not ask the router's candidates: pass RoutedChatModel(router), with "
            "the router that the nodes have"
        )


def router_of(model: Any) -> ModelRouter | None:
    """Return the router of a `RoutedChatModel`; None for any other model."""
    if not hasattr(model, "router"):
        return None
    from langchain_ctxwin.routing import RoutedChatModel  # noqa: PLC0415  # most agents have no router

    return model.router if isinstance(model, RoutedChatModel) else None


def require_tool_binding(call: Any) -> None:
    """Raise `ConfigError` for a model to which the tools of each request cannot be bound."""
    inner, bound = _unbound(call)
    if bound.get("tools"):
        raise ConfigError("tools are bound to the model: with a tool_selector, leave them to the nodes")
    if not hasattr(inner, "bind_tools"):
        raise ConfigError(
            f"model={type(inner).__name__} cannot be given tools for each request: with a tool_selector pass a chat "
            "model to which no tools are bound"
        )


def _unbound(call: Any) -> tuple[Any, dict[str, Any]]:
    """What is inside all bindings, and the arguments that are bound; the outermost counts."""
    arguments: dict[str, Any] = {}
    while isinstance(call, RunnableBindingBase):
        arguments = {**call.kwargs, **arguments}
        call = call.bound
    return call, arguments


def bind_inside(call: Any, tools: Sequence[Any]) -> Runnable[Any, Any]:
    """Return the model with tools bound, inside whatever was bound around it."""
    if isinstance(call, RunnableBindingBase):
        return call.model_copy(update={"bound": bind_inside(call.bound, tools)})
    bound: Runnable[Any, Any] = call.bind_tools(list(tools)) if tools else call
    return bound


class Choices:
    """What a conversation's next request goes with; without a router and a selector, what the adapter was given."""

    def __init__(
        self,
        *,
        router: ModelRouter | None = None,
        selector: ToolSelector | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        if router is not None:
            from langchain_ctxwin.routing import ModelRouter  # noqa: PLC0415  # most agents have no router

            expect(router, ModelRouter, "router", "a ModelRouter, or None")
        if selector is not None:
            from langchain_ctxwin.tools import ToolSelector  # noqa: PLC0415  # most agents have no selector

            expect(selector, ToolSelector, "tool_selector", "a ToolSelector, or None")
        self.router = router
        self.selector = selector
        self.asked = Asked()
        """What the call that follows asks for itself."""
        self.reporter = reporter or Reporter()
        """Hears of each change."""

    def follow(self, asked: Asked) -> None:
        """Take up what the model node asks for itself: no two of the same nodes may ask a router for other things."""
        if self.router is not None and self.asked not in {Asked(), asked}:
            raise ConfigError(
                f"two model nodes of one ContextNodes ask for different things ({self.asked} and {asked}): make "
                "ContextNodes of their own for each"
            )
        self.asked = asked

    def tools(
        self, state: State, given: Sequence[Any], *, only_given: bool = False, loads_tools: bool = False
    ) -> Sequence[Any]:
        """Return the tools of a request: those that the adapter has beside the selector's, and the chosen ones.

        Args:
            state: names the chosen ones.
            given: the adapter's tools; a chosen one among them is shown in this form.
            only_given: of the chosen ones that the agent runs, show only those among `given`: somebody may have left
                out the others. Those that the provider runs are no part of the agent.
            loads_tools: a message can load a tool: the others follow as deferred definitions, so that nothing changes
                when one of them is found.
        """
        selector = self.selector
        if selector is None:
            return given
        require_free_name(selector, given)
        search, names = selector.search_tools, tools_of(state)
        own = {name: tool for tool in given if (name := name_of(tool)) in selector or name == search.name}
        shown = [tool for tool in given if name_of(tool) not in own]
        chosen = selector.named(names)
        finds_more = len(chosen) < len(selector.tools) and (search.name in own or not only_given)
        if finds_more:
            shown.append(search)
        is_there = own if only_given else selector
        shown += [
            own.get(name_of(tool), tool) for tool in chosen if isinstance(tool, Mapping) or name_of(tool) in is_there
        ]
        if loads_tools and finds_more:
            left = (tool for tool in selector.deferred_forms if name_of(tool) not in names)
            shown += [tool for tool in left if name_of(tool) in is_there]
        return shown

    def defers_tools(self, rules: Rules) -> bool:
        """True when the provider takes deferred tools, which messages load, and the selector has some."""
        return rules.loads_tools and self.selector is not None and bool(self.selector.deferred_forms)

    def room(self, state: State, window: Window) -> dict[str, Any]:
        """Return what the selected tools may take of the window of the conversation's model, else of the smallest."""
        if self.selector is None:
            return {}
        names, about = tools_of(state), window.about
        shown = [tool for tool in about.tools if window.request.loaded is None or not is_deferred(tool)]
        others = [tool for tool in shown if name_of(tool) not in names]
        fixed_tokens = window.priced_view.fixed_tokens - about.tool_tokens(shown) + about.tool_tokens(others)
        left = int(TOOL_SHARE * max(0, window.budget.input_limit - fixed_tokens))
        return {"previous": names, "max_tool_tokens": max(1, min(self.selector.max_tool_tokens, left))}

    def tools_update(self, state: State, selection: ToolSelection) -> Update:
        """Return the update that names the selected tools."""
        report_mended(self.reporter, read_key("context_tools", state.get("context_tools"))[1])
        if state.get("context_tools") is None or selection.added or selection.removed:
            about: dict[str, Any] = {name: getattr(selection, name) for name in ("added", "removed", "tokens")}
            about["deferred"] = len(selection.deferred)
            self.reporter.emit(NoticeEvent(notice="tools_chosen", about=about))
        return {"context_tools": list(selection.names)}

    def _chosen(self, state: State) -> Candidate | None:
        """The candidate that the state names, while it is one."""
        name = known_name(state)
        return next((one for one in self._candidates() if one.name == name), None)

    def _candidates(self) -> tuple[Candidate, ...]:
        """The candidates as they are for the conversation of this run; none without a router."""
        if self.router is None:
            return ()
        from langchain_ctxwin.routing.candidates import thread_key  # noqa: PLC0415  # most agents have no router

        return self.router.candidates_of(thread_key())

    def model(self, state: State) -> NamedLimits | None:
        """Return whose limits hold: the chosen candidate's, else those that fit every one; None without a router."""
        if self.router is None:
            return None
        from langchain_ctxwin.routing.candidates import smallest_limits  # noqa: PLC0415  # most agents have no router

        chosen, output = self._chosen(state), self.asked.output_tokens
        limits = chosen.limits if chosen else smallest_limits(self._candidates())
        output = self.router.config.output_reserve if output is None else output
        if output is not None and (limits.context_window is None or output < limits.context_window):
            largest = limits.max_output_tokens if (limits.max_output_tokens or 0) >= output else None
            limits = replace(limits, requested_output_tokens=output, max_output_tokens=largest)
        return NamedLimits(limits, chosen.info.name, chosen.family) if chosen else NamedLimits(limits, "")

    def provider(self, state: State) -> Any:
        """Return what is known of the chosen candidate, its provider included; None without a router."""
        chosen = self._chosen(state)
        return chosen.info if chosen else None

    def families(self, state: State) -> dict[str, str]:
        """Return the tokenizer families of the candidates, each with one that stands for it: the chosen one for its."""
        chosen = self._chosen(state)
        named = {one.family: one.name for one in self._candidates()}
        return named | {chosen.family: chosen.name} if chosen else named

    def arguments(self, state: State) -> dict[str, Any]:
        """Return the argument that tells a `RoutedChatModel` with which candidate to begin, and why."""
        return {"route": dict(state["context_model"])} if self._chosen(state) else {}

    def model_called(self, state: State) -> Any:
        """Return the model of the chosen candidate as it is set to be called; None without a router."""
        chosen = self._chosen(state)
        if self.router is None or chosen is None:
            return None
        model, bound = self.router.instance(chosen.name)
        return model.bind(**bound)

    def may_move(self, state: State, window: Window) -> bool:
        """True when a conversation that no longer fits its candidate may go on with another that has more room."""
        if self.router is None or self.router.config.when_full == "compact":
            return False
        reserve = settings_of(window).output_reserve
        limits = [one.limits for one in self._candidates() if one.name != known_name(state) and one.limits.known]
        return any(one.input_limit(one.output_reserve(reserve)) > window.budget.input_limit for one in limits)

    def left_after(self, error: Exception, state: State) -> Update:
        """Return the update for the only candidate that is left, too small for the request; empty where all may be."""
        if not isinstance(error, RemainingTooSmallError) or not error.candidate:
            return {}
        return self._model_update(error.candidate, "left after the others failed", state)

    def answered(self, state: State, answer: Any) -> Update:
        """Return the update that names the candidate which answered, when it is another one than was chosen."""
        route = answer.response_metadata.get("route") if isinstance(answer, AIMessage) else None
        if self.router is None or not isinstance(route, Mapping):
            return {}
        if route.get("model") in {None, known_name(state)}:
            return {}
        return self._model_update(str(route["model"]), str(route.get("reason") or ""), state)

    def _model_update(self, name: str, reason: str, state: State) -> Update:
        self.reporter.emit(RouteEvent(model=name, before=known_name(state), reason=reason))
        return {"context_model": {"model": name, "reason": reason}}

    def model_update(
        self, state: State, windows: Mapping[str, Window], *, shrunk: Shrunk = lambda _: None, summary_tokens: int = 0
    ) -> Update:
        """Return the update that names the candidate which takes the request as it stands, else the largest.

        A conversation that no longer fits its candidate may stay to be compacted there: `RoutingConfig.when_full`.

        Args:
            state: names the candidate that the conversation went to.
            windows: the request as measured for each tokenizer family; for that of its candidate, as measured for it.
            shrunk: plans the compaction that makes a request fit.
            summary_tokens: length of the summary that a model writes for a compaction; 0 when none does.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        router, before = self.router, known_name(state)
        if router is None:
            return {}
        from langchain_ctxwin.routing.candidates import Request, thread_key  # noqa: PLC0415  # most agents have no router

        window = next(iter(windows.values()))
        request = Request(
            messages=window.priced_view.messages(),
            tools=window.about.tools,
            conversation=thread_key(),
            kept=before,
            prefer=self.asked.route if any(one.name == self.asked.route for one in router.candidates) else "",
            requires=self.asked.requires,
            output_tokens=self.asked.output_tokens,
            reserve=settings_of(window).output_reserve,
            sizes={family: _size(window, router.config.headroom) for family, window in windows.items()},
            cached_tokens=max((w.extends.tokens for w in windows.values() if w.extends), default=None),
        )
        try:
            route = router.decide(request)
        except NoModelFitsError:
            route = router.largest(request, is_to_shrink=True)
        route, comparison = _when_full(
            router, request, route, windows=windows, shrunk=shrunk, summary_tokens=summary_tokens
        )
        if comparison is not None or route.name != before:
            facts = comparison.facts() if comparison else {}
            about: dict[str, Any] = {
                "before": before,
                "reason": route.reason,
                "route": route.metadata(),
                "comparison": facts,
            }
            self.reporter.emit(RouteEvent(model=route.name, **about))
        return {"context_model": {"model": route.name, "reason": route.reason}}


def _when_full(
    router: ModelRouter,
    request: Request,
    route: Route,
    *,
    windows: Mapping[str, Window],
    shrunk: Shrunk,
    summary_tokens: int,
) -> tuple[Route, CostComparison | None]:
    """Where a conversation goes that would leave its candidate, and what decided it where it could have stayed."""
    when_full = router.config.when_full
    candidate = next((one for one in router.candidates_of(request.conversation) if one.name == request.kept), None)
    if candidate is None or route.name == candidate.name or when_full == "move" or request.prefer:
        return route, None
    window = windows[candidate.family]
    compaction = shrunk(window) if window.over_by and router.config.sticky else None
    if compaction is None:
        return route, None
    lengths = {"output_tokens": router.config.expected_output_tokens, "summary_tokens": summary_tokens}
    stay = _course(window, compaction, candidate, request, **lengths)
    limit, prefix = router.input_limit(route.name, request), stay.prefix_tokens
    kept_share = max(0, stay.low - prefix) / max(1, stay.limit - prefix)
    low = prefix + int(kept_share * max(0, limit - prefix))
    move = replace(stay, info=route.info, tokens=route.estimated_tokens, limit=limit, low=low, cached_tokens=0)
    answers = (message for message in reversed(window.request.messages) if isinstance(message, AIMessage))
    calls_so_far = sum(1 for _ in islice(answers, MOST_CALLS))
    comparison = compared(candidate.name, stay, route.name, move, calls_so_far=calls_so_far)
    if when_full == "cheaper" and not comparison.is_cheaper_to_compact:
        return route, comparison
    try:
        kept = router.decide(replace(request, prefer=candidate.name, prefer_reason=f"compacts: {comparison}"))
    except NoModelFitsError:
        return route, None
    # Another one is taken when it is in trouble, or cannot do what is asked for.
    return (kept, comparison) if kept.name == candidate.name else (route, None)


def _course(window: Window, compaction: Compaction, candidate: Candidate, request: Request, **lengths: int) -> Course:
    """How a full conversation goes on with its candidate, by how it grew so far."""
    view, limit = window.priced_view, window.budget.input_limit
    steps = [step.tokens for step in view.steps]
    seen_tokens = view.total_tokens - sum(steps[-1:])
    return Course(
        info=candidate.info,
        tokens=max(view.total_tokens, limit + 1),
        limit=limit,
        low=compaction.tokens_after,
        prefix_tokens=window.report["system_tokens"] + window.report["tool_tokens"],
        cached_tokens=seen_tokens if request.cached_tokens is None else request.cached_tokens,
        added_tokens=max(1, sum(steps) // max(1, len(steps))),
        **lengths,
    )


def _size(window: Window, headroom: float) -> Size:
    """The size as measured; a plain callable does not say how far off it may be, so it gets the router's headroom."""
    from langchain_ctxwin.routing import Size  # noqa: PLC0415  # most agents have no router

    priced_view = window.priced_view
    has_bounds = priced_view.upper_tokens > priced_view.total_tokens or window.report["counted_by"] != "estimate"
    upper = priced_view.upper_tokens if has_bounds else ceil(priced_view.total_tokens * headroom)
    return Size(tokens=priced_view.total_tokens, upper=upper, lower=priced_view.lower_tokens)


def require_free_name(selector: ToolSelector, tools: Sequence[Any]) -> None:
    """Raise `ConfigError` when a tool has the name of the selector's own `search_tools`."""
    search = selector.search_tools
    if any(name_of(tool) == search.name and tool is not search for tool in tools):
        raise ConfigError(f"a tool is called {search.name!r}, like the tool by which a model finds more: rename it")


def require_known_tools(config: ContextConfig, tools: Iterable[Any], selector: ToolSelector | None) -> None:
    """Raise `ConfigError` for a setting that names a tool which an agent does not have."""
    if fault := unknown_tools(config, tools, selector):
        raise ConfigError(fault)


def unknown_tools(config: ContextConfig, tools: Iterable[Any], selector: ToolSelector | None) -> str:
    """Return what is wrong with a setting that names a tool which an agent does not have; empty when nothing is."""
    chosen = (*selector.tools, selector.search_tools) if selector else ()
    known = {name_of(tool) for tool in (*tools, *chosen)}
    for setting in ("clear_tools", "spare_tools"):
        unknown = tuple(name for name in getattr(config, setting) if name not in known)
        if unknown:
            there = ", ".join(sorted(filter(None, known))) or "none"
            return (
                f"{setting}={unknown!r}: the agent has no tool of that name, it has {there}: correct the name or "
                "leave it out"
            )
    return ""


def known_name(state: State) -> str:
    """Return the name of the candidate that was chosen; empty before the first choice."""
    chosen = state.get("context_model")
    return str(chosen.get("model") or "") if isinstance(chosen, Mapping) else ""


def limited_by(engine: ContextEngine, model: Any) -> Any:
    """Return the model of a request, or limits that were set on the engine as numbers where they are tighter."""
    if engine.model or not engine.limits.known:
        return model
    stated, own, reserve = ModelLimits.of(model), engine.limits, engine.config.output_reserve
    rooms = [limits.input_limit(limits.output_reserve(reserve)) for limits in (own, stated) if limits.known]
    return model if min(rooms) < rooms[0] else NamedLimits(own, model_name(model), family_of(model))
