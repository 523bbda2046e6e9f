"""Choice of tools and model for each request, made before it is measured and kept in the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from langchain_ctxwin.agent.events import report_mended
from langchain_ctxwin.agent.state import State, Update, tools_of
from langchain_ctxwin.agent.when_full import Full, Shrunk
from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.events import RouteEvent, ToolsEvent
from langchain_ctxwin.core.limits import ModelLimits, NamedLimits
from langchain_ctxwin.core.model_families import family_of, model_name
from langchain_ctxwin.core.native import is_deferred
from langchain_ctxwin.core.pairing import Rules
from langchain_ctxwin.core.session import valid_tools
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import ConfigError, NoModelFitsError
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.routing import (
    ModelRouter,
    RemainingTooSmallError,
    Request,
    RoutedChatModel,
    Size,
    output_tokens_of,
)
from langchain_ctxwin.tools import ToolSelection, ToolSelector


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of a call that decide which candidate may answer."""

    output_tokens: int | None = None
    route: str = ""
    """A candidate that the caller asks for by name."""

    requires: tuple[str, ...] = ()
    """Capabilities beside those that tools and media show."""


def asked_by(call: Any, settings: Mapping[str, Any] | None = None, requires: Iterable[str] = ()) -> Asked:
    """Read what a model, the bindings around it and the settings of one call ask for; the outermost counts."""
    arguments = dict(settings or {})
    inner = call
    while isinstance(inner, RunnableBindingBase):
        arguments = {**inner.kwargs, **arguments}
        inner = inner.bound
    arguments.setdefault("max_tokens", getattr(inner, "max_tokens", None))
    route = arguments.get("route")
    name = str(route.get("model") or "") if isinstance(route, Mapping) else str(route or "")
    return Asked(output_tokens=output_tokens_of(arguments), route=name, requires=tuple(requires))


def require_router(call: Any, router: ModelRouter | None) -> None:
    """Raise `ConfigError` for a model that does not ask the candidates of this router."""
    inner = call
    while isinstance(inner, RunnableBindingBase):
        inner = inner.bound
    if router is not None and not (isinstance(inner, RoutedChatModel) and inner.router is router):
        raise ConfigError(
            f"model={type(inner).__name__} does not ask the router's candidates: pass RoutedChatModel(router), with "
            "the router that the nodes have"
        )


def require_tool_binding(call: Any) -> None:
    """Raise `ConfigError` for a model to which the tools of each request cannot be bound."""
    inner = call
    while isinstance(inner, RunnableBindingBase):
        if inner.kwargs.get("tools"):
            raise ConfigError("tools are bound to the model: with a tool_selector, leave them to the nodes")
        inner = inner.bound
    if not hasattr(inner, "bind_tools"):
        raise ConfigError(
            f"model={type(inner).__name__} cannot be given tools for each request: with a tool_selector pass a chat "
            "model to which no tools are bound"
        )


def with_tools(call: Any, tools: Sequence[Any]) -> Runnable[Any, Any]:
    """Return the model with tools bound, inside whatever was bound around it."""
    if isinstance(call, RunnableBindingBase):
        return call.model_copy(update={"bound": with_tools(call.bound, tools)})
    bound: Runnable[Any, Any] = call.bind_tools(list(tools)) if tools else call
    return bound


TOOL_SHARE = 0.5
"""Most that selected tools may take of what the system prompt, the agent's own tools and other fixed parts leave: a
window that is full of definitions has no room to use them."""


