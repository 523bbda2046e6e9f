"""`ContextNodes`: the engine as LangGraph nodes with their edges, and the model node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any, Literal, TypeVar, cast, get_type_hints

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.base import RunnableBindingBase
from langgraph.channels import LastValue
from langgraph.graph import END, StateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command, RetryPolicy
from typing_extensions import TypedDict

from langchain_ctxwin.agent.model_call import Attempt, ModelCall
from langchain_ctxwin.agent.state import (
    OUR_KEYS,
    HookState,
    PlainContextState,
    kept,
    mapping_of,
)
from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.agent.storage import engine_of, place_of
from langchain_ctxwin.core.model_info import arguments_of
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.session import Json, State
from langchain_ctxwin.core.sizing import sent_tokens
from langchain_ctxwin.core.tool_schemas import listed, name_of
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ConfigError, ContextWindowError, expect
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru
from langchain_ctxwin.util.work import Wait, Work, arun, run

T = TypeVar("T")
Do = Callable[[AgentStep, RunnableConfig | None], Work[Any]]
"""What a node does with a step; it returns what the node writes."""

Builder = StateGraph[Any, Any, Any, Any]
Model = Runnable[Any, Any] | Callable[[list[AnyMessage]], Any]
"""What a model node calls: a chat model, a Runnable, or a callable `messages -> AIMessage`."""

PerRequest = Callable[[Any, Any], T]
"""A callable `(state, runtime)` that gives a value for one request."""

MAX_STEPS = 64
"""Steps that are kept for the next node, which then measures nothing; losing one costs one measure."""

UNREAD_RATIO = 1.5
"""Times a request as we count it from which on another one was sent: no estimate is so far off."""


Destination = Literal["force_compress", "maybe_summarize", "build_messages"]


class ContextNode(Runnable[Any, Any]):
    """A node `(state, config) -> update`, sync and async."""

    def __init__(self, name: str, do: Do, start: Callable[[State], AgentStep]) -> None:
        self.name = name
        self.step = start
        """Returns the step of a state, also outside of a run."""
        self._do = do

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002  # base class
        """Return the state update."""
        return run(self._do(self.step(input), config))

    async def ainvoke(
        self,
        input: Any,  # noqa: A002  # base class
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> Any:
        """Return the state update, awaiting models and summarizers."""
        return await arun(self._do(self.step(input), config))


class HookNode(ContextNode):
    """A node that brings the `context_*` keys into an agent whose state is its own, as `create_react_agent` has.

    LangGraph reads from the type of the parameter which keys a node takes, and adds those that a graph does not have.
    """

    def __call__(self, state: HookState) -> Any:
        """Return the state update."""
        return self.invoke(state)


class ContextNodes:
    """The nodes of one agent: `budget_check`, `maybe_summarize`, `force_compress`, `build_messages`.

    Setup:
        ```bash
        pip install langchain-ctxwin
        ```

    Key init args:
        engine: the `ContextEngine` that decides.
        system_prompt: a text, a `SystemMessage`, or a callable `(state, runtime)` that returns one.
        tools: the tools bound to the model, or such a callable; `model_node` adds those that it finds bound to its
            model.
        model: the model of each request, or such a callable, when its limits differ from the engine's.
        tool_selector: chooses further tools for each request, within its number of tokens; give its tools, and its
            `search_tools`, to the tool node.

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
        tool_selector: ToolSelector | None = None,
    ) -> None:
        expect(
            engine,
            ContextEngine,
            "engine",
            "a ContextEngine, as in ContextNodes(ContextEngine(limits=model))",
        )
        wanted = "a text, a SystemMessage, or a function of state and runtime"
        expect(system_prompt, str | SystemMessage | Callable, "system_prompt", wanted)
        self._tools: Any = tools
        if _is_per_request(tools):
            try:
                signature(cast("Any", tools)).bind(None, None)
            except (TypeError, ValueError):  # such as a tool
                wanted = "a list of tools, or a function of state and runtime"
                expect(tools, (), "tools", wanted)
        else:
            self._tools = listed(tools)
        wanted = "a ToolSelector, or None"
        expect(tool_selector, ToolSelector | None, "tool_selector", wanted)
        self.engine = engine
        self._system_prompt = system_prompt
        self._model = model
        self._selector = tool_selector
        self._is_unread_told = False
        self._steps: Lru[AgentStep] = Lru(MAX_STEPS)
        self._call: Runnable[Any, Any] | None = None
        self._node = partial(ContextNode, start=self._step)
        self.budget_check = self._node("budget_check", self._doing(self._check))
        """Chooses tools and model, measures the request, compacts past a bound of yours, and decides where to go."""
        self.maybe_summarize = self._node("maybe_summarize", self._doing(_summarizing))
        """Summarizes the oldest turns when that is due."""
        self.force_compress = self._node(
            "force_compress", self._doing(AgentStep.compressing)
        )
        """Makes the request fit without a model, or raises `BudgetExceededError`; a node of its own, to be seen."""
        self.build_messages = self._node(
            "build_messages", self._doing(AgentStep.compressing, shows_request=True)
        )
        """Writes the request to `llm_input_messages`, for a model node of your own; ours builds the same one."""
        self.pre_model_hook = HookNode(
            "pre_model_hook",
            self._doing(AgentStep.prepare, shows_request=True),
            self._step,
        )
        """All of them in one node, for `create_react_agent(..., pre_model_hook=nodes.pre_model_hook)`."""

    def route_on_budget(self, state: State) -> Destination:
        """Return the node that follows `budget_check`."""
        is_due = mapping_of(state, "context_pending").get("due")
        return "maybe_summarize" if is_due else _to_build(state)

    def model_node(self, call: Model) -> Runnable[Any, Any]:
        """Wrap a chat model, a Runnable or a callable `messages -> AIMessage` as the model node.

        When the provider refuses a request as too large, the node compacts and calls again, at most `max_recoveries`
        times; then the provider's own exception leaves the node, so that a resume runs it again. With a
        `RoutedChatModel` its router chooses the model of each request, in the place of `model`. Of several model nodes
        each fits its request to its own model; the other nodes go by the one that was made last.

        Raises:
            ConfigError: the model has tools bound, which the tool selector of these nodes is to choose.
        """
        bound = arguments_of(call).get("tools") or ()
        if self._selector is not None and bound:
            raise ConfigError(
                "tools are bound to the model: with a tool_selector, leave them to the nodes"
            )
        self.engine.require_summarizer(call)
        if not _is_per_request(self._tools):
            known_names = {name_of(tool) for tool in self._tools}
            new = [tool for tool in bound if name_of(tool) not in known_names]
            self._tools = [*self._tools, *new]
        self._call = runnable = (
            call if isinstance(call, Runnable) else RunnableLambda(call)
        )

        def answer(step: AgentStep, config: RunnableConfig | None) -> Work[Json]:
            def send(attempt: Attempt) -> Work[Any]:
                # with the tools chosen now: a recovery may choose others
                called = step.bind(runnable, step.tools) if step.bind else runnable
                return (
                    yield Wait.on(
                        called, "invoke", attempt.request, config, **attempt.arguments
                    )
                )

            message = yield from ModelCall(step, runnable, send).answer()
            return {**step.stored(), "messages": [message]}

        return ContextNode("model_node", answer, partial(self._step, call=runnable))

    def model_input(self, state: State) -> list[AnyMessage]:
        """Return the request of this state: what `build_messages` writes to `llm_input_messages`.

        Raises:
            ContextWindowError: there is no message that a model could answer.
        """
        return self._step(state).request()

    @staticmethod
    def retry_on(exc: Exception) -> bool:
        """Decide for a `RetryPolicy`: as LangGraph by default, but never resend a request that was too large."""
        if isinstance(exc, ContextWindowError) or classify_overflow(exc) is not None:
            return False
        by_default: Any = RetryPolicy().retry_on
        return bool(by_default(exc))

    def measure(self, state: State) -> Window:
        """Measure the next request of this state."""
        return self._step(state).window

    def _step(self, state: State, call: Any = None) -> AgentStep:
        """A step of this run: what is given per request is asked for once.

        It leads to this call, by default that of the model node that was made last.
        """
        runtime = current_runtime()
        prompt = _resolved(self._system_prompt, state, runtime)
        tools, selector = _resolved(self._tools, state, runtime), self._selector
        if selector is not None:
            tools = [*selector.tools, selector.search_tools, *listed(tools)]
        step = AgentStep(
            state=state,
            engine=engine_of(self.engine, runtime),
            selector=selector,
            system_prompt=prompt,
            all_tools=tools,
            model=_resolved(self._model, state, runtime),
            call=self._call if call is None else call,
            bind=bind_inside if selector else None,
            place=place_of(runtime),
        )
        if before := self._steps.get(step.identity):
            step.take(before.window)
        return step

    def _doing(
        self, work: Callable[[AgentStep], Work[None]], *, shows_request: bool = False
    ) -> Do:
        """What a node does that keeps its step for the next node, unless the turn is over."""

        def do(step: AgentStep, _: RunnableConfig | None) -> Work[Json | Command[Any]]:
            yield from work(step)
            update = {"llm_input_messages": step.request()} if shows_request else {}
            update |= step.stored()
            self._steps.put(step.identity, step)
            if not shows_request or current_runtime() is None:
                return update
            # As pairs: LangGraph streams messages that it finds in a dict, and a request is not for the user.
            return Command(update=list(update.items()))

        return do

    def _check(self, step: AgentStep) -> Work[None]:
        """Measure the next request and decide where to go."""
        self._tell_unread(step.state)
        yield from step.check()

    def _tell_unread(self, state: State) -> None:
        """Warn once of a model node of your own that sends something else than the request which was built."""
        messages = reversed(state.get("messages") or ())
        last = next((one for one in messages if isinstance(one, AIMessage)), None)
        if last is None or "ctxwin" in last.response_metadata:
            return
        built = kept(state, "context_report").get("total_tokens") or 0
        reported = sent_tokens(last) or 0
        is_unread = state.get("context_view") and reported > UNREAD_RATIO * built > 0
        if is_unread and not self._is_unread_told:
            self._is_unread_told = True
            log.warning(
                "nodes.request_unread",
                built_tokens=built,
                reported_tokens=reported,
                do="call the model with state['llm_input_messages'] and give ContextNodes its tools, or use "
                "nodes.model_node(model)",
            )


