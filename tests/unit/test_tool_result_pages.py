import re

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ToolResultConfig, ToolResultGuard
from langchain_ctxwin.config import ToolOverrides
from langchain_ctxwin.errors import CursorExpiredError, ResultGoneError
from langchain_ctxwin.tool_results.query import Question
from langchain_ctxwin.tool_results.stores import LangGraphResultStore
from support.result_stores import FakeClock
from support.walking import PRICE, answers, ask, body_of, cursor_in, guard_of, walk

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
    rows = [{"id": f"ch_{at}", "amount": 100 * at, "currency": "eur", "metadata": {}} for at in range(count)]
    return {"object": "list", "url": "/v1/charges", "has_more": True, "data": rows}


def log(lines):
    """What a build prints."""
    return (
        "".join(f"2024-05-31 10:00:{at % 60:02} INFO step {at} done\n" for at in range(lines)) + "ERROR: exit code 3\n"
    )


def document(sections):
    """A page of documentation."""
    return "".join(f"## Section {at}\n\nIt says a few things about part {at}. And more.\n\n" for at in range(sections))


def numbers_in(pages, pattern):
    """All numbers that a pattern finds in the bodies of pages, in order."""
    return [int(number) for page in pages for number in re.findall(pattern, body_of(page))]


def test_the_first_page_begins_with_the_fields_beside_the_rows():
    pages = walk(guard_of(max_tokens=600), listing(300))

    assert body_of(pages[0]).startswith("object: list\nurl: /v1/charges\n")
    assert "has_more" in pages[0]
    assert "Here: the fields beside the rows, rows 1-" in pages[0]
    assert [page for page in pages[1:-1] if "beside" in page] == []


@pytest.mark.parametrize(
    ("result", "pattern", "count"),
    [
        (issues(120), r"(?m:^\{id:|^)9\d\d\d(?:\||,number:)(\d+)", 120),
        (listing(300), r"ch_(\d+)", 300),
        ([[at, f"name {at}", None] for at in range(300)], r"name (\d+)", 300),
        ([{"listing": at, "price": {"base": at * 2.5, "currency": "EUR"}} for at in range(400)], r"(?m:^)(\d+)\|", 400),
        ({"hits": {"total": 200, "hits": [{"_id": f"h{at}", "_score": 1.5} for at in range(200)]}}, r"h(\d+)\|?", 200),
        ({"result": {f"key{at}": {"size": at} for at in range(1_000)}}, r"key(\d+)", 1_000),
        ({f"key{at}": "some text" for at in range(1_000)}, r"key(\d+)", 1_000),
        (log(800), r"step (\d+) done", 800),
        (document(200), r"Section (\d+)", 200),
    ],
    ids=["issues", "listing", "sql", "properties", "hits", "map of objects", "map of texts", "log", "document"],
)  # fmt: skip
def test_a_walk_shows_every_row_once_in_order(result, pattern, count):
    pages = walk(guard_of(max_tokens=600), result)
    head, *tail = body_of(pages[0]).split("\n[…]\n")
    shown = [int(number) for number in re.findall(pattern, head)]
    shown += numbers_in([page for page in pages[1:] if "<data" in page], pattern)

    assert len(pages) > 3
    assert shown == list(range(count))
    ending = [int(number) for text in tail for number in re.findall(pattern, text)]
    assert ending == shown[count - len(ending) :]
    assert [PRICE(page) for page in pages if PRICE(page) > 600] == []


def test_a_row_larger_than_a_page_is_paged_inside_by_its_path():
    rows = [{"id": 1}, {"id": 2, "user": {"notes": LOGIN * 300}}, {"id": 3}]

    found = [answer for answer in answers({"rows": rows}, 500, Question(fields=("*",))) if answer.page.inside]
    text = "".join(answer.page.body.partition("characters):\n")[2] for answer in found)

    assert len(found) > 3
    assert {answer.page.inside for answer in found} == {"row 2"}
    assert [answer for answer in found[1:] if not answer.page.body.startswith("(goes on) rows[1].user.notes (")] == []
    assert [answer for answer in found if "part of row 2" not in answer.text] == []
    assert text.count(LOGIN.strip()) == 300


def test_the_first_page_tells_the_name_of_the_list_that_holds_the_rows():
    page, *_ = walk(guard_of(max_tokens=600), {"result": issues(120)})

    assert re.search(r"(?m)^\(rows of result\.items\[\](; left out: .*)?\)$", body_of(page) or page)


@pytest.mark.parametrize("fields", [["number", "autor.login"], "number, autor.login", '["number", "autor.login"]'])
def test_a_wrong_field_is_answered_with_the_right_ones_and_spends_no_page(fields):
    guard = guard_of(max_tokens=600)
    cursor = cursor_in(guard.output(issues(120), "rows", {}))

    page = guard.read(cursor, fields=fields)
    names = body_of(page).split(", ")

    assert 'matches ["autor.login"], so nothing was read' in page
    assert cursor_in(page) is None
    assert names[0] == "user.login"
    assert {"number", "title", "state", "total_count", "incomplete_results"} < set(names)
    assert numbers_in([guard.read(cursor, fields="number, user.login")], r"(?m:^(\d+)\|)")[:3] == [0, 1, 2]


def test_a_search_shows_passages_of_fields_that_are_not_shown():
    result = issues(200)
    result["items"][150]["html_url"] = "https://tracker.example/archive/needle"

    pages = ask(guard_of(max_tokens=600), result, contains="NEEDLE")

    assert len(pages) == 1
    assert "1 of 200 rows" in pages[0]
    assert "9150" in body_of(pages[0])
    assert "archive/needle" in body_of(pages[0])


