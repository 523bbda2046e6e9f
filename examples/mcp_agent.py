"""An agent with the tools of an MCP server: large results are shown in pages that fit."""

import asyncio
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware

SERVER = """
from mcp.server.fastmcp import FastMCP

server = FastMCP("warehouse", log_level="ERROR")


@server.tool()
def parts() -> list[dict[str, str]]:
    "List all parts."
    return [{"id": str(n), "name": f"part-{n:04d}", "shelf": str(n % 40)} for n in range(5000)]


server.run("stdio")
"""


async def run(model: Any, question: str) -> list[Any]:
    """Ask one question, and return all messages."""
    client = MultiServerMCPClient(
        {
            "warehouse": {
                "transport": "stdio",
                "command": sys.executable,
                "args": ["-c", SERVER],
            }
        }
    )
    agent = create_agent(
        model,
        await client.get_tools(),
        middleware=[
            ContextWindowMiddleware(
                guard=ToolResultGuard(ToolResultConfig(max_tokens=1_000))
            )
        ],
        state_schema=ContextAgentState,
    )
    return list((await agent.ainvoke({"messages": [("user", question)]}))["messages"])


if __name__ == "__main__":
    from langchain_google_genai import ChatGoogleGenerativeAI

    gemini = ChatGoogleGenerativeAI(model="gemini-3.5-flash")
    print(asyncio.run(run(gemini, "On which shelf is part-4711?"))[-1].text)
