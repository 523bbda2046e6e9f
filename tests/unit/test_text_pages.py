"""Do pages of text end at readable places, fit their budgets, and give the whole text together?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.tool_results.pages import page_end, tail_start

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
