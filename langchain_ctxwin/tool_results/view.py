"""View of a result: its rows, or other entries, as a sequence; which of their fields are shown, in which form."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, chain, islice
from typing import Any, Literal

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.core.field_paths import compile_fields, exists, joined
from langchain_ctxwin.tool_results.contents import Content, is_media, without_data
from langchain_ctxwin.tool_results.printing import print_rows, print_value
from langchain_ctxwin.tool_results.projection import Projected, extract, project, project_automatically

EVERYTHING = ("*",)
"""Fields of a read that leaves nothing out."""

EMPTY_ROW = "|"
"""A row that has none of the columns: an empty line could be overlooked."""

HEAD_CHARS = 1_000
"""Fields beside the rows that print in so many characters are shown whole."""

MIN_ROWS = 2
"""A list of one item is no table; its item is paged inside."""

MAX_ENTRIES = 2_000_000
"""More rows than cursors can count; such a result is paged as text."""

NAMED_ROWS = 16
"""Rows whose fields are named to whom asks for others: rows of one list mostly have the same."""

MAX_PATHS = 2_000
"""Fields of these rows that are looked at, all of a hundred in each."""

SMALL_CHARS = 200
"""A value that prints in so many characters, about two lines, is shown on the line of its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Which fields are shown, and how long the texts in them are."""

    fields: tuple[str, ...] = ()
    """Paths of the fields to show; empty: by the rules of the automatic projection."""

    text_chars: int | None = None
    """Length to which texts are shortened without `fields`; None: nothing is shortened and nothing left out."""

    words: tuple[str, ...] = ()
    """What makes a sentence worth keeping, as `query_words` spells it."""

    extraction: bool = True
    """Shorten to sentences, otherwise to the beginning."""

    @property
    def is_whole(self) -> bool:
        """True when nothing is left out."""
        return self.fields == EVERYTHING or (not self.fields and self.text_chars is None)


class View:
    """The entries of a result in one style."""

    def __init__(self, layout: Layout, style: Style) -> None:
        self.layout = layout
        self.style = style
        self._printed: dict[range, Projected] = {}

    def __len__(self) -> int:
        return len(self.layout)

    def value(self, index: int) -> Any:
        """Return what of an entry is shown; an empty object when all of it is left out."""
        return self._projected([index]).value[0]

    def shown(self, indexes: range) -> Projected:
        """Print entries in order, one text each; the header of a table is part of the first row's."""
        if indexes not in self._printed:  # pages are tried in several sizes, and the same one again with its notes
            one = self._projected(indexes)
            self._printed[indexes] = replace(one, value=tuple(self._texts(indexes, one.value)))
        return self._printed[indexes]

    def texts(self, indexes: Sequence[int]) -> list[str]:
        """Print any entries, one text each."""
        return self._texts(indexes, self._projected(indexes).value)

    def omitted(self, index: int) -> Projected:
        """Return what showing this entry leaves out, without printing it."""
        return replace(self._projected([index]), value=())

    def _projected(self, indexes: Sequence[int]) -> Projected:
        """The entries as a list, and what is left out of any of them; paths are as in one entry."""
        if self.layout.unit == "fields":
            return self._fields([next(iter(self.layout.entry(index))) for index in indexes])
        heads = [self._beside(self.layout.entry(index)) for index in indexes[: self._heads(indexes)]]
        rows = [self.layout.entry(index) for index in indexes[len(heads) :]]
        return together([*heads, self._project(rows, [self.layout.inside(path) for path in self.style.fields])])

    def _heads(self, indexes: Sequence[int]) -> int:
        return sum(1 for index in indexes if index < self.layout.head)

    def _project(self, values: list[Any], fields: Sequence[str]) -> Projected:
        if self.style.is_whole or not values:
            return Projected(value=values)
        if fields:
            return project(values, fields)
        seen = [without_data(value) if is_media(value) else value for value in values]
        return project_automatically(seen, text_chars=self.style.text_chars or 0, shorten=self._shorten)

    def _beside(self, head: dict[str, Any]) -> Projected:
        """The fields beside the rows: they tell about all rows, so few of them are shown as they are."""
        is_small = not self.style.fields and len(compact_json(head)) <= HEAD_CHARS
        return Projected(value=[head]) if is_small else self._project([head], self.style.fields)

    @cached_property
    def _object(self) -> Projected:
        """A result without rows, as a whole: what its fields are worth depends on the others."""
        return self._project([{key: item for row in self.layout.rows for key, item in row.items()}], self.style.fields)

    def _fields(self, keys: Sequence[str]) -> Projected:
        (shown,) = self._object.value
        starts = tuple(f"{joined('', key)}{end}" for key in keys for end in (".", "["))
        exact = {joined("", key) for key in keys}

        def of_keys(paths: Iterable[str]) -> tuple[str, ...]:
            return tuple(path for path in map(_in_entry, paths) if path in exact or path.startswith(starts))

        return Projected(
            value=[{key: shown[key]} if key in shown else {} for key in keys],
            missing=self._object.missing,
            left_out=of_keys(self._object.left_out),
            shortened=of_keys(self._object.shortened),
        )

    def _texts(self, indexes: Sequence[int], values: Sequence[Any]) -> list[str]:
        if self.layout.unit == "fields":
            return [_field_lines(value) for value in values]
        head = self._heads(indexes)
        return [*map(_field_lines, values[:head]), *row_lines(values[head:])]

    def _shorten(self, text: str, max_chars: int) -> str:
        if self.style.extraction:
            return extract(text, max_chars, self.style.words)
        more = len(text) - max_chars
        return text if more <= 0 else f"{text[:max_chars]}… [{more:,} more characters]"