def test_pages_have_as_many_rows_as_are_configured_also_of_results_that_fit():
    small, large = (walk(guard_of(max_tokens=tokens, page_rows=50), listing(150)) for tokens in (20_000, 2_000))
    rows = [{"id": at, "body": LOGIN * 9} for at in range(200)]
    (first, *_) = walk(guard_of(max_tokens=4_000, page_rows=50), rows)

    for pages in (small, large):
        assert [len(re.findall(r"ch_\d+", body_of(page))) for page in pages] == [50, 50, 50]
    assert len(re.findall(r"(?m)^\d+\|", body_of(first))) == 50


def test_without_pagination_there_is_one_view_and_all_of_it_can_be_read():
    guard = guard_of(max_tokens=600, pagination=False)
    page = guard.output(issues(200), "rows", {})
    everything = ask(guard, issues(200), fields=["*"])
    lines = ask(guard, log(800), fields=["*"])

    assert "Next page" not in page
    assert "".join(map(body_of, lines)) == log(800)
    assert PRICE(page) <= 600
    assert numbers_in(everything, r"tracker\.example/issues/(\d+)") == list(range(200))


def test_without_extraction_texts_are_cut_to_their_beginning():
    rows = [{"id": at, "body": f"First {at}. " + "word " * 400 + "An error occurred."} for at in range(40)]

    pages = walk(guard_of(max_tokens=900, extraction=False), rows)

    assert "An error occurred" not in "".join(pages)
    assert re.search(r"First 0\. word .*… \[[\d,]+ more characters\]", pages[0])


def test_one_tool_can_have_its_own_settings():
    own = ToolOverrides(max_tokens=400, fields=("number",), ttl_seconds=60)
    guard = guard_of(max_tokens=900, ttl_seconds=900, per_tool={"small": own})

    small, other = guard.output(issues(200), "small", {}), guard.output(issues(200), "rows", {})

    assert (PRICE(small) <= 400 < PRICE(other) <= 900) is True
    assert ("Issue 1" in body_of(small), "Issue 1" in body_of(other)) == (False, True)
    assert ("60 seconds" in small, "900 seconds" in other) == (True, True)


def test_each_read_extends_the_expiry_of_the_result_and_none_that_of_its_cursor():
    clock = FakeClock()
    guard = guard_of(max_tokens=600, clock=clock)
    page = guard.output(issues(400), "rows", {})
    for _ in range(5):
        old = page
        assert "600 seconds" in page
        clock.now += 500
        page = guard.read(cursor_in(page))
    assert "Result of rows" in page

    clock.now += 101
    with pytest.raises(CursorExpiredError, match="newest cursor"):
        guard.read(cursor_in(old))
    newer = guard.read(cursor_in(page))
    clock.now += 601
    with pytest.raises((CursorExpiredError, ResultGoneError), match="repeating it is safe"):
        guard.read(cursor_in(newer))


def test_rows_that_are_found_stand_below_their_header_when_a_larger_one_before_them_shows_its_passages():
    rows = [
        {"number": at, "state": "open" if at < 12 else "closed", "title": f"error {at}", "body": "long " * sizes}
        for at in range(40)
        for sizes in (9_000 if at in {0, 14} else 3,)
    ]

    first, *others = answers(rows, 600, Question(contains="error", fields=("*",)))
    assert first.page.body.startswith("row|title|number|state|body\n1|error 0\n2|error 1|1|open|")
    text = "\n".join(answer.page.body for answer in (first, *others))
    assert len(re.findall(r"error \d+", text)) == 40


def test_the_tool_explains_every_mark_that_its_pages_use():
    guard = guard_of(max_tokens=500, keywords=("refund",))
    body = f"{LOGIN * 9}The refund was late. {LOGIN * 99}"
    rows = [{"id": at, "title": f"Issue {at}", "state": "open", "labels": [{"name": "a", "rank": 1}, {"name": "b"}],
             "body": body} for at in range(40)]  # fmt: skip
    shown = "\n".join([*walk(guard, rows), *walk(guard, document(200)), *ask(guard, rows, fields=["*"])])
    marks = {
        "id|": r"(?m)^id\|title",
        "…": r"\. … The refund",
        "[…]": r"(?m)^\[…\]$",
        "[41 more characters]": r"\[[\d,]+ more characters\]",
        "(goes on)": r"(?m)^\(goes on\) ",
    }

    (read_more,) = guard.tools
    assert [mark for mark, pattern in marks.items() if not re.search(pattern, shown)] == []
    assert [mark for mark in marks if mark not in read_more.description] == []


def test_results_live_as_long_as_their_thread_where_there_is_a_store():
    clock = FakeClock()
    results = LangGraphResultStore(InMemoryStore(), clock=clock)
    kept, passing = (
        ToolResultGuard(ToolResultConfig(max_tokens=600), store=store, clock=clock) for store in (results, None)
    )
    page, other = (guard.output(issues(400), "rows", {}) for guard in (kept, passing))
    assert ("600 seconds" in page, "600 seconds" in other) == (False, True)
    clock.now += 30 * 86_400
    assert "Result of rows" in kept.read(cursor_in(page))
    with pytest.raises(ResultGoneError):
        passing.read(cursor_in(other))


@pytest.mark.parametrize("tokens", [300, 600, 1_000, 2_000])
@pytest.mark.parametrize("result", [issues(300), log(1_000)], ids=["rows", "log"])
def test_pages_use_their_budget_and_never_more(result, tokens):
    shares = [PRICE(answer.text) / tokens for answer in answers(result, tokens) if answer.following]

    assert len(shares) > 3
    assert (sum(shares) / len(shares) >= 0.85, max(shares) <= 1) == (True, True)
