"""Where in a result does a text occur, and what is shown of these places?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any

from langchain_ctxwin.core.field_paths import joined
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.tool_results.pages import Page, Place, Room
from langchain_ctxwin.tool_results.printing import print_value
from langchain_ctxwin.tool_results.projection import Projected
from langchain_ctxwin.tool_results.text_pages import page_end, passages
from langchain_ctxwin.tool_results.view import View, row_lines

ENTRY_SHARE = 0.25
"""Largest part of a page that one entry takes before only its passages with the text are shown."""

ENTRY_TOKENS = 200
"""The same for a small page: a row of some twenty short fields."""

MAX_CHARS_PER_TOKEN = 16
"""More characters than a token of readable text has; bounds the work of a page, not its size."""

MAX_PASSAGES = 5
"""Passages shown of one row; all of a row that is larger than that share, and of a text, are shown page by page."""

LEAD_CHARS = 40
"""What is shown before the searched text when not even one passage fits: a few words."""

LINE_CHARS = 200
"""What is shown of a value whose match is not inside one of its texts."""

ROW_TOKENS = 8
MIN_BATCH_ROWS = 16
"""So many rows of this size fill a page: they are printed as one table, rather than all that match."""

_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')

Block = tuple[Place, str]
"""What is shown of a match, and where it is."""


class Search:
    """Looks for a text in the entries of a result, whatever its case, also in fields that are not shown."""

    def __init__(self, view: View, needle: str) -> None:
        self._view = view
        self._needle = needle
        self._pattern = re.compile(re.escape(needle), re.IGNORECASE)
        # Printing puts these behind a backslash: only the texts themselves have them as they are.
        self._is_printed = not _ESCAPED.search(needle)

    def entries(self) -> list[int]:
        """Return the entries in which the text occurs."""
        return [index for index in range(len(self._view)) if self._occurs(self._view.layout.entry(index))]

    def page(self, entries: Sequence[int], place: Place, room: Room) -> Page:
        """Return the page of matching entries that begins at a place."""
        blocks = self._blocks([index for index in entries if index >= place.entry], place, room)
        taken, following = _taken(blocks, room)
        fit: Fit[Block] = take_while_fits(taken, room.tokens, lambda block: room.price(f"{block[1]}\n"))
        shown = min(len(fit.kept), room.rows or len(fit.kept))
        while shown and room.price(_body(taken[:shown])) > room.tokens:
            shown -= 1
        body = _body(taken[:shown]) if shown or not taken else self._cut(taken[0][1], room)
        shown = max(shown, 1)
        following = taken[shown][0] if len(taken) > shown else following
        return Page(
            body=body, start=place, next=following, stop=place.entry, shown=Projected(value=()), matches=entries
        )

    def _occurs(self, entry: Any) -> bool:
        if self._is_printed and not isinstance(entry, str):
            return self._pattern.search(print_value(entry)) is not None
        return any(self._pattern.search(text) for _, text in _texts(entry, ""))

    def _blocks(self, entries: Sequence[int], place: Place, room: Room) -> Iterator[Block]:
        """What is shown of each match, with the place to go on from when it does not fit any more."""
        most_tokens = min(room.tokens, max(ENTRY_TOKENS, ENTRY_SHARE * room.tokens))
        if self._view.style.fields:
            most_tokens = room.tokens  # what was asked for comes before where the text stands
        at_once = max(MIN_BATCH_ROWS, room.tokens // ROW_TOKENS)
        for start in range(0, len(entries), at_once):
            batch = entries[start : start + at_once]
            lines = _lines(self._view, batch)
            for index in batch:
                at = replace(place, entry=index, char=place.char if index == place.entry else 0)
                line = lines.get(index, "")
                block = "" if at.char else self._block(index, line, most_tokens)
                if block and room.price(block) <= most_tokens:
                    yield at, block
                else:
                    yield from self._passages(at, line)

    def _block(self, index: int, line: str, most_tokens: float) -> str:
        """The line of an entry with the passages that it does not show; empty when there is none, or it is too long."""
        value = print_value(self._view.value(index)) if line else ""  # what repeats is said above the line
        longest = max(len(line), len(value))
        if not line or longest > most_tokens * MAX_CHARS_PER_TOKEN:  # each passage would be looked for in all of it
            return ""
        return "\n".join([line, *self._unseen(index, f"{line} {value}")])

    def _unseen(self, index: int, seen: str) -> list[str]:
        """The passages with the text in an entry that are not among what is seen of it."""
        hidden = (f"  in it: {where}: {text}" for _, where, text in self._found(index, "") if text not in seen)
        shown = list(islice(hidden, MAX_PASSAGES))
        more = sum(1 for _ in hidden)
        return [*shown, f"  in it: {more:,} more places"] if more else shown

    def _passages(self, place: Place, line: str) -> Iterator[Block]:
        """The passages of one entry from the place on, which counts them; its line when it has none of its own."""
        found = self._found(place.entry, self._view.layout.path_of(place.entry))
        is_any = False
        for number, where, text in islice(found, place.char, None):
            is_any = True
            yield replace(place, char=number), f"{where}: {text}"
        if not is_any and not place.char:
            yield place, line[:LINE_CHARS]

    def _cut(self, text: str, room: Room) -> str:
        """A block that alone is too large, from shortly before the searched text on."""
        on_one_line = re.escape(" ".join(self._needle.split()))  # passages are shown without their line breaks
        match = self._pattern.search(text) or re.search(on_one_line, text, re.IGNORECASE)
        start = max(0, match.start() - LEAD_CHARS) if match else 0
        return text[start : page_end(text, start, room.tokens, room.price)]

    def _found(self, index: int, path: str) -> Iterator[tuple[int, str, str]]:
        entry = self._view.layout.entry(index)
        spans = (
            (where, text, span)
            for where, text in _texts(entry, path)
            if self._pattern.search(text)
            for span in passages(text, self._needle, 0)
        )
        for number, (where, text, (start, stop)) in enumerate(spans):
            label = where or f"characters {start:,}-{stop:,}"
            yield number, label, " ".join(text[start:stop].split())


def _taken(blocks: Iterator[Block], room: Room) -> tuple[list[Block], Place | None]:
    """Blocks until the page is surely full, and the place of the one after them."""
    taken: list[Block] = []
    chars, most = 0, min(room.rows or room.tokens, room.tokens)
    for block in blocks:
        if len(taken) >= most or chars > room.tokens * MAX_CHARS_PER_TOKEN:
            return taken, block[0]
        taken.append(block)
        chars += len(block[1]) + 1
    return taken, None


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text inside a value, as it is, with its path: keys, and values that are no texts as they are printed."""
    if isinstance(value, dict):
        for key, item in value.items():
            inside = joined(path, key)
            yield inside, key
            yield from _texts(item, inside)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) else print_value(value)


def _lines(view: View, indexes: Sequence[int]) -> dict[int, str]:
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


def _body(blocks: Sequence[Block]) -> str:
    return "\n".join(text for _, text in blocks)
