"""Do the results of a real MCP server come to fit, whatever they hold?"""

import asyncio
import sys

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from support.oracle import text_tokens
from support.tool_runs import WIRINGS, call, last_cursor, pages, results

pytest.importorskip("mcp", reason="the MCP SDK is not installed")
MultiServerMCPClient = pytest.importorskip(
    "langchain_mcp_adapters.client"
).MultiServerMCPClient


BUDGET = 800
ROWS = 200

SERVER = '''
from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel

server = FastMCP("warehouse", log_level="ERROR")


class Stock(BaseModel):
    total: int
    items: list[dict[str, str]]


def rows(count):
    return [{"id": str(i), "name": f"part-{i:03d}", "note": f"shelf {i} holds {i * 7919}"} for i in range(count)]


@server.tool()
def parts(count: int) -> list[dict[str, str]]:
    """List parts."""
    return rows(count)


@server.tool()
def stock(count: int) -> Stock:
    """Return the stock."""
    return Stock(total=count, items=rows(count))


@server.tool(structured_output=False)
def manual(lines: int) -> str:
    """Return the manual."""
    return "\\n".join(f"step {i}: turn the screw {i * 7919} times" for i in range(lines))


server.run()
'''


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """What a server in a process of its own lists; another one is started for each call."""
    path = tmp_path_factory.mktemp("warehouse") / "server.py"
    path.write_text(SERVER)
    connection = {"command": sys.executable, "args": [str(path)], "transport": "stdio"}
    return asyncio.run(MultiServerMCPClient({"warehouse": connection}).get_tools())


@pytest.fixture
def tools(listed):
    """The tools by name, copied for each test."""
    return {one.name: one.model_copy() for one in listed}


def guard_of(max_tokens=BUDGET):
    return ToolResultGuard(ToolResultConfig(max_tokens=max_tokens))


def read_whole(guard, shown):
    whole = {"fields": ["*"]}
    return "\n".join(
        pages(guard, guard.read(last_cursor(shown) or "", **whole), **whole)
    )


@pytest.mark.parametrize(
    ("wiring", "name"), [*zip(WIRINGS, ["parts", "stock"] * 2, strict=True)]
)
async def test_rows_fit_and_stay_readable(wiring, name, tools):
    guard = guard_of()
    (message,) = await asyncio.to_thread(
        results, wiring, guard, [tools[name]], call(name, count=ROWS), is_async=True
    )
    assert (message.status, text_tokens(message.text) <= BUDGET) == ("success", True)
    read = read_whole(guard, message.text)
    assert [index for index in range(ROWS) if str(index * 7919) not in read] == []


async def test_the_model_sees_the_servers_schema(tools):
    for one, wrapped in zip(
        tools.values(), guard_of().wrap(list(tools.values())), strict=False
    ):
        assert convert_to_openai_tool(wrapped) == convert_to_openai_tool(one)
