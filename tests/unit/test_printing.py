import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxwin.tool_results.showing import print_rows, print_value
from support.json_values import exact, nested

# The reader: it knows the four rules of the module, and nothing of its code.

KEY = r'(?:"(?:[^"\\]|\\.)*"|[^"#.:;,|(){}\[\]]+)'


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
        return (
            json.loads(found[0]) if found[0].startswith('"') else found[0].rstrip(" ")
        )

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
            return self.list()
        end = min(
            (at for mark in ends if (at := self.text.find(mark, self.at)) >= 0),
            default=len(self.text),
        )
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

    def cells(self, paths, ends):
        row = {}
        for path in paths:
            if self.at < len(self.text) and self.text[self.at] not in ends:
                put(row, path, self.value(ends))
            self.next("|")
        return row


def put(row, path, value):
    for key in path[:-1]:
        row = row.setdefault(key, {})
    row[path[-1]] = value


def read_rows(printed):
    header, lines = printed
    if not header:
        return [Reader(line).value("") for line in lines]
    paths = Reader(header).columns()
    return [Reader(line).cells(paths, "|") for line in lines]


TRICKY = st.text("ab |.:;,#()[]{}\"'\\\n\r\t\u2028\u00e9-+0189eE_/", max_size=6)
WORDS = st.sampled_from(
    [
        "null",
        "true",
        "NaN",
        "-Infinity",
        "1e5",
        "007",
        "1.",
        ".5",
        "-",
        "# a",
        "[]",
        "{}",
        "(1)",
        "a (1",
        "a|b",
    ]
)
KEYS = TRICKY | st.sampled_from(
    [
        "id",
        "a",
        "b",
        "",
        "a.b",
        "a|b",
        "a:b",
        "US Gross",
        "\n",
        "#",
        "[]",
        "1",
        '"',
        "a (b",
        " a",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([10**30 + 7, -0.0])
)
SCALARS = SCALARS | TRICKY | WORDS | st.text(max_size=5)
VALUES = nested(SCALARS, KEYS)


@st.composite
def tables(draw):
    """Rows that share most fields, with absent fields and objects inside."""
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
@example(
    [{"a": True, "b": 0}, {"a": 1, "b": 1}, {"a": 1.0, "b": 2}, {"a": "1", "b": 3}]
)
def test_printed_rows_can_be_read_back(rows):
    assert exact(read_rows(print_rows(rows))) == exact(rows)


@given(VALUES)
@example(["a (1"])
def test_a_printed_value_can_be_read_back(value):
    printed = print_value(value)
    assert "\n" not in printed
    assert exact(Reader(printed).value("")) == exact(value)
