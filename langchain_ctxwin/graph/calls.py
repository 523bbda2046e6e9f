"""The model node: call, and when the provider refuses the request as too large, compact and call again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_ctxwin.core.learning import from_answer
from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError
from langchain_ctxwin.graph.events import announce_recovery
from langchain_ctxwin.graph.node import ContextNode, State, Update

if TYPE_CHECKING:
    from langchain_ctxwin.graph.nodes import ContextNodes

Exchange = Generator[list[AnyMessage], Any, Update]


class ModelCall:
    """One model node. Recovery happens inside it: an error handler of the graph would make the thread unresumable."""

    def __init__(self, nodes: ContextNodes, call: Runnable[Any, Any] | Callable[[list[AnyMessage]], Any]) -> None:
        self._nodes = nodes
        self._call: Runnable[Any, Any] = call if isinstance(call, Runnable) else RunnableLambda(call)

    def as_node(self) -> Runnable[Any, Any]:
        """Return the node, sync and async."""
        return ContextNode("model_node", self._run, self._arun)

    def _run(self, state: State, config: RunnableConfig | None) -> Update:
        exchange = self._exchange(state)
        request = next(exchange)
        while True:
            try:
                reply = self._call.invoke(request, config)
            except Exception as error:  # noqa: BLE001  # the exchange answers overflows, raises all else again
                request = exchange.throw(error)
            else:
                return _finished(exchange, reply)

    async def _arun(self, state: State, config: RunnableConfig | None) -> Update:
        exchange = self._exchange(state)
        request = next(exchange)
        while True:
            try:
                reply = await self._call.ainvoke(request, config)
            except Exception as error:  # noqa: BLE001  # see _run
                request = exchange.throw(error)
            else:
                return _finished(exchange, reply)

    def _exchange(self, state: State) -> Exchange:
        """Yield requests, receive the reply or the provider's exception, return the state update."""
        nodes, engine = self._nodes, self._nodes.engine
        request = nodes.model_input(state)
        window, update = self._fitting(state)
        if update:
            request = nodes.request(window)
        recoveries = 0
        while True:
            try:
                reply = yield request
                return {**update, **_reply_update(window, reply)}
            except Exception as error:
                overflow = classify_overflow(error)
                if overflow is None or recoveries == engine.config.max_recoveries:
                    raise
                recoveries += 1
                update = {**update, **self._shrunk(window, overflow, error, recoveries)}
            window = nodes.measure({**state, **update})
            update["context_report"] = window.report
            request = nodes.request(window)

    def _fitting(self, state: State) -> tuple[Window, Update]:
        """Measure the request; when a state edit made it too large since it was checked, compact it now."""
        window = self._nodes.measure(state)
        compaction = self._nodes.engine.emergency(window)
        if compaction is None:
            return window, {}
        update = self._nodes.engine.apply(compaction, window)
        update = self._nodes.compacted(state, window, compaction, update)
        return self._nodes.measure({**state, **update}), update

    def _shrunk(self, window: Window, overflow: ContextOverflow, error: Exception, attempt: int) -> Update:
        try:
            update = self._nodes.engine.recover(window, overflow)
        except BudgetExceededError as exhausted:
            raise error from exhausted
        announce_recovery(window, overflow, attempt)
        return update


def _finished(exchange: Exchange, reply: Any) -> Update:
    try:
        exchange.send(reply)
    except StopIteration as finished:
        update: Update = finished.value
        return update
    raise ContextWindowError("unreachable: a reply ends the exchange")


def _reply_update(window: Window, reply: Any) -> Update:
    if not isinstance(reply, AIMessage):
        raise ContextWindowError(
            f"the model node got {type(reply).__name__} instead of an AIMessage: "
            "wrap a chat model, or a callable that returns its answer"
        )
    # The anchor refers to the answer by id, so the id must exist before LangGraph would stamp it.
    answer = reply if reply.id else reply.model_copy(update={"id": str(uuid4())})
    return {"messages": [answer], "context_counts": from_answer(window, answer).counts}
