"""What an agent may call: its tools, with the recall tool where that works, and the models behind a call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool

from langchain_ctxwin.core.limits import ModelLimits, NamedLimits
from langchain_ctxwin.core.model_info import (
    family_of,
    model_name,
    unbound,
)
from langchain_ctxwin.core.tool_schemas import name_of, recall_name
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import (
    ConfigError,
    expect,
)
from langchain_ctxwin.recall import create_recall_tool
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.tools import ToolSelector


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


def with_recall(tools: Sequence[Any], model: Any) -> list[Any]:
    """Return tools, of which the recall tool comes last, or is left out.

    It is left out where the model takes no tools, or where one of the others is like it.
    """
    ours, router = recall_tool(), router_of(model)
    others = [tool for tool in tools if tool is not ours]
    models = [one.model for one in router.candidates] if router else [model]
    none = BaseChatModel.bind_tools
    takes_tools = all(
        getattr(type(unbound(one)), "bind_tools", none) is not none
        for one in models
        if isinstance(one, Runnable)
    )
    is_alone = ours.name not in map(name_of, others) and not recall_name(others)
    is_kept = len(others) < len(tools) and takes_tools and is_alone
    return [*others, ours] if is_kept else others


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
