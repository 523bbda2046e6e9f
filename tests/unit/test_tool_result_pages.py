import re
from contextlib import nullcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import TokenEstimator, ToolResultConfig, ToolResultGuard
from langchain_ctxwin.config import ToolOverrides
from langchain_ctxwin.errors import ConfigError, ResultGoneError
from langchain_ctxwin.tool_results.pages import page_end
from langchain_ctxwin.tool_results.stores import LangGraphResultStore
from support.walking import (
    PRICE,
    FakeClock,
    answers,
    body_of,
    guard_of,
    last_cursor,
    walk,
)

LOGIN = "Signing in fails on the second try. "


def issues(count):
    """A page of an issue tracker's search."""
    url = "https://tracker.example"
    items = [
        {"id": 9_000 + at, "number": at, "title": f"Issue {at}", "state": "open" if at % 3 else "closed",
         "html_url": f"{url}/issues/{at}", "created_at": "2024-05-31T10:00:00Z", "body": LOGIN * 12,
         "user": {"login": f"user{at % 7}", "avatar_url": f"{url}/{at}.png", "site_admin": False}}
        for at in range(count)
    ]  # fmt: skip
    return {"total_count": count, "incomplete_results": False, "items": items}


def listing(count):
    """A page of payments, whose rows stand beside a flag and an address."""
    rows = [
        {"id": f"ch_{at}", "amount": 100 * at, "currency": "eur", "metadata": {}}
        for at in range(count)
    ]
    return {"object": "list", "url": "/v1/charges", "has_more": True, "data": rows}


def log(lines):
    """What a build prints."""
    return (
        "".join(
            f"2024-05-31 10:00:{at % 60:02} INFO step {at} done\n"
            for at in range(lines)
        )
        + "ERROR: exit code 3\n"
    )


@pytest.mark.parametrize(
    "fields",
    [["number", "autor.login"], "number, autor.login", '["number", "autor.login"]'],
)
def test_a_wrong_field_is_refused_and_spends_no_page(fields):
    guard = guard_of(max_tokens=600)
    cursor = last_cursor(guard.output(issues(120), "rows", {}))

    with pytest.raises(ConfigError, match=r"matches \['autor.login'\], so nothing was"):
        guard.read(cursor, fields=fields)

    page = guard.read(cursor, fields="number, user.login")
    assert re.findall(r"(?m)^(\d+)\|", body_of(page))[:3] == ["0", "1", "2"]


def test_a_page_says_what_it_leaves_out_where_it_does():
    plain = [{"id": at, "name": f"row {at}"} for at in range(300)]
    rows = [*plain, {"id": 300, "name": "last", "url": "https://tracker.example/300"}]
    pages = walk(guard_of(max_tokens=600), rows)

    assert ["Left out: " in page for page in pages] == [
        "last" in page for page in pages
    ]


def test_pages_have_as_many_rows_as_are_configured():
    large = walk(guard_of(max_tokens=2_000, page_rows=50), listing(150))
    rows = [{"id": at, "body": LOGIN * 9} for at in range(200)]
    (first, *_) = walk(guard_of(max_tokens=4_000, page_rows=50), rows)

    assert [len(re.findall(r"ch_\d+", body_of(page))) for page in large] == [50] * 3
    assert len(re.findall(r"(?m)^\d+\|", body_of(first))) == 50


def test_one_tool_can_have_its_own_settings():
    own = ToolOverrides(max_tokens=400, fields=("number",))
    guard = guard_of(max_tokens=900, per_tool={"small": own})
    small = guard.output(issues(200), "small", {})

    assert PRICE(small) <= 400
    assert "Issue 1" not in small
    assert PRICE(guard.output(issues(200), "rows", {})) > 400


@pytest.mark.parametrize(("name", "is_kept"), [("short", False), ("rows", True)])
def test_a_tool_may_have_its_results_kept_for_another_time(name, is_kept):
    clock, own = FakeClock(), ToolOverrides(ttl_seconds=60)
    guard = guard_of(clock=clock, max_tokens=900, per_tool={"short": own})
    page = guard.output(issues(200), name, {})
    clock.now += 61
    with nullcontext() if is_kept else pytest.raises(ResultGoneError):
        guard.read(last_cursor(page))


def test_results_live_as_long_as_their_thread_where_there_is_a_store():
    clock = FakeClock()
    results = LangGraphResultStore(InMemoryStore(), clock=clock)
    kept, passing = (
        ToolResultGuard(ToolResultConfig(max_tokens=600), store=store, clock=clock)
        for store in (results, None)
    )
    page, other = (guard.output(issues(400), "rows", {}) for guard in (kept, passing))
    clock.now += 30 * 86_400
    assert "Result of rows" in kept.read(last_cursor(page))
    with pytest.raises(ResultGoneError):
        passing.read(last_cursor(other))


@pytest.mark.parametrize("tokens", [300, 2_000])
@pytest.mark.parametrize("result", [issues(300), log(1_000)], ids=["rows", "log"])
def test_pages_use_their_budget_and_never_more(result, tokens):
    shares = [
        PRICE(answer.text) / tokens
        for answer in answers(result, tokens)
        if answer.following
    ]

    assert len(shares) > 3
    assert (sum(shares) / len(shares) >= 0.85, max(shares) <= 1) == (True, True)


# where the pages of a text end

ESTIMATE = TokenEstimator().count_text
PIECES = st.sampled_from([
    "word ", "Sentence one. ", "Is it? ", "\n", "\n\n", "# Title\n", "a" * 40, " " * 30, "你好。", "これは文です。",
    "ภาษาไทย ", "جملة عربية؟ ", "हिन्दी वाक्य। ", "\r\n", "e\u0301", "👩\u200d👧", "\ud83d\ude00", "\ud800", "\x00",
    "\u2028", "\u00a0", "1,2,3\n", "-", "|a|b|\n", "=" * 20,
])  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))
# a counter may charge more for a page than for its parts
UNEVEN = [lambda part: len(part) + len(part) % 7 * 3]
PRICES = st.sampled_from(
    [
        len,
        ESTIMATE,
        lambda text: len(text.encode("utf-8", "replace")),
        lambda text: len(text) // 4,
        *UNEVEN,
    ]
)


def pages(text, budget, price=len):
    """All pages of a text."""
    found, start = [], 0
    while start < len(text):
        stop = page_end(text, start, budget, price)
        assert start < stop <= len(text)
        found.append(text[start:stop])
        start = stop
    return found


@example("word word word ", 7, UNEVEN[0])
@given(TEXTS, st.integers(-1, 200), PRICES)
def test_pages_give_the_text_and_fit(text, budget, price):
    found = pages(text, budget, price)

    assert "".join(found) == text
    assert [page for page in found if price(page) > budget and len(page) > 1] == []
