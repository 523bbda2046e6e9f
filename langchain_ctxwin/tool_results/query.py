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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

from langchain_ctxwin.core.field_paths import Step, compile_fields, joined
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.showing import (
    GAP,
    Layout,
    ResultView,
    json_value,
    print_value,
)

MAX_CHARS = 500  # of a text to search for, and of an expression: a sentence or two
QUESTION_BITS = 12  # for the digest of a question; the other bits of a cursor's offset are for the place
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
    rows: int | None = None  # most rows of a page
    is_first: bool = False  # the first view of a result

    @property
    def asked(self) -> dict[str, Any]:
        """What has to be repeated beside a cursor to go on."""
        names = ("contains", "fields", "where", "sort", "count_by")
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def is_about_rows(self) -> bool:
        """True when rows are chosen by their fields, ordered or counted."""
        return bool(self.where or self.sort or self.count_by)

    @property
    def digest(self) -> int:
        """Tells this question from others in a few bits; 0 when nothing is asked."""
        if not self.asked:
            return 0
        digest = int(sha256(repr(self.asked).encode()).hexdigest(), 16)
        return 1 + digest % ((1 << QUESTION_BITS) - 1)


def question_of(
    *,
    contains: str | None = None,
    fields: Fields = None,
    where: str | None = None,
    sort: Fields = None,
    count_by: Fields = None,
) -> Question:
    """Return the question of a call; paths may be one text, parted by commas outside of quotes, or a JSON list.

    An argument that cannot be read raises a `ConfigError`.
    """
    for name, text in {"contains": contains, "where": where}.items():
        if text and len(text) > MAX_CHARS:
            raise ConfigError(
                f"{name}={text!r:.60}: give a text of at most {MAX_CHARS} characters"
            )
    Pattern(contains or "")
    condition_of(where or "")
    return Question(
        contains=contains or "",
        fields=_paths(fields),
        where=where or "",
        sort=_paths(sort),
        count_by=_paths(count_by),
    )


def _paths(paths: Fields) -> tuple[str, ...]:
    if isinstance(paths, str):
        stated = json_value(paths)
        paths = stated if isinstance(stated, list) else _PATH.findall(paths)
    if not all(isinstance(path, str) for path in paths or ()):
        raise ConfigError(f"{paths!r:.80}: give paths of fields as texts")
    listed = [path.strip() for path in paths or () if path.strip()]
    if listed:
        compile_fields([path.removeprefix("-") for path in listed])
    return tuple(listed)


# ---------------------------------------------------------------------------------------------------------- answering


def unmatched_paths(question: Question, layout: Layout) -> list[str]:
    """Return the paths that are asked for and lead to nothing in a result."""
    # counted values are sorted by columns of their own
    sort = () if question.count_by else question.sort
    paths = [
        *question.fields,
        *condition_of(question.where)[1],
        *(path.removeprefix("-") for path in sort),
        *question.count_by,
    ]
    return [path for path in dict.fromkeys(paths) if not layout.has(path)]


def select(question: Question, view: ResultView) -> tuple[Sequence[Any], str]:
    """Return the rows that answer a question, each with its number, and how many match.

    Where a result has no rows, they are the passages that match.

    Raises:
        ConfigError: rows are asked for, and the result has none; or the search takes too long.
    """
    layout, search = view.layout, Pattern(question.contains)
    if not layout.row_count and question.is_about_rows:
        raise ConfigError(
            "this result has no rows to choose from: use contains or fields"
        )
    if not layout.row_count:
        (value,) = view.values(range(1)) if view.style.fields else layout.entries
        places = [
            {"at": path, "text": passage} if path else passage
            for path, passage in search.places(value)
        ]
        return places, f"{len(places):,} places"
    holds, _ = condition_of(question.where, layout)
    first = layout.head if question.is_about_rows else 0
    indexes = [
        index
        for index in range(first, len(layout))
        if holds(layout.entries[index]) and search.finds(layout.entries[index])
    ]
    number = f"{len(indexes):,} of {layout.row_count:,} rows"
    if question.count_by:
        entries = map(layout.entries.__getitem__, indexes)
        return _counted(entries, question.count_by, layout), number
    by = (
        path[: path.startswith("-")] + layout.inside(path.removeprefix("-"))
        for path in question.sort
    )
    rows = [
        {"row": index - layout.head + 1, **_matching_entry(index, view, search)}
        for index in _sorted(indexes, by, layout)
    ]
    return rows, number


def _matching_entry(index: int, view: ResultView, search: Pattern) -> dict[str, Any]:
    """A matching entry as its view shows it, with the matching passages where it shows none of them."""
    (value,) = view.values(range(index, index + 1))
    entry = value if isinstance(value, dict) else {"value": value}
    if view.style.fields or search.finds(entry):
        return entry
    passages: dict[str, list[str]] = {}
    for path, passage in search.places(view.layout.entries[index]):
        passages.setdefault(path or "value", []).append(passage)
    return {**entry, **{path: GAP.join(texts) for path, texts in passages.items()}}


def _counted(
    entries: Iterable[Any], paths: Sequence[str], layout: Layout
) -> list[dict[str, Any]]:
    """A row per combination of values, the most frequent first."""
    steps = compile_fields([layout.inside(path) for path in paths])
    times = Counter(
        json.dumps(group)
        for entry in entries
        for group in product(
            *(list(values_at(entry, path)) or [None] for path in steps)
        )
    )
    return [
        {**dict(zip(paths, json.loads(group), strict=True)), "count": number}
        for group, number in times.most_common()
    ]


