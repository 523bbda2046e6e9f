"""The engine as LangGraph nodes: check the budget, summarize or compress when needed, build the request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command, RetryPolicy

from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ConfigError, ContextWindowError
from langchain_ctxwin.flow.asked import asked_by, require_router, require_tool_binding
from langchain_ctxwin.flow.choices import Choices, require_known_tools
from langchain_ctxwin.flow.limits import limited_by
from langchain_ctxwin.flow.place import Place, place_of
from langchain_ctxwin.flow.state import State, Update
from langchain_ctxwin.flow.steps import Destination, Flow
from langchain_ctxwin.graph.calls import ModelCall
from langchain_ctxwin.graph.node import ContextNode
from langchain_ctxwin.observe.validation import Validator
from langchain_ctxwin.routing import ModelRouter
from langchain_ctxwin.tools import ToolSelector

T = TypeVar("T")
Config = RunnableConfig | None
PerRequest = Callable[[Any, Any], T]
"""A callable `(state, runtime)` that gives a value for one request."""


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
        tool_selector: chooses further tools for each request, within its number of tokens; give its tools, and its
            `search_tools`, to the tool node.
        router: chooses the model of each request; the model node then calls a `RoutedChatModel` of this router.

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
        tool_selector: ToolSelector | None = None,
        router: ModelRouter | None = None,
    ) -> None:
        if router is not None and model is not None:
            raise ConfigError("router and model were given: leave out model, the router chooses it for each request")
        if tools and not callable(tools):
            require_known_tools(engine.config, tools, tool_selector)
        self.engine = engine
        self._system_prompt = system_prompt
        self._tools = tools
        self._model = model
        self.choices = Choices(router=router, selector=tool_selector)
        """Chooses the tools and the model of each request."""
        self._flow = Flow(engine, self.measure, self.choices, self._called)
        self._model_call: ModelCall | None = None
        self.validator = validator
        """Watches how far off the counts are; None watches nothing."""
        self.budget_check = ContextNode("budget_check", self._check, self._acheck)
        """Chooses tools and model, measures the next request and decides where to go."""
        self.select_model = ContextNode("select_model", self._choose, self._achoose)
        """Chooses tools and model only, for graphs without `budget_check`."""
        self.maybe_summarize = ContextNode("maybe_summarize", self._summarize, self._asummarize)
        """Summarizes the oldest turns when that is due."""
        self.force_compress = ContextNode("force_compress", self._compress)
        """Makes the request fit without calling a model, or raises `BudgetExceededError`."""
        self.build_messages = ContextNode("build_messages", self._build)
        """Writes the request to `llm_input_messages`."""

    def route_on_budget(self, state: State) -> Destination:
        """Return the node that follows `budget_check`."""
        return self._flow.route(state)

    def model_node(self, call: Runnable[Any, Any] | Callable[[list[AnyMessage]], Any]) -> Runnable[Any, Any]:
        """Wrap a chat model, a Runnable or a callable `messages -> AIMessage` as the model node.

        When the provider refuses a request as too large, the node compacts and calls again, at most `max_recoveries`
        times; then the provider's own exception leaves the node, so that a resume runs it again.

        Raises:
            ConfigError: the model cannot follow the router or the tool selector of these nodes, or another model node
                of theirs asks the router for something else.
        """
        require_router(call, self.choices.router)
        if self.choices.selector is not None:
            require_tool_binding(call)
        self.choices.follow(asked_by(call))
        self._model_call = ModelCall(self._flow, call, tools=self._shown_tools, validator=self.validator)
        return self._model_call.as_node()

    def model_input(self, state: State) -> list[AnyMessage]:
        """Return the request of this state: the one that was built, or an identical one when it is missing or stale.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        return self._flow.model_input(state)

    @staticmethod
    def retry_on(exc: Exception) -> bool:
        """Decide for a `RetryPolicy`: as LangGraph by default, but never resend a request that was too large."""
        if isinstance(exc, ContextWindowError) or classify_overflow(exc) is not None:
            return False
        default = RetryPolicy().retry_on
        return bool(default(exc)) if callable(default) and not isinstance(default, type) else False

    def measure(self, state: State) -> Window:
        """Measure the next request of this state."""
        runtime, chosen = current_runtime(), self.choices.model(state)
        return self.engine.measure(
            state.get("messages") or [],
            system_prompt=_resolved(self._system_prompt, state, runtime),
            tools=self._shown_tools(state),
            session=state,
            model=limited_by(self.engine, chosen) if chosen else _resolved(self._model, state, runtime),
        )

    def _called(self, state: State) -> Any:
        """What the model node calls; with a router the candidate changes, and with it the cache."""
        if self._model_call is None or self.choices.router is not None:
            return None
        return self._model_call.bound(state)

    def _shown_tools(self, state: State) -> Sequence[Any]:
        return self.choices.tools(state, _resolved(self._tools, state, current_runtime()))

    def _choose(self, state: State, _: Config = None) -> Update:
        return self.choices.made(state, self.measure)

    async def _achoose(self, state: State, _: Config = None) -> Update:
        return await self.choices.amade(state, self.measure)

    def _check(self, state: State, _: Config = None) -> Update:
        return self._flow.check(state, self._place(state))

    async def _acheck(self, state: State, _: Config = None) -> Update:
        return await self._flow.acheck(state, self._place(state))

    def _summarize(self, state: State, _: Config = None) -> Update:
        return self._flow.summarize(state, self._place(state))

    async def _asummarize(self, state: State, _: Config = None) -> Update:
        return await self._flow.asummarize(state, self._place(state))

    def _compress(self, state: State, _: Config = None) -> Update:
        return self._flow.compress(state, self._place(state))

    def _build(self, state: State, _: Config = None) -> Update | Command[Any]:
        update = {"llm_input_messages": self._flow.request(self.measure(state))}
        if current_runtime() is None:
            return update
        # As pairs, because LangGraph streams messages that it finds in a dict, and the request is not for the user.
        return Command(update=list(update.items()))

    def _place(self, state: State) -> Place:
        """The thread and the store of this run."""
        runtime = current_runtime()
        return place_of(runtime, lambda: _resolved(self._system_prompt, state, runtime))


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
