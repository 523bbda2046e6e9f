"""Does every store keep results until they expire, each for its own tenant, and never return something else?"""

from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin.errors import ConfigError, ResultGoneError
from langchain_ctxwin.tool_results.cursors import ResultRecord
from langchain_ctxwin.tool_results.stores import (
    LangGraphResultStore,
    MemoryResultStore,
    RedisResultStore,
)
from support.result_stores import elsewhere, every_check, opened_store
from support.walking import FakeClock

TTL = 600.0
KINDS = ["memory", "langgraph memory", "async sqlite"]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=KINDS)
async def store(request, clock):
    """Each kind of store, empty."""
    async with opened_store(request.param, request, clock) as store:
        yield store


@every_check
async def test_a_store_keeps_its_contract(store, check):
    await elsewhere(partial(check, store))


async def test_a_result_expires(store, clock):
    def check():
        store.put("ns/a", b"first", TTL)
        clock.now += TTL - 1
        store.put("ns/b", b"second", TTL)
        before = store.get("ns/a")
        clock.now += 1
        assert (before, store.get("ns/a"), store.get("ns/b")) == (
            b"first",
            None,
            b"second",
        )

    await elsewhere(check)


class Broken(InMemoryStore):
    """A store whose database is gone."""

    def batch(self, ops):
        raise ConnectionError("gone")


def test_a_store_that_fails_raises_its_own_error():
    store = LangGraphResultStore(Broken())
    for work in (
        lambda: store.put("ns/a", b"value", TTL),
        lambda: store.get("ns/a"),
        lambda: store.delete("ns/a"),
    ):
        with pytest.raises(ConnectionError, match="gone"):
            work()


@pytest.mark.parametrize("wrong", [None, InMemoryStore, MemoryResultStore()])
def test_what_is_no_store_is_refused(wrong):
    with pytest.raises(ConfigError, match="pass a store of LangGraph"):
        LangGraphResultStore(wrong)


@given(text=st.text(), data=st.data())
def test_damage_to_a_kept_result_is_seen(text, data):
    record = ResultRecord(tool="rows", args_digest="digest", thread="one", text=text)
    whole = record.to_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    flipped = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
    with suppress(ResultGoneError):
        assert ResultRecord.from_bytes(flipped) == record
    for cut in (whole[:place], b""):
        with pytest.raises(ResultGoneError, match="the stored result is damaged"):
            ResultRecord.from_bytes(cut)
    assert ResultRecord.from_bytes(whole) == record


def test_the_memory_is_bounded_in_bytes():
    store = MemoryResultStore(max_bytes=18)
    for name in "abc":
        store.put(f"ns/{name}", b"123456", TTL)
    store.get("ns/a")
    store.put("ns/d", b"123456", TTL)
    kept = [name for name in "abcd" if store.get(f"ns/{name}")]
    assert kept == ["a", "c", "d"]


def test_a_value_that_fits_nowhere_is_refused():
    store = MemoryResultStore(max_bytes=20)
    store.put("ns/a", b"value", TTL)
    with pytest.raises(ConfigError, match=r"2,000 bytes .* max_bytes=20: raise max"):
        store.put("ns/b", b"x" * 2000, TTL)
    assert store.get("ns/a") == b"value"


def test_a_redis_store_needs_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with pytest.raises(ConfigError, match=r'pip install "langchain-ctxwin\[redis\]"'):
        RedisResultStore.from_url("redis://host")
