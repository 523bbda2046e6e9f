import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxwin.tool_results.view import print_rows, print_value

# The reader: it knows the five rules of the module, and nothing of its code.

KEY = r'(?:"(?:[^"\\]|\\.)*"|[^"#.:;,|(){}\[\]]+)'
PATH = rf"{KEY}(?:\.{KEY})*"
TABLE = re.compile(rf"{PATH}(?:\|{PATH})* \(")


class Reader:
    def __init__(self, text):
        self.text, self.at = text, 0

    def next(self, token):
        is_there = self.text.startswith(token, self.at)
        self.at += len(token) if is_there else 0
        return is_there

    def key(self):
        found = re.compile(KEY).match(self.text, self.at)
        self.at = found.end()
        return json.loads(found[0]) if found[0].startswith('"') else found[0].rstrip(" ")

    def path(self):
        keys = [self.key()]
        while self.next("."):
            keys.append(self.key())
        return keys

    def columns(self):
        paths = [self.path()]
        while self.next("|"):
            paths.append(self.path())
        return paths

    def value(self, ends):
        if self.text.startswith('"', self.at):
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
            return value
        if self.next("{"):
            return self.object()
        if self.next("["):
            return self.table() if TABLE.match(self.text, self.at) else self.list()
        end = min((at for mark in ends if (at := self.text.find(mark, self.at)) >= 0), default=len(self.text))
        word, self.at = self.text[self.at : end], end
        try:
            return json.loads(word)
        except ValueError:
            return word

    def object(self):
        read = {}
        while not self.next("}"):
            key = self.key()
            assert self.next(":")
            read[key] = self.value(",}")
            self.next(",")
        return read

    def list(self):
        read = []
        while not self.next("]"):
            read.append(self.value(",]"))
            self.next(",")
        return read

    def table(self):
        paths, rows = self.columns(), []
        self.next(" ")
        while self.next("("):
            rows.append(self.cells(paths, "|)"))
            assert self.next(")")
            self.next(" ")
        assert self.next("]")
        return rows

    def cells(self, paths, ends):
        row = {}
        for path in paths:
            if self.at < len(self.text) and self.text[self.at] not in ends:
                put(row, path, self.value(ends))
            self.next("|")
        return row

    def run(self):
        said = []
        assert self.next("#")
        while self.next(" "):
            path = self.path()
            assert self.next(": ")
            said.append((path, self.value(";")))
            self.next(";")
        return said


def put(row, path, value):
    for key in path[:-1]:
        row = row.setdefault(key, {})
    row[path[-1]] = value


def read_rows(printed):
    header, lines = printed
    if not header:
        return [Reader(line).value("") for line in lines]
    paths, said, rows = Reader(header).columns(), [], []
    for line in lines:
        *run, cells = line.split("\n")
        said = Reader(run[0]).run() if run else said
        row = Reader(cells).cells(paths, "|")
        for path, value in said:
            put(row, path, value)
        rows.append(row)
    return rows


def exact(value):
    """JSON text, so that 1, 1.0 and true differ and NaN equals itself."""
    return json.dumps(value, sort_keys=True)


TRICKY = st.text("ab |.:;,#()[]{}\"'\\\n\r\t\u2028\u00e9-+0189eE_/", max_size=6)
WORDS = st.sampled_from(
    ["null", "true", "NaN", "-Infinity", "1e5", "007", "1.", ".5", "-", "# a", "[]", "{}", "(1)", "a (1", "a|b"]
)
KEYS = TRICKY | st.sampled_from(
    ["id", "a", "b", "", "a.b", "a|b", "a:b", "US Gross", "\n", "#", "[]", "1", '"', "a (b", " a"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([10**30 + 7, -0.0])
SCALARS = SCALARS | TRICKY | WORDS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=4), max_leaves=25
)


@st.composite
def tables(draw):
    """Rows that share most fields, with runs of equal values, absent fields and objects inside."""
    keys = draw(st.lists(KEYS, min_size=1, max_size=4, unique=True))
    values = {key: draw(st.lists(VALUES, min_size=1, max_size=3)) for key in keys}
    rows = []
    for _ in range(draw(st.integers(2, 9))):
        shown = [key for key in keys if draw(st.integers(0, 5))]
        rows.append({key: draw(st.sampled_from(values[key])) for key in shown})
    return rows


@given(st.lists(VALUES, max_size=6) | tables())
@example([{"a": {}}, {"a": {"b": 1}}, {"a": {"b": {}}}, {"a": None}, {}])
@example([{"a.b": 1, "a": {"b": 2}}, {"a.b": 3, "a": {"b": 4}}])
@example([{"a": 1}] * 5)
@example([{}, {"a": [{}, {" ": None}]}])
@example([{"a": True, "b": 0}, {"a": 1, "b": 1}, {"a": 1.0, "b": 2}, {"a": "1", "b": 3}])
def test_printed_rows_can_be_read_back(rows):
    assert exact(read_rows(print_rows(rows))) == exact(rows)


