"""How is one value shown that is larger than a page? As a text of parts, each under its path."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from langchain_ctxwin.core.field_paths import joined
from langchain_ctxwin.tool_results.printing import print_rows, print_value

SMALL_CHARS = 200
"""A value that prints in so many characters, about two lines, is shown on the line of its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a value and the line that says which piece it is; small neighbors share a part without a title."""

    title: str
    body: str

    @property
    def text(self) -> str:
        """Title and body."""
        return f"{self.title}\n{self.body}" if self.title else self.body


class Inside:
    """The text of one large value, which its pages are slices of.

    Args:
        value: the value.
        path: where it stands in the result.
    """

    def __init__(self, value: Any, path: str) -> None:
        self._parts = list(_parts(value, path))
        self.text = "".join(part.text for part in self._parts)
        self._starts = [0, *accumulate(len(part.text) for part in self._parts)]

    def title_at(self, char: int) -> str:
        """Return the title of the part that a position is in the middle of, or an empty string."""
        index = min(bisect_right(self._starts, char), len(self._parts)) - 1
        return self._parts[index].title if char > self._starts[index] else ""


def _parts(value: Any, path: str) -> Iterator[Part]:
    if value in ({}, []):
        yield Part(title="", body=_line(path, print_value(value)))
    elif isinstance(value, str):
        yield Part(title=f"{path} ({len(value):,} characters):".lstrip(), body=f"{value}\n")
    elif isinstance(value, dict):
        yield from _fields(value, path)
    elif isinstance(value, list):
        yield from _items(value, path)
    else:
        yield Part(title="", body=_line(path, print_value(value)))


def _fields(value: dict[str, Any], path: str) -> Iterator[Part]:
    lines: list[str] = []
    for key, item in value.items():
        name = joined(path, key)
        printed = print_value(item)
        if len(printed) <= SMALL_CHARS:
            lines.append(_line(name, printed))
            continue
        yield from _joined(lines)
        lines = []
        yield from _parts(item, name)
    yield from _joined(lines)


def _items(value: list[Any], path: str) -> Iterator[Part]:
    if all(len(print_value(item)) <= SMALL_CHARS for item in value):
        printed = print_rows(value)
        title = f"{path}[] ({len(value):,} items):".lstrip()
        header = f"\n{printed.header}" if printed.header else ""
        yield Part(title=title + header, body="".join(f"{line}\n" for line in printed.lines))
        return
    for index, item in enumerate(value):
        yield from _parts(item, f"{path}[{index}]")


def _joined(lines: list[str]) -> Iterator[Part]:
    if lines:
        yield Part(title="", body="".join(lines))


def _line(path: str, printed: str) -> str:
    return f"{path}: {printed}\n" if path else f"{printed}\n"
