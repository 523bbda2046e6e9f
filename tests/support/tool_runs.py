"""Runs calls of tools as agents do, wherever a guard can stand, and reads large results to their end."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_ctxwin import ContextEngine, ModelLimits, create_context_agent
from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.fakes import ScriptedChatModel, script
from support.walking import last_cursor

WIRINGS = ("wrap", "node", "middleware", "agent")
"""Tools of `guard.wrap` in a node; `guard.wrap_tool_call` of a node; the middleware; the ready agent."""

everywhere = pytest.mark.parametrize("wiring", WIRINGS)
both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])

NODES = ("plain", "wrap", "node")
"""Wirings of a lone tool node; `plain` has no guard."""

LIMITS = ModelLimits(context_window=200_000, max_output_tokens=4_000)
MAX_PAGES = 2_000  # a walk that takes more goes in a circle


def facts(index):
    """Return a row of a large result."""
    return {
        "id": index,
        "name": f"row-{index:03d}",
        "note": f"the note of row {index} says {index * 7919}",
    }


def call(name, call_id="c1", **args):
    """Return a tool call as a model writes it."""
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def wired(wiring, guard, tools, *answers, **options):
    """Compile a graph that runs tools under a guard; `answers` are the model's, where there is one."""
    if wiring in NODES:
        return _node_graph(wiring, guard, tools, **options)
    model = ScriptedChatModel(policy=script(*answers, "done"), strict=False)
    if wiring == "agent":
        return create_context_agent(model, tools, limits=LIMITS, guard=guard, **options)
    middleware = ContextWindowMiddleware(ContextEngine(LIMITS), guard=guard)
    return create_agent(model, list(tools), middleware=[middleware], **options)


def results(
    wiring,
    guard,
    tools,
    *calls,
    is_async=False,
    config=None,
    **options,
):
    """Return the messages that answer the calls of one step."""
    asking = AIMessage("", tool_calls=list(calls))
    graph = wired(wiring, guard, tools, asking, **options)
    given = {
        "messages": [
            HumanMessage("What is there?"),
            *([asking] if wiring in NODES else []),
        ]
    }
    state = (
        asyncio.run(graph.ainvoke(given, config))
        if is_async
        else graph.invoke(given, config)
    )
    return [
        message for message in state["messages"] if isinstance(message, ToolMessage)
    ]


def next_cursor(text):
    """Return the cursor of the next page; None on the last one."""
    return last_cursor(text) if "Next page:" in text else None


def pages(guard, first, **options):
    """Yield a page and all that follow it; the options are what the page answers."""
    page = first
    for _ in range(MAX_PAGES):
        yield page
        cursor = next_cursor(page)
        if cursor is None:
            return
        page = guard.read(cursor, **options)
    raise AssertionError("the walk does not end")


def everything(guard, first):
    """Return all of a kept result with every field, page after page; of one that fits, the text as it is."""
    cursor = last_cursor(first)
    if cursor is None:
        return first
    whole = {"fields": ["*"]}
    return "\n".join(pages(guard, guard.read(cursor, **whole), **whole))


def _node_graph(
    wiring,
    guard,
    tools,
    state=MessagesState,
    **options,
):
    node = ToolNode(**_tool_node(wiring, guard, tools), **options.pop("node", {}))
    builder = StateGraph(state)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    return builder.compile(**options)


def _tool_node(wiring, guard, tools):
    if wiring == "plain":
        return {"tools": tools}
    if wiring == "wrap":
        return {"tools": guard.wrap(tools)}
    return {
        "tools": [*tools, *guard.tools],
        "wrap_tool_call": guard.wrap_tool_call,
        "awrap_tool_call": guard.awrap_tool_call,
    }
