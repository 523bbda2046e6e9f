"""A ready ReAct agent on the node set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore
from langgraph.types import Checkpointer

from langchain_ctxwin.agent.choices import (
    checked_tools,
    router_of,
    runnable_tools,
    with_recall,
)
from langchain_ctxwin.agent.nodes import ContextNodes, add_context_nodes
from langchain_ctxwin.agent.state import ContextState, State
from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.core.limits import NamedLimits, limits_given
from langchain_ctxwin.core.model_info import family_of, model_name
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.turns import PinWhen
from langchain_ctxwin.engine import ContextEngine, is_registry
from langchain_ctxwin.errors import expect
from langchain_ctxwin.observe.validation import Validator
from langchain_ctxwin.protocols import LimitMemory, MetricsSink, TokenCounter
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.util.chat_models import chat_model_named


def create_context_agent(
    model: str | BaseChatModel,
    tools: Sequence[Any],
    *,
    system_prompt: str | SystemMessage = "",
    limits: Any = None,
    config: ContextConfig | LiveConfig | None = None,
    summarizer: Any = None,
    checkpointer: Checkpointer = None,
    store: BaseStore | None = None,
    counter: TokenCounter | None = None,
    learned: LimitMemory | None = None,
    validator: Validator | None = None,
    pin_when: PinWhen | None = None,
    jobs: SummaryJobs | None = None,
    sinks: Iterable[MetricsSink] = (),
    prices: Any = None,
    guard: ToolResultGuard | None = None,
    recall: bool = True,
    tool_selector: ToolSelector | None = None,
    state_schema: type[Any] = ContextState,
    context_schema: type[Any] | None = None,
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
            "native" has the model's provider write a block of its own.
        checkpointer: makes conversations durable; True lets an agent that is a subgraph remember its view.
        store: long-term memory for the tools; it also carries finished summaries between processes.
        counter: counts tokens; by default an estimator for the model's family.
        learned: remembers limits that the provider states, for other agents and processes.
        validator: compares counts with what the provider reports.
        pin_when: says which messages are pinned without a mark, see `ContextEngine`.
        jobs: writes summaries in the background; by default one set of threads for the whole process.
        sinks: take the events of `langchain_ctxwin.observe`; also those of a `guard` that has none of its own.
        prices: of models, for the costs in events, see `ContextEngine`.
        guard: makes the results of tools fit the room that is left; its tool `read_more` is added.
        recall: give the agent the tool `recall`, by which it reads what left its view; it takes some 200 tokens.
        tool_selector: chooses of its tools those that each request shows, beside `tools`; the agent runs all of them.
        state_schema: the state with keys of your own, such as a subclass of `ContextState`; callers set and get them.
        context_schema: what a run is given beside its state, see `StateGraph`.
        **compile_options: passed to `StateGraph.compile`, such as `name`, `interrupt_before` or `cache`.

    Raises:
        UnknownModelError: neither the model nor `limits` states a limit.
        ConfigError: an argument is of the wrong type, `state_schema` keeps no history, or `model` is a
            string and the extra `agents` is not installed.

    Examples:
        ```python
        agent = create_context_agent(
            model, [search], system_prompt="You are ...", checkpointer=InMemorySaver()
        )
        agent.invoke(
            {"messages": [("user", "hi")]}, {"configurable": {"thread_id": "1"}}
        )
        ```
    """
    is_guard = guard is None or hasattr(guard, "within")
    expect(guard, object if is_guard else (), "guard", "a ToolResultGuard, or None")
    chat, tools = _chat_model(model), checked_tools(tools)
    tools = with_recall(tools, chat) if recall else tools
    router = router_of(chat) if limits is None else None
    counted_by = counter or TokenEstimator(family_of(chat))
    engine = ContextEngine(
        _limits(limits, chat),
        counter=counter if router else counted_by,
        summarizer=summarizer,
        config=config,
        learned=learned,
        pin_when=pin_when,
        jobs=jobs,
        sinks=sinks,
        prices=prices,
    )
    tool_node = _tool_node(
        runnable_tools(tools, tool_selector),
        guard and guard.within(engine.reporter, counted_by),
    )
    bound: list[Any] = [
        *tool_node.tools_by_name.values(),
        *(tool for tool in tools if isinstance(tool, dict)),
    ]
    node_options: dict[str, Any] = {
        "validator": validator,
        "tool_selector": tool_selector,
        "router": router,
    }
    nodes = ContextNodes(
        engine, system_prompt=system_prompt, tools=bound, **node_options
    )
    call = chat if tool_selector or not bound else chat.bind_tools(bound)
    graph = _graph(StateGraph(state_schema, context_schema), nodes, call, tool_node)
    return graph.compile(checkpointer=checkpointer, store=store, **compile_options)


def _graph(
    builder: StateGraph[Any, Any, Any, Any],
    nodes: ContextNodes,
    model: Runnable[Any, Any],
    tool_node: ToolNode,
) -> StateGraph[Any, Any, Any, Any]:
    """The loop of model and tools."""
    final = [
        name for name, tool in tool_node.tools_by_name.items() if tool.return_direct
    ]
    add_context_nodes(builder, nodes, model=model)
    builder.add_node("tools", tool_node)
    builder.add_edge(START, "budget_check")
    builder.add_conditional_edges(
        "agent", tools_condition, {"tools": "tools", END: "maybe_summarize"}
    )
    if final:
        builder.add_conditional_edges(
            "tools", partial(_after_tools, final), ["budget_check", "maybe_summarize"]
        )
    else:
        builder.add_edge("tools", "budget_check")
    return builder


def _after_tools(final: Collection[str], state: State) -> str:
    """Where the agent goes on: a tool that returns directly has the last word."""
    newest = takewhile(
        lambda message: isinstance(message, ToolMessage), reversed(state["messages"])
    )
    return (
        "maybe_summarize"
        if any(message.name in final for message in newest)
        else "budget_check"
    )


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
    if is_registry(limits) or model_name(limits):
        return limits
    return NamedLimits(limits_given(limits), model_name(chat))


def _chat_model(name: str | BaseChatModel) -> BaseChatModel:
    if not isinstance(name, str):
        chat: BaseChatModel = expect(
            name, Runnable, "model", "a chat model, or its name such as 'provider:name'"
        )
        return chat
    return chat_model_named(name, "model")
