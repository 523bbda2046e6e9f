"""What becomes of results, settings and calls that nobody should make, and of stores that fail?"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.tools import tool
from pydantic import ValidationError

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from langchain_ctxwin.errors import (
    ConfigError,
    CursorError,
    CursorExpiredError,
    CursorTamperedError,
    ResultGoneError,
)
from langchain_ctxwin.tool_results.cursors import namespace_of_results
from langchain_ctxwin.tool_results.stores import MemoryResultStore
from support.oracle import text_tokens
from support.tool_runs import both, call, last_cursor, results
from support.walking import FakeClock

ROWS = [
    {"id": index, "note": f"the note of row {index} says {index * 7919}"}
    for index in range(3_000)
]


def guard_of(max_tokens=600, **options):
    return ToolResultGuard(ToolResultConfig(max_tokens=max_tokens), **options)


def returned(guard, value, *, is_async=False, **options):
    """Return the message of a tool that returns a value, or calls it for one."""

    @tool
    def give() -> Any:
        """Give."""
        return value() if callable(value) else value

    (message,) = results(
        "wrap", guard, [give], call("give"), is_async=is_async, **options
    )
    return message


NO_SETTINGS = [
    {"max_tokens": 0}, {"max_tokens": -1}, {"max_share": 0.0}, {"max_share": 1.5}, {"max_share": float("nan")},
    {"ttl_seconds": 0}, {"ttl_seconds": -1}, {"ttl_seconds": float("inf")}, {"page_rows": 0}, {"max_token": 100},
    {"per_tool": {"search": {"max_tokens": -1}}}, {"per_tool": {"search": {"max_token": 1}}},
]  # fmt: skip
NO_ARGUMENTS = [
    {"config": {"max_tokens": 100}}, {"config": 4000}, {"store": {}}, {"store": MemoryResultStore}, {"store": object()},
    {"signer": "a key"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", NO_SETTINGS, ids=str)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises((ConfigError, ValidationError)):
        ToolResultConfig(**wrong)


@pytest.mark.parametrize(
    "wrong",
    NO_ARGUMENTS,
    ids=lambda one: "-".join(f"{k}={type(v).__name__}" for k, v in one.items()),
)
def test_arguments_of_the_wrong_type_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ToolResultGuard(**wrong)


def first_page(guard, **options):
    shown = guard.output(ROWS, "give", {}, **options)
    return last_cursor(shown) or ""


@pytest.mark.parametrize(
    ("question", "said"),
    [({"fields": ["a["]}, "a\\["),
     ({"contains": "x*"}, "matches an empty text"),
     ({"where": "id >"}, "write for example"), ({"where": "open('x')"}, "write for example")],
    ids=str,
)  # fmt: skip
def test_a_question_that_cannot_be_asked_is_refused_in_code_and_told_to_the_model(
    question, said
):
    guard = guard_of()
    cursor = first_page(guard)
    with pytest.raises(ConfigError, match=said) as error:
        guard.read(cursor, **question)
    message = guard.tools[0].invoke(call("read_more", cursor=cursor, **question))
    assert (message.status, message.text) == ("error", str(error.value))


def refused(guard, cursor, error, **options):
    """Return what the model is told of a cursor, which must raise `error` in code, sync and async."""
    with pytest.raises(error) as raised:
        guard.read(cursor, **options)
    with pytest.raises(error):
        asyncio.run(guard.aread(cursor, **options))
    if not options:
        message = guard.tools[0].invoke(call("read_more", cursor=cursor))
        assert (message.status, message.text) == ("error", str(raised.value))
    return str(raised.value)


def test_a_changed_or_an_old_cursor_and_one_of_a_result_that_is_gone_are_refused():
    clock, store = FakeClock(), MemoryResultStore()
    guard = guard_of(clock=clock, store=store)
    cursor = first_page(guard)
    refused(
        guard,
        cursor[:-3] + ("A" if cursor[-3] != "A" else "B") + cursor[-2:],
        CursorTamperedError,
    )
    store.clear(namespace_of_results(""))
    refused(guard, cursor, ResultGoneError)
    cursor = first_page(guard)
    clock.now += 601
    assert len(refused(guard, cursor, CursorExpiredError)) < 300


def in_thread(thread):
    return SimpleNamespace(config={"configurable": {"thread_id": thread}})


@pytest.mark.parametrize(
    ("scope", "mine", "other"),
    [
        (None, in_thread("1"), in_thread("2")),
        (
            lambda runtime: f"{runtime.tenant}/1",
            SimpleNamespace(tenant="one"),
            SimpleNamespace(tenant="two"),
        ),
    ],
    ids=["thread", "tenant"],
)
def test_a_cursor_of_another_scope_is_refused(scope, mine, other):
    guard = guard_of(scope=scope)
    cursor = first_page(guard, runtime=mine)
    assert guard.read(cursor, runtime=mine)
    refused(guard, cursor, CursorError, runtime=other)


def fail(*_):
    raise OSError("connection refused")


class Down:
    """A store that does not work."""

    put = get = delete = staticmethod(fail)


@both
@pytest.mark.parametrize(
    "value", [ROWS, "a line of text\n" * 5_000], ids=["rows", "text"]
)
def test_a_store_that_is_down_shortens_the_result_and_says_so(is_async, value):
    message = returned(guard_of(store=Down()), value, is_async=is_async)
    assert message.status == "success"
    assert text_tokens(message.text) <= 600
    assert "could not be stored" in message.text
    assert last_cursor(message.text) is None


@both
def test_a_store_that_is_down_at_a_read_is_told_to_the_model(is_async):
    guard = guard_of()
    cursor = first_page(guard)
    guard._store = Down()
    (message,) = results(
        "node", guard, [], call("read_more", cursor=cursor), is_async=is_async
    )
    assert message.status == "error"
    assert "does not answer now" in message.text
    with pytest.raises(ResultGoneError):
        guard.read(cursor)


def test_a_store_is_awaited_in_async_runs():
    kept = {}

    class InTheLoop(Down):
        async def aput(self, key, value, ttl_seconds):
            await asyncio.sleep(0)
            kept[key] = value

        async def aget(self, key):
            await asyncio.sleep(0)
            return kept.get(key)

    async def run():
        guard = guard_of(store=InTheLoop())
        shown = await guard.aoutput(ROWS, "give", {})
        return await guard.aread(last_cursor(shown) or "")

    assert "Result of give" in asyncio.run(run())
