"""`ContextWindowMiddleware`: makes each request of an agent fit the model it goes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Required, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langgraph.types import Command, TracePolicy, omit_payload

from langchain_ctxwin.agent.model_call import Attempt, ModelCall
from langchain_ctxwin.agent.ready import (
    recall_tool,
    runnable_tools,
    sought_step,
    with_recall,
)
from langchain_ctxwin.agent.state import (
    MESSAGES_CHANNEL,
    RECORD_CHANNEL,
)
from langchain_ctxwin.agent.step import AgentStep, limited_by
from langchain_ctxwin.agent.storage import engine_of, place_of
from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.core.pairing import call_ids
from langchain_ctxwin.core.session import Json
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import LimitMemory, MetricsSink, TokenCounter
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.util.work import Wait, Work, arun, run

try:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        PrivateStateAttr,
        ToolCallRequest,
    )
    from langchain.agents.structured_output import (
        OutputToolBinding,
        ToolStrategy,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        "the middleware needs langchain: pip install 'langchain-ctxwin[agents]'"
    ) from error


T = TypeVar("T")
AgentRequest = ModelRequest[Any]
AgentResponse = ExtendedModelResponse[Any]
Hidden = Annotated[T, PrivateStateAttr]
"""A state key that is checkpointed, and neither taken from a caller nor returned to one."""


class ContextKeys(AgentState[Any], total=False):
    """The state that the middleware adds to an agent's own: the session keys of `ContextState`, all of them hidden."""

    context_summary: Hidden[str]
    """The one live summary of what left the view."""

    context_record: Hidden[Json]
    """Lines of what left the view, and how much left."""

    context_view: Hidden[Json]
    """How the history is shown; empty shows all of it."""

    context_pending: Hidden[Json]
    """The summary on its way: being written, or ready."""

    context_counts: Hidden[Json]
    """What was learned about token counts and limits."""

    context_tools: Hidden[list[str]]
    """Names of the selected tools, in the order in which requests show them."""

    context_model: Hidden[Json]
    """The candidate that the conversation's requests go to, and why."""

    context_guard: Hidden[Json]
    """What became of compactions and summaries, what was spent, and up to where reasoning is left out."""

    context_report: Hidden[Json]
    """The last measure of the next request, in tokens per region."""


class ContextAgentState(ContextKeys, total=False):
    """State of an agent that keeps its full history at linear storage cost: pass it as `state_schema`.

    A middleware cannot replace the `messages` channel of an agent, only the agent's own schema can. What
    `ContextState` says about pruning checkpoints holds here, too.

    ```python
    agent = create_agent(
        model,
        tools,
        middleware=[ContextWindowMiddleware()],
        state_schema=ContextAgentState,
    )
    ```
    """

    messages: Required[Annotated[list[AnyMessage], MESSAGES_CHANNEL]]
    """Full history; compaction never edits it."""

    context_record: Annotated[Json, PrivateStateAttr, RECORD_CHANNEL]
    """Lines of what left the view, and how much left; a checkpoint holds them only when they changed."""


def bound_by_agent(request: AgentRequest, model: Any, tools: Sequence[Any]) -> Any:
    """Return what an agent binds for a request; None where that depends on more than model, settings and tools."""
    if request.response_format is not None or request.tool_choice not in {None, "auto"}:
        return None
    if not tools:
        return model
    return request.model.bind_tools(
        list(tools), tool_choice=request.tool_choice, **request.model_settings
    )


def _asked(
    request: AgentRequest, attempt: Attempt, tools: Sequence[Any]
) -> AgentRequest:
    """The agent's request with the messages of an attempt."""
    first = attempt.request[0]
    system = first if isinstance(first, SystemMessage) else None
    return request.override(
        system_message=system,
        messages=attempt.request[1:] if system else attempt.request,
        model_settings={**request.model_settings, **attempt.arguments},
        tools=[] if attempt.arguments.get("tools") == [] else list(tools),
    )