@given(VALUES)
@example(["a (1"])
def test_a_printed_value_can_be_read_back(value):
    printed = print_value(value)
    assert "\n" not in printed
    assert exact(Reader(printed).value("")) == exact(value)


@given(tables(), st.data())
def test_a_page_of_a_table_can_be_read_alone(rows, data):
    start = data.draw(st.integers(0, len(rows)))
    assert exact(read_rows(print_rows(rows[start:]))) == exact(rows[start:])


def test_rows_of_the_same_fields_are_a_table():
    rows = [
        {"id": 1, "price": {"base": 9.5, "unit": "EUR"}, "note": "a, b: c"},
        {"id": 2, "price": {"base": 1e-07}, "note": None},
        {"id": 3, "price": {"base": 10**30, "unit": ""}, "note": "7"},
    ]
    lines = ["1|9.5|EUR|a, b: c", "2|1e-07||null", f'3|{10**30}|""|"7"']
    assert print_rows(rows) == ("id|price.base|price.unit|note", lines)


RUNS = [{"job": job, "sex": "men", "year": year} for job in ("Actor", "Cook") for year in range(1850, 1890, 10)]
SOME = [{"id": number, **({"note": "x"} if 4 <= number < 8 else {})} for number in range(12)]


@pytest.mark.parametrize(
    ("rows", "header", "lines"),
    [
        (RUNS, "year", ["# sex: men; job: Actor\n1850", "1860", "1870", "1880",
                        "# sex: men; job: Cook\n1850", "1860", "1870", "1880"]),
        (SOME, "id", ["0", "1", "2", "3", "# note: x\n4", "5", "6", "7", "#\n8", "9", "10", "11"]),
        ([{"a": 1, "b": 2, "c": 3}, {"a": 4}, {}], "a|b|c", ["1|2|3", "4", ""]),
        ([{"a": 1}] * 4, "a", ["1"] * 4),
        ([{"id": 1, "tags": ["a", "b"]}, {"name": "x (y)", "at": "2024-05-31T10:00:00Z"}, 7, "seven"], "",
         ["{id:1,tags:[a,b]}", '{name:"x (y)",at:2024-05-31T10:00:00Z}', "7", "seven"]),
        ([{"id": number, "counts": {f"key{number}": number}} for number in range(3)], "id|counts",
         ["0|{key0:0}", "1|{key1:1}", "2|{key2:2}"]),
        ([], "", []),
    ],
    ids=["runs", "a run of absent fields", "empty cells at the end", "equal rows keep a column", "few shared fields",
         "objects of unlike fields", "no rows"],
)  # fmt: skip
def test_rows_are_printed_as(rows, header, lines):
    assert print_rows(rows) == (header, lines)


def test_equal_objects_inside_a_value_are_a_table_in_a_line():
    value = {"labels": [{"id": 1, "by": {"login": "ann"}}, {"id": 2, "by": {"login": "bob"}}]}
    assert print_value(value) == "{labels:[id|by.login (1|ann) (2|bob)]}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0, 0.1 + 0.2, 10**30 + 1, True, None])
def test_numbers_are_exact(value):
    assert print_value(value) == json.dumps(value)


def test_a_float_is_printed_as_it_was_spelled():
    class Spelled(float):
        text = "1.10"

    assert print_rows([{"a": Spelled(1.1)}, {"a": 2.0}])[1] == ["1.10", "2.0"]
    assert print_value([Spelled(1.1)]) == "[1.10]"


def test_half_a_character_is_escaped():
    assert print_value({"\ud800": "a\udfff"}) == '{"\\ud800":"a\\udfff"}'
    assert print_rows([{"a": "\ud83d"}, {"a": "😀"}])[1] == ['"\\ud83d"', "😀"]


@pytest.mark.parametrize(("levels", "wrap"), [
    (100, lambda value: {"a": value}), (100, lambda value: [value]),
    (50, lambda value: {"a": [{"b": value}, {"b": 1}]}), (50, lambda value: [{"a": value}, {"c": 1}]),
])  # fmt: skip
def test_deep_values_are_printed(levels, wrap):
    value = 1
    for _ in range(levels):
        value = wrap(value)
    assert exact(Reader(print_value(value)).value("")) == exact(value)
    assert exact(read_rows(print_rows([value, value]))) == exact([value, value])


def test_rows_that_share_no_key_take_time_of_their_size():
    rows = [{f"key{row}_{column}": 1 for column in range(20)} for row in range(3_000)]
    assert len(print_rows(rows)[1]) == 3_000
