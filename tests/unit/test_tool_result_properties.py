import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from langchain_ctxwin.core.field_paths import compile_fields
from langchain_ctxwin.tool_results import showing as module
from langchain_ctxwin.tool_results.cursors import Style
from langchain_ctxwin.tool_results.guard import MIN_TOKENS
from langchain_ctxwin.tool_results.query import Question
from langchain_ctxwin.tool_results.showing import (
    ResultView,
    inside_text,
    layout_of,
)
from support.json_values import exact, nested
from support.walking import PRICE, answers, ask, entries_in, guard_of

RUNS = settings(max_examples=20)
ODD_TEXT = st.text('ab |.:;,#()[]{}"\\\n\té你👩', max_size=8)
KEYS = (
    st.sampled_from(
        [
            "id",
            "name",
            "state",
            "url",
            "a",
            "b",
            "",
            "a.b",
            "a: b",
            "US Gross",
            "[]",
            "1",
        ]
    )
    | ODD_TEXT
)
TEXTS = (
    ODD_TEXT
    | st.text(max_size=20)
    | st.builds(str.__mul__, ODD_TEXT, st.integers(0, 120))
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = nested(SCALARS, KEYS, max_size=5, max_leaves=8)


@st.composite
def uniform_rows(draw):
    """Rows that share their fields; the values of a field come again and again."""
    columns = draw(
        st.dictionaries(
            KEYS, st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=5
        )
    )
    count = draw(st.integers(2, 25))
    return [
        {key: pool[at % len(pool)] for key, pool in columns.items()} | {"id": at}
        for at in range(count)
    ]


def wrapped(rows, beside, path):
    """Rows under keys, as most services return them, with other fields beside them."""
    for key in reversed(path):
        rows = {**beside, key: rows}
    return rows


MAPS = st.builds(
    lambda value, count: {f"key {at}": [value, at] for at in range(count)},
    st.integers() | ODD_TEXT,
    st.integers(0, 90),
)
BESIDE, PATHS = (
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.lists(KEYS, min_size=1, max_size=3),
)
CONTAINERS = st.lists(VALUES, max_size=12) | st.dictionaries(KEYS, VALUES, max_size=8)
RESULTS = (
    CONTAINERS
    | uniform_rows()
    | MAPS
    | st.builds(wrapped, uniform_rows(), BESIDE, PATHS)
)
PIECES = [
    "A sentence. ",
    "# Title\n",
    "\n\n",
    "word ",
    "a" * 80,
    "\t",
    "你好。",
    "e\u0301",
    "👩\u200d👧",
    "1,2,3\n",
]
PROSE = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
PLAIN_TEXTS = st.builds(str.__mul__, PROSE, st.integers(1, 60))
BUDGETS = st.integers(MIN_TOKENS, 900)


def as_json(value):
    """The text of a value, as a tool returns it."""
    return json.dumps(value, ensure_ascii=False)


def view_of(result, style):
    """The entries of a result."""
    return ResultView(layout_of(as_json(result)), style)


@RUNS
@given(RESULTS)
def test_entries_are_all_of_the_result(result):
    layout = layout_of(as_json(result))
    entries = [*layout.entries]

    if layout.is_text:
        rebuilt = json.loads(entries[0])
    elif not layout.row_count:
        (rebuilt,) = entries
    else:
        (keys,) = compile_fields([layout.path]) if layout.path else ((),)
        rebuilt = put_together(
            entries[0] if layout.head else {}, keys, entries[layout.head :]
        )

    assert exact(rebuilt) == exact(json.loads(as_json(result)))


def put_together(beside, path, rows):
    """Put rows back to where they stood."""
    if not path:
        return rows
    first, *others = path
    return {**beside, first: put_together(beside.get(first, {}), others, rows)}


@RUNS
@given(st.lists(st.recursive(st.sampled_from([0, "", "0", "a: 0", "long"]), lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "b", "a.b", "a: 0", "a[0]", "[0]", ""]), inner, max_size=2), max_leaves=4),
    min_size=2, max_size=12), st.sampled_from([2, 3, 200]))  # fmt: skip
def test_different_values_are_read_differently_inside(values, small_chars):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL_CHARS", small_chars)
        texts = {exact(value): inside_text(value, "r[0]") for value in values}

    assert len(set(texts.values())) == len(texts)