class Choices:
    """What a conversation's next request goes with; without a router and a selector, what the adapter was given."""

    def __init__(self, *, router: ModelRouter | None = None, selector: ToolSelector | None = None) -> None:
        if not isinstance(router, ModelRouter | None):
            raise ConfigError(f"router={type(router).__name__}: pass a ModelRouter, or None")
        if not isinstance(selector, ToolSelector | None):
            raise ConfigError(f"tool_selector={type(selector).__name__}: pass a ToolSelector, or None")
        self.router = router
        self.selector = selector
        self.asked = Asked()
        """What the call that follows asks for itself."""
        self.reporter = Reporter()
        """Hears of each change; the flow that makes use of the choices puts its own here."""

    def follow(self, asked: Asked) -> None:
        """Take up what the model node asks for itself.

        Raises:
            ConfigError: another model node of the same nodes asks a router for something else.
        """
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

        Raises:
            ConfigError: a tool has the name of the selector's own `search_tools`.
        """
        selector = self.selector
        if selector is None:
            return given
        search, names = selector.search_tools, tools_of(state)
        own = {name: tool for tool in given if (name := name_of(tool)) in selector or name == search.name}
        require_free_name(selector, given)
        others = [tool for tool in given if name_of(tool) not in own]
        chosen = [
            own.get(name_of(tool), _unless_left_out(tool, only_given=only_given)) for tool in selector.named(names)
        ]
        finds_more = len(chosen) < len(selector.tools) and (search.name in own or not only_given)
        found = [tool for tool in chosen if tool is not None]
        if loads_tools and finds_more:
            found += [tool for tool in selector.deferred_forms if _is_left(tool, own, names, only_given=only_given)]
        return [*others, *([search] if finds_more else []), *found]

    def are_loaded(self, rules: Rules) -> bool:
        """True when messages load further tools, so that the chosen ones stay as they are."""
        return rules.loads_tools and self.selector is not None and bool(self.selector.deferred_forms)

    def model(self, state: State) -> NamedLimits | None:
        """Return whose limits hold: the chosen candidate's, else those that fit every one; None without a router."""
        if self.router is None:
            return None
        known = known_name(state)
        chosen = next((one for one in self.router.candidates if one.name == known), None)
        limits, output = chosen.limits if chosen else self.router.limits, self._output_tokens
        limits = limits if output is None else _with_output(limits, output)
        return NamedLimits(limits, chosen.info.name, chosen.family) if chosen else NamedLimits(limits, "")

    def provider(self, state: State) -> Any:
        """Return what is known of the chosen candidate, its provider included; None without a router."""
        candidates = self.router.candidates if self.router else ()
        return next((one.info for one in candidates if one.name == known_name(state)), None)

    def families(self, state: State) -> dict[str, str]:
        """Return the tokenizer families of the candidates, each with one that stands for it: the chosen one for its."""
        candidates, known = self.router.candidates if self.router else (), known_name(state)
        named = {one.family: one.name for one in candidates}
        return named | {one.family: one.name for one in candidates if one.name == known}

    def room(self, state: State, window: Window) -> dict[str, Any]:
        """Return what the selected tools may take of the window of the model that the conversation is with.

        Before a router has chosen one, it is the smallest.
        """
        if self.selector is None:
            return {}
        names, tools = set(tools_of(state)), window.about.tools
        shown = tools if window.request.loaded is None else [tool for tool in tools if not is_deferred(tool)]
        others = [tool for tool in shown if name_of(tool) not in names]
        fixed_tokens = window.priced_view.fixed_tokens - window.about.tool_tokens(shown)
        room = window.budget.input_limit - fixed_tokens - window.about.tool_tokens(others)
        left = int(TOOL_SHARE * max(0, room))
        return {
            "previous": tools_of(state),
            "max_tool_tokens": max(1, min(self.selector.max_tool_tokens, left)),
        }

    def with_tools(self, state: State, selection: ToolSelection) -> Update:
        """Return the update that names the selected tools."""
        report_mended(self.reporter, valid_tools(state.get("context_tools"))[1])
        if state.get("context_tools") is None or selection.added or selection.removed:
            self.reporter.emit(
                ToolsEvent(
                    added=selection.added,
                    removed=selection.removed,
                    tokens=selection.tokens,
                    deferred=len(selection.deferred),
                )
            )
        return {"context_tools": list(selection.names)}

    def arguments(self, state: State) -> dict[str, Any]:
        """Return the argument that tells a `RoutedChatModel` with which candidate to begin, and why."""
        is_known = self.router is not None and any(one.name == known_name(state) for one in self.router.candidates)
        return {"route": dict(state["context_model"])} if is_known else {}

    def left_after(self, error: Exception, state: State) -> Update:
        """Return the update for the candidate that is left after the others failed; empty where all may be chosen from.

        The request is too large for it, and will be compacted.
        """
        if not isinstance(error, RemainingTooSmallError) or not error.candidate:
            return {}
        return self._moved_to(error.candidate, "left after the others failed", state)

    def model_called(self, state: State) -> Any:
        """Return the model of the chosen candidate as it is set to be called; None without a router."""
        if self.router is None or not self.arguments(state):
            return None
        model, bound = self.router.instance(known_name(state))
        return model.bind(**bound)

    def answered(self, state: State, answer: Any) -> Update:
        """Return the update that names the candidate which answered, when it is another one than was chosen."""
        route = answer.response_metadata.get("route") if isinstance(answer, AIMessage) else None
        if self.router is None or not isinstance(route, Mapping):
            return {}
        if self.reporter.sinks:
            self.reporter.emit(RouteEvent.of_answer(route, before=known_name(state)))
        if route.get("model") in {None, known_name(state)}:
            return {}
        return self._moved_to(str(route["model"]), str(route.get("reason") or ""), state)

    def _moved_to(self, name: str, reason: str, state: State) -> Update:
        self.reporter.emit(RouteEvent(model=name, before=known_name(state), reason=reason))
        return {"context_model": {"model": name, "reason": reason}}

    @property
    def _output_tokens(self) -> int | None:
        """What is kept for the answer beside the candidates' own settings."""
        configured = self.router.config.output_reserve if self.router else None
        return configured if self.asked.output_tokens is None else self.asked.output_tokens

    def with_model(
        self, state: State, windows: Mapping[str, Window], *, shrunk: Shrunk = lambda _: None, summary_tokens: int = 0
    ) -> Update:
        """Return the update that names the candidate which takes the request as it stands.

        When none does, it is the largest, for which the request is compacted.

        Args:
            state: names the candidate that the conversation went to.
            windows: the request as measured for each tokenizer family.
            shrunk: plans the compaction that makes a request fit; None when nothing does.
            summary_tokens: length of the summary that a model writes for a compaction; 0 when none does.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        router = self.router
        if router is None:
            return {}
        any_window = next(iter(windows.values()))
        request = Request(
            messages=any_window.priced_view.messages(),
            tools=any_window.about.tools,
            kept=known_name(state),
            prefer=self.asked.route if any(one.name == self.asked.route for one in router.candidates) else "",
            requires=self.asked.requires,
            output_tokens=self.asked.output_tokens,
            reserve=settings_of(any_window).output_reserve,
            sizes={family: _size(window, router.config.headroom) for family, window in windows.items()},
            cached_tokens=max((w.extends.tokens for w in windows.values() if w.extends), default=None),
        )
        try:
            route = router.decide(request)
        except NoModelFitsError:
            route = router.largest(request, is_to_shrink=True)
        known = known_name(state)
        full = Full(router=router, known=known, windows=windows, shrunk=shrunk, summary_tokens=summary_tokens)
        route, comparison = full.route(request, route)
        if comparison is not None or route.name != known:
            event = RouteEvent.of_answer(route.metadata(), before=known)
            self.reporter.emit(replace(event, has_answered=False, **(comparison.facts() if comparison else {})))
        return {"context_model": {"model": route.name, "reason": route.reason}}


def _unless_left_out(tool: Any, *, only_given: bool) -> Any:
    return None if only_given and not isinstance(tool, Mapping) else tool


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


def _is_left(tool: Any, own: Mapping[str, Any], names: Sequence[str], *, only_given: bool) -> bool:
    """True for a tool of a selector that is not among the chosen ones, and that nobody has left out."""
    return name_of(tool) not in names and (name_of(tool) in own or not only_given)


def known_name(state: State) -> str:
    """Return the name of the candidate that was chosen; empty before the first choice."""
    chosen = state.get("context_model")
    return str(chosen.get("model") or "") if isinstance(chosen, Mapping) else ""


def _size(window: Window, headroom: float) -> Size:
    """The size as measured; a plain callable does not say how far off it may be, so it gets the router's headroom."""
    priced_view = window.priced_view
    has_bounds = priced_view.upper_tokens > priced_view.total_tokens or window.report["counted_by"] != "estimate"
    upper = priced_view.upper_tokens if has_bounds else ceil(priced_view.total_tokens * headroom)
    return Size(tokens=priced_view.total_tokens, upper=upper, lower=priced_view.lower_tokens)


def _with_output(limits: ModelLimits, tokens: int) -> ModelLimits:
    """The limits for a call that asks for so much output; what leaves no input is not asked for."""
    if limits.context_window is not None and tokens >= limits.context_window:
        return limits
    largest = limits.max_output_tokens
    return replace(
        limits, requested_output_tokens=tokens, max_output_tokens=largest if largest and largest >= tokens else None
    )


def limited_by(engine: ContextEngine, model: Any) -> Any:
    """Return the model of a request, or limits that were set on the engine as numbers where they are tighter."""
    if engine.model:
        return model
    stated, own, reserve = ModelLimits.of(model), engine.limits, engine.config.output_reserve
    rooms = [limits.input_limit(limits.output_reserve(reserve)) for limits in (own, stated) if limits.known]
    return model if min(rooms) < rooms[0] else NamedLimits(own, model_name(model), family_of(model))