def bind_inside(call: Any, tools: Sequence[Any]) -> Any:
    """Return the model with tools bound, inside whatever was bound around it."""
    if isinstance(call, RunnableBindingBase):
        return call.model_copy(update={"bound": bind_inside(call.bound, tools)})
    return call.bind_tools(list(tools)) if tools else call


def _summarizing(step: AgentStep) -> Work[None]:
    """Summarize where the state keeps what that brings; else it would be paid for in every step."""
    if not step.state.get("context_report") and current_runtime():
        raise ConfigError(
            "maybe_summarize found no context_report in the state, so summaries would be lost: use "
            "`class State(ContextState)`, or add the nodes by add_context_nodes(builder, nodes, ...)"
        )
    yield from step.summarize()


def current_runtime() -> Runtime[Any] | None:
    """Return the runtime of the graph run; None outside of one."""
    try:
        return get_runtime()
    except RuntimeError:
        return None


def _resolved(value: Any, state: State, runtime: Runtime[Any] | None) -> Any:
    """Call what is given per request; models and runnables are values, although some are callable."""
    return value(state, runtime) if _is_per_request(value) else value


def _is_per_request(value: Any) -> bool:
    return callable(value) and not isinstance(value, (Runnable, SystemMessage, type))


def add_context_nodes(
    builder: Builder,
    nodes: ContextNodes,
    *,
    model_node: str = "agent",
    model: Model,
    after: str = END,
    retry_policy: RetryPolicy | None = None,
) -> None:
    """Add `budget_check`, `maybe_summarize`, `force_compress`, `build_messages` and the model node to a graph.

    The entry is `budget_check`: lead `START` and the tools to it, and the finished answer to `maybe_summarize`. The
    state may be a TypedDict, a pydantic model or a dataclass with the key `messages`; the `context_*` keys come with
    the nodes, and callers neither set nor get them unless the graph has input and output schemas of its own.

    Args:
        builder: the graph.
        nodes: the nodes of one agent.
        model_node: name of the model node.
        model: what the model node calls, tools bound: a chat model, a Runnable or a callable `messages -> AIMessage`.
        after: where `maybe_summarize` goes when the turn is finished.
        retry_policy: for the model node; use `nodes.retry_on` in it, or oversized requests are sent again.

    Raises:
        ConfigError: the state has no key `messages`, or one without a reducer.

    Examples:
        ```python
        builder = StateGraph(MessagesState)
        add_context_nodes(builder, nodes, model=model.bind_tools(tools))
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "budget_check")
        builder.add_conditional_edges(
            "agent", tools_condition, {"tools": "tools", END: "maybe_summarize"}
        )
        builder.add_edge("tools", "budget_check")
        ```
    """
    expect(builder, StateGraph, "builder", "the StateGraph that the nodes are added to")
    expect(nodes, ContextNodes, "nodes", "ContextNodes(engine)")
    _require_messages(builder)
    ours = (
        nodes.budget_check,
        nodes.maybe_summarize,
        nodes.force_compress,
        nodes.build_messages,
    )
    # Every key of the graph and those of a session: what a node takes as a dict, whatever the state is made of.
    session = get_type_hints(PlainContextState, include_extras=True)
    new = {key: hint for key, hint in session.items() if key not in builder.channels}
    schema = _typed_dict(
        "StepState",
        {**dict.fromkeys((*builder.channels, *builder.managed), Any), **new},
    )
    for node in ours:
        builder.add_node(str(node.name), node, input_schema=schema)
    builder.add_node(
        model_node,
        nodes.model_node(model),
        input_schema=schema,
        retry_policy=retry_policy,
    )
    builder.add_conditional_edges(
        "budget_check",
        nodes.route_on_budget,
        ["maybe_summarize", "force_compress", "build_messages"],
    )
    builder.add_conditional_edges(
        "maybe_summarize",
        _after_summary,
        {
            "finished": after,
            "force_compress": "force_compress",
            "build_messages": "build_messages",
        },
    )
    builder.add_edge("force_compress", "build_messages")
    builder.add_edge("build_messages", model_node)
    _close(builder)


