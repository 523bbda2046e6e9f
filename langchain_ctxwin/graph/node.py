"""One graph node with a sync and an async form; LangGraph traces nodes itself, so this adds no layer of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.types import Command

from langchain_ctxwin.flow.state import State, Update

Writes = Update | Command[Any]


Run = Callable[[State, RunnableConfig | None], Writes]
ARun = Callable[[State, RunnableConfig | None], Awaitable[Writes]]


class ContextNode(Runnable[Any, Any]):
    """A node `(state, config) -> update`; without an async form the sync one is used, because it does no I/O."""

    def __init__(self, name: str, run: Run, arun: ARun | None = None) -> None:
        self.name = name
        self._run = run
        self._arun = arun

    def invoke(self, input: State, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002  # base class
        """Return the state update."""
        return self._run(input, config)

    async def ainvoke(self, input: State, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002  # base class
        """Return the state update, awaiting models and summarizers."""
        return self._run(input, config) if self._arun is None else await self._arun(input, config)
