"""Questions about a stored result: which rows (`contains`, `where`), in which order (`sort`), how many (`count_by`).

`where` compares fields with values, in the syntax of Python: `total > 100 and city in ("Graz", "Wien")`, `"late" in
note`. It is parsed, and nothing of it is ever run as code. A field is a path such as `user.login`; one with other signs
stands in quotes. Texts are compared whatever their case, and without quotes where they are one word. Of a list, any
item may match.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count, product
from typing import Any

from langchain_ctxwin.core.field_paths import Step, compile_fields
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.text import Span
from langchain_ctxwin.tool_results.contents import json_value
from langchain_ctxwin.tool_results.pages import QUESTION_BITS
from langchain_ctxwin.tool_results.showing import (
    Layout,
    ResultView,
    joined,
    print_value,
)

MAX_CHARS = 500  # of a text to search for, of an expression, and of names to sort or count by: a sentence or two
MAX_FIELDS = 100  # of a read; who wants more wants all
MAX_FIELDS_CHARS = 10_000  # of a text of fields: as many, of a hundred characters each
_PATH = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^,])+')

Fields = Sequence[str] | str | None
Test = Callable[[Any], bool]  # of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a stored result."""

    contains: str = ""  # show what matches this regular expression, whatever its case
    fields: tuple[str, ...] = ()  # show these fields; `*` for all
    where: str = ""  # show rows for which this holds
    # show rows by these fields; after `-` the largest value first
    sort: tuple[str, ...] = ()
    count_by: tuple[str, ...] = ()  # show how many rows have each value of these fields
    tokens: int | None = (
        None  # largest size of the page; None: what the tool's results may take
    )
    rows: int | None = None  # most rows of a page
    is_first: bool = False  # the first view of a result

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments to repeat beside the cursor to go on."""
        given = {
            "contains": self.contains,
            "where": self.where,
            "sort": ", ".join(self.sort),
            "count_by": ", ".join(self.count_by),
            "fields": list(self.fields),
        }
        return {name: value for name, value in given.items() if value}

    @property
    def selects(self) -> bool:
        """True when rows are chosen, ordered or counted, and not only read on."""
        return bool(self.contains or self.where or self.sort or self.count_by)

    @property
    def digest(self) -> int:
        """Tells this question from others in a few bits; 0 when nothing is asked."""
        if not self.asked:
            return 0
        digest = int(sha256(json.dumps(self.asked).encode()).hexdigest(), 16)
        return 1 + digest % ((1 << QUESTION_BITS) - 1)


def question_of(
    *,
    contains: str | None = None,
    fields: Fields = None,
    where: str | None = None,
    sort: Fields = None,
    count_by: Fields = None,
    page_tokens: int | None = None,
) -> Question:
    """Return what a call asks; paths may be given as one text, parted by commas outside of quotes, or as a JSON list.

    An argument that cannot be read, or is of the wrong type or out of range, raises a `ConfigError`.
    """
    for name, text in {"contains": contains, "where": where}.items():
        if not isinstance(text, str | None) or len(text or "") > MAX_CHARS:
            raise ConfigError(
                f"{name}={text!r:.60}: give a text of at most {MAX_CHARS} characters"
            )
    if page_tokens is not None and (
        not isinstance(page_tokens, int) or page_tokens < 1
    ):
        raise ConfigError(
            f"page_tokens={page_tokens!r:.60}: give a positive number of tokens, or leave it out"
        )
    Pattern(contains or "")
    condition_of(where or "")
    return Question(
        contains=contains or "",
        fields=_paths("fields", fields),
        where=where or "",
        sort=_paths("sort", sort),
        count_by=_paths("count_by", count_by),
        tokens=page_tokens,
    )


def _paths(name: str, given: Fields) -> tuple[str, ...]:
    listed: Any = given or ()
    if isinstance(given, str) and len(given) <= MAX_FIELDS_CHARS:
        value = json_value(given)
        listed = (
            value
            if isinstance(value, list)
            else [path.strip() for path in _PATH.findall(given)]
        )
    is_list = (
        isinstance(listed, Sequence)
        and not isinstance(listed, str)
        and len(listed) <= MAX_FIELDS
    )
    if not is_list or not all(isinstance(path, str) for path in listed):
        raise ConfigError(
            f'{name}={given!r:.60}: give a list of at most {MAX_FIELDS} paths, fields=["*"] for all'
        )
    paths = tuple(path for path in listed if path)
    if paths:
        compile_fields([path.removeprefix("-") for path in paths])
    return paths


# ---------------------------------------------------------------------------------------------------------- answering

ENTRY_SHARE = 0.25  # largest part of a page that one row takes before only its passages with the text are shown
ENTRY_TOKENS = 200  # the same for a small page: a row of some twenty short fields
CHARS_PER_TOKEN = 4  # of readable text
MAX_PASSAGES = (
    5  # shown of fields that are left out of one row; all of a row that is too large
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The answer to a question: rows like those of a result, to be shown page by page."""

    layout: Layout
    found: int  # rows that match
    of: int  # rows of the result


