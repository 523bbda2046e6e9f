"""`compact` and `undo`: a host compacts a thread between its runs, sees before what would leave, or takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import Pregel

from langchain_ctxwin.agent.nodes import ContextNode
from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.core.compaction import Compaction, dropped_positions
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.updates import after_undo
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.errors import ConfigError, ContextWindowError, brief, expect
from langchain_ctxwin.util.work import Wait, Work, arun, run

Update = dict[str, Any]

sought_step: ContextVar[Callable[[AgentStep], None] | None] = ContextVar(
    "sought_step", default=None
)
"""Called by the middleware with the step of a model call, before it does anything."""


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
        actions: All that it does, one line each, for people.
        record: The record as the model sees it afterwards.
        summary: The summary as the model sees it afterwards; in a preview the summary so far, where a model would write
            a new one.
    """

    reason: str
    tokens_before: int
    tokens_after: int
    left: tuple[LeftMessage, ...]
    actions: tuple[str, ...]
    record: str
    summary: str


def compact(
    agent: Any, config: RunnableConfig, *, focus: str = "", preview: bool = False
) -> ThreadCompaction | None:
    """Compact a thread now, down to the low-water mark (`ContextConfig.keep`), although its next request may fit.

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
    done: ThreadCompaction | None = _in_thread(
        config, lambda: run(_compacting(agent, config, focus, is_preview=preview))
    )
    return done


async def acompact(
    agent: Any, config: RunnableConfig, *, focus: str = "", preview: bool = False
) -> ThreadCompaction | None:
    """Like `compact`, awaiting the checkpointer and the summarizer."""
    done: ThreadCompaction | None = await _in_thread(
        config,
        lambda: asyncio.create_task(
            arun(_compacting(agent, config, focus, is_preview=preview))
        ),
    )
    return done


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


def _in_thread(config: Any, work: Callable[[], Any]) -> Any:
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
    if is_preview:
        return _outcome(compaction, window)
    after = yield from engine.applying(compaction, window, call=step.called)
    step.compacted(window, after)
    # the summarizer failed, which was told
    if compaction.snapshot and after.session.view == window.session.view:
        window = after
        compaction = engine.on_request(window, focus=focus, summarize=False)
        if compaction is not None:
            after = yield from engine.applying(compaction, window)
            step.compacted(window, after)
    yield from _stored(agent, config, step.news)
    return None if compaction is None else _outcome(compaction, window, after)


def _outcome(
    compaction: Compaction, window: Window, after: Window | None = None
) -> ThreadCompaction:
    """The messages that leave, and the sizes before and after; `after` is None for a planned compaction."""
    messages = window.parts.messages
    next_window = after or compaction.after
    written_later = after is None and compaction.snapshot is not None
    return ThreadCompaction(
        reason=compaction.reason,
        tokens_before=compaction.tokens_before,
        tokens_after=after.total_tokens if after else compaction.tokens_after,
        left=tuple(
            LeftMessage(
                message_id(messages, index),
                messages[index].type,
                window.parts.price(messages[index]),
            )
            for index in dropped_positions(next_window, window.session.view)
        ),
        actions=compaction.actions,
        record=next_window.view.record.text,
        summary=window.session.summary if written_later else next_window.summary,
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
    step.update(session.to_json())
    step.compacted(window, step.window)
    yield from _stored(agent, config, step.news)
    step.engine.reporter.notice(
        "compaction_undone",
        window.parts.model,
        tokens_before=window.total_tokens,
        tokens_after=step.window.total_tokens,
    )


# ---- the step of a thread, from its compiled graph ------------------------------------------------------------------

MODEL = "model"  # what `create_agent` calls the node that the middleware stands in
WANTED_CONFIG = (
    'the config of the thread, such as {"configurable": {"thread_id": "42"}}'
)
NO_NODES = (
    "has neither ContextNodes nor ContextWindowMiddleware: pass a compiled graph that was built by "
    "add_context_nodes(builder, nodes, ...), create_context_agent(...), or "
    "create_agent(..., middleware=[ContextWindowMiddleware()])"
)


def _step_of(agent: Any, config: Any) -> Work[AgentStep]:
    """Return the step that the next request of an idle thread begins with."""
    graph = expect(agent, Pregel, "agent", "the compiled graph of an agent")
    if graph.checkpointer is None or isinstance(graph.checkpointer, bool):
        raise ConfigError(
            f"agent={brief(agent)} has no checkpointer: compile it with one, which keeps its threads"
        )
    if not config.get("configurable", {}).get("thread_id"):
        raise ConfigError(
            f"config={brief(config)} names no thread: pass {WANTED_CONFIG}"
        )
    name = _own_node(graph)
    if name is None and not {"context_view", "messages"} <= graph.channels.keys():
        raise ConfigError(f"agent={brief(agent)} {NO_NODES}")
    snapshot: Any = yield Wait.on(graph, "get_state", config)
    thread = config["configurable"]["thread_id"]
    if not snapshot.values:
        raise ContextWindowError(
            f"thread {thread!r} has no messages: pass the id of a thread that was run"
        )
    if snapshot.next:
        raise ContextWindowError(
            f"thread {thread!r} is in the middle of a run (next: {', '.join(snapshot.next)}): resume or end it first"
        )
    if name is not None:
        node: Any = graph.nodes[name].bound
        step: AgentStep = node.step(snapshot.values)
        return step
    return (yield from _middleware_step(graph, snapshot.values))


def _own_node(graph: Any) -> str | None:
    """Return the name of one of our nodes; None where a graph has none."""
    return next(
        (
            name
            for name, node in graph.nodes.items()
            if isinstance(node.bound, ContextNode)
        ),
        None,
    )


class _StepMadeError(BaseException):
    """Ends a model call before it is made; no exception that other middleware would answer."""


def _middleware_step(graph: Any, values: Update) -> Work[AgentStep]:
    """Return the step that the middleware makes of the agent's next model call, which is not made."""
    if MODEL not in graph.nodes:
        raise ConfigError(f"agent={brief(graph)} {NO_NODES}")
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

    def invoke() -> None:
        with _seeking(steps):
            only_call.invoke(values)

    async def ainvoke() -> None:
        with _seeking(steps):
            await only_call.ainvoke(values)

    yield Wait(invoke, ainvoke)
    if not steps:
        raise ContextWindowError(
            "the model call of this agent does not reach ContextWindowMiddleware: other middleware answers before it, "
            "so put it after ContextWindowMiddleware"
        )
    return steps[0]


@contextmanager
def _seeking(steps: list[AgentStep]) -> Iterator[None]:
    def take(step: AgentStep) -> None:
        steps.append(step)
        raise _StepMadeError

    token = sought_step.set(take)
    try:
        yield
    except _StepMadeError:
        pass
    finally:
        sought_step.reset(token)


def _stored(agent: Any, config: Any, update: Update) -> Work[None]:
    """Write to an idle thread, which stays idle."""

    def written(by: str | None) -> Wait:
        return Wait.on(agent, "update_state", config, update, by)

    try:
        new = yield written(None)
    except (
        InvalidUpdateError
    ):  # several nodes came last, so LangGraph wants to know which one writes
        new = yield written(_own_node(agent) or MODEL)
    snapshot = yield Wait.on(agent, "get_state", new)
    if snapshot.next:
        yield Wait.on(agent, "update_state", new, None, END)
