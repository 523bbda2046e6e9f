"""How are JSON values printed in few tokens, so that they can be read back exactly?

1. A table: the header has one column per field, `owner.login` for a field inside an object; cells are parted by `|`, an
   empty cell means that the row lacks the field, and empty cells at the end of a line are left out.
2. `# job: Actor; sex: men` holds for the rows below it, until the next such line: fields that repeat in long runs. What
   the next one does not name is absent from there on.
3. Rows that do not share their fields are objects in a line each: `{id:7,tags:[a,b]}`. Objects of the same fields
   inside a value are a table in a line: `[id|name (7|Ann) (8|Bob)]` is a list of two objects.
4. Texts and keys stand without quotes wherever they cannot be taken for anything else; otherwise they are JSON strings.
   In quotes are: empty texts, texts that read as a number, true, false or null, texts with a separator or a line break.
5. Numbers, true, false and null are as in JSON (null is not the same as an empty cell), with NaN and Infinity.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, Final

_MIN_FILLED = 0.4  # below, the empty cells of a table cost about what the repeated keys would, and are hard to count
_MIN_RUN_ROWS = 4  # a `#` line repeats names and values: it pays when the cells of so many rows go

_WORDS = r"(?:[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?|true|false|null|NaN|-?Infinity)\Z"
_REST = r"[^\x00-\x1f\ud800-\udfff{}]*(?<!\s)"  # no line break, no half of a character, no space at the end


def _bare(separators: str) -> re.Pattern[str]:
    first, rest = f'[^\\s"#{{\\[(\x00-\x1f\ud800-\udfff{separators}]', _REST.replace("{}", separators)
    return re.compile(f"(?!{_WORDS}){first}(?:{rest})")


_BARE_CELL = _bare("|")
_BARE_RUN = _bare(";|")
_BARE_INSIDE = _bare(",|()}\\]")
_BARE_KEY = re.compile(r'(?!\s)[^"#.:;,|(){}\[\]\x00-\x1f\ud800-\udfff]+(?<!\s)')
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Rows as text: the header, then the lines, joined by line breaks."""

    header: str  # the columns; empty when each line is a value of its own
    lines: tuple[str, ...]  # one text per row; the first row of a run begins with its `#` line


def print_rows(rows: Sequence[Any]) -> Printed:
    """Print rows as a table when they share most of their fields, else as a value per line.

    Examples:
        >>> print_rows([{"id": 1, "owner": {"login": "ann"}}, {"id": 2, "owner": {"login": "7"}}])
        Printed(header='id|owner.login', lines=('1|ann', '2|"7"'))
    """
    columns = _table(rows)
    if columns is None:
        return Printed(header="", lines=tuple(map(print_value, rows)))
    cells = {path: _cells(column, _BARE_CELL) for path, column in columns.items()}
    hoisted, starts = _runs(cells, len(rows))
    kept = [path for path in cells if path not in hoisted]
    lines = ["|".join(line).rstrip("|") for line in zip(*(cells[path] for path in kept), strict=True)]
    for start in starts if hoisted else ():
        said = {path: _cells([columns[path][start]], _BARE_RUN)[0] for path in hoisted}
        run = f"# {'; '.join([f'{path}: {cell}' for path, cell in said.items() if cell])}".rstrip()
        if start or run != "#":  # above the first row, nothing said means the same
            lines[start] = f"{run}\n{lines[start]}"
    return Printed(header="|".join(kept), lines=tuple(lines))


def print_value(value: Any) -> str:
    """Print any JSON value in one line, by rules 3 to 5; a float that has its spelling as `text` as it was spelled.

    Examples:
        >>> print_value({"id": 7, "note": "", "tags": ["a", "b, c"], "at": "2024-05-31T10:00:00Z"})
        '{id:7,note:"",tags:[a,"b, c"],at:2024-05-31T10:00:00Z}'
    """
    kind = type(value)
    if kind is dict:
        return "{" + ",".join([f"{_text(key, _BARE_KEY)}:{print_value(child)}" for key, child in value.items()]) + "}"
    if kind is list:
        columns = _table(value)
        if columns is None:
            return "[" + ",".join(map(print_value, value)) + "]"
        lines = zip(*(_cells(column, _BARE_INSIDE) for column in columns.values()), strict=True)
        return f"[{'|'.join(columns)} " + " ".join(["(" + "|".join(line).rstrip("|") + ")" for line in lines]) + "]"
    if isinstance(value, str):
        return _text(value, _BARE_INSIDE)
    is_plain = kind is int or (kind is float and math.isfinite(value))
    spelled = repr(value) if is_plain else getattr(value, "text", None)
    return spelled if isinstance(spelled, str) else json.dumps(value)


def _table(rows: Sequence[Any]) -> dict[str, list[Any]] | None:
    """The columns of rows that make a table, else None."""
    is_table = len(rows) > 1 and all(type(row) is dict for row in rows)
    return (_columns(rows, "") or None) if is_table else None


def _columns(rows: Sequence[dict[str, Any]], prefix: str) -> dict[str, list[Any]] | None:
    """A column per field of rows and of the objects in them; None when too many cells would be empty."""
    keys = dict.fromkeys(chain.from_iterable(rows))
    if sum(map(len, rows)) < _MIN_FILLED * len(keys) * len(rows):
        return None
    columns: dict[str, list[Any]] = {}
    for key in keys:
        column = [row.get(key, _ABSENT) for row in rows]
        path = f"{prefix}{_text(key, _BARE_KEY)}"
        if dict not in set(map(type, column)):
            columns[path] = column
            continue
        inside = _columns([value if type(value) is dict else {} for value in column], f"{path}.")
        if inside:
            column = [_ABSENT if type(value) is dict and value else value for value in column]
        if not inside or any(value is not _ABSENT for value in column):
            columns[path] = column
        columns.update(inside or {})
    return columns


def _cells(column: list[Any], bare: re.Pattern[str]) -> list[str]:
    """Print one column; equal texts are printed once."""
    types = set(map(type, column))
    if types <= {int, float}:
        numbers = list(map(repr, column))
        return numbers if "n" not in "".join(numbers) else list(map(print_value, column))  # JSON spells nan otherwise
    if types == {str}:
        texts = {value: _text(value, bare) for value in set(column)}
        return list(map(texts.__getitem__, column))
    if object in types:
        present = iter(_cells([value for value in column if value is not _ABSENT], bare))
        return ["" if value is _ABSENT else next(present) for value in column]
    return [_text(value, bare) if isinstance(value, str) else print_value(value) for value in column]


def _runs(cells: dict[str, list[str]], rows: int) -> tuple[list[str], set[int]]:
    """The columns that are said once per run, those that change least first, and the rows where one changes."""
    changes = {
        path: set(compress(range(1, rows), map(operator.ne, column, column[1:]))) for path, column in cells.items()
    }
    together, chosen = {0}, list[str]()
    for path in sorted(cells, key=lambda path: len(changes[path])):
        both = together | changes[path]
        if _MIN_RUN_ROWS * len(both) > rows or len(chosen) == len(cells) - 1:  # without a column there is no header
            break
        together = both
        chosen.append(path)
    return chosen, together


def _text(text: str, bare: re.Pattern[str]) -> str:
    if bare.fullmatch(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _HALF_CHARACTER.sub(lambda half: f"\\u{ord(half[0]):04x}", quoted)