def unmatched_paths(question: Question, layout: Layout) -> list[str]:
    """Return the paths that are asked for and lead to nothing in a result."""
    sort = (
        [] if question.count_by else [path.removeprefix("-") for path in question.sort]
    )
    asked = [
        *question.fields,
        *condition_of(question.where)[1],
        *sort,
        *question.count_by,
    ]
    return [path for path in dict.fromkeys(asked) if not layout.has(path)]


def select(question: Question, view: ResultView, tokens: int) -> Selection:
    """Return the rows that a question asks for, each with its number.

    Raises:
        ConfigError: rows are asked for, and the result has none; or the search takes too long.
    """
    layout, search = view.layout, Pattern(question.contains)
    if layout.unit == "text" and question.contains:
        rows = [
            {"at": start, "text": layout.rows[0][start:stop]}
            for start, stop in search.passages(layout.rows[0])
        ]
        return Selection(
            layout=Layout(unit="rows", rows=rows), found=len(rows), of=len(rows)
        )
    if layout.unit != "rows" and (question.where or question.sort or question.count_by):
        raise ConfigError(
            f"this result is one {layout.unit[:5]}, without rows to choose: use contains or fields"
        )
    holds, _ = condition_of(question.where, layout)
    first = layout.head if question.where or question.sort or question.count_by else 0
    indexes = [
        index
        for index in range(first, len(layout))
        if holds(layout.entry(index))
        and (not question.contains or search.finds(layout.entry(index)))
    ]
    counted = Selection(layout=layout, found=len(indexes), of=len(layout.rows))
    if question.count_by:
        by = list(map(_column, question.sort))
        rows = _sorted(
            _counted(indexes, question.count_by, layout), by, lambda row: row, str
        )
        return _with_rows(counted, rows)
    indexes = _sorted(indexes, question.sort, layout.entry, layout.inside)
    most_tokens = tokens if question.fields else max(ENTRY_TOKENS, ENTRY_SHARE * tokens)
    found = {
        index: _found(index, view, search, int(most_tokens) * CHARS_PER_TOKEN)
        for index in indexes
    }
    if layout.unit == "fields":
        rows = [{key: item} for entry in found.values() for key, item in entry.items()]
        return Selection(
            layout=Layout(unit="fields", rows=rows),
            found=len(rows),
            of=len(layout.rows),
        )
    # What the number of a row is called: something that the rows themselves do not have.
    names = chain(["row"], (f"row_{number}" for number in count()))
    name = next(
        name for name in names if not any(name in row for row in found.values())
    )
    return _with_rows(
        counted,
        [{name: index - layout.head + 1, **row} for index, row in found.items()],
    )


def _with_rows(selection: Selection, rows: Sequence[Any]) -> Selection:
    return Selection(
        layout=Layout(unit="rows", rows=rows), found=selection.found, of=selection.of
    )


