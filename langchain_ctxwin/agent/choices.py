"""`Choices`: the tools and the model of each request, chosen before it is measured and kept in the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool

from langchain_ctxwin.agent.state import State, Update, tools_of
from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.core.events import RouteEvent
from langchain_ctxwin.core.limits import ModelLimits, NamedLimits
from langchain_ctxwin.core.model_info import (
    arguments_of,
    family_of,
    model_name,
    unbound,
)
from langchain_ctxwin.core.provider_blocks import in_prompt
from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.tool_schemas import listed, name_of, recall_name
from langchain_ctxwin.engine import ContextEngine, settings_of
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ConfigError,
    NoModelFitsError,
    expect,
)
from langchain_ctxwin.recall import create_recall_tool
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.routing.candidates import (
    Candidate,
    RouteRequest,
    Size,
    asking_for,
    smallest_limits,
    thread_key,
)
from langchain_ctxwin.tools import ToolSelection, ToolSelector

TOOL_SHARE = 0.5
"""Most that selected tools may take of what the system prompt, the agent's own tools and other fixed parts leave: a
window that is full of definitions has no room to use them."""


COMPACTS = "compacts: the conversation stays with its model"
"""Why a full conversation does not move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNeeds:
    """Arguments of a call that decide which candidate may answer."""

    output_tokens: int | None = None
    route: str = ""  # a candidate that the caller asks for by name
    # capabilities beside those that tools and media show
    requires: tuple[str, ...] = ()


NO_NEEDS = CallNeeds()


def needs_of(
    call: Any, settings: Mapping[str, Any] | None = None, requires: Iterable[str] = ()
) -> CallNeeds:
    """Read what a model, the bindings around it and the settings of one call ask for; the outermost counts."""
    own = {"max_tokens": getattr(unbound(call), "max_tokens", None)}
    arguments = {**own, **arguments_of(call), **(settings or {})}
    route = arguments.get("route")
    name = route.get("model") if isinstance(route, Mapping) else route
    return CallNeeds(
        output_tokens=output_tokens_of(arguments),
        route=str(name or ""),
        requires=tuple(requires),
    )


def router_of(model: Any) -> ModelRouter | None:
    """Return the router of a `RoutedChatModel`, with tools bound or not; None for any other model."""
    inner = unbound(model)
    return inner.router if isinstance(inner, RoutedChatModel) else None