def leaves_out(content: Content, fields: Sequence[str]) -> bool:
    """Say whether a view of these fields leaves anything out, and shows something: an error has none of them."""
    layout = layout_of(content)
    if layout.unit == "text":
        return False
    shown = View(layout, Style(fields=tuple(fields))).shown(range(len(layout)))
    return bool(shown.left_out) and len(shown.missing) < len(fields)


def row_lines(values: Sequence[Any]) -> list[str]:
    """Print rows, one text each; the header of a table is part of the first row's."""
    printed = print_rows(values)
    if not printed.lines or not printed.header:
        return list(printed.lines)
    first, *others = (f"{line}{EMPTY_ROW}" if line[-1:] in ("", "\n") else line for line in printed.lines)
    return [f"{printed.header}\n{first}", *others]


def _field_lines(value: Any) -> str:
    if not isinstance(value, dict):
        return print_value(value)
    return "\n".join(f"{joined('', key)}: {print_value(item)}" for key, item in value.items())


def together(parts: Sequence[Projected]) -> Projected:
    """Return parts of a page as one; a field is missing when no part has it."""
    asked = [part for part in parts if part.value]
    missing = set.intersection(*(set(part.missing) for part in asked)) if asked else set[str]()
    return Projected(
        value=[value for part in parts for value in part.value],
        missing=tuple(sorted(missing)),
        left_out=_each_once(path for part in parts for path in part.left_out),
        shortened=_each_once(path for part in parts for path in part.shortened),
    )


def _in_entry(path: str) -> str:
    return path.removeprefix("[]").removeprefix(".")


def _each_once(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_in_entry, paths)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A result as a sequence of entries: first what stands beside the rows, if anything, then the rows."""

    unit: Literal["rows", "fields", "text"]
    """What the rows are: items of a list, the fields of an object, or one text."""

    rows: Sequence[Any]
    """Items; single-field objects; or the one text."""

    beside: dict[str, Any] | None = None
    """The value without its rows; None when they are all of it."""

    path: tuple[str, ...] = ()
    """Keys that lead to the list of rows."""

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

    def unmatched(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that name a field and lead to nothing, neither in the value nor in any row."""
        return tuple(path for path in fields if not self._has(path))

    def _has(self, path: str) -> bool:
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
        if index < self.head or self.unit != "rows":
            return ""
        return f"{self.list_path}[{index - self.head}]"

    def name(self, index: int) -> str:
        """Return what an entry is called outside of the marks: by its number, because keys are data."""
        if self.unit == "text":
            return "the text"
        if index < self.head:
            return "the fields beside the rows"
        return f"{self.unit[:-1]} {index - self.head + 1:,}"


def layout_of(content: Content) -> Layout:
    """Find the rows: the items of the top-level list, or of the list at the end of the largest entries.

    From an object the way leads into its largest entry, and so on. Where that ends in no list, the top-level fields
    are the rows.

    Examples:
        >>> from langchain_ctxwin.tool_results.contents import content_of
        >>> found = layout_of(content_of('{"total": 2, "data": {"items": [{"id": 1}, {"id": 2}]}}'))
        >>> found.path, found.beside
        (('data', 'items'), {'total': 2})
    """
    found = _layout(content)
    return found if 0 < len(found.rows) <= MAX_ENTRIES else Layout(unit="text", rows=(content.text,))


def _layout(content: Content) -> Layout:
    value = content.value
    if content.is_text or not isinstance(value, dict | list):
        return Layout(unit="text", rows=(content.text,))
    if isinstance(value, list):
        return Layout(unit="rows", rows=value)
    path = _way_to_rows(value)
    if path is None:
        return Layout(unit="fields", rows=[{key: item} for key, item in value.items()])
    return Layout(unit="rows", rows=_at(value, path), beside=_without(value, path) or None, path=path)


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


def _way_to_rows(value: dict[str, Any]) -> tuple[str, ...] | None:
    path: list[str] = []
    node: Any = value
    while isinstance(node, dict) and node:
        key = max(node, key=lambda name: _chars(node[name]))
        path.append(key)
        node = node[key]
    return tuple(path) if isinstance(node, list) and len(node) >= MIN_ROWS else None


def _chars(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(compact_json(value))


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _without(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The value without what the path leads to, and without objects that are empty then."""
    first, *others = path
    kept = {key: item for key, item in value.items() if key != first}
    inside = _without(value[first], tuple(others)) if others else {}
    return {**kept, first: inside} if inside else kept


class Inside:
    """The text of one large value, which its pages are slices of.

    Args:
        value: the value.
        path: where it stands in the result.
    """

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
            yield from _field_parts(item, joined(path, key))
    elif isinstance(value, list) and value:
        yield from _items(value, path)
    else:
        yield "", _line(path, print_value(value))


def _field_parts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    printed = print_value(value)
    if len(printed) <= SMALL_CHARS:
        yield "", _line(path, printed)
    else:
        yield from _parts(value, path)


def _items(value: list[Any], path: str) -> Iterator[tuple[str, str]]:
    if all(len(print_value(item)) <= SMALL_CHARS for item in value):
        printed = print_rows(value)
        header = f"\n{printed.header}" if printed.header else ""
        yield f"{path}[] ({len(value):,} items):{header}".lstrip(), "".join(f"{line}\n" for line in printed.lines)
        return
    for index, item in enumerate(value):
        yield from _parts(item, f"{path}[{index}]")


def _line(path: str, printed: str) -> str:
    return f"{path}: {printed}\n" if path else f"{printed}\n"
