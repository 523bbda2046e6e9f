"""The model node: the model, called through an exchange that recovers from overflows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_ctxwin.flow.asked import with_tools
from langchain_ctxwin.flow.exchange import ModelExchange, arun_exchange, run_exchange
from langchain_ctxwin.flow.state import State, Update
from langchain_ctxwin.flow.steps import Flow
from langchain_ctxwin.graph.node import ContextNode
from langchain_ctxwin.memo import Lru, once
from langchain_ctxwin.observe.validation import Validator

MAX_BINDINGS = 64
"""Tool sets whose binding is kept: a conversation has a few, and making one converts every definition."""


class ModelCall:
    """One model node. Recovery happens inside it: an error handler of the graph would make the thread unresumable."""

    def __init__(
        self,
        flow: Flow,
        call: Runnable[Any, Any] | Callable[[list[AnyMessage]], Any],
        *,
        tools: Callable[[State], Sequence[Any]] = lambda _: (),
        validator: Validator | None = None,
    ) -> None:
        self._flow = flow
        self._tools = tools
        self._bindings: Lru[tuple[Any, Runnable[Any, Any]]] = Lru(MAX_BINDINGS)
        self._call: Runnable[Any, Any] = call if isinstance(call, Runnable) else RunnableLambda(call)
        self._exchange = ModelExchange(flow, self._call, validator=validator)

    def as_node(self) -> Runnable[Any, Any]:
        """Return the node, sync and async."""
        return ContextNode("model_node", self._run, self._arun)

    def bound(self, state: State) -> Runnable[Any, Any]:
        """Return what this request calls: the model, with the tools that were chosen for it."""
        if self._flow.choices.selector is None:
            return self._call
        tools = tuple(self._tools(state))
        # The tools in the value stay alive, so an id in the key cannot come to mean others.
        return once(self._bindings, tuple(map(id, tools)), lambda: (tools, with_tools(self._call, tools)))[1]

    def _run(self, state: State, config: RunnableConfig | None) -> Update:
        call = self.bound(state)
        return run_exchange(
            self._exchange.start(state), lambda attempt: call.invoke(attempt.request, config, **attempt.arguments)
        )

    async def _arun(self, state: State, config: RunnableConfig | None) -> Update:
        call = self.bound(state)
        return await arun_exchange(
            self._exchange.start(state), lambda attempt: call.ainvoke(attempt.request, config, **attempt.arguments)
        )