def tools_of(form: Any) -> list[Any]:
    """Return the tools that a response format is for the model; as a native format it costs about the same."""
    if form is None:
        return []
    specs = ToolStrategy(getattr(form, "schema", form)).schema_specs
    return [OutputToolBinding.from_schema_spec(spec).tool for spec in specs]


Handler = Callable[..., Any]
AsyncHandler = Callable[..., Awaitable[Any]]


class ContextWindowMiddleware(AgentMiddleware[ContextKeys, Any, Any]):
    """Makes every request of a `create_agent` agent fit the model it goes to.

    It stands around the model call, because only there the whole request is known: system prompt, tools, output
    format, settings, and the model itself. Put it last in the list, so that it sees what other middleware made of the
    request. The history is not edited; state is stored when the call succeeds.

    Setup:
        ```bash
        pip install "langchain-ctxwin[agents]"
        ```

    Key init args:
        engine: decides for all models. Limits that were set on it (`ModelLimits`) hold unless the request's model
            states tighter ones. By default it is made from the arguments below, and the limits of each request are
            those that its model states.
        limits: `ModelLimits`, or anything `ModelLimits.of` reads, where the agent's model states none, or for limits
            that hold for every model.
        summarizer: writes summaries; None keeps a record without a model. The same object as the agent's model costs a
            fraction: it is asked by extending the first part of the last request, which the provider has cached.
            "native" has the model's provider write a block of its own.
        config: when to compact and what to keep.
        counter: counts tokens; by default an estimator for the model's family.
        learned: remembers limits that providers state, for other agents and processes.
        jobs: writes summaries in the background; by default one set of threads for the whole process.
        sinks: take the events of `langchain_ctxwin.observe`; also those of a `guard` that has none of its own.
        prices: of models, for the costs in events, see `ContextEngine`.
        guard: makes the results of tools fit the room that is left; its tool `read_more` is added to the agent.
        recall: give the agent the tool `recall`, by which it reads what left its view; it takes some 200 tokens.
        tool_selector: chooses of its tools those that each request shows; they, and its `search_tools`, are added to
            the agent. Other tools of the agent are always shown.
        router: chooses the model of each request in the place of the agent's model. A `RoutedChatModel` as the agent's
            model does the same.

    Instantiate:
        ```python
        middleware = ContextWindowMiddleware(summarizer=small_model)
        ```

    Use:
        ```python
        agent = create_agent(
            model,
            tools,
            middleware=[ContextWindowMiddleware()],
            state_schema=ContextAgentState,
            checkpointer=checkpointer,
        )
        ```

    The agent calls it by the name of its class: an empty subclass `SummarizationMiddleware` takes the place of
    deepagents' own summarizer.

    Raises:
        ConfigError: `engine` was given together with an argument that belongs to an engine, or an argument is of the
            wrong type.
        UnknownModelError: at the first call, when neither the model nor `engine` states a limit.
    """

    state_schema = ContextKeys

    trace_policy = TracePolicy(process_inputs=omit_payload)
    """Spans of the middleware hold no copy of request and state: the spans around and inside of it have them."""

    def __init__(
        self,
        engine: ContextEngine | None = None,
        *,
        limits: Any = None,
        summarizer: Any = None,
        config: ContextConfig | LiveConfig | None = None,
        counter: TokenCounter | None = None,
        learned: LimitMemory | None = None,
        jobs: SummaryJobs | None = None,
        sinks: Iterable[MetricsSink] | None = None,
        prices: Any = None,
        guard: ToolResultGuard | None = None,
        recall: bool = True,
        tool_selector: ToolSelector | None = None,
        router: ModelRouter | None = None,
    ) -> None:
        super().__init__()
        options: Json = {
            "limits": limits,
            "summarizer": summarizer,
            "config": config,
            "counter": counter,
            "learned": learned,
            "jobs": jobs,
            "sinks": sinks,
            "prices": prices,
        }
        wanted = "a ContextEngine(limits=model), or limits=, config= and summarizer= by their names"
        expect(engine, ContextEngine | None, "engine", wanted)
        expect(guard, ToolResultGuard | None, "guard", "a ToolResultGuard, or None")
        names = ", ".join(name for name, one in options.items() if one is not None)
        if engine is not None and names:
            raise ConfigError(
                f"engine and {names} were given: set {names} on the engine"
            )
        if engine is None:
            engine = ContextEngine(**options)
        self._engine = engine
        self.guard = guard and guard.within(engine.reporter)
        """Makes the results of tools fit; None leaves them as they are."""
        self._selector = tool_selector
        self._routed = RoutedChatModel(router) if router else None
        self.tools = [
            *(self.guard.tools if self.guard else ()),
            *runnable_tools((), tool_selector),
            *([recall_tool()] if recall else ()),
        ]

    def wrap_model_call(self, request: AgentRequest, handler: Handler) -> AgentResponse:
        """Make the request fit, call the model, and recover when its provider finds the request too large.

        Raises:
            BudgetExceededError: nothing that may leave makes the request fit.
        """
        return run(self._work(request, handler))

    async def awrap_model_call(
        self,
        request: AgentRequest,
        handler: AsyncHandler,
    ) -> AgentResponse:
        """Like `wrap_model_call`, awaiting the model, the summarizer and the store."""
        return await arun(self._work(request, handler))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Handler) -> Any:
        """Call a tool, and make its result fit where there is a guard."""
        if self.guard is None:
            return handler(request)
        return self.guard.wrap_tool_call(request, handler)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: AsyncHandler,
    ) -> Any:
        """Like `wrap_tool_call`, awaiting the tool."""
        if self.guard is None:
            return await handler(request)
        return await self.guard.awrap_tool_call(request, handler)

    def _work(
        self,
        request: AgentRequest,
        handler: Handler,
    ) -> Work[AgentResponse]:
        """Make the request fit, call the model through `handler`, recover, and return the response with its update."""
        if self._routed is not None:
            request = request.override(model=self._routed)
        step = self._step(request)
        response: ModelResponse[Any] = ModelResponse(result=[AIMessage("")])
        if take_step := sought_step.get():
            take_step(step)
            return ExtendedModelResponse(model_response=response)

        def send(attempt: Attempt) -> Work[AIMessage | None]:
            nonlocal response
            call = partial(handler, _asked(request, attempt, step.tools))
            response = yield Wait(call, call)
            answers = [one for one in response.result if isinstance(one, AIMessage)]
            return answers[-1] if answers else None

        yield from step.prepare()
        answer = yield from ModelCall(step, step.call, send).answer()
        # its last AI message in the form that the session refers to: with an id
        result = list(response.result)
        result[max(i for i, one in enumerate(result) if isinstance(one, AIMessage))] = (
            answer
        )
        response = replace(response, result=result)
        step.messages = [*step.messages, *result]
        is_done = not call_ids(answer)
        if request.response_format is not None:  # the answer may have to be made again
            is_done = response.structured_response is not None
        if is_done:
            yield from step.summarize()
        return ExtendedModelResponse(
            model_response=response, command=Command(update=step.stored())
        )

    def _step(self, request: AgentRequest) -> AgentStep:
        model = (
            request.model.bind(**request.model_settings)
            if request.model_settings
            else request.model
        )
        engine = engine_of(self._engine, request.runtime)
        engine.require_summarizer(model)
        return AgentStep(
            state={**request.state, "messages": request.messages},
            engine=engine,
            selector=self._selector,
            system_prompt=request.system_message or "",
            all_tools=with_recall(request.tools, model),
            format_tools=tools_of(request.response_format),
            model=limited_by(engine, model),
            call=model,
            bind=partial(bound_by_agent, request),
            place=place_of(request.runtime),
            stored_messages=request.state["messages"],
        )