def bind_inside(call: Any, tools: Sequence[Any]) -> Runnable[Any, Any]:
    """Return the model with tools bound, inside whatever was bound around it."""
    if isinstance(call, RunnableBindingBase):
        return call.model_copy(update={"bound": bind_inside(call.bound, tools)})
    bound: Runnable[Any, Any] = call.bind_tools(list(tools)) if tools else call
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Chooses tools and model of a conversation's next request; without selector and router those that were given."""

    reporter: Reporter
    """Hears of each change."""

    router: ModelRouter | None = None
    selector: ToolSelector | None = None
    needs: CallNeeds = NO_NEEDS
    """What the call that follows asks for itself."""

    def tools(
        self, state: State, agent_tools: Sequence[Any], *, loads_tools: bool = False
    ) -> Sequence[Any]:
        """Return the tools of a request: the agent's tools beside the selector's, and the chosen ones.

        Args:
            state: names the chosen ones.
            agent_tools: the tools of the agent. Those of the selector that are missing here are not shown: other code
                left them out. Those that the provider runs are no part of the agent.
            loads_tools: a message can load a tool: the others follow as deferred definitions, so that nothing changes
                when one of them is found.
        """
        selector = self.selector
        if selector is None:
            return agent_tools
        require_free_name(selector, agent_tools)
        search, names = selector.search_tools, tools_of(state)
        own = {
            name: tool
            for tool in agent_tools
            if (name := name_of(tool)) in selector or name == search.name
        }
        offered = [tool for tool in agent_tools if name_of(tool) not in own]
        chosen = selector.named(names)
        finds_more = len(chosen) < len(selector.tools) and search.name in own
        if finds_more:
            offered.append(search)
        offered += [
            own.get(name_of(tool), tool)
            for tool in chosen
            if isinstance(tool, Mapping) or name_of(tool) in own
        ]
        if finds_more and loads_tools:
            offered += [
                tool
                for tool in selector.deferred_forms
                if name_of(tool) in own and name_of(tool) not in names
            ]
        return offered

    def room(self, state: State, window: Window) -> dict[str, Any]:
        """Return the tokens for selected tools, by the window of the conversation's model, else by the smallest one."""
        if self.selector is None:
            return {}
        names, parts = tools_of(state), window.parts
        sent = in_prompt(parts.tools, parts.rules.provider)
        others = [tool for tool in sent if name_of(tool) not in names]
        price = parts.pricer.tools
        fixed_tokens = window.fixed_tokens - price(sent) + price(others)
        left_tokens = int(TOOL_SHARE * (window.budget.input_limit - fixed_tokens))
        return {
            "previous": names,
            "max_tool_tokens": max(1, min(self.selector.max_tool_tokens, left_tokens)),
        }

    def tools_update(self, state: State, selection: ToolSelection) -> Update:
        """Return the update that names the selected tools."""
        if state.get("context_tools") is None or selection.added or selection.removed:
            self.reporter.notice(
                "tools_chosen",
                added=selection.added,
                removed=selection.removed,
                tokens=selection.tokens,
                deferred=len(selection.deferred),
            )
        return {"context_tools": list(selection.names)}

    def model(self, state: State) -> NamedLimits | None:
        """Return the model whose limits hold: the chosen candidate, else the smallest limits; None without a router."""
        if self.router is None:
            return None
        chosen = self._chosen(state)
        output = self.needs.output_tokens
        if chosen is None:
            smallest = smallest_limits(self._candidates())
            return NamedLimits(asking_for(smallest, output), "")
        limits = asking_for(chosen.limits, output)
        return NamedLimits(limits, chosen.info.name, chosen.family)

    def provider(self, state: State) -> Any:
        """Return what is known of the chosen candidate, its provider included; None without a router."""
        chosen = self._chosen(state)
        return chosen.info if chosen else None

    def arguments(self, state: State) -> dict[str, Any]:
        """Return the argument that names the candidate with which a `RoutedChatModel` begins, and why."""
        return {"route": dict(state["context_model"])} if self._chosen(state) else {}

    def model_called(self, state: State) -> Any:
        """Return the model of the chosen candidate as it is set to be called; None without a router."""
        if self.router is None or not self._chosen(state):
            return None
        model, bound = self.router.instance(known_name(state))
        return model.bind(**bound)

    def may_move(self, state: State, window: Window) -> bool:
        """Return whether a conversation that no longer fits its candidate goes on whole with another that has room."""
        if self.router is None or self.router.config.when_full == "compact":
            return False
        reserve, least = settings_of(window).output_reserve, window.budget.input_limit
        others = (
            one.limits for one in self._candidates() if one.name != known_name(state)
        )
        return any(limits.room(reserve) > least for limits in others)

    def _chosen(self, state: State) -> Candidate | None:
        """The candidate that the state names, while it is one."""
        return next(
            (one for one in self._candidates() if one.name == known_name(state)), None
        )

    def _candidates(self) -> tuple[Candidate, ...]:
        """The candidates as they are for the conversation of this run; none without a router."""
        if self.router is None:
            return ()
        return self.router.candidates_of(thread_key())

    def answered(self, state: State, answer: Any) -> Update:
        """Return the update that names the candidate which answered, when it is another one than was chosen."""
        route: Any = (
            answer.response_metadata.get("route")
            if self.router and isinstance(answer, AIMessage)
            else None
        )
        name = route.get("model") if isinstance(route, Mapping) else None
        if name in {None, known_name(state)}:
            return {}
        return self._model_update(str(name), str(route.get("reason") or ""), state)

    def _model_update(self, name: str, reason: str, state: State) -> Update:
        self.reporter.emit(
            RouteEvent(model=name, before=known_name(state), reason=reason)
        )
        return {"context_model": {"model": name, "reason": reason}}

    def model_update(self, state: State, window: Window) -> Update:
        """Return the update that names the candidate which takes the request as it stands, else the largest.

        With `RoutingConfig(when_full="compact")` a conversation that no longer fits its candidate stays with it while
        a compaction makes it fit.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        router, before = self.router, known_name(state)
        if router is None:
            return {}
        needs = self.needs
        is_known = any(one.name == needs.route for one in router.candidates)
        prefer = needs.route if is_known else ""
        stays = not prefer and self._is_compacted(state, window)
        request = RouteRequest(
            messages=window.assembled(),
            tools=window.parts.tools,
            conversation=thread_key(),
            kept=before,
            # Another one is taken when it is in trouble, or cannot do what is asked for.
            prefer=before if stays else prefer,
            prefer_reason=COMPACTS if stays else "",
            requires=needs.requires,
            output_tokens=needs.output_tokens,
            reserve=settings_of(window).output_reserve,
            sizes=self._sizes(state, window),
        )
        try:
            route = router.decide(request)
        except NoModelFitsError:
            route = router.largest(request, is_to_shrink=True)
        if route.name == before and not stays:
            return {"context_model": {"model": before, "reason": route.reason}}
        return self._model_update(route.name, route.reason, state)

    def _is_compacted(self, state: State, window: Window) -> bool:
        """True when a full conversation is to stay with its candidate, and a compaction makes it fit there."""
        if self.router is None or self.router.config.when_full == "move":
            return False
        if not self._chosen(state):
            return False
        try:
            compaction = planning.emergency(window)
        except BudgetExceededError:
            return False
        return compaction is not None and compaction.fits

    def _sizes(self, state: State, window: Window) -> dict[str, Size]:
        """The size of the request for the tokenizers that it was measured for: before the first choice, for all."""
        size = Size(
            tokens=window.total_tokens,
            upper=window.upper_tokens,
            lower=window.lower_tokens,
        )
        chosen = self._chosen(state)
        return {
            one.family: size for one in ((chosen,) if chosen else self._candidates())
        }


def runnable_tools(tools: Sequence[Any], selector: ToolSelector | None) -> list[Any]:
    """Return all tools that an agent runs itself, without mere definitions, whose tools the provider runs."""
    expect(selector, ToolSelector | None, "tool_selector", "a ToolSelector, or None")
    if selector is not None:
        require_free_name(selector, tools)
        tools = [*tools, *selector.tools, selector.search_tools]
    return [tool for tool in tools if not isinstance(tool, dict)]


def require_free_name(selector: ToolSelector, tools: Sequence[Any]) -> None:
    """Raise `ConfigError` when a tool has the name of the selector's own `search_tools`."""
    search = selector.search_tools
    if any(name_of(tool) == search.name and tool is not search for tool in tools):
        raise ConfigError(
            f"a tool is called {search.name!r}, like the tool by which a model finds more: rename it"
        )


