"""Does a finished summary wait in a store, whatever the store is like?"""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from structlog.testing import capture_logs

from langchain_ctxwin.summarize import SummaryStore, Written
from langchain_ctxwin.summarize import store as module
from langchain_ctxwin.summarize.store import NAMESPACE
from langchain_ctxwin.util.background import MAX_HANGING, in_daemon, in_few_daemons

WRITTEN = Written(text="The user wants tea.", calls=1, input_tokens=30, output_tokens=5, seconds=0.5)
PATIENCE = 20.0  # of a test with a thread; nothing here takes a second
STORES = ["memory", "sqlite", "async_sqlite"]


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


async def elsewhere(work):
    """Run blocking work in another thread while the event loop goes on, as a job does."""
    return await asyncio.wrap_future(in_daemon(work))


@pytest.fixture(params=STORES)
async def store(request, tmp_path):
    """Each kind of store, empty."""
    async with opened(request.param, tmp_path / "store.sqlite") as store:
        yield store


async def test_what_a_job_put_is_read_by_both_ways(store):
    """A thread puts and gets, the event loop gets, and both see the same."""
    summaries = SummaryStore(store, "thread")
    await elsewhere(lambda: summaries.put("key", WRITTEN))
    read = await elsewhere(lambda: summaries.get("key"))
    assert (read, await summaries.aget("key")) == (WRITTEN, WRITTEN)


async def test_nothing_is_read_before_anything_was_put(store):
    """An empty place is None, silently."""
    summaries = SummaryStore(store, "thread")
    with capture_logs() as logs:
        assert (await elsewhere(lambda: summaries.get("key")), await summaries.aget("key")) == (None, None)
    assert logs == []


async def test_the_next_summary_takes_the_place_of_the_last(store):
    """One item per conversation: the store does not grow with its summaries."""
    summaries = SummaryStore(store, "thread")
    await elsewhere(lambda: [summaries.put(f"key {number}", WRITTEN) for number in range(3)])
    found = [await summaries.aget(f"key {number}") for number in range(3)]
    items = await elsewhere(lambda: store.search(NAMESPACE))
    assert (found, len(items)) == ([None, None, WRITTEN], 1)


async def test_conversations_do_not_see_each_other(store):
    """The same key in another thread is another summary."""
    await elsewhere(lambda: SummaryStore(store, "a").put("key", WRITTEN))
    assert await SummaryStore(store, "b").aget("key") is None


@pytest.mark.parametrize("thread", ["", "a.b", "langgraph", "\0", "\ud800", "x" * 10_000, "日本"])
async def test_any_thread_id_and_any_text_can_be_stored(store, thread):
    """Ids with periods, empty ones and odd characters, and texts that databases refuse."""
    written = Written(text="nul \0, lone \ud800 and 日本")
    summaries = SummaryStore(store, thread)
    await elsewhere(lambda: summaries.put("key", written))
    assert await summaries.aget("key") == written


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"key": "key"},
        {"key": "key", "written": "{"},
        {"key": "key", "written": "{}"},
        {"key": "key", "written": 5},
        {"key": "key", "written": "[1]"},
    ],
)
async def test_a_damaged_item_is_none(store, value):
    """Whatever somebody wrote there is not taken for a summary, and the next put mends it."""
    summaries = SummaryStore(store, "thread")
    await elsewhere(lambda: store.put(NAMESPACE, summaries._place, value))
    assert (await summaries.aget("key"), await elsewhere(lambda: summaries.get("key"))) == (None, None)
    await elsewhere(lambda: summaries.put("key", WRITTEN))
    assert await summaries.aget("key") == WRITTEN


def test_the_item_expires_only_where_the_store_can_let_it():
    """A time to live is passed where it is supported, since others refuse it; the text is never embedded."""

    class Recording(InMemoryStore):
        supports_ttl = False

        def put(self, namespace, key, value, index=None, **options):
            self.seen = (index, options)

    plain, expiring = Recording(), Recording()
    expiring.supports_ttl = True
    for store in (plain, expiring):
        SummaryStore(store, "thread").put("key", WRITTEN)
    assert (plain.seen, expiring.seen) == ((False, {}), (False, {"ttl": module.TTL_MINUTES}))


def test_reading_does_not_write():
    """A read on the critical path does not refresh the time to live."""

    class Recording(InMemoryStore):
        def get(self, namespace, key, *, refresh_ttl=None):
            self.refresh = refresh_ttl

    store = Recording()
    SummaryStore(store, "thread").get("key")
    assert store.refresh is False