def _found(
    index: int, view: ResultView, search: Pattern, most_chars: int
) -> dict[str, Any]:
    """What is shown of a matching entry: all that is shown of it, and the passages that this leaves out.

    Of one that is longer than `most_chars` only the passages are shown.
    """
    value = view.value(index)
    shown = value if isinstance(value, dict) else {"value": value}
    is_long = len(print_value(shown)) > most_chars
    if not search.text or (view.style.fields and not is_long):
        return shown
    found = dict[str, Any]() if is_long else dict(shown)
    seen = (
        ""
        if is_long
        else " ".join(" ".join(text for _, text in _texts_in(shown, "")).split())
    )
    hidden = [
        place
        for place in search.places(view.layout.entry(index))
        if place[1] not in seen
    ]
    passages: dict[str, list[str]] = {}
    for path, passage in hidden if is_long else hidden[:MAX_PASSAGES]:
        passages.setdefault(path or "value", []).append(passage)
    more = 0 if is_long else len(hidden) - MAX_PASSAGES
    found |= {
        path: texts[0] if len(texts) == 1 else texts for path, texts in passages.items()
    }
    return found | ({"more places": more} if more > 0 else {})


def _counted(
    indexes: Sequence[int], paths: Sequence[str], layout: Layout
) -> list[dict[str, Any]]:
    """A row per combination of values, the most frequent first."""
    steps = compile_fields([layout.inside(path) for path in paths])
    times: Counter[tuple[str, ...]] = Counter()
    values: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for index in indexes:
        entry = layout.entry(index)
        for group in product(
            *(list(values_at(entry, path)) or [None] for path in steps)
        ):
            key = tuple(map(json.dumps, group))
            times[key] += 1
            values[key] = group
    names = [_column(path) for path in paths]
    return [
        {**dict(zip(names, values[key], strict=True)), "count": number}
        for key, number in times.most_common()
    ]


def _column(path: str) -> str:
    """The last key of a path, after `-` where it is sorted by in that way."""
    return path[: path.startswith("-")] + path.rpartition(".")[2].removeprefix(
        "-"
    ).removesuffix("[]")


def _sorted(
    items: list[Any],
    by: Sequence[str],
    row_of: Callable[[Any], Any],
    inside: Callable[[str], str],
) -> Any:
    """The items by the values of their rows: numbers before texts, and those without a value last."""
    for path in reversed(by):
        (steps,) = compile_fields([inside(path.removeprefix("-"))])
        keys = {
            at: _sort_key(next(values_at(row_of(item), steps), None))
            for at, item in enumerate(items)
        }
        present = [at for at, key in keys.items() if key is not None]
        present.sort(key=lambda at, keys=keys: keys[at], reverse=path.startswith("-"))  # type: ignore[misc]
        items = [
            items[at]
            for at in [*present, *(at for at, key in keys.items() if key is None)]
        ]
    return items


def _sort_key(value: Any) -> tuple[bool, float, str] | None:
    if value is None:
        return None
    number = _number(value)
    return (True, 0, _folded(value)) if number is None else (False, number, "")


def values_at(value: Any, steps: Sequence[Step]) -> Iterator[Any]:
    """Yield what a path leads to: of a list, what it leads to in each item."""
    if isinstance(value, list):
        for item in value:
            yield from values_at(item, steps)
    elif not steps:
        yield value
    elif isinstance(value, dict):
        for key in [steps[0]] if isinstance(steps[0], str) else list(value):
            if key in value:
                yield from values_at(value[key], steps[1:])


# ----------------------------------------------------------------------------------------------------------- contains

PASSAGE_CHARS = 300  # longest passage around a match, without it: about three printed lines, or two sentences
# a line is searched in pieces: time grows with a power of their size
PIECE_CHARS, SHARED_CHARS = (500, 100)
SEARCH_SECONDS = 2.0  # of one search
# of an expression: each multiplies its time
MAX_REPEATS, MAX_OPTIONAL, MAX_GROUPS, MAX_CHOICES = (2, 8, 4, 20)
_SPECIAL = re.compile(r"[.^$*+?{}()|\\\[\]]")
_ATOM = re.compile(r"\\.|\[\^?\]?[^\]\[]*\]")
_GROUP_AGAIN = re.compile(r"\)[*+{]")
TOO_MUCH = (
    f"use at most {MAX_REPEATS} of * + {{}}, {MAX_OPTIONAL} of ?, {MAX_GROUPS} groups and {MAX_CHOICES} of |, no group "
    "that is repeated and no \\1; or search for a plain text"
)


