"""`ContextWindowMiddleware`: makes each request of an agent fit the model it goes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Any, Self

import structlog
from langchain.agents.middleware.types import (
    AgentMiddleware,
    ContextT,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ResponseT,
    ToolCallRequest,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.types import Command

from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_families import family_of, model_name
from langchain_ctxwin.core.survey import PinWhen
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.engine import AfterCompaction, BeforeCompaction, ContextEngine
from langchain_ctxwin.errors import ConfigError, UnknownModelError
from langchain_ctxwin.flow.choices import Choices, asked_by, limited_by, unknown_tools
from langchain_ctxwin.flow.exchange import Attempt, Exchange, ModelExchange, arun_exchange, run_exchange
from langchain_ctxwin.flow.histories import Histories, place_of
from langchain_ctxwin.flow.state import State, Update, turn_is_finished
from langchain_ctxwin.flow.steps import Flow
from langchain_ctxwin.measurer import check_collaborators, shown
from langchain_ctxwin.memo import HeardLimits, Marks
from langchain_ctxwin.middleware.agent_state import SESSION_KEYS, ContextKeys
from langchain_ctxwin.observe.validation import Validator
from langchain_ctxwin.protocols import LimitMemory, TokenCounter
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.summarize import SummaryJobs, as_summarizer
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.util.memo import Lru, Seen, once


class AgentCall:
    """One model call of an agent: its request, and what the session learns on the way."""

    def __init__(
        self,
        engine: ContextEngine,
        request: ModelRequest[Any],
        model: Any,
        format_tools: list[Any],
        *,
        limited_by: Callable[[Any], Any],
        choices: Choices,
        histories: Histories,
    ) -> None:
        self.flow = Flow(engine, self._measure, choices, self._called, histories)
        self.place = place_of(request.runtime, lambda: request.system_message or "")
        stored: State = request.state
        self.state: Update = {key: stored[key] for key in SESSION_KEYS if key in stored}
        self.state["messages"] = request.messages
        self._request = request
        self._model = model
        self._limited_by = limited_by
        self._format_tools = format_tools
        self._answer: ModelResponse[Any] = ModelResponse(result=[])
        self._update: Update = {}

    def note(self, update: Update) -> None:
        """Take up what a step found out; an answer joins the history together with what came with it."""
        news = {key: value for key, value in update.items() if key != "messages"}
        self._update |= news
        self.state |= news
        if "messages" in update:
            self._answer = replace(self._answer, result=_with_answer(self._answer.result, update["messages"][-1]))
            self.state["messages"] = [*self.state["messages"], *self._answer.result]

    def exchange(self, validator: Validator | None) -> Exchange:
        """Return the exchange with the model about this request."""
        return ModelExchange(self.flow, self._model, validator=validator).start(self.state)

    def ask(self, attempt: Attempt) -> ModelRequest[Any]:
        """Return the agent's request with the messages of an attempt."""
        first = attempt.request[0]
        system = first if isinstance(first, SystemMessage) else None
        messages = attempt.request[1:] if system else attempt.request
        settings = {**self._request.model_settings, **attempt.arguments}
        tools = self._tools(self.state)
        return self._request.override(system_message=system, messages=messages, model_settings=settings, tools=tools)

    def hear(self, answer: ModelResponse[Any] | AIMessage) -> AIMessage | None:
        """Keep what the model returned and say which message of it is the answer."""
        self._answer = ModelResponse(result=[answer]) if isinstance(answer, AIMessage) else answer
        return next((m for m in reversed(self._answer.result) if isinstance(m, AIMessage)), None)

    @property
    def ends_turn(self) -> bool:
        """True when the agent has what was asked for: an answer, or the structured response that it was to be."""
        if self._request.response_format is not None:
            return self._answer.structured_response is not None
        return turn_is_finished(self.state)

    def response(self) -> ExtendedModelResponse[Any]:
        """Return what the model returned, together with the update of the session."""
        return ExtendedModelResponse(model_response=self._answer, command=Command(update=self._update))

    def _measure(self, state: State) -> Window:
        return self.flow.engine.measure(
            state["messages"],
            system_prompt=self._request.system_message or "",
            tools=[*self._tools(state), *self._format_tools],
            session=state,
            model=self._limited_by(self.flow.choices.model(state) or self._model),
        )

    def _called(self, state: State) -> Any:
        """What the agent binds for this request; None where that depends on more than model, settings and tools."""
        request, tools, router = self._request, self._tools(state), self.flow.choices.router
        if request.response_format is not None or router is not None or request.tool_choice not in {None, "auto"}:
            return None
        if not tools:
            return self._model
        return request.model.bind_tools(tools, tool_choice=request.tool_choice, **request.model_settings)

    def _tools(self, state: State) -> list[Any]:
        return list(self.flow.choices.tools(state, self._request.tools, only_given=True))