class Broken(InMemoryStore):
    """Fails before, or after it has written."""

    def __init__(self, moment):
        super().__init__()
        self.moment = moment

    def put(self, *args, **options):
        if self.moment == "after":
            super().put(*args, **options)
        raise ConnectionError("the store is gone")

    def get(self, *args, **options):
        raise ConnectionError("the store is gone")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_store_that_fails_is_reported_and_never_raises(moment):
    """Put and both reads log what happened."""
    summaries = SummaryStore(Broken(moment), "thread")
    with capture_logs() as logs:
        summaries.put("key", WRITTEN)
        assert (summaries.get("key"), await summaries.aget("key")) == (None, None)
    failed = {"thread": "thread", "error": "ConnectionError: the store is gone", "log_level": "warning"}
    assert logs == [
        {"event": "summary.not_stored", **failed},
        {"event": "summary.not_read", **failed},
        {"event": "summary.not_read", **failed},
    ]


class Hung(InMemoryStore):
    """Answers when a test lets it."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.opened = threading.Event()

    def get(self, *args, **options):
        self.entered.set()
        assert self.opened.wait(PATIENCE)


@pytest.fixture
def hung():
    """A store that hangs until the end of the test."""
    store = Hung()
    yield store
    store.opened.set()


async def test_a_store_that_hangs_is_not_waited_for(monkeypatch, hung):
    """Both reads give up after a named time, with a warning."""
    monkeypatch.setattr(module, "READ_SECONDS", 0.05)
    summaries = SummaryStore(hung, "thread")
    with capture_logs() as logs:
        assert (summaries.get("key"), await summaries.aget("key")) == (None, None)
    assert [entry["error"] for entry in logs] == ["TimeoutError: no answer within 0.05 seconds"] * 2


async def test_an_async_store_that_hangs_is_not_waited_for(monkeypatch, tmp_path):
    """The event loop's own read is bounded, too."""
    monkeypatch.setattr(module, "READ_SECONDS", 0.05)
    async with opened("async_sqlite", tmp_path / "store.sqlite") as store, store.lock:
        with capture_logs() as logs:
            assert await SummaryStore(store, "thread").aget("key") is None
    assert [entry["event"] for entry in logs] == ["summary.not_read"]


async def test_a_sync_read_on_the_loop_of_an_async_store_gives_up(monkeypatch, tmp_path):
    """It would wait for itself; it ends as None instead of a deadlock."""
    monkeypatch.setattr(module, "READ_SECONDS", 0.05)
    async with opened("async_sqlite", tmp_path / "store.sqlite") as store:
        with capture_logs() as logs:
            assert SummaryStore(store, "thread").get("key") is None
        await asyncio.sleep(0)
    assert [entry["event"] for entry in logs] == ["summary.not_read"]


def test_reads_that_hang_do_not_pile_up(monkeypatch):
    """Past a bound no further thread is started; once the store answers, reading works again."""
    monkeypatch.setattr(module, "READ_SECONDS", 0.001)
    started, ended = [], threading.Semaphore(0)

    class Counting(Hung):
        def get(self, *args, **options):
            started.append(1)
            super().get()

    def in_few(work):
        job = in_few_daemons(work)
        job.add_done_callback(lambda _: ended.release())  # runs after the callback that frees the place
        return job

    monkeypatch.setattr(module, "in_few_daemons", in_few)
    hung = Counting()
    summaries = SummaryStore(hung, "thread")
    with capture_logs() as logs:
        assert {summaries.get("key") for _ in range(80)} == {None}
    assert len(started) <= MAX_HANGING < len(logs) == 80
    hung.opened.set()
    assert all(ended.acquire(timeout=PATIENCE) for _ in started)
    healthy = SummaryStore(InMemoryStore(), "thread")
    healthy.put("key", WRITTEN)
    monkeypatch.setattr(module, "READ_SECONDS", PATIENCE)
    assert healthy.get("key") == WRITTEN


async def test_a_cancelled_read_is_cancelled(hung):
    """Cancelling the turn is no failure of the store."""
    task = asyncio.get_running_loop().create_task(SummaryStore(hung, "thread").aget("key"))
    assert await asyncio.to_thread(hung.entered.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_every_store_says_whether_items_expire():
    """The attribute that decides about the time to live is part of LangGraph's contract."""
    assert (BaseStore.supports_ttl, SqliteStore.supports_ttl) == (False, True)
