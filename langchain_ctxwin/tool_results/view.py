"""View of a result: its entries, which of their fields are shown, and the text in which they are printed.

How JSON values are printed in few tokens, so that they can be read back exactly:

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
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, chain, compress, islice
from typing import Any, Final, Literal

from langchain_ctxwin.core.blocks import compact_json
from langchain_ctxwin.core.field_paths import compile_fields, exists, joined
from langchain_ctxwin.tool_results.contents import Content, is_media, without_data
from langchain_ctxwin.tool_results.cursors import Style
from langchain_ctxwin.tool_results.projection import Projected, extract, project, project_automatically

EMPTY_ROW = "|"  # a row that has none of the columns: an empty line could be overlooked
HEAD_CHARS = 1_000  # fields beside the rows that print in so many characters are shown whole
MAX_ENTRIES = 2_000_000  # more rows than cursors can count; such a result is paged as text
NAMED_ROWS = 16  # rows whose fields are named to whom asks for others: rows of one list mostly have the same
MAX_PATHS = 2_000  # fields of these rows that are looked at, all of a hundred in each
SMALL_CHARS = 200  # a value that prints in so many, about two lines, is shown on the line of its path


class ResultView:
    """The entries of a result in one style."""

    def __init__(self, layout: Layout, style: Style) -> None:
        self.layout = layout
        self.style = style
        self._printed: dict[range, Projected] = {}

    def __len__(self) -> int:
        return len(self.layout)

    def value(self, index: int) -> Any:
        """Return what of an entry is shown; an empty object when all of it is left out."""
        return self.projected([index]).value[0]

    def shown(self, indexes: range) -> Projected:
        """Print entries in order, one text each; the header of a table is part of the first row's."""
        if indexes not in self._printed:  # pages are tried in several sizes, and the same one again with its notes
            one = self.projected(indexes)
            self._printed[indexes] = replace(one, value=tuple(self._texts(indexes, one.value)))
        return self._printed[indexes]

    def texts(self, indexes: Sequence[int]) -> list[str]:
        """Print any entries, one text each."""
        return self._texts(indexes, self.projected(indexes).value)

    def projected(self, indexes: Sequence[int]) -> Projected:
        """Return what is shown of entries, as a list, and what is left out of any; paths are as in one entry."""
        if self.layout.unit == "fields":
            return self._fields([next(iter(self.layout.entry(index))) for index in indexes])
        entries = [self.layout.entry(index) for index in indexes]
        heads = self._heads(indexes)
        inside = [self.layout.inside(path) for path in self.style.fields]
        beside = [
            # They tell about all rows, so few of them are shown as they are.
            Projected(value=[head])
            if not self.style.fields and len(compact_json(head)) <= HEAD_CHARS
            else self._project([head], self.style.fields)
            for head in entries[:heads]
        ]
        return together([*beside, self._project(entries[heads:], inside)])

    def _heads(self, indexes: Sequence[int]) -> int:
        return sum(1 for index in indexes if index < self.layout.head)

    def _project(self, values: list[Any], fields: Sequence[str]) -> Projected:
        if self.style.shows_everything or self.style.fields == ("*",) or not values:
            return Projected(value=values)
        if fields:
            return project(values, fields)
        seen = [without_data(value) if is_media(value) else value for value in values]
        return project_automatically(seen, text_chars=self.style.text_chars or 0, shorten=self._shorten)

    def _shorten(self, text: str, max_chars: int) -> str:
        if self.style.extraction:
            return extract(text, max_chars, self.style.words)
        more = len(text) - max_chars
        return text if more <= 0 else f"{text[:max_chars]}… [{more:,} more characters]"

    @cached_property
    def _object(self) -> Projected:
        """A result without rows, as a whole: what its fields are worth depends on the others."""
        return self._project([{key: item for row in self.layout.rows for key, item in row.items()}], self.style.fields)

    def _fields(self, keys: Sequence[str]) -> Projected:
        (shown,) = self._object.value
        exact = {joined("", key) for key in keys}
        starts = tuple(f"{path}{end}" for path in exact for end in (".", "["))

        def of_keys(paths: Iterable[str]) -> tuple[str, ...]:
            return tuple(path for path in map(_in_entry, paths) if path in exact or path.startswith(starts))

        return Projected(
            value=[{key: shown[key]} if key in shown else {} for key in keys],
            missing=self._object.missing,
            left_out=of_keys(self._object.left_out),
            shortened=of_keys(self._object.shortened),
        )

    def _texts(self, indexes: Sequence[int], values: Sequence[Any]) -> list[str]:
        heads = len(values) if self.layout.unit == "fields" else self._heads(indexes)
        fields = (
            "\n".join(f"{joined('', key)}: {print_value(item)}" for key, item in value.items())
            for value in values[:heads]
        )
        return [*fields, *row_lines(values[heads:])]


