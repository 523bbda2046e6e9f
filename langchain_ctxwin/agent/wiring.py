"""Wires the nodes into a graph, and says at compile time what would go wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import Runnable
from langgraph.graph import END, StateGraph
from langgraph.types import RetryPolicy
from typing_extensions import TypedDict

from langchain_ctxwin.agent.nodes import ContextNodes
from langchain_ctxwin.agent.state import OUR_KEYS, State, StepState
from langchain_ctxwin.agent.step import request_waits
from langchain_ctxwin.errors import ConfigError

PROBE_ID = "probe"


def add_context_nodes(
    builder: StateGraph[Any, Any, Any, Any],
    nodes: ContextNodes,
    *,
    model_node: str = "agent",
    model: Runnable[Any, Any] | Callable[[list[AnyMessage]], Any],
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
        ConfigError: the state has no key `messages`, or one whose reducer does not keep messages by their id; when the
            graph is compiled, that an edge leads past `budget_check` to the model.

    Examples:
        ```python
        builder = StateGraph(MessagesState)
        add_context_nodes(builder, nodes, model=model.bind_tools(tools))
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "budget_check")
        builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "maybe_summarize"})
        builder.add_edge("tools", "budget_check")
        ```
    """
    _require_messages(builder)
    ours = (nodes.budget_check, nodes.maybe_summarize, nodes.force_compress, nodes.build_messages)
    # Every key of the graph and those of a session: what a node takes as a dict, whatever the state is made of.
    session = get_type_hints(StepState, include_extras=True)
    new = {key: hint for key, hint in session.items() if key not in builder.channels}
    schema = _typed_dict("StepState", {**dict.fromkeys((*builder.channels, *builder.managed), Any), **new})
    for node in ours:
        builder.add_node(str(node.name), node, input_schema=schema)
    builder.add_node(model_node, nodes.model_node(model), input_schema=schema, retry_policy=retry_policy)
    builder.add_conditional_edges(
        "budget_check", nodes.route_on_budget, ["maybe_summarize", "force_compress", "build_messages"]
    )
    builder.add_conditional_edges(
        "maybe_summarize",
        _after_summary,
        {"finished": after, "force_compress": "force_compress", "build_messages": "build_messages"},
    )
    builder.add_edge("force_compress", "build_messages")
    builder.add_edge("build_messages", model_node)
    _close(builder)
    validate = builder.validate

    def validated(*args: Any, **kwargs: Any) -> Any:
        for fault in _faults(builder, model_node):
            raise ConfigError(fault)
        return validate(*args, **kwargs)

    builder.validate = validated  # type: ignore[method-assign]  # LangGraph has no other hook before a graph runs


def _after_summary(state: State) -> str:
    if not request_waits(state):
        return "finished"
    return "force_compress" if state["context_report"]["over_by"] > 0 else "build_messages"


def _require_messages(builder: StateGraph[Any, Any, Any, Any]) -> None:
    """Try the reducer of the history: messages have to keep their ids, and others have to get some."""
    name, channel = getattr(builder.state_schema, "__name__", "the state"), builder.channels.get("messages")
    fix = "annotate it as `messages: Annotated[list[AnyMessage], add_messages]`, or use `class State(ContextState)`"
    if channel is None:
        raise ConfigError(f"{name} has no key 'messages' for the history: {fix}")
    tried = channel.from_checkpoint(channel.checkpoint())
    try:
        for written in ([HumanMessage("probe", id=PROBE_ID)], [HumanMessage("probe")]):
            tried.update([written])
        kept = [getattr(message, "id", None) for message in tried.get()]
    except Exception as error:
        raise ConfigError(f"the reducer of {name}.messages raised {type(error).__name__} ({error}): {fix}") from error
    if len(kept) < 2:  # noqa: PLR2004  # both
        raise ConfigError(f"each write to {name}.messages replaces the history: {fix}")
    if PROBE_ID not in kept or None in kept:
        raise ConfigError(f"the reducer of {name}.messages leaves messages without ids: {fix}")


def _typed_dict(name: str, fields: dict[str, Any]) -> Any:
    make: Any = TypedDict  # a type checker wants its fields written out
    return make(name, fields, total=False)


def _close(builder: StateGraph[Any, Any, Any, Any]) -> None:
    """Let callers neither set nor get what is ours, unless the graph says what they may."""
    state = builder.state_schema
    hints = get_type_hints(state, include_extras=True)
    if not hints.keys() & {*OUR_KEYS}:
        return
    public = _typed_dict(f"Public{state.__name__}", {key: hints[key] for key in hints.keys() - {*OUR_KEYS}})
    builder.schemas[public] = {key: value for key, value in builder.schemas[state].items() if key not in OUR_KEYS}
    if builder.input_schema is state:
        builder.input_schema = public
    if builder.output_schema is state:
        builder.output_schema = public


def _faults(builder: StateGraph[Any, Any, Any, Any], model_node: str) -> Iterator[str]:
    """What would send a request that nobody checked."""
    edges = [*builder._all_edges]  # noqa: SLF001
    edges += [
        (start, end)
        for start, branches in builder.branches.items()
        for branch in branches.values()
        for end in (branch.ends or {}).values()
    ]
    edges += [(start, end) for start, node in builder.nodes.items() for end in node.ends or ()]
    allowed = {
        model_node: {"build_messages"},
        "build_messages": {"budget_check", "maybe_summarize", "force_compress"},
        "force_compress": {"budget_check", "maybe_summarize"},
    }
    for start, end in edges:
        if end in allowed and start not in allowed[end]:
            yield (
                f"an edge leads from {start!r} to {end!r} past 'budget_check', so that its requests may not fit: lead "
                "it to 'budget_check'"
            )
    leads_anywhere = any(branch.ends is None for branches in builder.branches.values() for branch in branches.values())
    if not leads_anywhere and not any(end == "budget_check" for _, end in edges):
        yield "no edge leads to 'budget_check': add builder.add_edge(START, 'budget_check')"
