"""Do pages of text end at readable places, fit their budgets, and give the whole text together?"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.tool_results.text_pages import PASSAGE_CHARS, page_end, passages, tail_start

ESTIMATE = TokenEstimator().count_text
PIECES = st.sampled_from(
    [
        *("word ", "Sentence one. ", "Is it? ", "\n", "\n\n", "# Title\n", "## Sub\n\n", "Title\n===\n", "---\n", "\f"),
        *(
            "a" * 40,
            " " * 30,
            "你好。",
            "これは文です。",
            "ภาษาไทย ",
            "جملة عربية؟ ",
            "हिन्दी वाक्य। ",
            "\r\n",
            "e\u0301",
            "👩\u200d👧",
        ),
        *("\ud83d\ude00", "\ud800", "\x00", "\u2028", "\u00a0", "1,2,3\n", "-", "|a|b|\n", "#", "=" * 20),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200))
PRICES = st.sampled_from(
    [len, ESTIMATE, lambda text: len(text.encode("utf-8", "replace")), lambda text: len(text) // 4]
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
    """Nothing is lost or said twice, and only a page of one character may cost more than its budget."""
    found = pages(text, budget, price)

    assert "".join(found) == text
    assert [page for page in found if price(page) > budget and len(page) > 1] == []


@given(TEXTS, st.integers(0, 200), st.integers(0, 250), st.integers(0, 250))
def test_a_page_ends_at_the_stop_at_the_latest(text, budget, start, stop):
    """What is shown elsewhere is not shown again."""
    start, stop = sorted((min(start, len(text)), min(stop, len(text))))

    assert min(start + 1, stop) <= page_end(text, start, budget, len, stop) <= stop


@given(TEXTS, st.integers(-1, 200), st.integers(0, 250), PRICES)
def test_the_tail_fits_and_begins_late_enough(text, budget, earliest, price):
    """The end of a text is shown only as far as the budget reaches."""
    earliest = min(earliest, len(text))

    start = tail_start(text, budget, price, earliest)

    assert earliest <= start <= len(text)
    assert start == len(text) or price(text[start:]) <= budget


@given(TEXTS, st.integers(1, 60), st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_a_price_that_does_not_add_up_is_checked_for_the_whole_page(text, budget, extras):
    """A counter may charge more for a page than for its parts."""

    def price(part):
        return len(part) + extras[len(part) % len(extras)]

    assert [page for page in pages(text, budget, price) if price(page) > budget and len(page) > 1] == []


def test_a_page_ends_before_a_section():
    """Headings begin pages where that leaves less than half of a page unused."""
    text = "# One\n\nText of one.\n\n# Two\n\nText of two.\n\n# Three\n\nText of three.\n"

    assert pages(text, 50) == [
        "# One\n\nText of one.\n\n# Two\n\nText of two.\n\n",
        "# Three\n\nText of three.\n",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("First part.\n\nTitle\n=====\nMore text follows.", "First part.\n\n"),
        ("First part.\n\n---\nMore text follows here.", "First part.\n\n"),
        ("First part here.\fMore text follows here.", "First part here.\f"),
        ("First part.\n\n=====\nTitle\n=====\nMore text.", "First part.\n\n"),
    ],
    ids=["underlined title", "rule", "form feed", "title between rules"],
)
def test_a_section_begins_at(text, first):
    """Headings by a rule, rules and form feeds part sections as headings by marks do."""
    assert pages(text, 20)[0] == first


def test_a_paragraph_is_kept_whole():
    """Without sections, blank lines part a text."""
    text = "One line.\nSecond line.\n\nAnother one.\nIts second line.\n"

    assert pages(text, 40) == ["One line.\nSecond line.\n\n", "Another one.\nIts second line.\n"]


@pytest.mark.parametrize("heading", ["## A heading of this section\n\n", "A heading of this section\n=====\n\n"])
def test_a_heading_goes_with_what_follows_it(heading):
    """A heading is not the last thing on a page, even where the page is left nearly empty."""
    text = f"Some words.\n\n{heading}The text under it is longer than the page that the heading would end."

    assert pages(text, 48)[0] == "Some words.\n\n"


def test_a_row_is_kept_whole():
    """Pages of logs and CSV end with lines."""
    text = "".join(f"{number},name {number},{number * 7}\n" for number in range(100, 140))

    found = pages(text, 100)

    assert "".join(found) == text
    assert all(page.endswith("\n") and len(page) > 50 for page in found)


@pytest.mark.parametrize(
    ("text", "budget", "first"),
    [
        (
            "The first one, by Dr. Smith. The second sentence. The third.",
            52,
            "The first one, by Dr. Smith. The second sentence. ",
        ),
        ("今天天气很好。我们去公园吧。你觉得呢。", 16, "今天天气很好。我们去公园吧。"),
        ("これは一つ目の文です。これは二つ目の文です。", 15, "これは一つ目の文です。"),
        ("هذه هي الجملة الأولى. وهذه هي الجملة الثانية.", 30, "هذه هي الجملة الأولى. "),
        ("यह पहला वाक्य है। यह दूसरा वाक्य है।", 25, "यह पहला वाक्य है। "),
        ("เรือสร้างในปีนี้ ที่เมืองเบอร์เกน มันขนส่งรถยนต์", 36, "เรือสร้างในปีนี้ ที่เมืองเบอร์เกน "),
    ],
    ids=["English", "Chinese", "Japanese", "Arabic", "Hindi", "Thai"],
)
def test_a_long_line_ends_with_a_sentence(text, budget, first):
    """Sentences are found in any script; Thai puts a space between phrases."""
    assert pages(text, budget)[0] == first


def test_a_page_is_not_tiny():
    """A short section before a long one does not leave a page nearly empty."""
    text = f"# A\n\nShort.\n\n# B\n\n{'Some more words. ' * 20}"

    assert len(pages(text, 100)[0]) > 80


def test_encoded_text_is_cut_anywhere():
    """Text without any place to cut fills pages to the last character."""
    assert pages("QUJD" * 30, 50) == ["QUJD" * 12 + "QU", "JD" + "QUJD" * 12, "QUJD" * 5]


def test_a_character_stays_whole():
    """Accents, surrogate pairs and joined emoji are not parted."""
    assert pages("abcde\u0301" + "x" * 9, 5)[0] == "abcd"
    assert pages("abcd\ud83d\ude00" + "x" * 9, 5)[0] == "abcd"
    assert pages("abc👩\u200d👧" + "x" * 9, 5)[0] == "abc"


def test_a_page_looks_at_a_window_only():
    """A text of any length costs as much as the page."""
    priced = []

    def price(text):
        priced.append(len(text))
        return ESTIMATE(text)

    page_end("A line of a log, as there are many.\n" * 1_000_000, 5_000_000, 1_000, price)

    assert len(priced) < 60
    assert max(priced) <= 8_000


def test_the_tail_begins_with_a_line():
    """The last lines of a log are whole ones."""
    text = "".join(f"line {number} of the log\n" for number in range(100))

    assert text[tail_start(text, 55, len, 0) :] == "line 98 of the log\nline 99 of the log\n"


def test_the_tail_is_all_that_is_left_where_that_fits():
    """A short rest is shown whole, from where the head ended."""
    assert tail_start("one two three", 100, len, 4) == 4


@given(TEXTS, st.sampled_from(["a", "WORD ", "e. ", "你好", "\n", "1,2", "=", "\ud83d"]), st.integers(0, 40))
def test_passages_cover_every_hit_once(text, needle, start):
    """Passages follow each other, each has the phrase, and no phrase is outside of them."""
    found = list(passages(text, needle, start))

    edges = [start, *(position for span in found for position in span), len(text)]
    assert edges == sorted(edges) or not found
    assert [text[a:b] for a, b in found if needle.lower() not in text[a:b].lower()] == []
    hits = [match.span() for match in re.compile(re.escape(needle), re.IGNORECASE).finditer(text, start)]
    assert [hit for hit in hits if not any(a <= hit[0] and hit[1] <= b for a, b in found)] == []


@given(TEXTS, st.sampled_from(["a", "word", "你", "."]), st.integers(0, 60))
def test_a_search_goes_on_at_any_passage(text, needle, number):
    """A page of a search may begin at each passage that the search before it found."""
    found = list(passages(text, needle, 0))

    rest = found[number:]
    assert not rest or list(passages(text, needle, rest[0][0])) == rest


def shown(text, needle):
    return [text[start:stop] for start, stop in passages(text, needle, 0)]


def test_a_passage_is_a_line():
    """Of a log the lines with the phrase are shown."""
    assert shown("INFO start\nERROR disk full\nINFO go on\nerror again\n", "error") == [
        "ERROR disk full",
        "error again",
    ]


def test_a_passage_of_a_long_line_is_a_sentence():
    """Of a long paragraph the sentence around the phrase is shown."""
    text = "Nothing is said here about it. " * 20 + "The refund takes 14 days. " + "Nor here is anything. " * 20

    assert shown(text, "REFUND") == ["The refund takes 14 days. "]


def test_a_passage_of_running_text_is_short():
    """Without sentences some whole words around the phrase are shown."""
    text = "word " * 500 + "needle " + "word " * 500

    (passage,) = shown(text, "needle")
    assert len(passage) <= PASSAGE_CHARS + len("needle")
    assert set(passage.split()) == {"word", "needle"}


@pytest.mark.parametrize(
    ("text", "needle", "found"),
    [
        ("Straße und STRASSE", "straße", ["Straße und STRASSE"]),
        ("İstanbul\nizmir", "izmir", ["izmir"]),
        ("İİİİ\nreport (final).*", "(FINAL).*", ["report (final).*"]),
        ("退款政策\n宠物", "宠物", ["宠物"]),
        ("anything", "", []),
    ],
)
def test_positions_are_those_of_the_text(text, needle, found):
    """Letters that change their length in lower case move nothing, and nothing is a pattern."""
    assert shown(text, needle) == found


def test_passages_are_found_as_they_are_asked_for():
    """The first passage of a long text does not wait for the others."""
    text = "needle\n" * 2_000_000

    found = passages(text, "needle", 0)

    assert [next(found), next(found)] == [(0, 6), (7, 13)]
