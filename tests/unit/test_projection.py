import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.cursors import Style
from langchain_ctxwin.tool_results.showing import (
    GAP,
    extract,
    project,
    project_automatically,
    query_words,
)
from support.json_values import nested

ROOMS = [
    {
        "id": at,
        "price": {"base": base, "fees": {"cleaning": fee}},
        "a.b": {"c": at},
        "owner": {"urls": ["x"], "name": name},
    }
    for at, base, fee, name in ((1, 90, 20, "Ann"), (2, 70, 15, "Bob"))
]
LISTING = {"total": 2, "items": ROOMS}


def automatic(value, text_chars=20):
    style = Style(text_chars=text_chars, extraction=False)
    return project_automatically([value], style)[0]


# Configured fields.


SPARSE = [{"id": 1, "x": 0}, {"x": 0}, {"id": 3}, None, 5]


STARRED = {"a": {"id": 1, "x": 2, "y": 3}, "b": {"id": 4, "x": 5}}


@pytest.mark.parametrize(
    ("given", "fields", "value"),
    [
        (LISTING, ['items."a.b".c'], {"items": [{"a.b": {"c": 1}}, {"a.b": {"c": 2}}]}),
        (
            LISTING,
            ["items[].*.base"],
            {"items": [{"price": {"base": 90}}, {"price": {"base": 70}}]},
        ),
        (LISTING, ["*.id"], {"items": [{"id": 1}, {"id": 2}]}),
        (
            LISTING,
            [" items[].owner.name "],
            {"items": [{"owner": {"name": "Ann"}}, {"owner": {"name": "Bob"}}]},
        ),
        (
            LISTING,
            ["items.*.*.cleaning"],
            {"items": [{"price": {"fees": {"cleaning": n}}} for n in (20, 15)]},
        ),
        (STARRED, ["*.id", "a.x"], {"a": {"id": 1, "x": 2}, "b": {"id": 4}}),
        (SPARSE, ["[].id"], [{"id": 1}, {}, {"id": 3}, {}, {}]),
        (SPARSE, ["[].none"], {}),
    ],
)
def test_a_path_leads_through_lists_stars_and_quotes(given, fields, value):
    assert project([given], fields) == [value]


UNREADABLE = [
    "a..b",
    "",
    "a.",
    "a[].[]",
    '"a.b',
    'a"b"',
    '"\\x".a',
    "items[0].id",
    "na*",
    "**.id",
    3,
]


@pytest.mark.parametrize("path", UNREADABLE)
def test_a_path_that_cannot_be_read_is_refused(path):
    with pytest.raises(
        ConfigError,
        match=f"field path {re.escape(repr(path))} cannot be read: join keys by dots",
    ):
        project({}, ["id", path])


KEYS = st.sampled_from(
    [
        "id",
        "name",
        "url",
        "is_open",
        "has_x",
        "a",
        "b.c",
        "",
        "*",
        'q"',
        "[]",
        "body",
        " x",
        "\n",
    ]
)
TEXTS = st.sampled_from(
    ["", "word", "https://a.example/b", "2024-05-31", "12.50", "long " * 9]
)
SCALARS = (
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(allow_nan=False) | TEXTS
)
VALUES = nested(SCALARS, KEYS)


# Fields chosen by rules.


@given(st.lists(VALUES, max_size=5))
def test_no_row_is_lost_or_emptied(rows):
    shown = automatic(rows)
    assert [bool(row) for row in rows] == [bool(row) for row in shown]


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=4))
def test_a_row_is_shown_alike_alone_and_among_others(rows):
    assert automatic(rows) == [automatic(row) for row in rows]


IDS = {"id": 7, "@id": "https://schema.example/1", "listingMapIds": "4", "userIDs": "4"}
STATES = {
    "draft": False,
    "is_open": True,
    "size": 0,
    "color": "red",
    "createdAt": "2024-05-31T10:00:00Z",
}
LINKS = {
    "url": "/v1/7",
    "html_url": "https://a.example",
    "logo": "s3://bucket/key",
    "links": {"href": "x"},
}
ANSWERS = {"has_wiki": True, "canEdit": 0, "allow_merge": False}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (IDS | STATES | ANSWERS | LINKS | {"closed_by": None, "labels": [], "note": ""}, IDS | STATES),
        # One address stays where it is all that identifies: a search result is opened by its link.
        ({"title": "Ann", "link": "https://a.example", "image": "https://b.example"},
         {"title": "Ann", "link": "https://a.example"}),
        ({"id": 1, "of": [{"href": "https://b.example"}]}, {"id": 1, "of": [{"href": "https://b.example"}]}),
        # A row of which nothing would be left is kept whole; others may do without.
        ([{"has_wiki": True}, {"id": 1, "has_wiki": True}, {"has_wiki": None}],
         [{"has_wiki": True}, {"id": 1}, {"has_wiki": None}]),
        ([{"job": "Actor", "perc": 0.1}, {"job": "Cook", "perc": 0.0}], [{"job": "Actor", "perc": 0.1},
         {"job": "Cook", "perc": 0.0}]),
        ({"has_count": 2, "has_x": "maybe", "see": "at https://a.example or so"}, {"has_count": 2, "has_x": "maybe",
         "see": "at https://a.example or so"}),
    ],
)  # fmt: skip
def test_what_rules_leave_out(value, shown):
    assert automatic(value, text_chars=100) == shown


# Sentences of a long text.

PIECES = st.sampled_from(
    ["word ", "A sentence. ", "Is it 5? ", "\n", "\n\n", "# Title\n", "a" * 300, " " * 30, "你好。", "ภาษาไทย ",
     "جملة عربية؟ ", "हिन्दी वाक्य। ", "\r\n", "e\u0301", "\ud83d\ude00", "\ud800", "\x00", "\u2028", "\u00a0", "--"]
)  # fmt: skip
LONG_TEXTS = st.lists(PIECES, max_size=120).map("".join) | st.text(max_size=400)


@given(LONG_TEXTS, st.integers(60, 300), st.lists(PIECES, max_size=3))
def test_an_extract_is_short_and_verbatim_and_counts_what_it_leaves_out(
    text, max_chars, asked
):
    text += "more words " * 30
    shown = extract(text, max_chars, query_words(asked))
    assert len(shown) <= max_chars
    ending, at = re.search(r" … \[([\d,]+) more characters\]\Z", shown), 0
    for piece in re.split(rf"\s*{GAP.strip()} ", shown[: ending.start()]):
        at = text.index(piece.strip(), at) + len(piece.strip())
    assert 0 < int(ending[1].replace(",", "")) <= len(text)
