"""Do pages of text end at readable places, fit their budgets, and give the whole text together?"""

from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.tool_results.pages import page_end

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
