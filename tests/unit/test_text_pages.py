"""Do pages of text end at readable places, fit their budgets, and give the whole text together?"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.tool_results.pages import PASSAGE_CHARS, page_end, passages, tail_start

ESTIMATE = TokenEstimator().count_text
PIECES = st.sampled_from([
    "word ", "Sentence one. ", "Is it? ", "\n", "\n\n", "# Title\n", "a" * 40, " " * 30, "你好。", "これは文です。",
    "ภาษาไทย ", "جملة عربية؟ ", "हिन्दी वाक्य। ", "\r\n", "e\u0301", "👩\u200d👧", "\ud83d\ude00", "\ud800", "\x00",
    "\u2028", "\u00a0", "1,2,3\n", "-", "|a|b|\n", "=" * 20,
])  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))
UNEVEN = [lambda part: len(part) + len(part) % 7 * 3]  # a counter may charge more for a page than for its parts
PRICES = st.sampled_from(
    [len, ESTIMATE, lambda text: len(text.encode("utf-8", "replace")), lambda text: len(text) // 4, *UNEVEN]
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


@given(TEXTS, st.integers(-1, 200), PRICES)
def test_pages_give_the_text_and_fit(text, budget, price):
    found = pages(text, budget, price)

    assert "".join(found) == text
    assert [page for page in found if price(page) > budget and len(page) > 1] == []


@given(TEXTS, st.integers(-1, 200), st.integers(0, 250), PRICES)
def test_the_tail_fits_and_begins_late_enough(text, budget, earliest, price):
    earliest = min(earliest, len(text))

    start = tail_start(text, budget, price, earliest)

    assert earliest <= start <= len(text)
    assert start == len(text) or price(text[start:]) <= budget


@pytest.mark.parametrize(
    ("text", "budget", "first"),
    [
        ("One line.\nSecond line.\n\nAnother one.\nIts second line.\n", 40, "One line.\nSecond line.\n\n"),
        ("".join(f"{n},name {n},{n * 7}\n" for n in range(100, 140)), 50, "100,name 100,700\n101,name 101,707\n"),
        ("Dr. Smith came. The second sentence. The third.", 42, "Dr. Smith came. The second sentence. "),
        ("今天天气很好。我们去公园吧。你觉得呢。", 16, "今天天气很好。我们去公园吧。"),
        ("هذه هي الجملة الأولى. وهذه هي الجملة الثانية.", 30, "هذه هي الجملة الأولى. "),
        ("# A\n\nShort.\n\n" + "Some words " * 20, 100, "# A\n\nShort.\n\n" + "Some words " * 7 + "Some "),
        ("QUJD" * 30, 50, "QUJD" * 12 + "QU"),
        ("abcde\u0301" + "x" * 9, 5, "abcd"),
        ("abcd\ud83d\ude00" + "x" * 9, 5, "abcd"),
        ("abc👩\u200d👧" + "x" * 9, 5, "abc"),
    ],
    ids=["paragraph", "row", "sentence", "Chinese", "Arabic", "not tiny", "encoded", "accent", "surrogates", "emoji"],
)
def test_a_page_ends_with(text, budget, first):
    assert pages(text, budget)[0] == first


def test_a_page_looks_at_a_window_only():
    priced = []

    def price(text):
        priced.append(len(text))
        return ESTIMATE(text)

    page_end("A line of a log, as there are many.\n" * 1_000_000, 5_000_000, 1_000, price)

    assert (len(priced) < 60, max(priced) <= 8_000) == (True, True)


def test_the_tail_begins_with_a_line_or_is_all_that_is_left():
    text = "".join(f"line {number} of the log\n" for number in range(100))

    assert text[tail_start(text, 55, len, 0) :] == "line 98 of the log\nline 99 of the log\n"
    assert tail_start("one two three", 100, len, 4) == 4


@given(TEXTS, st.sampled_from(["a", "WORD ", "e. ", "你好", "\n", "1,2", "=", "\ud83d", "."]), st.integers(0, 40))
def test_passages_cover_every_hit_once_and_a_search_goes_on_at_any_of_them(text, needle, start):
    found = list(passages(text, needle, start))

    edges = [start, *(position for span in found for position in span), len(text)]
    assert edges == sorted(edges) or not found
    assert [text[a:b] for a, b in found if needle.lower() not in text[a:b].lower()] == []
    hits = [match.span() for match in re.compile(re.escape(needle), re.IGNORECASE).finditer(text, start)]
    assert [hit for hit in hits if not any(a <= hit[0] and hit[1] <= b for a, b in found)] == []
    whole = list(passages(text, needle, 0))
    rest = whole[start:]
    assert not rest or list(passages(text, needle, rest[0][0])) == rest


LONG = "word " * 500 + "needle " + "word " * 500


@pytest.mark.parametrize(
    ("text", "needle", "found"),
    [
        ("INFO start\nERROR disk full\nINFO go on\nerror again\n", "error", ["ERROR disk full", "error again"]),
        (LONG, "needle", ["word " * 29 + "needle" + " word" * 29]),
        ("Straße und STRASSE", "straße", ["Straße und STRASSE"]),
        ("İstanbul\nizmir", "izmir", ["izmir"]),
        ("İİİİ\nreport (final).*", "(FINAL).*", ["report (final).*"]),
        ("退款政策\n宠物", "宠物", ["宠物"]),
        ("anything", "", []),
    ],
)
def test_a_passage_is_a_line_or_some_words_of_a_long_one(text, needle, found):
    shown = [text[start:stop] for start, stop in passages(text, needle, 0)]

    assert shown == found
    assert [passage for passage in shown if len(passage) > PASSAGE_CHARS + len(needle)] == []


def test_passages_are_found_as_they_are_asked_for():
    found = passages("needle\n" * 2_000_000, "needle", 0)

    assert [next(found), next(found)] == [(0, 6), (7, 13)]
