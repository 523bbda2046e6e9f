"""Where may a long text be cut, the best places first?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.text.sentences import sentence_spans, word_cut

Boundary = Literal["end", "section", "paragraph", "line", "sentence", "hard"]
"""What ends where a piece ends: the whole text, a unit of it, or only a word or character (`hard`)."""

PIECES_PER_ROOM = 16
"""Neighbouring units are taken together up to this part of the room: prices cost time, and a part wastes less."""

LONGEST_HEADING_CHARS = 500
"""A longer piece is no heading that stands alone."""

_HEADING = re.compile(r"(?m)^(#{1,6})[ \t]+\S|^[^\n]+\n(?:(={3,})|-{3,})[ \t\r]*$|(\f)")
_HEADING_LINE = re.compile(r"#{1,6}[ \t][^\n]*+(?:\n|\Z)|[^\n]++\n(?:={3,}|-{3,})[ \t\r]*+(?:\n|\Z)|[^\S\n]*+(?:\n|\Z)")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
# Not before another end, a run of empty lines is one, and not before the line under a heading.
_LINE_END = re.compile(r"(?m)\n(?!\n|(?:={3,}|-{3,})[ \t\r]*$)|\r(?!\n)")
_SENTENCE_ENDS = tuple(".!?\u2026\u3002\uff01\uff1f\u0964\u061f:;\"'\u201d\u2019)]}>|")
_LONGEST_END_CHARS = 40  # white space after a sentence that is looked at

Cuts = Callable[[str, int, int], Iterable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a text that fits; pieces follow each other without gaps."""

    start: int
    stop: int
    tokens: int
    ends: Boundary


def pieces_of(text: str, room_tokens: int, price: WholePrice) -> Iterator[Piece]:
    """Yield the pieces of `text` in order, each at most `room_tokens` large, cut at the coarsest units that fit.

    The units are sections by depth of their headings, paragraphs, lines, sentences, then words and characters. A
    heading stays with what follows it, down to its first sentence. Only a single character may cost more than the room.
    """
    yield from _Cutter(text, room_tokens, price).pieces(0, len(text), 0, "end")


class _Cutter:
    def __init__(self, text: str, room_tokens: int, price: WholePrice) -> None:
        self._text = text
        self._room = room_tokens
        self._price = price

    def pieces(self, start: int, stop: int, level: int, ends: Boundary) -> Iterator[Piece]:
        tokens = self._price(self._text[start:stop])
        if tokens <= self._room or stop - start <= 1:
            yield Piece(start=start, stop=stop, tokens=tokens, ends=ends)
        elif level == len(_LEVELS):
            middle = word_cut(self._text, start, (start + stop) // 2)
            yield from self.pieces(start, middle, level, "hard")
            yield from self.pieces(middle, stop, level, ends)
        else:
            yield from self._by_units(start, stop, level, ends, tokens)

    def _by_units(self, start: int, stop: int, level: int, ends: Boundary, tokens: int) -> Iterator[Piece]:
        """Cut between units of this level; what is still too large is cut between units of the next one."""
        kind, cuts = _LEVELS[level]
        units = _with_headings(self._text, [start, *(cut for cut in cuts(self._text, start, stop) if cut < stop), stop])
        group_chars = (stop - start) * self._room // (tokens * PIECES_PER_ROOM)
        for group in _groups(units, group_chars):
            first, last = group[0], group[-1]
            cost = self._price(self._text[first:last])
            if cost <= self._room:
                yield Piece(start=first, stop=last, tokens=cost, ends=self._ends(kind, last, stop, ends))
                continue
            for one, other in pairwise(group):
                yield from self.pieces(one, other, level + 1, self._ends(kind, other, stop, ends))

    def _ends(self, kind: Boundary, at: int, stop: int, ends: Boundary) -> Boundary:
        if at == stop:
            return ends
        is_cut = kind == "sentence" and not _ends_sentence(self._text[max(0, at - _LONGEST_END_CHARS) : at])
        return "hard" if is_cut else kind


def _ends_sentence(text: str) -> bool:
    """True for text that ends, but for white space, with a mark that ends sentences, or with the end of a line."""
    end = text.rstrip()
    return end.endswith(_SENTENCE_ENDS) or "\n" in text[len(end) :]


def _groups(cuts: Sequence[int], least_chars: int) -> Iterator[list[int]]:
    """Take neighbouring units together until they have enough characters; each group begins where the last one ends."""
    group = [cuts[0]]
    for cut in cuts[1:]:
        group.append(cut)
        if cut - group[0] >= least_chars or cut == cuts[-1]:
            yield group
            group = [cut]


def _with_headings(text: str, cuts: list[int]) -> list[int]:
    """Drop each cut that would leave only headings, or blank lines, before it."""
    kept = cuts[:1]
    has_text = False
    for start, cut in pairwise(cuts):
        has_text = has_text or cut - kept[-1] > LONGEST_HEADING_CHARS or not _is_heading(text, start, cut)
        if has_text and cut != cuts[-1]:
            kept.append(cut)
            has_text = False
    return [*kept, cuts[-1]]


def _is_heading(text: str, start: int, stop: int) -> bool:
    """True when a short unit has nothing but headings and blank lines."""
    at = start
    while at < stop <= start + LONGEST_HEADING_CHARS:
        line = _HEADING_LINE.match(text, at, stop)
        if line is None or line.end() == at:
            return False
        at = line.end()
    return at == stop


def _sections(depth: int, text: str, start: int, stop: int) -> Iterator[int]:
    """Before headings of this depth or above, after form feeds."""
    for match in _HEADING.finditer(text, start, stop):
        marks, underline, feed = match.groups()
        found_depth = len(marks) if marks else 1 if underline or feed else 2
        if found_depth <= depth:
            yield match.end() if feed else match.start()


def _paragraphs(text: str, start: int, stop: int) -> Iterator[int]:
    return (match.end() for match in _BLANK_LINES.finditer(text, start, stop))


def _lines(text: str, start: int, stop: int) -> Iterator[int]:
    return (match.end() for match in _LINE_END.finditer(text, start, stop))


def _sentences(text: str, start: int, stop: int) -> Iterator[int]:
    return (end for _, end in sentence_spans(text, start, stop))


_LEVELS: tuple[tuple[Boundary, Cuts], ...] = (
    ("section", partial(_sections, 1)),
    ("section", partial(_sections, 2)),
    ("section", partial(_sections, 3)),
    ("section", partial(_sections, 6)),
    ("paragraph", _paragraphs),
    ("line", _lines),
    ("sentence", _sentences),
)
