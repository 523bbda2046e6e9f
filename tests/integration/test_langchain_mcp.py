"""Do results of LangChain's own MCP adapter come to fit? Its fastmcp and langchain-mcp-adapters exclude each other."""

import warnings

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.testing import ScriptedChatModel
from support.oracle import text_tokens
from support.tool_runs import last_cursor, pages

fastmcp = pytest.importorskip("fastmcp", reason="langchain[mcp] is not installed")

pytestmark = pytest.mark.integration

BUDGET, ROWS = 800, 300


def warehouse():
    server = fastmcp.FastMCP("warehouse")

    @server.tool
    def parts(count: int) -> list[dict[str, str]]:
        """List parts."""
        return [{"id": str(i), "note": f"shelf {i * 7919}"} for i in range(count)]

    return server


def play(messages, _tools):
    asks = {"name": "parts", "args": {"count": ROWS}, "id": "c1"}
    is_first = messages[-1].type == "human"
    return AIMessage("", tool_calls=[asks]) if is_first else AIMessage("Counted.")


async def test_rows_fit_and_stay_readable():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the namespace is in beta
        from langchain.mcp import MCPAdapter
    guard = ToolResultGuard(ToolResultConfig(max_tokens=BUDGET))
    model = ScriptedChatModel(window=8_192, max_tokens=500, script=play)
    own = ContextWindowMiddleware(guard=guard)
    async with MCPAdapter(warehouse()) as adapter:
        agent = create_agent(model, await adapter.list_tools(), middleware=[own])
        state = await agent.ainvoke({"messages": [("user", "What is there?")]})
    result = state["messages"][2]
    assert (result.status, text_tokens(result.text) <= BUDGET) == ("success", True)
    whole = {"fields": ["*"]}
    first = guard.read(last_cursor(result.text) or "", **whole)
    read = "\n".join(pages(guard, first, **whole))
    assert [row for row in range(ROWS) if str(row * 7919) not in read] == []
