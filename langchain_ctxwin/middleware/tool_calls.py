"""How does a guard stand around the tool calls of an agent, when there is one?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from langchain_ctxwin.tool_results import ToolResultGuard

Output = ToolMessage | Command[Any]


class GuardedToolCalls:
    """Hands every tool call of an agent to the middleware's guard."""

    guard: ToolResultGuard

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Output]) -> Output:
        """Make the result of one tool call fit."""
        return self.guard.wrap_tool_call(request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Output]]
    ) -> Output:
        """Like `wrap_tool_call`, for async runs."""
        return await self.guard.awrap_tool_call(request, handler)


@cache
def guarding(kind: Any) -> Any:
    """Return a middleware class that guards tool calls too; an agent without a guard keeps its plain tool node."""
    if issubclass(kind, GuardedToolCalls):
        return kind
    return type(kind.__name__, (GuardedToolCalls, kind), {"__module__": kind.__module__})