def _sorted(indexes: list[int], by: Iterable[str], layout: Layout) -> list[int]:
    """The entries by their values: numbers before texts, and those without a value last."""
    for path in reversed(list(by)):
        (steps,) = compile_fields([path.removeprefix("-")])
        values = {
            index: next(values_at(layout.entries[index], steps), None)
            for index in indexes
        }
        is_falling = path.startswith("-")
        indexes = sorted(
            indexes,
            key=lambda index: _sort_key(values[index], is_falling),  # sorted at once
            reverse=is_falling,
        )
    return indexes


def _sort_key(value: Any, is_falling: bool) -> tuple[bool, bool, float, str]:
    is_last = (value is None) != is_falling
    number = _number(value)
    if number is None:
        return is_last, True, 0, _folded(value)
    return is_last, False, number, ""


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

PIECE_CHARS, AROUND_CHARS = (
    200,
    100,
)  # of a long line a piece with a match is shown, and as much on either side of it


class Pattern:
    """Looks for a regular expression, or for the same characters, whatever their case; an empty one is in all.

    It takes time in proportion to the text, whatever the expression: that of Rust's `regex`, which pydantic brings.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        literal = re.escape(text)
        try:
            self._finds = _compiled(f"{literal}|(?:{text})")
        except SchemaError as error:
            raise ConfigError(
                f"contains={text!r:.60} cannot be searched for: put \\ before signs that stand for themselves, and use "
                "no look-around, no \\1 and no large counts"
            ) from error
        if text and self._finds(""):
            raise ConfigError(
                f"contains={text!r:.60} matches an empty text, and so everything: say what must be there"
            )

    def finds(self, value: Any) -> bool:
        """Say whether anything inside a value matches."""
        return not self.text or any(True for _ in self.places(value))

    def places(self, value: Any) -> Iterator[tuple[str, str]]:
        """Yield the passages inside a value in one line each, with their paths."""
        for path, text in _texts_in(value, ""):
            for passage in self.passages(text):
                yield path, " ".join(passage.split())

    def passages(self, text: str) -> Iterator[str]:
        """Yield the lines, or parts of long lines, that match, in order and apart."""
        # pieces of a line share so many characters that what is looked for is whole in one of them
        piece_chars = PIECE_CHARS + max(AROUND_CHARS, len(self.text))
        for line in [text] if "\n" in self.text else text.split("\n"):
            searched = shown = 0
            for begin in range(0, len(line), PIECE_CHARS):
                start, stop = max(begin, searched), begin + piece_chars
                if self._finds(line[start:stop]):
                    low = max(shown, start - AROUND_CHARS)
                    yield line[low : stop + AROUND_CHARS]
                    searched, shown = stop, stop + AROUND_CHARS


def _compiled(pattern: str) -> Callable[[str], bool]:
    return SchemaValidator(
        core_schema.str_schema(pattern=f"(?i){pattern}")
    ).isinstance_python


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

_CONSTANTS = {"true": True, "false": False, "null": None}
_SIGNS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.eq,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: operator.contains,
    ast.NotIn: operator.contains,
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
        return _test(ast.parse(text.strip(), mode="eval").body, paths, layout), paths
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"where={text!r:.80} cannot be read ({error!s:.80}): {EXAMPLE}"
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
        case ast.Compare(left=field, ops=[op], comparators=[value]) if (
            type(op) in _SIGNS
        ):
            return _comparison(field, type(op), value, paths, layout)
    raise ValueError("only comparisons of a field with a value, and, or, not")


def _comparison(
    field: ast.expr,
    sign: type,
    value: ast.expr,
    paths: list[str],
    layout: Layout | None,
) -> Test:
    compare, values = _SIGNS[sign], [value]
    if compare is operator.contains:
        if isinstance(value, ast.Tuple | ast.List | ast.Set):
            compare, values = operator.eq, value.elts
        elif isinstance(field, ast.Constant):
            field, values = value, [field]  # "bad" in note
    wanted = [_constant(one) for one in values]
    paths.append(_path(field))
    (steps,) = compile_fields([layout.inside(paths[-1]) if layout else paths[-1]])
    is_negative = sign in (ast.NotEq, ast.NotIn)

    def holds(row: Any) -> bool:
        row_values = list(values_at(row, steps)) or [None]
        return is_negative != any(
            _compares(one, compare, other) for one in row_values for other in wanted
        )

    return holds


def _path(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Constant(value=str(name)):
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
            op=ast.USub(), operand=ast.Constant(value=int() | float() as n)
        ):
            return -n
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
    raise ValueError("a value is a number, a text in quotes, true, false or null")


def _compares(value: Any, compare: Callable[[Any, Any], bool], wanted: Any) -> bool:
    """Compare as numbers where a number is wanted, else as texts, whatever their case."""
    if value is None or isinstance(wanted, bool | None):
        return compare is operator.eq and value is wanted
    if isinstance(wanted, str) or compare is operator.contains:
        return compare(_folded(value), _folded(wanted))
    number = _number(value)
    return number is not None and compare(number, wanted)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _folded(value: Any) -> str:
    text = value if isinstance(value, str) else print_value(value)
    return text.casefold()
