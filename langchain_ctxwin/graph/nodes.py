"""The engine as LangGraph nodes: check the budget, summarize or compress when needed, build the request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command, RetryPolicy

from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.outcome import seen
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.turns import call_ids
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ContextWindowError
from langchain_ctxwin.graph.calls import ModelCall
from langchain_ctxwin.graph.events import announce_compaction, announce_faults
from langchain_ctxwin.graph.node import ContextNode, State, Update
from langchain_ctxwin.observe.validation import Validator

T = TypeVar("T")
Config = RunnableConfig | None
PerRequest = Callable[[Any, Any], T]
"""A callable `(state, runtime)` that gives a value for one request."""

Destination = Literal["force_compress", "maybe_summarize", "build_messages"]


class ContextNodes:
    """The nodes of one agent: `budget_check`, `maybe_summarize`, `force_compress`, `build_messages`.

    Setup:
        ```bash
        pip install langchain-ctxwin
        ```

    Key init args:
        engine: the `ContextEngine` that decides.
        system_prompt: a text, a `SystemMessage`, or a callable `(state, runtime)` that returns one.
        tools: the tools bound to the model, or such a callable.
        model: the model of each request, or such a callable, when its limits differ from the engine's.
        validator: compares counts with what providers report, and samples with exact counts.

    Instantiate:
        ```python
        nodes = ContextNodes(engine, system_prompt="You are ...", tools=tools)
        ```

    Use:
        ```python
        add_context_nodes(builder, nodes, model=model.bind_tools(tools))
        ```
    """

    def __init__(
        self,
        engine: ContextEngine,
        *,
        system_prompt: str | SystemMessage | PerRequest[str | SystemMessage] = "",
        tools: Sequence[Any] | PerRequest[Sequence[Any]] = (),
        model: Any | PerRequest[Any] = None,
        validator: Validator | None = None,
    ) -> None:
        self.engine = engine
        self._system_prompt = system_prompt
        self._tools = tools
        self._model = model
        self.validator = validator
        """Watches how far off the counts are; None watches nothing."""
        self.budget_check = ContextNode("budget_check", self._budget_check, self._abudget_check)
        """Measures the next request and decides where to go."""
        self.maybe_summarize = ContextNode("maybe_summarize", self._summarize, self._asummarize)
        """Summarizes the oldest turns when that is due."""
        self.force_compress = ContextNode("force_compress", self._force_compress)
        """Makes the request fit without calling a model, or raises `BudgetExceededError`."""
        self.build_messages = ContextNode("build_messages", self._build_messages)
        """Writes the request to `llm_input_messages`."""

    def route_on_budget(self, state: State) -> Destination:
        """Return the node that follows `budget_check`."""
        if (state.get("context_pending") or {}).get("due"):
            return "maybe_summarize"
        report = state.get("context_report") or self.measure(state).report
        return "force_compress" if report["over_by"] > 0 else "build_messages"

    def model_node(self, call: Runnable[Any, Any] | Callable[[list[AnyMessage]], Any]) -> Runnable[Any, Any]:
        """Wrap a chat model, a Runnable or a callable `messages -> AIMessage` as the model node.

        When the provider refuses a request as too large, the node compacts and calls again, at most `max_recoveries`
        times; then the provider's own exception leaves the node, so that a resume runs it again.
        """
        return ModelCall(self, call).as_node()

    def model_input(self, state: State) -> list[AnyMessage]:
        """Return the request of this state: the one that was built, or an identical one when it is missing or stale.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        built, messages = state.get("llm_input_messages"), state.get("messages") or ()
        if built and messages and _is_current(built[-1], messages[-1], state):
            return list(built)
        return self.request(self.measure(state))

    @staticmethod
    def retry_on(exc: Exception) -> bool:
        """Decide for a `RetryPolicy`: as LangGraph by default, but never resend a request that was too large."""
        if isinstance(exc, ContextWindowError) or classify_overflow(exc) is not None:
            return False
        default = RetryPolicy().retry_on
        return bool(default(exc)) if callable(default) and not isinstance(default, type) else False

    def measure(self, state: State) -> Window:
        """Measure the next request of this state."""
        runtime = current_runtime()
        return self.engine.measure(
            state.get("messages") or [],
            system_prompt=_resolved(self._system_prompt, state, runtime),
            tools=_resolved(self._tools, state, runtime),
            session=state,
            model=_resolved(self._model, state, runtime),
        )

    def request(self, window: Window) -> list[AnyMessage]:
        """Return the message list of a measured request, refusing one that holds nothing to answer."""
        if not window.messages:
            total = len(window.request.messages)
            raise ContextWindowError(
                f"nothing to send: none of the {total} messages in the history is one a model can answer; "
                "add a user message"
            )
        return self.engine.build(window)

    def compacted(self, state: State, window: Window, compaction: Compaction, update: Update) -> Update:
        """Return the update of a compaction that was carried out, with the report of the request as it is now."""
        after = self.measure({**state, **update})
        announce_compaction(compaction, after, refused=_refused(window, after))
        return {**update, **_still_pending(state), "context_report": after.report}

    def _budget_check(self, state: State, _: Config = None) -> Update:
        return self._checked(state, self.engine.verify(self.measure(state)))

    async def _abudget_check(self, state: State, _: Config = None) -> Update:
        return self._checked(state, await self.engine.averify(self.measure(state)))

    def _checked(self, state: State, window: Window) -> Update:
        announce_faults(window)
        plan = self.engine.plan(window)
        pending = {"due": True, "reason": plan.reason} if plan is not None and window.fits_after(plan) else {}
        return _changed(state, {**seen(window), "context_pending": pending})

    def _summarize(self, state: State, _: Config = None) -> Update:
        window = self.measure(state)
        plan = self.engine.plan(window)
        if plan is None:
            return _changed(state, {**_still_pending(state), "context_report": window.report})
        return self.compacted(state, window, plan, self.engine.apply(plan, window))

    async def _asummarize(self, state: State, _: Config = None) -> Update:
        window = self.measure(state)
        plan = self.engine.plan(window)
        if plan is None:
            return _changed(state, {**_still_pending(state), "context_report": window.report})
        return self.compacted(state, window, plan, await self.engine.aapply(plan, window))

    def _force_compress(self, state: State, _: Config = None) -> Update:
        window = self.measure(state)
        compaction = self.engine.emergency(window)
        if compaction is None:
            return _changed(state, {"context_report": window.report})
        return self.compacted(state, window, compaction, self.engine.apply(compaction, window))

    def _build_messages(self, state: State, _: Config = None) -> Update | Command[Any]:
        update = {"llm_input_messages": self.request(self.measure(state))}
        if current_runtime() is None:
            return update
        # As pairs, because LangGraph streams messages that it finds in a dict, and the request is not for the user.
        return Command(update=list(update.items()))


