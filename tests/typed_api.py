"""Do the public signatures have the promised types? Checked by mypy in strict mode, never run."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, assert_type

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from langchain_ctxwin import (
    BudgetedCompressor,
    BudgetedRetriever,
    BudgetExceededError,
    CharRatioCounter,
    Compaction,
    ConfigError,
    ContextConfig,
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextOverflow,
    ContextState,
    ContextWindowError,
    CursorError,
    CursorSigner,
    FileConfig,
    Fitted,
    ModelInfo,
    ModelLimits,
    ModelRegistry,
    ModelRouter,
    RetrievalResult,
    RoutedChatModel,
    RoutingConfig,
    SummarizationError,
    ThreadCompaction,
    TokenBudget,
    TokenEstimator,
    ToolOverrides,
    ToolResultConfig,
    ToolResultGuard,
    ToolSelector,
    UnknownModelError,
    Window,
    __version__,
    acompact,
    add_context_nodes,
    aundo,
    classify_overflow,
    compact,
    create_context_agent,
    undo,
)
from langchain_ctxwin.core.events import Event
from langchain_ctxwin.core.turns import Turn
from langchain_ctxwin.decompose import create_map_reduce_graph
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from langchain_ctxwin.models.sources import ExplicitSource
from langchain_ctxwin.observe import (
    AlertConfig,
    AlertEvent,
    Alerts,
    LogSink,
    MemorySink,
    StepEvent,
    StreamSink,
)
from langchain_ctxwin.protocols import (
    MetricsSink,
    TokenCounter,
)
from langchain_ctxwin.routing import Route
from langchain_ctxwin.tool_results import Cursor
from langchain_ctxwin.tool_results.stores import MemoryResultStore
from langchain_ctxwin.tools import ToolSelection


def counters(
    messages: list[AnyMessage], tools: Sequence[BaseTool]
) -> list[TokenCounter]:
    """Our counters and LangChain's own have the same shape."""
    estimator = TokenEstimator(family="generic", margin=0.0)
    assert_type(estimator.count_text("text"), int)
    assert_type(estimator(messages, tools=tools), int)
    assert_type(CharRatioCounter(chars_per_token=4.0, margin=0.0)(messages), int)
    return [estimator, CharRatioCounter(), count_tokens_approximately]


async def engine(
    model: BaseChatModel, tools: Sequence[BaseTool], messages: list[AnyMessage]
) -> list[AnyMessage]:
    """One step is measure, plan, apply, build."""
    ContextEngine(limits=model, summarizer=model)
    limits = ModelLimits(context_window=8192)
    fitted = ContextEngine(limits).fit(
        [("user", "Hi"), {"role": "user", "content": "Hi"}, "Hi"], session=None
    )
    assert_type(fitted, Fitted)
    assert_type(fitted.request, list[AnyMessage])
    assert_type(fitted.session, dict[str, Any])
    assert_type(fitted.report, dict[str, Any])
    agent_engine = ContextEngine(
        limits=limits, counter=TokenEstimator(), summarizer=None, config=ContextConfig()
    )
    session: dict[str, Any] = {"context_summary": ""}
    window = agent_engine.measure(
        messages, system_prompt="You are ...", tools=tools, session=session, model=model
    )
    assert_type(window, Window)
    assert_type(window.budget, TokenBudget)
    assert_type(window.over_by, int)
    assert_type(window.turns, tuple[Turn, ...])
    assert_type(window.report, dict[str, Any])
    plan = agent_engine.plan(window) or agent_engine.emergency(
        window, target_tokens=4096
    )
    assert_type(plan, Compaction | None)
    if plan is not None:
        session |= agent_engine.apply(plan, window) | await agent_engine.aapply(
            plan, window
        )
        assert_type(plan.tokens_after, int)
    return agent_engine.build(window)


def node_set(
    context_engine: ContextEngine,
    model: BaseChatModel,
    tools: list[BaseTool],
    state: ContextState,
) -> None:
    """The nodes go into a graph of one's own."""
    nodes = ContextNodes(
        context_engine, system_prompt=SystemMessage("You are ..."), tools=tools
    )
    builder = StateGraph(
        ContextState, input_schema=ContextInput, output_schema=ContextOutput
    )
    add_context_nodes(builder, nodes, model_node="agent", model=model)
    builder.add_edge(START, "budget_check")
    builder.compile(checkpointer=InMemorySaver())
    assert_type(nodes.model_input(state), list[AnyMessage])
    assert_type(nodes.retry_on(ValueError(nodes.route_on_budget(state))), bool)


def ready_agent(model: BaseChatModel, tools: list[BaseTool]) -> None:
    """The ready agent takes the common parts by keyword."""
    agent = create_context_agent(
        model,
        tools,
        system_prompt="You are ...",
        limits=ModelLimits(context_window=8192),
        config=ContextConfig(trigger=0.9, clear_tools=("search",)),
        summarizer=None,
        checkpointer=InMemorySaver(),
        store=None,
    )
    agent.invoke({"messages": [HumanMessage("Hello")]})


async def steering(
    agent: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig
) -> None:
    """A host that compacts threads."""
    assert_type(
        compact(agent, config, focus="the refund", preview=True),
        ThreadCompaction | None,
    )
    assert_type(await acompact(agent, config), ThreadCompaction | None)
    undo(agent, config)
    await aundo(agent, config)


