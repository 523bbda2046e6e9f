"""What does a model call ask for itself, and can it follow what is chosen for it?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel, output_tokens_of


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
