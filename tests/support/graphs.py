"""A chat graph on the nodes whose engine a test builds itself."""

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
from support.desk import PROMPT


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
