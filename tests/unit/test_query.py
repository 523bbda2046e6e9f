"""Does a question about a stored result choose, order, count and show the right rows, and is a bad one refused?"""

import re

import pytest

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.query import (
    Pattern,
    condition_of,
    question_of,
)
from support.walking import PRICE, ask, body_of, guard_of

CITIES = ["Graz", "Wien", "Bad Ischl"]
ORDERS = [
    {"id": f"A-{at}", "city": CITIES[at % 3], "total": at * 10, "user": {"login": f"u{at % 5}"},
     "tags": ["new", str(at % 2)],
     "note": None if at % 4 else f"Call before delivery of order {at}. " * 9, "US Gross": str(at)}
    for at in range(300)
]  # fmt: skip


def rows_of(question, result=ORDERS, tokens=900):
    """The lines of all pages of an answer."""
    pages = ask(guard_of(max_tokens=tokens), result, **question)
    assert [PRICE(page) for page in pages if PRICE(page) > tokens] == []
    return [line for page in pages for line in body_of(page).splitlines()]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("total > 2900 and city == 'Bad Ischl'", [293, 296, 299]),
        ("not (total > 30) and city in (Graz, 'wien')", [0, 1, 3]),
        ("total < 60 and city not in (Graz, Wien)", [2, 5]),
        ('"ORDER 8." in note', [8]),
        ("note == null and total < 40", [1, 2, 3]),
        ("note != null and total < 50", [0, 4]),
        ("user.login == u1 and total < 120", [1, 6, 11]),
        ("'US Gross' > 297", [298, 299]),
        ("tags == 1 and total < 40 and id != 'A-3'", [1]),
        ("total == -1 or total in (10, 70)", [1, 7]),
    ],
)
def test_where_compares_fields_with_values(where, found):
    test, _ = condition_of(where)
    assert [at for at, order in enumerate(ORDERS) if test(order)] == found


@pytest.mark.parametrize(
    "where",
    ["total", "total >", "__import__('os').system('ls')", "total > paid()", "total > 1 if x else 2", "a b > 3",
     "x := 3", "total > 3 < 'a", "(" * 400, "[t for t in total]", "total > (1 + 2)", "total is 3"],
)  # fmt: skip
def test_an_expression_that_is_none_is_refused_with_an_example(where):
    with pytest.raises(
        ConfigError, match=r"cannot be read \(.*write for example: total > 100 and"
    ):
        condition_of(where)


def test_rows_are_filtered_sorted_and_shown_in_chosen_fields_in_one_call():
    lines = rows_of(
        {"where": "city == Wien", "sort": "-total", "fields": ["id", "total"]}
    )
    assert lines[:3] == ["row|id|total", "299|A-298|2980", "296|A-295|2950"]
    assert sum(1 for line in lines if re.match(r"\d+\|A-", line)) == 100


def test_sorting_puts_numbers_in_order_and_rows_without_a_value_last():
    rows = [
        {"n": number, "pad": "words " * 9} for number in (10, 9, None, "8", "x")
    ] * 30
    shown = [line.split("|")[1] for line in rows_of({"sort": "n", "fields": "n"}, rows)]
    assert list(dict.fromkeys(shown)) == ["n", '"8"', "9", "10", "x", "null"]


@pytest.mark.parametrize(
    ("question", "lines"),
    [
        ({"count_by": "city"}, ["city|count", "Graz|100", "Wien|100", "Bad Ischl|100"]),
        ({"count_by": "tags", "where": "total < 50"}, ["tags|count", "new|5", '"0"|3', '"1"|2']),
        ({"count_by": "city, user.login", "where": "total < 30"},
         ['city|"user.login"|count', "Graz|u0|1", "Wien|u1|1", "Bad Ischl|u2|1"]),
    ],
)  # fmt: skip
def test_values_are_counted(question, lines):
    assert rows_of(question) == lines


def test_contains_is_a_regular_expression_or_the_same_characters():
    found = rows_of({"contains": r"order 2[0-4]\d", "fields": "id"})
    assert sum("A-2" in line for line in found) == 13
    (line,) = rows_of(
        {"contains": "c++ (2)", "fields": "id"},
        [{"id": n, "t": f"C++ ({n}) " * 9} for n in range(90)],
    )
    assert line == "{row:3,id:2}"
    assert (
        len(
            rows_of({"contains": "order 4[08]", "where": "total > 450", "fields": "id"})
        )
        == 1
    )


@pytest.mark.parametrize(
    ("text", "contains", "found"),
    [
        (
            "INFO start\nERROR disk full\nINFO go on\nerror again\n",
            "error",
            ["ERROR disk full", "error again"],
        ),
        (
            "word " * 500 + "needle " + "word " * 500,
            "ne+dle",
            ["word " * 40 + "needle " + "word " * 58 + "wor"],
        ),
        ("İİİİ\nreport (final).*", "(FINAL).*", ["report (final).*"]),
        ("退款政策\n宠物", "宠物", ["宠物"]),
    ],
)
def test_a_passage_is_a_line_or_a_part_of_a_long_one(text, contains, found):
    assert list(Pattern(contains).passages(text)) == found


@pytest.mark.parametrize("at", range(0, 700, 50))
def test_a_long_text_is_found_wherever_it_stands(at):
    wanted = "needles in the hay " * 12
    (passage,) = Pattern(wanted).passages("x" * at + wanted + "x" * 500)
    assert wanted in passage


@pytest.mark.parametrize(
    ("contains", "told"),
    [
        ("x*", "matches an empty text"),
        (r"(x)\1", "no look-around"),
        ("x(?=y)", "no look-around"),
    ],
)
def test_an_expression_that_cannot_be_searched_for_is_refused(contains, told):
    with pytest.raises(ConfigError, match=told):
        question_of(contains=contains)


def test_paths_that_are_no_texts_are_refused():
    with pytest.raises(ConfigError, match="give paths of fields as texts"):
        question_of(sort="[1]")


def test_rows_are_asked_for_where_there_are_some():
    guard = guard_of(max_tokens=300)
    with pytest.raises(ConfigError, match="no rows to choose from"):
        ask(guard, {"total": 5, "text": "a line of text\n" * 500}, sort="total")
    with pytest.raises(ConfigError, match="so nothing was read"):
        ask(guard, ORDERS, where="totl > 3")
    (page,) = ask(guard, ORDERS, where="total > 99999")
    assert page.startswith(
        "[There is nothing in the result of rows with what was asked for."
    )