@cache
def recall_tool() -> BaseTool:
    """Return the tool by which agents read what left their view."""
    return create_recall_tool()


def with_recall(
    tools: Sequence[Any], model: Any, *, is_given: bool = False
) -> list[Any]:
    """Return the tools of a request, with the recall tool where the model takes tools and none of them is like it.

    Args:
        tools: those of the agent.
        model: what the request goes to.
        is_given: the recall tool is among them already; it is left out where it may not be there.
    """
    ours = recall_tool()
    others = [tool for tool in tools if tool is not ours]
    if is_given and len(others) == len(tools):
        return others
    is_free = not recall_name(others) and all(
        name_of(tool) != ours.name for tool in others
    )
    none, models, router = BaseChatModel.bind_tools, [model], router_of(model)
    if router:
        candidates = (one.model for one in router.candidates)
        models = [one for one in candidates if isinstance(one, Runnable)]
    takes_tools = all(
        getattr(type(unbound(one)), "bind_tools", none) is not none for one in models
    )
    return [*others, ours] if is_free and takes_tools else others


def checked_tools(value: Any) -> list[Any]:
    """Return the tools as a list; anything that is none raises a `ConfigError`."""
    tools = listed(value)
    for number, tool in enumerate(tools):
        if not callable(tool):
            expect(
                tool,
                BaseTool | Mapping,
                f"tools[{number}]",
                "a function, a BaseTool, or a definition as a dict",
            )
    return tools


def known_name(state: State) -> str:
    """Return the name of the candidate that was chosen; empty before the first choice."""
    chosen = state.get("context_model")
    return str(chosen.get("model") or "") if isinstance(chosen, Mapping) else ""


def limited_by(engine: ContextEngine, model: Any) -> Any:
    """Return the model of a request, or the limits that its engine was given as numbers, where those are smaller."""
    if engine.model or not engine.limits.known:
        return model
    model_limits, own, reserve = (
        ModelLimits.of(model),
        engine.limits,
        engine.config.output_reserve,
    )
    if model_limits.known and model_limits.room(reserve) < own.room(reserve):
        return model
    return NamedLimits(own, model_name(model), family_of(model))