class Pattern:
    """Looks for a regular expression, or for the same characters, whatever their case; an empty one finds nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._is_plain = not _SPECIAL.search(text)
        self._deadline = time.monotonic() + SEARCH_SECONDS
        literal = re.escape(text)
        flags = re.NOFLAG if text.lower() == text.upper() else re.IGNORECASE
        if not self._is_plain and _is_too_much(text):
            raise ConfigError(
                f"contains={text!r:.60} could take very long to search for: {TOO_MUCH}"
            )
        try:
            self._pattern = re.compile(
                literal if self._is_plain else f"{literal}|(?:{text})", flags
            )
        except re.error:
            self._pattern, self._is_plain = re.compile(literal, flags), True
        if text and self._pattern.search(""):
            raise ConfigError(
                f"contains={text!r:.60} matches an empty text, and so everything: say what must be there"
            )

    def finds(self, value: Any) -> bool:
        """Say whether anything inside a value matches."""
        return any(True for _, text in _texts_in(value, "") for _ in self._spans(text))

    def places(self, value: Any) -> Iterator[tuple[str, str]]:
        """Yield the passages inside a value in one line each, with their paths."""
        for path, text in _texts_in(value, ""):
            for start, stop in self.passages(text):
                yield path, " ".join(text[start:stop].split())

    def passages(self, text: str) -> Iterator[Span]:
        """Yield where the lines, or parts of lines, are that match, in order and apart."""
        last = 0
        for first, stop in self._spans(text):
            if stop > last:
                start, last = max(last, _line_start(text, first)), _line_end(text, stop)
                yield start, last

    def _spans(self, text: str) -> Iterator[Span]:
        if self._is_plain:
            yield from (match.span() for match in self._pattern.finditer(text))
            return
        start = 0
        while start < len(text):
            if time.monotonic() > self._deadline:
                raise ConfigError(
                    f"contains={self.text!r:.60} takes too long to search for: {TOO_MUCH}"
                )
            line = text.find("\n", start, start + PIECE_CHARS)
            stop = min(len(text), start + PIECE_CHARS) if line < 0 else line
            yield from (
                match.span() for match in self._pattern.finditer(text, start, stop)
            )
            start = stop + 1 if line >= 0 or stop == len(text) else stop - SHARED_CHARS


def _is_too_much(text: str) -> bool:
    shape = _ATOM.sub("x", text)
    repeats, optional = sum(map(shape.count, "*+{")), shape.count("?")
    is_large = repeats > MAX_REPEATS or optional > MAX_OPTIONAL
    is_large = (
        is_large or shape.count("(") > MAX_GROUPS or shape.count("|") > MAX_CHOICES
    )
    return is_large or bool(
        _GROUP_AGAIN.search(shape) or re.search(r"\\[1-9]|\(\?P=", text)
    )


def _line_start(text: str, first: int) -> int:
    """The start of the line of a place, or of the first whole word of it that is allowed."""
    low = max(0, first - PASSAGE_CHARS // 2)
    line = text.rfind("\n", low, first) + 1
    word = text.find(" ", low, first) + 1 if low else 0
    return line or word or low


def _line_end(text: str, last: int) -> int:
    high = min(len(text), last + PASSAGE_CHARS // 2)
    line = text.find("\n", last, high)
    word = text.rfind(" ", last, high) if high < len(text) else -1
    return line if line >= 0 else word if word >= 0 else high


def _texts_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text inside a value, as it is, with its path: keys, and values that are no texts as they are printed."""
    if isinstance(value, dict):
        for key, item in value.items():
            inside = joined(path, key)
            yield inside, key
            yield from _texts_in(item, inside)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts_in(item, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) else print_value(value)


# -------------------------------------------------------------------------------------------------------------- where

