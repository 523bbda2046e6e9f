"""What does a page of a large result say? Read from its text alone, by the rules that its printing states."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

DATA = re.compile(r"\A(?>(.*?)<data (\S+)>\n)(.*)\n</data \2>", re.DOTALL)
CURSOR = re.compile(r'cursor="([^"]+)"')
FOLLOWING = re.compile(r'Next page: read_more\(cursor="([^"]+)"')
OBJECT = re.compile(r"(?:\S*\[\d+\]: )?(\{.*\})")
PART = re.compile(r"\S*\[(\d+)\]\.(.+)", re.DOTALL)
CUT = re.compile(r"\[\.\.\. [\d,]+ characters left out")

NOTE = "("
"""Begins lines between the marks that tell about the data; no row begins with it, unless in quotes."""

EMPTY = object()
"""A cell of a row that lacks the field; null is a value."""

Cells = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSeen:
    """One page, as far as it is visible."""

    head: str
    """The line above the data: what this is a page of."""

    body: str
    following: str
    """Cursor of the next page; empty after the last one."""

    cursor: str
    """Any cursor of this result: for searches and other fields."""

    @property
    def rows(self) -> list[Cells]:
        """The rows of the page."""
        return list(_rows(self.body))


def read_page(text: str) -> PageSeen | None:
    """Read a page; None when there is none, or a part of it was left out on the way."""
    data = DATA.search(text)
    if data is None or CUT.search(text):
        return None
    note = text[data.end() :]
    following, cursors = FOLLOWING.search(note), CURSOR.findall(note)
    return PageSeen(
        head=data[1].strip("[] \n"),
        body=data[3],
        following=following[1] if following else "",
        cursor=cursors[-1] if cursors else "",
    )


def _rows(body: str) -> Iterator[Cells]:
    """Objects in a line each, or a header with lines of cells, with lines that hold for the rows below them."""
    lines = [line for line in body.split("\n") if line and not line.startswith(NOTE)]
    parts = list(filter(None, map(PART.fullmatch, lines)))  # a row that stands behind the others, a line per field
    if not lines or not OBJECT.fullmatch(lines[0]):
        yield from _table_rows([line for line in lines if not PART.fullmatch(line)])
        yield from (dict(chain(*(_pairs(part[2], "\n") for part in row))) for _, row in groupby(parts, itemgetter(1)))
        return
    found = filter(None, map(OBJECT.fullmatch, lines))  # other lines are passages of the row above
    yield from (dict(_pairs(one[1][1:-1], ",")) for one in found)


def _table_rows(lines: list[str]) -> Iterator[Cells]:
    header: list[str] = []
    run: Cells = {}
    for line in lines:
        if line.startswith("#"):
            run = dict(_pairs(line[1:], ";"))
        elif not header or line == "|".join(header):  # a page may hold several tables
            header, run = line.split("|"), {}
        else:
            names = [str(name) for name in _cells("|".join(header))]
            yield run | {name: cell for name, cell in zip(names, _cells(line), strict=False) if cell is not EMPTY}


def _pairs(text: str, end: str) -> Iterator[tuple[str, Any]]:
    at = 0
    while text[at:].strip():
        name, at = _word(text, at, ":")
        value, at = _word(text, at + 1, end)
        yield str(name), value
        at += 1


def _cells(text: str) -> Iterator[Any]:
    """Yield the cells of a line, `EMPTY` where there is none."""
    at = 0
    while at <= len(text):
        is_empty = text.startswith("|", at) or at == len(text)
        value, at = _word(text, at, "|")
        yield EMPTY if is_empty else value
        at += 1


def _word(text: str, at: int, end: str) -> tuple[Any, int]:
    """Return the value at a position, with or without quotes, and where it ends."""
    at += len(text[at:]) - len(text[at:].lstrip(" "))
    if text.startswith('"', at):
        return json.JSONDecoder().raw_decode(text, at)
    stop = text.find(end, at)
    stop = len(text) if stop < 0 else stop
    try:
        return json.loads(text[at:stop]), stop
    except ValueError:
        return text[at:stop], stop