def leaves_out(content: Content, fields: Sequence[str]) -> bool:
    """Say whether a view of these fields leaves anything out, and shows something: an error has none of them."""
    layout = layout_of(content)
    if layout.unit == "text":
        return False
    shown = ResultView(layout, Style(fields=tuple(fields))).projected(range(len(layout)))
    return bool(shown.left_out) and len(shown.missing) < len(fields)


def row_lines(values: Sequence[Any]) -> list[str]:
    """Print rows, one text each; the header of a table is part of the first row's."""
    header, lines = print_rows(values)
    if not header:
        return lines
    first, *others = (f"{line}{EMPTY_ROW}" if line[-1:] in ("", "\n") else line for line in lines)
    return [f"{header}\n{first}", *others]


def together(parts: Sequence[Projected]) -> Projected:
    """Return parts of a page as one; a field is missing when no part has it."""
    asked = [part for part in parts if part.value]
    missing = set.intersection(*(set(part.missing) for part in asked)) if asked else set[str]()
    return Projected(
        value=[value for part in parts for value in part.value],
        missing=tuple(sorted(missing)),
        left_out=tuple(dict.fromkeys(_in_entry(path) for part in parts for path in part.left_out)),
        shortened=tuple(dict.fromkeys(_in_entry(path) for part in parts for path in part.shortened)),
    )