_ASSIGNED = re.compile(r"""("[^"]*"|'[^']*')|(?<![<>=!])=(?!=)|\b(AND|OR|NOT|IN)\b""")
_CONSTANTS = {"true": True, "false": False, "null": None}
_SWAPPED: dict[type, type] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_ORDERS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: operator.contains,
}
EXAMPLE = """write for example: total > 100 and not (city == "Graz" or state in ("open", "late")) and "bad" in note"""


def condition_of(text: str, layout: Layout | None = None) -> tuple[Test, list[str]]:
    """Return the test of a row that an expression states, and the paths of its fields; every row passes an empty one.

    Raises:
        ConfigError: it cannot be read.
    """
    if not text.strip():
        return lambda _: True, []
    paths: list[str] = []
    try:
        tree = ast.parse(
            _ASSIGNED.sub(lambda m: m[1] or (m[2] or "==").lower(), text.strip()),
            mode="eval",
        )
        return _test(tree.body, paths, layout), paths
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"where={text!r:.80} cannot be read ({error!s:.60}): {EXAMPLE}"
        ) from error


def _test(node: ast.expr, paths: list[str], layout: Layout | None) -> Test:
    """The test of a row that a part of an expression states; parts of any other kind are refused."""
    match node:
        case ast.BoolOp(op=op, values=values):
            tests = [_test(value, paths, layout) for value in values]
            joined_by = all if isinstance(op, ast.And) else any
            return lambda row: joined_by(test(row) for test in tests)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            negated = _test(operand, paths, layout)
            return lambda row: not negated(row)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = zip([left, *others], ops, others, strict=False)
            pairs = [
                _comparison(one, type(op), other, paths, layout)
                for one, op, other in sides
            ]
            return lambda row: all(pair(row) for pair in pairs)
    raise ValueError("only comparisons of fields with values, and, or, not")


def _comparison(
    left: ast.expr, sign: type, right: ast.expr, paths: list[str], layout: Layout | None
) -> Test:
    if sign in (ast.NotEq, ast.NotIn):
        same = _comparison(
            left, ast.Eq if sign is ast.NotEq else ast.In, right, paths, layout
        )
        return lambda row: not same(row)
    is_list = isinstance(right, ast.Tuple | ast.List | ast.Set)
    if isinstance(right, ast.Name | ast.Attribute) and isinstance(
        left, ast.Constant | ast.UnaryOp
    ):
        # 10 < total, "bad" in note
        left, right, sign = (right, left, _SWAPPED.get(sign, sign))
    elif sign is ast.In and is_list:
        sign = ast.Eq
    paths.append(_path(left))
    (steps,) = compile_fields([layout.inside(paths[-1]) if layout else paths[-1]])
    wanted = [_constant(item) for item in right.elts] if is_list else [_constant(right)]  # type: ignore[attr-defined]
    compare = _ORDERS.get(sign)
    if compare is None:
        raise ValueError("compare by == != < <= > >= in")

    def holds(row: Any) -> bool:
        values = list(values_at(row, steps)) or [None]
        return any(_compares(value, compare, one) for value in values for one in wanted)

    return holds


def _path(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=str(name)):
            return name
        case ast.Attribute(value=above, attr=name):
            return f"{_path(above)}.{name}"
    raise ValueError(
        "a field is a name such as total or user.login, or a path in quotes"
    )


def _constant(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name):
            return _CONSTANTS.get(name.lower(), name)  # a word without quotes
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.Constant(value=int() | float() as number)
        ):
            return -number
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
    raise ValueError("a value is a number, a text in quotes, true, false or null")


def _compares(value: Any, compare: Callable[[Any, Any], bool], wanted: Any) -> bool:
    """Compare as numbers where a number is wanted, else as texts, whatever their case."""
    if (
        value is None
        or wanted is None
        or isinstance(wanted, bool)
        or isinstance(value, bool)
    ):
        return compare is operator.eq and value is wanted
    if isinstance(wanted, str) or compare is operator.contains:
        return compare(_folded(value), _folded(wanted))
    number = _number(value)
    return number is not None and compare(number, wanted)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _folded(value: Any) -> str:
    text = value if isinstance(value, str) else print_value(value)
    return text.casefold()
