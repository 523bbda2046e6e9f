"""Which tools and which model does the next request get? Chosen before it is measured, and kept in the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from langchain_ctxwin.core.limits import NamedLimits
from langchain_ctxwin.errors import ConfigError, NoModelFitsError
from langchain_ctxwin.flow.events import announce_model, announce_tools
from langchain_ctxwin.flow.state import Measure, State, Update, changed
from langchain_ctxwin.memo import Lru, once
from langchain_ctxwin.models.routing.candidates import Candidate
from langchain_ctxwin.models.routing.chat_model import RoutedChatModel
from langchain_ctxwin.models.routing.request import Request
from langchain_ctxwin.models.routing.router import ModelRouter
from langchain_ctxwin.tools import ToolSelection, ToolSelector

TOOL_SHARE = 0.5
"""Most of the input that selected tools may take: a window that is full of definitions has no room to use them."""

MAX_BINDINGS = 64
"""Tool sets whose binding is kept: a conversation has a few, and making one converts every definition."""


class Choices:
    """What a conversation's next request goes with; without a router and a selector, what the adapter was given."""

    def __init__(self, *, router: ModelRouter | None = None, selector: ToolSelector | None = None) -> None:
        if not isinstance(router, ModelRouter | None):
            raise ConfigError(f"router={type(router).__name__}: pass a ModelRouter, or None")
        if not isinstance(selector, ToolSelector | None):
            raise ConfigError(f"tool_selector={type(selector).__name__}: pass a ToolSelector, or None")
        self.router = router
        self.selector = selector
        self._bindings: Lru[tuple[Any, Runnable[Any, Any]]] = Lru(MAX_BINDINGS)

    def tools(self, state: State, given: Sequence[Any] = ()) -> Sequence[Any]:
        """Return the tools of a request: those that the adapter has beside the selector's, and the chosen ones.

        A chosen tool that the adapter has, too, is shown in the adapter's form.
        """
        selector = self.selector
        if selector is None:
            return given
        names = state.get("context_tools")
        if names is None:
            names = selector.select(_messages(state)).names
        search = selector.search_tools
        own = {name: tool for tool in given if (name := _name_of(tool)) in selector or name == search.name}
        others = [tool for tool in given if _name_of(tool) not in own]
        chosen = [own.get(_name_of(tool), tool) for tool in selector.named(names)]
        return [*others, *([] if selector.holds_all else [search]), *chosen]

    def model(self, state: State) -> NamedLimits | None:
        """Return whose limits hold; None when the adapter knows."""
        if self.router is None:
            return None
        candidates = self.router.candidates
        chosen = next((one for one in candidates if one.name == _chosen_name(state)), None)
        return _limits_of(chosen) if chosen else NamedLimits(self.router.limits, "")

    def made(self, state: State, measure: Measure) -> Update:
        """Choose, and return what of it is news.

        Raises:
            NoModelFitsError: no candidate can do what the request asks for.
        """
        if self.selector is None:
            return self._with_model(state, measure, {})
        selection = self.selector.select(_messages(state), **self._room(state, measure, self.selector))
        return self._with_model(state, measure, _with_tools(state, selection))

    async def amade(self, state: State, measure: Measure) -> Update:
        """Like `made`, awaiting the embeddings."""
        if self.selector is None:
            return self._with_model(state, measure, {})
        selection = await self.selector.aselect(_messages(state), **self._room(state, measure, self.selector))
        return self._with_model(state, measure, _with_tools(state, selection))

    def require(self, call: Any) -> None:
        """Raise `ConfigError` for a model node that cannot follow the choices: known before the first request."""
        inner = call
        while isinstance(inner, RunnableBindingBase):
            inner = inner.bound
        if self.router is not None and not (isinstance(inner, RoutedChatModel) and inner.router is self.router):
            raise ConfigError(
        """Raise `ConfigError` for a model node that cannot follow the choices, before the first request."""
                "the router that the nodes have"
            )
        if self.selector is not None and not hasattr(call, "bind_tools"):
            raise ConfigError(
                f"model={type(call).__name__} cannot be given tools for each request: with a tool_selector pass a chat "
                "model to which no tools are bound"
            )

    def bound(
        self, call: Runnable[Any, Any], state: State, given: Callable[[State], Sequence[Any]]
    ) -> Runnable[Any, Any]:
        """Return what the model node calls: with its tools, and told with which candidate to begin."""
        if self.selector is not None:
            tools = tuple(self.tools(state, given(state)))
            # The tuple in the value keeps call and tools alive, so an id in the key cannot come to mean others.
            key = (id(call), *map(id, tools))
            call = once(self._bindings, key, lambda: ((call, tools), _bound_to(call, tools)))[1]
        return call.bind(**self.arguments(state)) if self.router is not None else call

    def arguments(self, state: State) -> dict[str, Any]:
        """Return the argument that tells a `RoutedChatModel` with which candidate to begin, and why."""
        chosen = state.get("context_model")
        return {"route": dict(chosen)} if self.router is not None and chosen else {}

    def _room(self, state: State, measure: Measure, selector: ToolSelector) -> dict[str, Any]:
        most = int(TOOL_SHARE * measure(state).budget.input_limit)
        return {
            "previous": state.get("context_tools") or (),
            "max_tool_tokens": min(selector.max_tool_tokens, most),
        }

    def _with_model(self, state: State, measure: Measure, update: Update) -> Update:
        if self.router is None or not state.get("messages"):
            return changed(state, update)
        return changed(state, {**update, "context_model": self._model({**state, **update}, measure, self.router)})

    def _model(self, state: State, measure: Measure, router: ModelRouter) -> dict[str, str]:
        """The candidate that takes the request as it stands; when none does, the largest, for which it is compacted."""
        known = _chosen_name(state)
        families = {one.family: one for one in router.candidates}
        windows = [measure({**state, "context_model": {"model": one.name}}) for one in families.values()]
        request = Request(
            messages=windows[0].survey.messages(),
            tools=self.tools(state),
            kept=known,
            estimated_tokens=max(window.survey.upper_tokens for window in windows),
        )
        try:
            route = router.decide(request)
        except NoModelFitsError:
            route = router.largest(request, is_to_shrink=True)
        if route.name != known:
            announce_model(route, known)
        return {"model": route.name, "reason": route.reason}


def _name_of(tool: Any) -> str:
    """The name of a tool; empty for one that the provider runs and that has none."""
    if isinstance(tool, Mapping):
        function = tool.get("function")
        return str(tool.get("name") or (function.get("name") if isinstance(function, Mapping) else "") or "")
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))


def _chosen_name(state: State) -> str:
    chosen = state.get("context_model")
    return str(chosen.get("model") or "") if isinstance(chosen, Mapping) else ""


def _messages(state: State) -> list[Any]:
    return list(state.get("messages") or [])


def _with_tools(state: State, selection: ToolSelection) -> Update:
    known = state.get("context_tools")
    if known is None or selection.added or selection.removed:
        announce_tools(selection)
    return {"context_tools": list(selection.names)}


def _limits_of(candidate: Candidate) -> NamedLimits:
    return NamedLimits(candidate.limits, candidate.info.name, candidate.family)


def _bound_to(call: Any, tools: Sequence[Any]) -> Runnable[Any, Any]:
    bound: Runnable[Any, Any] = call.bind_tools(list(tools)) if tools else call
    return bound
