"""How much a request asks of a model is judged by plain signs; models are ranked by price and by outcomes."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_ctxwin.routing.candidates import (
    LONG_CHARS,
    chance_of,
    judged,
    strengths,
)
from support.routing import info

TOOL = {"name": "search_orders", "parameters": {}}


@pytest.mark.parametrize(
    ("text", "complexity"),
    [
        *(
            (plain, "low")
            for plain in (
                "",
                "Hi",
                "What is 2+2?",
                "Danke!",
                "word " * (LONG_CHARS // 5 - 1),
            )
        ),
        *(
            (one, "medium")
            for one in (
                "word " * LONG_CHARS,
                "Prove it.",
                "`f(x)` fails",
                "1, 2 and 3",
                "Who? When?",
            )
        ),
        ("Use search_orders for mine.", "medium"),
        *(
            (two, "high")
            for two in ("Refactor f(x) now.", "Why? And how much is 3 * 4 + 5?")
        ),
    ],
)
def test_each_sign_of_work_raises_the_complexity(text, complexity):
    """The latest user message counts, whatever stands around it."""
    history = [
        SystemMessage("Prove it."),
        HumanMessage("Prove it."),
        HumanMessage(text),
        AIMessage("Why? Who?"),
    ]
    assert judged(history, [TOOL]) == complexity


def test_a_strength_is_the_rank_of_a_price():
    prices = ("1", "3", None, "3", "9")
    assert strengths([info("m", 8_192, price) for price in prices]) == [
        0.0,
        0.5,
        0.5,
        0.5,
        1.0,
    ]
    assert strengths([info("m", 8_192, "1")]) == [0.5]


def test_a_chance_moves_from_what_was_presumed_with_what_was_counted():
    assert [chance_of(0, 1, good, 10) for good in (0, 5, 10)] == [0.25, 0.5, 0.75]
    assert chance_of(0.5, 0.5, 0, 0) == 1
