"""Does a finished summary wait in a store, whatever the store is like?"""

import threading
from contextlib import asynccontextmanager

import pytest
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from structlog.testing import capture_logs

from langchain_ctxwin.summarize.jobs import SummaryStore
from langchain_ctxwin.summarize.model import Written
from langchain_ctxwin.util import stores as module
from langchain_ctxwin.util.work import arun
from support.result_stores import elsewhere

WRITTEN = Written(
    text="The user wants tea.",
    tokens={"input_tokens": 30, "output_tokens": 5},
    seconds=0.5,
)
PATIENCE = 20.0  # of a test with a thread; nothing here takes a second


@asynccontextmanager
async def opened(kind, path):
    """Open a store of this kind on a file."""
    if kind == "memory":
        yield InMemoryStore()
    elif kind == "sqlite":
        with SqliteStore.from_conn_string(str(path)) as store:
            store.setup()
            yield store
    else:
        async with AsyncSqliteStore.from_conn_string(str(path)) as store:
            await store.setup()
            yield store


@pytest.fixture(params=["memory", "sqlite", "async_sqlite"])
async def store(request, tmp_path):
    """Each kind of store, empty."""
    async with opened(request.param, tmp_path / "store.sqlite") as store:
        yield store


async def test_the_last_summary_that_a_job_put_is_read_by_both_ways(store):
    """Before, nothing is; a conversation has one item, so that the store does not grow with its summaries."""
    summaries = SummaryStore(store, "thread")
    with capture_logs() as logs:
        assert (
            await elsewhere(lambda: summaries.get("key")),
            await arun(summaries.getting("key")),
        ) == (None, None)
    await elsewhere(
        lambda: [summaries.put(f"key {number}", WRITTEN) for number in range(3)]
    )
    read = [
        (
            await elsewhere(lambda key=f"key {n}": summaries.get(key)),
            await arun(summaries.getting(f"key {n}")),
        )
        for n in (1, 2)
    ]
    items = await elsewhere(lambda: store.search(("ctxwin", "summaries")))
    assert (read, len(items), logs) == ([(None, None), (WRITTEN, WRITTEN)], 1, [])


@pytest.mark.parametrize("thread", ["", "a.b", "\0 \ud800 日本", "x" * 10_000])
async def test_any_thread_id_and_any_text_can_be_stored(store, thread):
    """Ids with periods, empty ones and odd characters, and texts that databases refuse; each its own conversation."""
    written = Written(text="nul \0, lone \ud800 and 日本")
    summaries = SummaryStore(store, thread)
    await elsewhere(lambda: summaries.put("key", written))
    assert (
        await arun(summaries.getting("key")),
        await arun(SummaryStore(store, "other").getting("key")),
    ) == (
        written,
        None,
    )


@pytest.mark.parametrize("text", ["{", "{}", "5", '{"key": "key", "x": 1}'])
async def test_a_damaged_item_is_none(store, text):
    """Whatever somebody wrote there is not taken for a summary, and the next put mends it."""
    summaries = SummaryStore(store, "thread")
    place = summaries._texts._namespace, summaries._place
    await elsewhere(lambda: store.put(*place, {"data": text}))
    assert await arun(summaries.getting("key")) is None
    await elsewhere(lambda: summaries.put("key", WRITTEN))
    assert await arun(summaries.getting("key")) == WRITTEN


class Broken(InMemoryStore):
    """A store whose database is gone."""

    def batch(self, ops):
        raise ConnectionError("the store is gone")


async def test_a_store_that_fails_is_reported_and_never_raises():
    """Put and both reads log what happened."""
    summaries = SummaryStore(Broken(), "thread")
    with capture_logs() as logs:
        summaries.put("key", WRITTEN)
        assert (summaries.get("key"), await arun(summaries.getting("key"))) == (
            None,
            None,
        )
    failed = {
        "thread": "thread",
        "error": "ConnectionError",
        "log_level": "warning",
    }
    assert logs == [
        {"event": f"summaries.{event}", **failed}
        for event in ("not_stored", "not_read", "not_read")
    ]


class Hung(InMemoryStore):
    """Answers when a test lets it."""

    def __init__(self):
        super().__init__()
        self.opened = threading.Event()

    def batch(self, ops):
        assert self.opened.wait(PATIENCE)


@pytest.fixture
def hung():
    """A store that hangs until the end of the test."""
    store = Hung()
    yield store
    store.opened.set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_store_that_hangs_is_not_waited_for(
    is_async, monkeypatch, hung, tmp_path
):
    """Reads give up, with a warning; a sync one on the loop of an async store ends, too."""
    monkeypatch.setattr(module, "STORE_SECONDS", 0.05)
    async with opened("async_sqlite", tmp_path / "store.sqlite") as store, store.lock:
        with capture_logs() as logs:
            for summaries in (
                SummaryStore(hung, "thread"),
                SummaryStore(store, "thread"),
            ):
                assert (
                    await arun(summaries.getting("key"))
                    if is_async
                    else summaries.get("key")
                ) is None
    told = [(entry["event"], entry["error"]) for entry in logs]
    assert told == [("summaries.not_read", "TimeoutError")] * 2