@RUNS
@given(RESULTS, BUDGETS)
def test_a_plain_walk_shows_every_entry_once_within_the_budget(result, budget):
    found = answers(as_json(result), budget)
    view = found[0].view
    assume(not view.layout.is_text)

    assert max(PRICE(answer.text) for answer in found) <= budget
    assert entries_in(view, found) == list(range(len(view)))


@RUNS
@given(RESULTS, BUDGETS)
def test_a_walk_with_all_fields_leaves_nothing_out(result, budget):
    found = answers(as_json(result), budget, Question(fields=("*",)))
    view = view_of(result, Style())
    assume(not view.layout.is_text)

    assert entries_in(view, found) == list(range(len(view)))
    assert max(PRICE(answer.text) for answer in found) <= budget


@RUNS
@given(PLAIN_TEXTS, BUDGETS)
def test_pages_are_the_text_which_can_be_read_anew(text, budget):
    found, anew = answers(text, budget), answers(text, budget, Question(fields=("*",)))

    end = "" if found[0].following else found[0].end  # which later pages hold, too
    assert text.endswith(found[0].end)
    assert "".join(answer.body for answer in found) + end == text
    assert max(PRICE(answer.text) for answer in found) <= budget
    assert "".join(answer.body for answer in anew) == text


@pytest.mark.parametrize("budget", [1, 20, 100, 200])
@pytest.mark.parametrize(
    "result", [[{"id": 1, "text": "some words " * 4}] * 2, "some words\n" * 6]
)
def test_smaller_budgets_than_notes_need_still_end(budget, result):
    found = answers(result if isinstance(result, str) else as_json(result), budget)

    assert found[-1].following == ""


NEEDLES = st.sampled_from(
    [
        "needle",
        'say "it"',
        "C:\\new\\table",
        "two\nlines",
        "a, b|c",
        "STRASSE",
        "你好",
        "(x)",
        "  ",
        "#1",
    ]
)
FILLERS = st.builds(
    str.__mul__,
    st.sampled_from(["word ", 'He "said", ok. ', "line\n", "x", "C:\\d "]),
    st.integers(0, 100),
)
FIELDS = st.sampled_from(
    ["id", "title", "state", "body", "html_url", "etag", "a.b", "nested"]
)


@st.composite
def rows_with_needles(draw):
    """Rows, some of them with a needle and a number behind it in some field, and which rows these are."""
    needle, rows, holders = draw(NEEDLES), [], set()
    for at in range(draw(st.integers(2, 15))):
        key, filler = draw(FIELDS), draw(FILLERS)
        is_holder = draw(st.booleans())
        text = f"{filler}@{at}@{needle if is_holder else 'nothing'}{filler}"
        rows.append({"number": at, key: {"inner": [text]} if key == "nested" else text})
        holders |= {at} if is_holder else set()
    return needle, rows, holders


@RUNS
@given(
    rows_with_needles(),
    st.booleans(),
    st.none() | st.integers(1, 3),
    st.integers(400, 1_500),
)
def test_a_search_finds_every_row_once(case, is_wrapped, page_rows, budget):
    needle, rows, holders = case
    # so that the result is never small
    rows = [*rows, {"number": "filler", "body": "some more words " * 500}]
    result = {"total": 1, "items": rows} if is_wrapped else rows

    # A plain text may span lines; an expression is looked for in each line.
    asked = needle.swapcase() if "\n" in needle else re.escape(needle.swapcase())
    found = ask(
        guard_of(max_tokens=budget, page_rows=page_rows), result, contains=asked
    )

    shown = {
        at: sum(f"@{at}@" in page for page in found) for at in range(len(rows) - 1)
    }
    assert shown == {at: int(at in holders) for at in range(len(rows) - 1)}


@RUNS
@given(PROSE, st.integers(0, 40), st.integers(400, 900))
def test_a_search_in_a_text_finds_every_place(prose, count, budget):
    text = (
        "".join(f"{prose}needle@{at}@\n" for at in range(count)) + "some words " * 1_000
    )

    found = "\n".join(ask(guard_of(max_tokens=budget), text, contains="NEEDLE"))

    assert [found.count(f"needle@{at}@") for at in range(count)] == [1] * count