def _with_answer(result: list[Any], answer: AIMessage) -> list[Any]:
    """The messages of a response with its last AI message in the form that the session refers to: with an id."""
    last = max(index for index, message in enumerate(result) if isinstance(message, AIMessage))
    return [*result[:last], answer, *result[last + 1 :]]


def definitions_of(form: Any) -> list[Any]:
    """Function definitions for the schemas of a response format; as a native format they cost about the same."""
    if isinstance(form, ProviderStrategy):
        specs = [form.schema_spec]
    else:
        specs = (form if isinstance(form, ToolStrategy) else ToolStrategy(getattr(form, "schema", form))).schema_specs
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.json_schema},
        }
        for spec in specs
    ]


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


log = structlog.get_logger("langchain_ctxwin")

MAX_ENGINES = 64
"""Models of one agent whose engines are kept: more than any router chooses from; losing one loses time only."""

MAX_FORMATS = 64
"""Response formats whose definitions are kept; nearly every agent has one."""

Handler = Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT] | AIMessage]
AsyncHandler = Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT] | AIMessage]]


class ContextWindowMiddleware(AgentMiddleware[ContextKeys, ContextT, ResponseT]):
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
            states tighter ones. By default there is one engine per model, made from what the model states and from
            the arguments below.
        summarizer: writes summaries; None keeps a record without a model. The same object as the agent's model costs a
            fraction: it is asked by extending the last request, which the provider reads from its cache.
        config: when to compact and what to keep.
        counter: counts tokens; by default an estimator for the model's family.
        learned: remembers limits that providers state, for other agents and processes.
        pin_when: says which messages are pinned without a mark, see `ContextEngine`.
        jobs: writes summaries in the background; by default one set of threads for the whole process.
        before_compaction: changes or vetoes compactions, see `ContextEngine`.
        after_compaction: is told about each one, see `ContextEngine`.
        validator: compares counts with what providers report, and samples with exact counts.
        guard: makes the results of tools fit the room that is left; its tool `read_more` is added to the agent.
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

    Raises:
        ConfigError: `engine` was given together with an argument that belongs to an engine, or an argument is of the
            wrong type.
        UnknownModelError: at the first call, when neither the model nor `engine` states a limit.
    """

    state_schema = ContextKeys

    def __new__(cls, *_: Any, guard: ToolResultGuard | None = None, **__: Any) -> Self:
        """With a guard, make one that stands around tool calls too: LangChain looks at the class for that."""
        kind: Any = cls
        made: Self = super().__new__(guarding(kind) if guard is not None else kind)
        return made

    def __init__(
        self,
        engine: ContextEngine | None = None,
        *,
        summarizer: Any = None,
        config: ContextConfig | LiveConfig | None = None,
        counter: TokenCounter | None = None,
        learned: LimitMemory | None = None,
        pin_when: PinWhen | None = None,
        jobs: SummaryJobs | None = None,
        before_compaction: BeforeCompaction | None = None,
        after_compaction: AfterCompaction | None = None,
        validator: Validator | None = None,
        guard: ToolResultGuard | None = None,
        tool_selector: ToolSelector | None = None,
        router: ModelRouter | None = None,
    ) -> None:
        super().__init__()
        options = {
            "summarizer": summarizer,
            "config": config,
            "counter": counter,
            "learned": learned,
            "pin_when": pin_when,
            "jobs": jobs,
            "before_compaction": before_compaction,
            "after_compaction": after_compaction,
        }
        _check(engine, validator, guard, **options)
        given = [name for name, value in options.items() if value is not None]
        if engine is not None and given:
            raise ConfigError(f"engine and {', '.join(given)} were given: set {', '.join(given)} on the engine")
        self.validator = validator
        """Watches how far off the counts are; None watches nothing."""
        self.guard = guard
        """Makes the results of tools fit; None leaves them as they are."""
        Choices(router=router, selector=tool_selector)  # refuses what cannot choose now, not at the first call
        self._selector = tool_selector
        self.tools = [*(guard.tools if guard else ()), *_runnable(tool_selector)]
        self._routed = RoutedChatModel(router) if router else None
        self._engine = engine
        self._warned = Seen()
        # What one model's provider stated is remembered by model, so the engines of all models can share it.
        self._options: dict[str, Any] = {**options, "learned": learned or HeardLimits()}
        self._engines: Lru[ContextEngine] = Lru(MAX_ENGINES)
        self._histories: Lru[Histories] = Lru(MAX_ENGINES)
        self._formats: Lru[tuple[Any, list[Any]]] = Lru(MAX_FORMATS)

    def wrap_model_call(
        self, request: ModelRequest[ContextT], handler: Handler[ContextT, ResponseT]
    ) -> ExtendedModelResponse[ResponseT]:
        """Make the request fit, call the model, and recover when its provider finds the request too large.

        Raises:
            BudgetExceededError: nothing that may leave makes the request fit.
        """
        call = self._call(request)
        call.note(call.flow.before(call.state, call.place))
        call.note(run_exchange(call.exchange(self.validator), lambda attempt: call.hear(handler(call.ask(attempt)))))
        if call.ends_turn:
            call.note(call.flow.summarize(call.state, call.place))
        return call.response()

    async def awrap_model_call(
        self, request: ModelRequest[ContextT], handler: AsyncHandler[ContextT, ResponseT]
    ) -> ExtendedModelResponse[ResponseT]:
        """Like `wrap_model_call`, awaiting the model, the summarizer and the store."""
        call = self._call(request)

        async def send(attempt: Attempt) -> AIMessage | None:
            return call.hear(await handler(call.ask(attempt)))

        call.note(await call.flow.abefore(call.state, call.place))
        call.note(await arun_exchange(call.exchange(self.validator), send))
        if call.ends_turn:
            call.note(await call.flow.asummarize(call.state, call.place))
        return call.response()

    def _call(self, request: ModelRequest[ContextT]) -> AgentCall:
        if self._routed is not None:
            request = request.override(model=self._routed)
        model = request.model.bind(**request.model_settings) if request.model_settings else request.model
        engine = self._engine_of(model)
        self._warn_of_unknown(engine.config, request.tools)
        return AgentCall(
            engine,
            request,
            model,
            self._format_tools(request),
            limited_by=self._limits_of,
            choices=self._choices_of(request),
            histories=once(self._histories, engine, lambda: Histories(engine)),
        )

    def _warn_of_unknown(self, config: ContextConfig, tools: list[Any]) -> None:
        """Say once that a setting names a tool that is not there; no error, because other middleware may hide tools."""
        fault = unknown_tools(config, tools, self._selector)
        if fault and self._warned.is_new(fault):
            log.warning("config.tools_unknown", reason=fault)

    def _choices_of(self, request: ModelRequest[ContextT]) -> Choices:
        """The choices for one request; a routed model brings its router along."""
        router = request.model.router if isinstance(request.model, RoutedChatModel) else None
        choices = Choices(router=router, selector=self._selector)
        requires = ("structured_output",) if isinstance(request.response_format, ProviderStrategy) else ()
        choices.asked = asked_by(request.model, request.model_settings, requires)
        return choices

    def _limits_of(self, model: Any) -> Any:
        """What the request has to fit: the model, or the limits that were set on the engine where they are tighter."""
        return model if self._engine is None else limited_by(self._engine, model)

    def _engine_of(self, model: Any) -> ContextEngine:
        """The engine that was given, or the one of this model; two threads at once may both make it, to no harm."""
        if self._engine is not None:
            return self._engine
        key = (model_name(model), family_of(model), ModelLimits.of(model))
        try:
            return once(self._engines, key, lambda: ContextEngine(limits=model, **self._options))
        except UnknownModelError as error:
            raise UnknownModelError(
                f"the model {model_name(model)!r} states no context window: pass "
                "ContextWindowMiddleware(ContextEngine(limits=ModelLimits(context_window=...))), or give the model a "
                "profile that states max_input_tokens"
            ) from error

    def _format_tools(self, request: ModelRequest[ContextT]) -> list[Any]:
        """The definitions that a response format adds to the request."""
        form = request.response_format
        # The value keeps the format alive, so an id in the key cannot come to mean another one.
        return once(self._formats, id(form), lambda: (form, definitions_of(form)))[1] if form is not None else []


def _runnable(selector: ToolSelector | None) -> list[Any]:
    """The tools of a selector that the agent runs; of a definition alone the provider runs the tool."""
    tools = [*selector.tools, selector.search_tools] if selector else []
    return [tool for tool in tools if not isinstance(tool, dict)]


def _check(engine: Any, validator: Any, guard: Any, *, summarizer: Any, pin_when: Any, **collaborators: Any) -> None:
    """Raise `ConfigError` for arguments that would fail at the first call."""
    if not isinstance(engine, ContextEngine | None):
        raise ConfigError(f"engine={shown(engine)} is no ContextEngine: {_instead_of(engine)}")
    if not isinstance(validator, Validator | None):
        raise ConfigError(f"validator={shown(validator)}: pass a Validator, or None")
    if not isinstance(guard, ToolResultGuard | None):
        raise ConfigError(f"guard={shown(guard)}: pass a ToolResultGuard, or None")
    check_collaborators(**collaborators)
    as_summarizer(summarizer)
    Marks(pin_when)


def _instead_of(engine: Any) -> str:
    """What to pass in the place of what was given as the engine."""
    if isinstance(engine, ContextConfig):
        return "pass ContextWindowMiddleware(config=...)"
    if isinstance(engine, ModelLimits):
        return "pass ContextWindowMiddleware(ContextEngine(limits=...))"
    return (
        "leave it out to take the limits of each request's model, or pass ContextWindowMiddleware(ContextEngine("
        "limits=model)); a model that writes summaries is passed as summarizer=model"
    )