def _after_summary(state: State) -> str:
    is_due = mapping_of(state, "context_pending").get("due")
    return _to_build(state) if is_due else "finished"


def _to_build(state: State) -> Destination:
    """The next node on the way to a request."""
    is_over = kept(state, "context_report").get("over_by")
    return "force_compress" if is_over else "build_messages"


def _require_messages(builder: Builder) -> None:
    """Raise `ConfigError` for a state that keeps no history."""
    if isinstance(builder.channels.get("messages"), LastValue | None):
        raise ConfigError(
            f"{builder.state_schema.__name__} does not keep the history: annotate it as "
            "`messages: Annotated[list[AnyMessage], add_messages]`, or use `class State(ContextState)`"
        )


def _typed_dict(name: str, fields: Json) -> Any:
    make: Any = TypedDict  # a type checker wants its fields written out
    return make(name, fields, total=False)


def _close(builder: Builder) -> None:
    """Let callers neither set nor get what is ours, unless the graph says what they may."""
    state = builder.state_schema
    hints = get_type_hints(state, include_extras=True)
    theirs = {key: hint for key, hint in hints.items() if key not in OUR_KEYS}
    if theirs == hints:
        return
    public, channels = _typed_dict("Public", theirs), builder.schemas[state]
    builder.schemas[public] = {key: channels[key] for key in theirs}
    for side in ("input_schema", "output_schema"):
        if getattr(builder, side) is state:
            setattr(builder, side, public)
