"""A ready ReAct agent on the node set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore

from langchain_ctxwin.agent.choices import require_free_name
from langchain_ctxwin.agent.nodes import ContextNodes
from langchain_ctxwin.agent.state import ContextInput, ContextOutput, ContextState
from langchain_ctxwin.agent.wiring import add_context_nodes
from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.core.limits import ModelLimits, NamedLimits
from langchain_ctxwin.core.model_families import family_of, model_name
from langchain_ctxwin.core.priced_view import PinWhen
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.engine import AfterCompaction, BeforeCompaction, ContextEngine
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.validation import Validator
from langchain_ctxwin.protocols import LimitMemory, TokenCounter
from langchain_ctxwin.routing import RoutedChatModel
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tools import ToolSelector


def create_context_agent(
    model: str | BaseChatModel,
    tools: Sequence[Any],
    *,
    system_prompt: str | SystemMessage = "",
    limits: Any = None,
    config: ContextConfig | LiveConfig | None = None,
    summarizer: Any = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
    counter: TokenCounter | None = None,
    learned: LimitMemory | None = None,
    validator: Validator | None = None,
    pin_when: PinWhen | None = None,
    jobs: SummaryJobs | None = None,
    before_compaction: BeforeCompaction | None = None,
    after_compaction: AfterCompaction | None = None,
    guard: ToolResultGuard | None = None,
    tool_selector: ToolSelector | None = None,
    **compile_options: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a compiled agent whose every request fits the model's window.

    Args:
        model: a chat model, or a string for `init_chat_model` (needs the extra `agents`). With a `RoutedChatModel`
            each request has the limits of the candidate that it goes to, unless `limits` are given.
        tools: functions and `BaseTool`s, which the agent runs, and definitions of tools that the provider runs.
        system_prompt: leads every request.
        limits: the model's limits, where the model does not state them itself.
        config: when to compact and what to keep.
        summarizer: writes summaries; None keeps a record without a model. The same object as the agent's model costs a
            fraction: it is asked by extending the last request, which the provider reads from its cache.
        checkpointer: makes conversations durable.
        store: long-term memory for the tools; it also carries finished summaries between processes.
        counter: counts tokens; by default an estimator for the model's family.
        learned: remembers limits that the provider states, for other agents and processes.
        validator: compares counts with what the provider reports, and samples with exact counts.
        pin_when: says which messages are pinned without a mark, see `ContextEngine`.
        jobs: writes summaries in the background; by default one set of threads for the whole process.
        before_compaction: changes or vetoes compactions, see `ContextEngine`.
        after_compaction: is told about each one, see `ContextEngine`.
        guard: makes the results of tools fit the room that is left; its tool `read_more` is added.
        tool_selector: chooses of its tools those that each request shows, beside `tools`; the agent runs all of them.
        **compile_options: passed to `StateGraph.compile`.

    Raises:
        UnknownModelError: neither the model nor `limits` states a limit.
        ConfigError: an argument is of the wrong type, or `model` is a string and the extra `agents` is not installed.

    Example:
        ```python
        agent = create_context_agent(model, [search], system_prompt="You are ...", checkpointer=InMemorySaver())
        agent.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "1"}})
        ```
    """
    chat = _chat_model(model) if isinstance(model, str) else model
    router = chat.router if isinstance(chat, RoutedChatModel) and limits is None else None
    counted_by = TokenEstimator(family_of(chat)) if counter is None else counter
    engine = ContextEngine(
        _limits(limits, chat),
        counter=counter if router else counted_by,
        summarizer=summarizer,
        config=config,
        learned=learned,
        pin_when=pin_when,
        jobs=jobs,
        before_compaction=before_compaction,
        after_compaction=after_compaction,
    )
    tool_node = _tool_node(_runnable(tools, tool_selector), guard and guard.counting(counted_by))
    bound: list[Any] = [*tool_node.tools_by_name.values(), *(tool for tool in tools if isinstance(tool, dict))]
    nodes = ContextNodes(
        engine,
        system_prompt=system_prompt,
        tools=bound,
        validator=validator,
        tool_selector=tool_selector,
        router=router,
    )
    built = _graph(nodes, chat if tool_selector or not bound else chat.bind_tools(bound), tool_node)
    return built.compile(checkpointer=checkpointer, store=store, **compile_options)


def _graph(nodes: ContextNodes, model: Runnable[Any, Any], tool_node: ToolNode) -> StateGraph[Any, Any, Any, Any]:
    """The loop of model and tools."""
    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    add_context_nodes(builder, nodes, model=model)
    builder.add_node("tools", tool_node)
    builder.add_edge(START, "budget_check")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "maybe_summarize"})
    builder.add_edge("tools", "budget_check")
    return builder


def _runnable(tools: Sequence[Any], selector: ToolSelector | None) -> list[Any]:
    """All tools that the agent runs; of a mere definition the provider runs the tool."""
    if selector is not None:
        require_free_name(selector, tools)
        tools = [*tools, *selector.tools, selector.search_tools]
    return [tool for tool in tools if not isinstance(tool, dict)]


def _tool_node(tools: Sequence[Any], guard: ToolResultGuard | None) -> ToolNode:
    if guard is None:
        return ToolNode(tools)
    return ToolNode(
        [*guard.others(tools), *guard.tools],
        wrap_tool_call=guard.wrap_tool_call,
        awrap_tool_call=guard.awrap_tool_call,
    )


def _limits(limits: Any, chat: BaseChatModel) -> Any:
    if limits is None:
        return chat
    return limits if model_name(limits) else NamedLimits(ModelLimits.of(limits), model_name(chat))


def _chat_model(name: str) -> BaseChatModel:
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415  # optional package, only for strings
    except ImportError as error:
        raise ConfigError(
            f"model={name!r} is a string: install langchain-ctxwin[agents] or pass a chat model"
        ) from error
    chat: BaseChatModel = init_chat_model(name)
    return chat
