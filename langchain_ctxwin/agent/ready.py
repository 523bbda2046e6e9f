"""A ready ReAct agent on the node set, and what a host does to a thread of an agent: `compact`, `undo`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore
from langgraph.types import Checkpointer

from langchain_ctxwin.agent.nodes import (
    Builder,
    ContextNode,
    ContextNodes,
    add_context_nodes,
)
from langchain_ctxwin.agent.state import ContextState
from langchain_ctxwin.agent.step import AgentStep, router_of
from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.core.compaction import after_undo, dropped_positions
from langchain_ctxwin.core.model_info import unbound
from langchain_ctxwin.core.session import Json, State
from langchain_ctxwin.core.tool_schemas import listed, name_of
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import (
    ConfigError,
    ContextWindowError,
    SummarizationError,
    brief,
    expect,
)
from langchain_ctxwin.protocols import LimitMemory, MetricsSink, TokenCounter
from langchain_ctxwin.recall import create_recall_tool
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.tool_results import ToolResultGuard
from langchain_ctxwin.tools import ToolSelector
from langchain_ctxwin.util.chat_models import chat_model_named
from langchain_ctxwin.util.work import Wait, Work, arun, run

T = TypeVar("T")


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
            each request has the limits of the candidate that it goes to, or `limits` where those are smaller.
        tools: functions and `BaseTool`s, which the agent runs, and definitions of tools that the provider runs.
        system_prompt: leads every request.
        limits: the model's limits, where the model does not state them itself.
        config: when to compact and what to keep.
        summarizer: writes summaries; None keeps a record without a model. The same object as the agent's model costs a
            fraction: it is asked by extending the first part of the last request, which the provider has cached.
            "native" has the model's provider write a block of its own.
        checkpointer: makes conversations durable; True lets an agent that is a subgraph remember its view.
        store: long-term memory for the tools; it also carries finished summaries between processes.
        counter: counts tokens; by default an estimator for the model's family.
        learned: remembers limits that the provider states, for other agents and processes.
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
    expect(guard, ToolResultGuard | None, "guard", "a ToolResultGuard, or None")
    wanted = "a chat model, or its name such as 'provider:name'"
    chat = chat_model_named(model, "model") if isinstance(model, str) else model
    expect(chat, Runnable, "model", wanted)
    tools = listed(tools)
    tools = with_recall([*tools, recall_tool()], chat) if recall else tools
    engine = ContextEngine(
        chat if limits is None else limits,
        counter=counter,
        summarizer=summarizer,
        config=config,
        learned=learned,
        jobs=jobs,
        sinks=sinks,
        prices=prices,
    )
    tool_node = _tool_node(
        runnable_tools(tools, tool_selector),
        guard and guard.within(engine.reporter),
    )
    bound: list[Any] = [
        *tool_node.tools_by_name.values(),
        *(tool for tool in tools if isinstance(tool, dict)),
    ]
    nodes = ContextNodes(
        engine,
        system_prompt=system_prompt,
        tools=bound,
        tool_selector=tool_selector,
    )
    call = chat if tool_selector or not bound else chat.bind_tools(bound)
    graph = _graph(StateGraph(state_schema, context_schema), nodes, call, tool_node)
    return graph.compile(checkpointer=checkpointer, store=store, **compile_options)


def _graph(
    builder: Builder,
    nodes: ContextNodes,
    model: Runnable[Any, Any],
    tool_node: ToolNode,
) -> Builder:
    """The loop of model and tools."""
    add_context_nodes(builder, nodes, model=model)
    builder.add_node("tools", tool_node)
    builder.add_edge(START, "budget_check")
    builder.add_conditional_edges(
        "agent", tools_condition, {"tools": "tools", END: "maybe_summarize"}
    )
    tools = tool_node.tools_by_name
    final = [name for name, tool in tools.items() if tool.return_direct]
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
    is_final = any(message.name in final for message in newest)
    return "maybe_summarize" if is_final else "budget_check"


def _tool_node(tools: Sequence[Any], guard: ToolResultGuard | None) -> ToolNode:
    if guard is None:
        return ToolNode(tools)
    return ToolNode(
        [*guard.tools, *guard.others(tools)],
        wrap_tool_call=guard.wrap_tool_call,
        awrap_tool_call=guard.awrap_tool_call,
    )


def runnable_tools(tools: Sequence[Any], selector: ToolSelector | None) -> list[Any]:
    """Return all tools that an agent runs itself, without mere definitions, whose tools the provider runs."""
    expect(selector, ToolSelector | None, "tool_selector", "a ToolSelector, or None")
    if selector is not None:
        tools = [*tools, *selector.tools, selector.search_tools]
    return [tool for tool in tools if not isinstance(tool, dict)]


@cache
def recall_tool() -> BaseTool:
    """Return the tool by which agents read what left their view."""
    return create_recall_tool()


def with_recall(tools: Sequence[Any], model: Any) -> list[Any]:
    """Return tools, of which the recall tool comes last, or is left out.

    It is left out where the model takes no tools, or where one of the others has its name.
    """
    ours, none = recall_tool(), BaseChatModel.bind_tools
    others = [tool for tool in tools if tool is not ours]
    router = router_of(model)
    models = [one.model for one in router.candidates] if router else [model]
    takes_tools = all(
        getattr(type(unbound(one)), "bind_tools", none) is not none
        for one in models
        if isinstance(one, Runnable)
    )
    is_alone = ours.name not in map(name_of, others)
    is_kept = len(others) < len(tools) and takes_tools and is_alone
    return [*others, ours] if is_kept else others


# ---- a host compacts a thread between its runs, sees before what would leave, or takes it back ----------------------

sought_step: ContextVar[Callable[[AgentStep], None] | None] = ContextVar(
    "sought_step", default=None
)
"""Called by the middleware with the step of a model call, which is not made then."""


class LeftMessage(NamedTuple):
    """A message that leaves the view; it stays in the history.

    Attributes:
        id: Id of the message.
        kind: `human`, `ai`, `tool` or `system`.
        tokens: What it took of the request.
    """

    id: str
    kind: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCompaction:
    """What a compaction of a thread did, or would do.

    Attributes:
        reason: Why, in words.
        tokens_before: Input tokens of the next request before it.
        tokens_after: Input tokens of the next request after it.
        left: The messages that are no longer shown.
        record: The record as the model sees it afterwards.
        summary: The summary as the model sees it afterwards; in a preview the summary so far, where a model would write
            a new one.
    """

    reason: str
    tokens_before: int
    tokens_after: int
    left: tuple[LeftMessage, ...]
    record: str
    summary: str


def compact(
    agent: Any, config: RunnableConfig, *, focus: str = "", preview: bool = False
) -> ThreadCompaction | None:
    """Compact a thread now, down to half of `ContextConfig.keep`, although its next request may fit.

    The thread must be idle. Where a model writes summaries it is called, within this call.

    Args:
        agent: the compiled graph, with its checkpointer: one with `ContextNodes`, what `create_context_agent` returns,
            or a `create_agent` agent with `ContextWindowMiddleware`.
        config: names the thread: `{"configurable": {"thread_id": "42"}}`.
        focus: what matters most from now on, in a few words. Lines of the record that share most of its words are kept
            first, and a model that writes summaries finds the focus in its prompt. A summarizer class of your own
            does not get it.
        preview: change nothing, call no model, and return what would happen.

    Returns:
        What left; None when a compaction would free less than a tenth of the request.

    Raises:
        ConfigError: the graph has no checkpointer, or none of our nodes and no middleware, or the config no thread.
        ContextWindowError: the thread does not exist, is in the middle of a run, or was never answered by an agent with
            the middleware.
        SummarizationError: the summarizer failed; the thread keeps its view.

    Examples:
        ```python
        thread = {"configurable": {"thread_id": "42"}}
        print(
            compact(agent, thread, focus="the refund of order 8812", preview=True).left
        )
        compact(agent, thread, focus="the refund of order 8812")
        undo(agent, thread)
        ```
    """
    return _in_thread(
        config, lambda: run(_compacting(agent, config, focus, is_preview=preview))
    )


async def acompact(
    agent: Any, config: RunnableConfig, *, focus: str = "", preview: bool = False
) -> ThreadCompaction | None:
    """Like `compact`, awaiting the checkpointer and the summarizer."""
    return await _in_thread(
        config,
        lambda: asyncio.create_task(
            arun(_compacting(agent, config, focus, is_preview=preview))
        ),
    )


def undo(agent: Any, config: RunnableConfig) -> None:
    """Bring back the view before the latest compaction of a thread: one step, also where the agent compacted by itself.

    Where the next request does not fit with that view, it is compacted again.

    Args:
        agent: the compiled graph, as for `compact`.
        config: names the thread.

    Raises:
        ConfigError: as for `compact`.
        ContextWindowError: there is nothing to undo, or messages of that view were edited or removed since; the thread
            does not exist, or is in the middle of a run.
    """
    _in_thread(config, lambda: run(_undoing(agent, config)))


async def aundo(agent: Any, config: RunnableConfig) -> None:
    """Like `undo`, awaiting the checkpointer."""
    await _in_thread(config, lambda: asyncio.create_task(arun(_undoing(agent, config))))


def _in_thread(config: Any, work: Callable[[], T]) -> T:
    """Do the work where events find the thread that they are about."""
    expect(config, dict, "config", WANTED_CONFIG)
    with set_config_context(config) as context:
        return context.run(work)


def _compacting(
    agent: Any, config: Any, focus: str, *, is_preview: bool
) -> Work[ThreadCompaction | None]:
    step = yield from _step_of(agent, config)
    engine, window = step.engine, step.window
    compaction = engine.on_request(window, focus=focus)
    if compaction is None:
        return None
    after, tokens_after = compaction.after, compaction.tokens_after
    summary = window.session.summary if compaction.snapshot else after.summary
    if not is_preview:
        after = yield from engine.applying(compaction, window, call=step.called)
        step.take(after)
        yield from _stored(agent, config, step.stored())
        # the summarizer failed, and the thread keeps its view
        if compaction.snapshot and after.session.view == window.session.view:
            raise SummarizationError(
                f"{after.session.guard['reason']}: compact again later, or without a model by "
                "ContextConfig(summarize='off')"
            )
        tokens_after, summary = after.total_tokens, after.summary
    messages, price = window.history.messages, window.price
    return ThreadCompaction(
        reason=compaction.reason,
        tokens_before=compaction.tokens_before,
        tokens_after=tokens_after,
        left=tuple(
            LeftMessage(message_id(messages, i), messages[i].type, price(messages[i]))
            for i in dropped_positions(window, after)
        ),
        record=after.view.record.text,
        summary=summary,
    )


def _undoing(agent: Any, config: Any) -> Work[None]:
    step = yield from _step_of(agent, config)
    window = step.window
    session = after_undo(window)
    if session is None:
        raise ContextWindowError(
            "nothing to undo: no compaction was made in this thread since the last undo, or messages of the view "
            "before it were edited or removed"
        )
    step.anew(session)
    after = step.window
    yield from _stored(agent, config, step.stored())
    step.engine.reporter.notice(
        "compaction_undone",
        window.model,
        tokens_before=window.total_tokens,
        tokens_after=after.total_tokens,
    )


# ---- the step of a thread, from its compiled graph ------------------------------------------------------------------

MODEL = "model"  # what `create_agent` calls the node that the middleware stands in
WANTED_CONFIG = (
    'the config of the thread, such as {"configurable": {"thread_id": "42"}}'
)
NO_SAVER = "has no checkpointer: compile it with one, which keeps its threads"
NO_NODES = (
    "has neither ContextNodes nor ContextWindowMiddleware: pass a compiled graph that was built by "
    "add_context_nodes(builder, nodes, ...), create_context_agent(...), or "
    "create_agent(..., middleware=[ContextWindowMiddleware()])"
)


def _step_of(agent: Any, config: Any) -> Work[AgentStep]:
    """Return the step that the next request of an idle thread begins with."""
    graph = expect(agent, Pregel, "agent", "the compiled graph of an agent")
    name = _our_node(graph)
    if not isinstance(graph.checkpointer, BaseCheckpointSaver) or not name:
        raise ConfigError(f"agent={brief(agent)} {NO_NODES if not name else NO_SAVER}")
    thread = config.get("configurable", {}).get("thread_id")
    if not thread:
        raise ConfigError(
            f"config={brief(config)} names no thread: pass {WANTED_CONFIG}"
        )
    snapshot: Any = yield Wait.on(graph, "get_state", config)
    if not snapshot.values:
        raise ContextWindowError(
            f"thread {thread!r} has no messages: pass the id of a thread that was run"
        )
    if snapshot.next:
        raise ContextWindowError(
            f"thread {thread!r} is in the middle of a run (next: {', '.join(snapshot.next)}): resume or end it first"
        )
    node: Any = graph.nodes[name].bound
    if isinstance(node, ContextNode):
        return node.step(snapshot.values)
    return (yield from _middleware_step(graph, snapshot.values))


def _our_node(graph: Any) -> str:
    """Return the name of one of our nodes, or of that which the middleware stands in; empty where a graph has none."""
    ours = (n for n, one in graph.nodes.items() if isinstance(one.bound, ContextNode))
    in_agent = {
        "context_view",
        "messages",
    } <= graph.channels.keys() and MODEL in graph.nodes
    return next(ours, MODEL if in_agent else "")


def _middleware_step(graph: Any, values: Json) -> Work[AgentStep]:
    """Return the step that the middleware makes of the agent's next model call, which is not made."""
    # A state schema alone does not say that the middleware is there, and a model that nobody manages is not called.
    if not values.get("context_report"):
        raise ContextWindowError(
            "this thread has no answer yet that was made with ContextWindowMiddleware (it was imported, or run "
            "without it): invoke the agent once with the middleware, then compact"
        )
    call = StateGraph(graph.builder.state_schema)
    call.add_node(MODEL, graph.nodes[MODEL].bound)
    call.add_edge(START, MODEL)
    only_call = call.compile(checkpointer=False)
    steps: list[AgentStep] = []
    token = sought_step.set(steps.append)
    try:
        yield Wait.on(only_call, "invoke", values)
    finally:
        sought_step.reset(token)
    if not steps:
        raise ContextWindowError(
            "the model call of this agent does not reach ContextWindowMiddleware: other middleware answers before it, "
            "so put it after ContextWindowMiddleware"
        )
    return steps[0]


def _stored(agent: Any, config: Any, update: Json) -> Work[None]:
    """Write to an idle thread, which stays idle."""
    try:
        new = yield Wait.on(agent, "update_state", config, update)
    # several nodes came last, so LangGraph wants to know which one writes
    except InvalidUpdateError:
        by = _our_node(agent)
        new = yield Wait.on(agent, "update_state", config, update, by)
    yield Wait.on(agent, "update_state", new, None, END)