def _in_entry(path: str) -> str:
    return path.removeprefix("[]").removeprefix(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A result as a sequence of entries: first what stands beside the rows, if anything, then the rows."""

    unit: Literal["rows", "fields", "text"]  # the rows are items of a list, fields of an object, or one text
    rows: Sequence[Any]  # items; single-field objects; or the one text
    beside: dict[str, Any] | None = None  # the value without its rows; None when they are all of it
    path: tuple[str, ...] = ()  # keys that lead to the list of rows

    @property
    def head(self) -> int:
        """Number of entries before the first row: 0 or 1."""
        return 0 if self.beside is None else 1

    def __len__(self) -> int:
        return self.head + len(self.rows)

    @property
    def list_path(self) -> str:
        """The path of the list of rows, as it can be asked for; empty for a list at the top."""
        return reduce(joined, self.path, "")

    def inside(self, path: str) -> str:
        """Return a path in the whole value as a path in one row; other paths are taken as paths in the row.

        The path of the list itself, or of what it stands in, is all of a row, unless rows have such a field.
        """
        prefix = self.list_path
        if prefix and f"{prefix}.".startswith(f"{path.removesuffix('[]')}."):
            return path if exists(list(self.rows[:NAMED_ROWS]), *compile_fields([path])) else "**"
        start = next((start for start in (f"{prefix}[].", f"{prefix}.") if path.startswith(start)), "")
        return path.removeprefix(start)

    def has(self, path: str) -> bool:
        """Say whether a path leads to something in the value or in any row, or names no field at all."""
        (steps,), (inside,) = compile_fields([path]), compile_fields([self.inside(path)])
        if not any(isinstance(step, str) for step in steps):
            return True
        if self.unit == "text":
            return False
        return exists(list(self.rows), inside if self.unit == "rows" else steps) or exists(self.beside, steps)

    def field_names(self) -> tuple[str, ...]:
        """Return paths of the fields of the first rows, then of those beside the rows, as they can be asked for."""
        if self.unit == "text":
            return ()
        found = chain(_leaf_paths(list(self.rows[:NAMED_ROWS]), ""), _leaf_paths(self.beside or {}, ""))
        return tuple(dict.fromkeys(_in_entry(path) for path in islice(found, MAX_PATHS)))

    def entry(self, index: int) -> Any:
        """Return an entry, the fields beside the rows first."""
        return self.beside if index < self.head else self.rows[index - self.head]

    def path_of(self, index: int) -> str:
        """Return the path at which an entry stands; empty for objects whose fields state their own."""
        return f"{self.list_path}[{index - self.head}]" if index >= self.head and self.unit == "rows" else ""

    def name(self, index: int) -> str:
        """Return what an entry is called outside of the marks: by its number, because keys are data."""
        if self.unit == "text":
            return "the text"
        return "the fields beside the rows" if index < self.head else f"{self.unit[:-1]} {index - self.head + 1:,}"


def layout_of(content: Content) -> Layout:
    """Find the rows: the items of the top-level list, or of the list at the end of the largest entries.

    From an object the way leads into its largest entry, and so on. Where that ends in no list, or in one of a single
    item, the top-level fields are the rows.

    Examples:
        >>> from langchain_ctxwin.tool_results.contents import content_of
        >>> found = layout_of(content_of('{"total": 2, "data": {"items": [{"id": 1}, {"id": 2}]}}'))
        >>> found.path, found.beside
        (('data', 'items'), {'total': 2})
    """
    value, found = content.value, Layout(unit="text", rows=(content.text,))
    if isinstance(value, list):
        found = Layout(unit="rows", rows=value)
    elif isinstance(value, dict):
        path: list[str] = []
        node: Any = value
        while isinstance(node, dict) and node:
            chars = {key: len(compact_json(item)) for key, item in node.items()}
            path.append(max(chars, key=chars.__getitem__))
            node = node[path[-1]]
        if isinstance(node, list) and len(node) > 1:
            found = Layout(unit="rows", rows=node, beside=_without(value, path) or None, path=tuple(path))
        else:
            found = Layout(unit="fields", rows=[{key: item} for key, item in value.items()])
    return found if 0 < len(found.rows) <= MAX_ENTRIES else Layout(unit="text", rows=(content.text,))


def _without(value: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """The value without what the path leads to, and without objects that are empty then."""
    first, *others = path
    kept = {key: item for key, item in value.items() if key != first}
    inside = _without(value[first], others) if others else {}
    return {**kept, first: inside} if inside else kept


def _leaf_paths(value: Any, path: str) -> Iterator[str]:
    """The paths of all that is no object or list, and of empty ones; those of the items of a list are the same."""
    if isinstance(value, list) and value:
        for item in value:
            yield from _leaf_paths(item, f"{path}[]")
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaf_paths(item, joined(path, key))
    elif path.strip("[]"):
        yield path


class Inside:
    """The text of one large value, which its pages are slices of, with the paths of what is in it."""

    def __init__(self, value: Any, path: str) -> None:
        parts = list(_parts(value, path))
        self.text = "".join(f"{title}\n{body}" if title else body for title, body in parts)
        self._titles = [title for title, _ in parts]
        self._starts = [0, *accumulate(len(body) + (len(title) + 1 if title else 0) for title, body in parts)]

    def title_at(self, char: int) -> str:
        """Return the title of the part that a position is in the middle of, or an empty string.

        That of a table is its path, its header, and the line that says what holds for the rows from there on.
        """
        index = min(bisect_right(self._starts, char), len(self._titles)) - 1
        title, rows = self._titles[index], self._starts[index] + len(self._titles[index])
        if char <= self._starts[index]:
            return ""
        run = self.text.rfind("\n#", rows, char) if "\n" in title else -1  # only a table has a line below its path
        return title if run < 0 else title + self.text[run : self.text.index("\n", run + 1)]


def _parts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The pieces of a value, each with the line that says which piece it is; a small one says so itself."""
    if isinstance(value, str):
        yield f"{path} ({len(value):,} characters):".lstrip(), f"{value}\n"
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            inside, printed = joined(path, key), print_value(item)
            yield from [("", f"{inside}: {printed}\n")] if len(printed) <= SMALL_CHARS else _parts(item, inside)
    elif isinstance(value, list) and value:
        if any(len(print_value(item)) > SMALL_CHARS for item in value):
            yield from chain.from_iterable(_parts(item, f"{path}[{index}]") for index, item in enumerate(value))
            return
        header, lines = print_rows(value)
        title = f"{path}[] ({len(value):,} items):\n{header}" if header else f"{path}[] ({len(value):,} items):"
        yield title.lstrip(), "".join(f"{line}\n" for line in lines)
    else:
        yield "", f"{path}: {print_value(value)}\n" if path else f"{print_value(value)}\n"


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


def print_rows(rows: Sequence[Any]) -> tuple[str, list[str]]:
    """Print rows as a table when they share most of their fields, else as a value per line, without a header.

    Each row is one text, which joined by line breaks are the table; the first row of a run begins with its `#` line.

    Examples:
        >>> print_rows([{"id": 1, "owner": {"login": "ann"}}, {"id": 2, "owner": {"login": "7"}}])
        ('id|owner.login', ['1|ann', '2|"7"'])
    """
    columns = _table(rows)
    if columns is None:
        return "", list(map(print_value, rows))
    cells = {path: _cells(column, _BARE_CELL) for path, column in columns.items()}
    hoisted, starts = _runs(cells, len(rows))
    kept = [path for path in cells if path not in hoisted]
    lines = ["|".join(line).rstrip("|") for line in zip(*(cells[path] for path in kept), strict=True)]
    for start in starts if hoisted else ():
        said = {path: _cells([columns[path][start]], _BARE_RUN)[0] for path in hoisted}
        run = f"# {'; '.join([f'{path}: {cell}' for path, cell in said.items() if cell])}".rstrip()
        if start or run != "#":  # above the first row, nothing said means the same
            lines[start] = f"{run}\n{lines[start]}"
    return "|".join(kept), lines


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