def langchains_agent(
    model: BaseChatModel, tools: list[BaseTool], engine: ContextEngine
) -> None:
    """The middleware takes an engine, or what an engine takes, or nothing."""
    ContextWindowMiddleware(engine, router=None)
    ContextWindowMiddleware(summarizer=model, counter=count_tokens_approximately)
    agent = create_agent(
        model,
        tools,
        middleware=[ContextWindowMiddleware()],
        state_schema=ContextAgentState,
    )
    agent.invoke({"messages": [HumanMessage("Hello")]})


async def retrieval(base: BaseRetriever, documents: list[Document]) -> None:
    """A retriever and a compressor with a budget, and their settings."""
    retriever = BudgetedRetriever(
        base=base, max_context_tokens=2048, score="score", k=5, counter=None
    )
    BudgetedRetriever(
        base=base, score=lambda document: float(document.metadata["rank"])
    )
    assert_type(retriever.retrieve("question"), RetrievalResult)
    result = await retriever.aretrieve("question")
    assert_type(result.documents, tuple[Document, ...])
    assert_type(result.truncated, bool)
    assert_type(result.tokens, int)
    compressor = BudgetedCompressor(max_context_tokens=2048)
    compressor.compress_documents(documents, "question")


async def tool_results(
    tools: Sequence[BaseTool], scope: Callable[[Any], str]
) -> list[BaseTool]:
    """A guard wraps tools and tool calls; cursors and stores are typed."""
    config = ToolResultConfig(
        max_tokens=2000, per_tool={"search": ToolOverrides(max_tokens=500)}
    )
    assert_type(config.for_tool("search"), ToolResultConfig)
    assert_type(FileConfig().tool_results, ToolResultConfig)
    signer = CursorSigner(["old", "new"], ttl_seconds=600)
    guard = ToolResultGuard(
        config,
        signer=signer,
        store=MemoryResultStore(),
        counter=TokenEstimator(),
        scope=scope,
    )
    assert_type(ToolResultGuard().tools, list[BaseTool])
    cursor = signer.sign(Cursor("search", "digest", "thread", "r1", 40))
    assert_type(cursor, str)
    assert_type(signer.peek(cursor), str)
    assert_type(
        signer.verify(cursor, tool="search", args_digest="digest", thread="thread"),
        Cursor,
    )
    assert_type(guard.read(cursor, contains="text", fields=["id"]), str)
    assert_type(await guard.aread(cursor), str)
    return guard.wrap(tools)


async def choosing_models(chat: BaseChatModel, agent_tools: list[Any]) -> ContextEngine:
    """Registry, router, routed model and tool selector, with their results."""
    registry = ModelRegistry(
        [ExplicitSource({"small": 8_192})], ttl_seconds=60, allow_guess=True
    )
    assert_type(registry.lookup("small"), ModelInfo)
    assert_type(await registry.alookup(chat), ModelInfo)
    assert_type(registry.models("maker"), list[ModelInfo])
    config = RoutingConfig(complexity="medium")
    router = ModelRouter(
        [chat, "openai:some-model", registry.lookup("small")],
        registry,
        config,
        counter=TokenEstimator(),
    )
    route = router.route([HumanMessage("hi")], agent_tools)
    assert_type(route, Route)
    assert_type(route.estimated_cost, Decimal | None)
    assert_type(route.rejected, Mapping[str, str])
    router.record(route, success=True)
    routed: BaseChatModel = RoutedChatModel(router)
    selector = ToolSelector(agent_tools, 4_000, always=["ask_user"])
    selection = await selector.aselect([HumanMessage("hi")], previous=["ask_user"])
    assert_type(selection, ToolSelection)
    assert_type(
        (selection.selected, selection.deferred, selection.tokens),
        tuple[tuple[Any, ...], tuple[Any, ...], int],
    )
    create_context_agent(routed, [], tool_selector=selector)
    ContextWindowMiddleware(router=router, tool_selector=selector)
    create_map_reduce_graph(routed, max_concurrency=4)
    return ContextEngine(limits=registry.lookup("small"), learned=registry)


def events(chat: BaseChatModel) -> list[StepEvent]:
    """Sinks, and what they are told."""

    class Printed:
        def emit(self, event: Event) -> None:
            assert_type(event.to_dict(), dict[str, Any])

    sink = MemorySink(max_events=100)
    sinks: list[MetricsSink] = [sink, LogSink(), StreamSink(steps=True), Printed()]
    create_context_agent(
        chat, [], sinks=sinks, prices=lambda name: ModelInfo(name=name)
    )
    alerts = Alerts(AlertConfig(utilization=0.8), then=sink.emit)
    ModelRegistry([], sinks=[alerts])
    assert_type(alerts.active, tuple[AlertEvent, ...])
    assert_type(sink.events, list[Event])
    for step in sink.of(StepEvent):
        assert_type(step.utilization, float | None)
        assert_type(step.cost, Decimal | None)
    return sink.of(StepEvent)


def models_and_errors(info: ModelInfo, error: Exception) -> str:
    """Model facts, overflow facts and the error tree."""
    assert_type(info.limits, ModelLimits)
    overflow = classify_overflow(error)
    assert_type(overflow, ContextOverflow | None)
    if overflow is not None:
        assert_type(overflow.limit, int | None)
        assert_type(overflow.actual, int | None)
        assert_type(overflow.requested_output, int | None)
    if isinstance(error, BudgetExceededError):
        assert_type(error.report, dict[str, object])
    family: tuple[type[ContextWindowError], ...] = (
        SummarizationError,
        UnknownModelError,
        ConfigError,
        CursorError,
    )
    return f"{family} {assert_type(__version__, str)}"
