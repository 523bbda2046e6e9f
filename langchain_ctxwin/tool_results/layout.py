"""Which parts of a result are its rows, and what stands beside them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.tool_results.contents import Content

MIN_ROWS = 2
"""A list of one item is no table; its item is paged inside."""

MAX_ENTRIES = 2_000_000
"""More rows than cursors can count; such a result is paged as text."""


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

    def entry(self, index: int) -> Any:
        """Return an entry, the fields beside the rows first."""
        return self.beside if index < self.head else self.rows[index - self.head]

    def path_of(self, index: int) -> str:
        """Return the path at which an entry stands; empty for objects whose fields state their own."""
        if index < self.head or self.unit != "rows":
            return ""
        return f"{'.'.join(self.path)}[{index - self.head}]"

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

    Example:
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
