"""Search in a kept result: pages of the entries in which a text occurs, also in fields that are not shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any

from langchain_ctxwin.core.field_paths import joined
from langchain_ctxwin.tool_results.pages import Page, Place, Room, page_end, passages
from langchain_ctxwin.tool_results.printing import print_value
from langchain_ctxwin.tool_results.view import View, row_lines

ENTRY_SHARE = 0.25  # largest part of a page that one entry takes before only its passages with the text are shown
ENTRY_TOKENS = 200  # the same for a small page: a row of some twenty short fields
MAX_CHARS_PER_TOKEN = 16  # more than a token of readable text has; bounds the work of a page, not its size
MAX_PASSAGES = 5  # shown of one row; all of a row that is larger than that share, and of a text, are shown page by page
LEAD_CHARS = 40  # shown before the searched text when not even one passage fits: a few words
ROW_TOKENS, MIN_BATCH_ROWS = 8, 16  # so many rows of this size fill a page: they are printed as one table


class Search:
    """Looks for a text in the entries of a result, whatever its case."""

    def __init__(self, view: View, needle: str) -> None:
        self._view = view
        self._needle = needle
        self._pattern = re.compile(re.escape(needle), re.IGNORECASE)
        self._matches = [index for index in range(len(view)) if any(self._texts(index, ""))]

    def page(self, place: Place, room: Room) -> Page:
        """Return the page of matching entries that begins at a place."""
        taken: list[tuple[Place, str]] = []
        following, left = None, room.tokens
        for block in self._blocks(place, room):
            left -= room.price(f"{block[1]}\n")
            if taken and (left < 0 or len(taken) == room.rows):
                following = block[0]
                break
            taken.append(block)
        while len(taken) > 1 and room.price("\n".join(text for _, text in taken)) > room.tokens:
            following = taken.pop()[0]
        body = "\n".join(text for _, text in taken)
        is_cut = room.price(body) > room.tokens
        if is_cut:  # it is shown from shortly before the searched text on
            on_one_line = re.escape(" ".join(self._needle.split()))  # passages are shown without their line breaks
            match = self._pattern.search(body) or re.search(on_one_line, body, re.IGNORECASE)
            start = max(0, match.start() - LEAD_CHARS) if match else 0
            body = body[start : page_end(body, start, room.tokens, room.price)]
        return Page(body=body, start=place, next=following, stop=place.entry, matches=self._matches, is_cut=is_cut)

    def _blocks(self, place: Place, room: Room) -> Iterator[tuple[Place, str]]:
        """What is shown of each match, with the place to go on from when it does not fit any more."""
        most_tokens = min(room.tokens, max(ENTRY_TOKENS, ENTRY_SHARE * room.tokens))
        if self._view.style.fields:
            most_tokens = room.tokens  # what was asked for comes before where the text stands
        entries = [index for index in self._matches if index >= place.entry]
        at_once = max(MIN_BATCH_ROWS, room.tokens // ROW_TOKENS)
        for batch in (entries[start : start + at_once] for start in range(0, len(entries), at_once)):
            lines = _numbered_lines(self._view, batch)
            due: list[str] = []  # what stands above rows of the table and was not shown with one of them
            for index in batch:
                at = replace(place, entry=index, char=place.char if index == place.entry else 0)
                *above, line = lines.get(index, "").split("\n")
                due = _newest([*due, *above])
                block = "" if at.char or not line else self._block(index, "\n".join([*due, line]), most_tokens)
                if block and room.price(block) <= most_tokens:
                    due = []
                    yield at, block
                    continue
                found = enumerate(self._passages(index, self._view.layout.path_of(index)))
                for number, (where, text) in islice(found, at.char, None):
                    yield replace(at, char=number), f"{where}: {text}"

    def _block(self, index: int, line: str, most_tokens: float) -> str:
        """The line of an entry with the passages that it does not show; empty when it is too long."""
        value = print_value(self._view.value(index))  # what repeats is said above the line
        if max(len(line), len(value)) > most_tokens * MAX_CHARS_PER_TOKEN:  # passages would be looked for in all of it
            return ""
        found = self._passages(index, "")
        hidden = (f"  in it: {where}: {text}" for where, text in found if text not in line + value)
        shown = list(islice(hidden, MAX_PASSAGES))
        more = sum(1 for _ in hidden)
        return "\n".join([line, *shown, *([f"  in it: {more:,} more places"] if more else [])])

    def _passages(self, index: int, path: str) -> Iterator[tuple[str, str]]:
        """The passages of an entry in one line each, and where they stand."""
        for where, text in self._texts(index, path):
            for start, stop in passages(text, self._needle, 0):
                yield where or f"characters {start:,}-{stop:,}", " ".join(text[start:stop].split())

    def _texts(self, index: int, path: str) -> Iterator[tuple[str, str]]:
        """The texts of an entry in which the searched one occurs, with their paths."""
        found = _texts_in(self._view.layout.entry(index), path)
        return ((where, text) for where, text in found if self._pattern.search(text))


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


def _numbered_lines(view: View, indexes: Sequence[int]) -> dict[int, str]:
    """Matching rows as a table with their numbers; fields under their names; nothing of a text, or of other entries."""
    layout = view.layout
    if layout.unit == "fields":
        return dict(zip(indexes, view.texts(indexes), strict=True))
    values = {index: view.value(index) for index in indexes if index >= layout.head and layout.unit == "rows"}
    objects = {index: value if isinstance(value, dict) else {"value": value} for index, value in values.items()}
    # What the number of a row is called: something that the rows themselves do not have.
    names = chain(["row"], (f"row_{number}" for number in count()))
    name = next(name for name in names if not any(name in value for value in objects.values()))
    numbered = [{name: index - layout.head + 1, **value} for index, value in objects.items()]
    return dict(zip(values, row_lines(numbered), strict=True))


def _newest(above: Sequence[str]) -> list[str]:
    """The header of a table and the last of the lines that say what holds for the rows below them."""
    runs = [line for line in above if line.startswith("#")]
    return [*(line for line in above if not line.startswith("#")), *runs[-1:]]
