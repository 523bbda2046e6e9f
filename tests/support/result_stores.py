"""What every store of results must do, whichever it is."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from langchain_ctxwin.tool_results import stores
from langchain_ctxwin.tool_results.cursors import key_of
from langchain_ctxwin.util.work import in_daemon

TTL_SECONDS = 600.0
ALL_BYTES = bytes(range(256))
LARGE = ALL_BYTES * (5 * 1024 * 4)  # 5 MB
THREADS, TURNS = 64, 3  # as many as a guard has at a time
# so many writes to a busy disk take longer than a user would wait
PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def opened_store(kind, request, clock=time.time):
    """Open an empty store of one kind."""
    async with AsyncExitStack() as stack:
        if kind == "memory":
            yield stores.MemoryResultStore(clock=clock)
        elif kind == "valkey":
            yield _valkey_store(stack, request.getfixturevalue("valkey_url"))
        else:
            base = await _base_store(stack, kind, request)
            if kind != "langgraph memory":
                await base.setup() if kind == "async sqlite" else base.setup()
            yield stores.LangGraphResultStore(base, clock=clock)


def _valkey_store(stack, url):
    from redis import Redis

    stack.enter_context(Redis.from_url(url)).flushall()
    stack.enter_context(pytest.MonkeyPatch.context()).setattr(
        stores, "ANSWER_SECONDS", PATIENCE_SECONDS
    )
    return stores.RedisResultStore.from_url(url)


async def _base_store(stack, kind, request):
    if kind == "langgraph memory":
        return InMemoryStore()
    if kind == "postgres":
        place = request.getfixturevalue("postgres_dsn")
        return stack.enter_context(PostgresStore.from_conn_string(place))
    place = str(request.getfixturevalue("tmp_path") / "store.sqlite")
    store = AsyncSqliteStore.from_conn_string(place)
    return await stack.enter_async_context(store)


async def elsewhere(work):
    """Run blocking work in another thread while the event loop goes on."""
    return await asyncio.wrap_future(in_daemon(work))


def nothing_is_there_at_first(store):
    """What was never put is None, and deleting it does nothing."""
    store.delete("ns/a")
    assert store.get("ns/a") is None


def any_bytes_are_kept(store):
    """None at all, every byte, and five megabytes."""
    for value in (b"", ALL_BYTES, LARGE):
        store.put("ns/a", value, TTL_SECONDS)
        assert store.get("ns/a") == value


def the_next_value_takes_the_place_of_the_last(store):
    """Also a shorter one."""
    store.put("ns/a", b"a long first value", TTL_SECONDS)
    store.put("ns/a", b"second", TTL_SECONDS)
    assert store.get("ns/a") == b"second"


def what_was_deleted_is_gone(store):
    """And nothing else with it."""
    for name in "ab":
        store.put(f"ns/{name}", name.encode(), TTL_SECONDS)
    store.delete("ns/a")
    assert [store.get(f"ns/{name}") for name in "ab"] == [None, b"b"]


def tenants_do_not_see_each_other(store):
    """The same name in another namespace is another result, however odd the tenants are."""
    tenants = [
        "one",
        "One",
        "one.two",
        "one/two",
        "",
        " ",
        "langgraph",
        "\0",
        "\ud800",
        "日本",
        "a" * 5000,
    ]
    for tenant in tenants:
        store.put(key_of(tenant, "r"), repr(tenant).encode(), TTL_SECONDS)
    found = [store.get(key_of(tenant, "r")) for tenant in tenants]
    assert found == [repr(tenant).encode() for tenant in tenants]


def many_threads_may_use_it_at_once(store):
    """Each one reads what it put, and the one key that all put holds one of their values."""

    def work(number):
        found = []
        for turn in range(TURNS):
            value = bytes([number, turn]) * 1000
            store.put(f"ns/{number}", value, TTL_SECONDS)
            store.put("ns/shared", value, TTL_SECONDS)
            found.append(
                store.get(f"ns/{number}") == value
                and store.get("ns/shared") is not None
            )
        return found

    jobs = [in_daemon(partial(work, number)) for number in range(THREADS)]
    assert [job.result(PATIENCE_SECONDS) for job in jobs] == [[True] * TURNS] * THREADS


CHECKS = (
    nothing_is_there_at_first,
    any_bytes_are_kept,
    the_next_value_takes_the_place_of_the_last,
    what_was_deleted_is_gone,
    tenants_do_not_see_each_other,
    many_threads_may_use_it_at_once,
)
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
