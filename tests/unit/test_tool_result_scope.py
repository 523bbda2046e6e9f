"""Does a guard leave a tool's arguments, a block's keys and a thread's results where they belong?"""

import re

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_ctxwin import ToolResultConfig, ToolResultGuard

LINES = "line of text\n" * 3_000


def guard_of(max_tokens=300):
    return ToolResultGuard(ToolResultConfig(max_tokens=max_tokens))


def cursor_in(text):
    return re.findall(r'cursor="([^"]+)"', text)[-1]


def ran(node, messages=(), thread="one"):
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile().invoke({"messages": list(messages)}, {"configurable": {"thread_id": thread}})["messages"]


def test_a_tool_with_a_json_schema_keeps_an_argument_named_runtime():
    """The guard asks for LangGraph's runtime under a name of its own."""
    given = {}
    movie = StructuredTool.from_function(
        lambda **arguments: given.update(arguments) or "ok",
        name="movie",
        description="A movie.",
        args_schema={
            "type": "object",
            "properties": {"title": {"type": "string"}, "runtime": {"type": "integer"}},
        },
    )
    call = {"name": "movie", "args": {"title": "x", "runtime": 90}, "id": "c1"}
    ran(ToolNode(guard_of().wrap([movie])), [AIMessage("", tool_calls=[call])])
    assert given == {"title": "x", "runtime": 90}


def test_text_blocks_keep_what_they_say_beside_their_text():
    """An id or an annotation is data as well, and a search finds it."""
    guard = guard_of()
    blocks = [{"type": "text", "text": f"row {n} " * 9, "id": f"doc-{n}", "annotations": {"n": n}} for n in range(200)]
    page = guard.output(ToolMessage(blocks, tool_call_id="c1"), "docs", {}).text
    found = guard.read(cursor_in(page), contains="doc-150")
    assert (found.startswith("[1 of 200 rows"), "id:doc-150" in found) == (True, True)


def test_ids_that_langchain_made_up_are_no_data():
    """Adapters give every text block one; the texts are what the tool returned."""
    blocks = [{"type": "text", "text": f"note {n} " * 9, "id": f"lc_{n}"} for n in range(200)]
    assert "lc_" not in guard_of().output(ToolMessage(blocks, tool_call_id="c1"), "notes", {}).text


@pytest.mark.parametrize(("reader", "is_read"), [("one", True), ("other", False)])
def test_a_tool_invoked_by_a_node_of_ones_own_keeps_results_to_its_thread(reader, is_read):
    """Without a ToolNode there is no runtime, but there is a thread."""

    @tool
    def log() -> str:
        """The log."""
        return LINES

    wrapped, read_more = guard_of().wrap([log])
    call = {"name": "log", "args": {}, "id": "c1", "type": "tool_call"}
    page = ran(lambda _: {"messages": [wrapped.invoke(call)]})[-1].text
    answers = []
    ran(lambda _: answers.append(read_more.invoke({"cursor": cursor_in(page)})) or {}, thread=reader)
    assert answers[0].startswith("[Result of log.") is is_read