def _is_current(built: AnyMessage, newest: AnyMessage, state: State) -> bool:
    """True when a request that ends in `built` was made for a history that ends in `newest`."""
    if built.id is None or built.id != newest.id:
        return False
    edited = (state.get("context_view") or {}).get("clamped") or {}
    return built.content == newest.content or built.id in edited


def turn_is_finished(state: State) -> bool:
    """True when the last message is an answer, not a question or a call."""
    messages: Sequence[AnyMessage] = state.get("messages") or ()
    last = messages[-1] if messages else None
    return isinstance(last, AIMessage) and not call_ids(last)


def current_runtime() -> Runtime[Any] | None:
    """Return the runtime of the graph run; None outside of one."""
    try:
        return get_runtime()
    except RuntimeError:
        return None


def _resolved(value: Any, state: State, runtime: Runtime[Any] | None) -> Any:
    """Call what is given per request; models and runnables are values, although some are callable."""
    per_request = callable(value) and not isinstance(value, (Runnable, SystemMessage))
    return value(state, runtime) if per_request else value


def _changed(state: State, update: Update) -> Update:
    """Leave out what the state already says, so that a checkpoint stores only news."""
    return {key: value for key, value in update.items() if state.get(key) != value and (value or key in state)}


def _still_pending(state: State) -> Update:
    """What `maybe_summarize` leaves of a summary that was due: that a request waits behind it."""
    due = (state.get("context_pending") or {}).get("due")
    return {"context_pending": {"request_waits": True} if due else {}}


def request_waits(state: State) -> bool:
    """True when a summary was made on the way to a model call, not after an answer."""
    return bool((state.get("context_pending") or {}).get("request_waits")) or not turn_is_finished(state)


def _refused(before: Window, after: Window) -> str:
    """Why a summary was not taken; empty when the compaction happened."""
    if after.session.compactions > before.session.compactions:
        return ""
    return str(after.session.guard.get("reason", ""))
