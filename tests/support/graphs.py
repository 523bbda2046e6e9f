"""A chat graph on the nodes whose engine a test builds itself, and what it reported before each call."""

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_ctxwin import (
    ContextEngine,
    ContextInput,
    ContextNodes,
    ContextOutput,
    ContextState,
    ModelInfo,
    add_context_nodes,
)
from support.desk import CONFIG, PROMPT, ask


def engine_for(
    name,
    context_window,
    *,
    info=None,
    **options,
):
    """Return an engine that is told the window of a named model; `info` are more fields of its `ModelInfo`."""
    limits = ModelInfo(
        name=name, provider="test", context_window=context_window, **(info or {})
    )
    return ContextEngine(limits=limits, **options)


def chat_on(
    engine,
    call,
    *,
    tools=(),
    prompt=PROMPT,
    model=None,
    checkpointer=None,
    store=None,
    **options,
):
    """Compile a graph that calls a model, which is given with its tools bound; `checkpointer=False` keeps no state."""
    nodes = ContextNodes(engine, system_prompt=prompt, tools=tools, model=model)
    builder = StateGraph(
        ContextState, input_schema=ContextInput, output_schema=ContextOutput
    )
    add_context_nodes(builder, nodes, model_node="model", model=call)
    builder.add_node("tools", ToolNode(list(tools)))
    builder.add_edge(START, "budget_check")
    builder.add_conditional_edges(
        "model", tools_condition, {"tools": "tools", END: "maybe_summarize"}
    )
    builder.add_edge("tools", "budget_check")
    saver = InMemorySaver() if checkpointer is None else checkpointer
    return builder.compile(checkpointer=saver or None, store=store, **options)


def reports_before_calls(agent, given, config=CONFIG):
    """Run a turn; return of each model call the report before it and the message that it answered with."""
    keys = ["messages", "context_report"]
    found, report = [], agent.get_state(config).values.get("context_report")
    first = ask(given) if isinstance(given, str) else given
    for update in agent.stream(first, config, stream_mode="updates", output_keys=keys):
        for node, writes in update.items():
            report_before, report = (
                report,
                (writes or {}).get("context_report") or report,
            )
            if node == "model":
                found.append((report_before, writes["messages"][-1]))
    return found
