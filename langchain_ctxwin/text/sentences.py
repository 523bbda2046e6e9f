"""Sentences: where one statement ends and the next begins, in prose, code and tool output of any size."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import sentencex

Span = tuple[int, int]  # where a piece of a text begins and where it stops
LONGEST_SENTENCE_CHARS = 600  # as much is segmented at once: time can grow with the square
SHORT_LINE_CHARS = 60  # a line up to this length is one statement: what it holds belongs together
WRAPPED_LINE_CHARS = 40  # lines that are broken for their width are at least this long
_WRAPPED_SHARE = 1 / 3  # of the lines of wrapped prose that many go on in lower case; of logs and tables hardly any do
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
_SPACES_OF_THAI = re.compile(r"(?<=[\u0e00-\u0eff])[ \t]++(?=[\u0e00-\u0eff])")
_LINE_END = re.compile(r"\n(?:[^\S\n]*+\n)*+")
_JOINERS = "\u200d\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"  # zero width joiner, skin tones
_MOST_COMBINING_CHARS = 16  # more marks than that on one character are no writing
_LANGUAGE = "en"  # sets the abbreviations that do not end a sentence; punctuation of other scripts is known in any case
# The segmenter cannot encode lone surrogates and fails on some non-ASCII spaces: it sees a stand-in of equal length.
_UNSAFE = re.compile(r"[^\S \t\n\r\f\v]|[\ud800-\udfff]")


def statement_spans(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yield where the statements of `text[start:stop]` are: sentences of prose, also wrapped, and lines of other text.

    The spans follow each other without gaps; each ends with the white space after its statement.
    """
    for block in _between(start, stop, [match.end() for match in _BLANK_LINES.finditer(text, start, stop)]):
        lines = list(_between(*block, [match.end() for match in _LINE_END.finditer(text, *block)]))
        for span in [block] if _is_wrapped(text, lines) else lines:
            if span[1] - span[0] <= SHORT_LINE_CHARS or text[slice(*span)].isspace():
                yield span
            else:
                yield from sentence_spans(text, *span)


def sentence_spans(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yield where the sentences of `text[start:stop]` are, lazily; the spans follow each other without gaps.

    A sentence longer than `LONGEST_SENTENCE_CHARS` is cut after a space, else between two characters.
    """
    while start < stop:
        limit = min(start + LONGEST_SENTENCE_CHARS, stop)
        ends = _sentence_ends(text, start, limit)
        if limit < stop:  # the last sentence may go on
            ends = ends[:-1] or [word_cut(text, start, limit)]
        for end in ends:
            yield start, end
            start = end


def piece_spans(text: str, size_chars: int) -> Iterator[Span]:
    """Yield where to cut a text into pieces of at most `size_chars`: after a space, else between two characters.

    Examples:
        >>> list(piece_spans("one two three", 8))
        [(0, 8), (8, 13)]
    """
    start = 0
    while len(text) - start > size_chars:
        stop = word_cut(text, start, start + size_chars)
        yield start, stop
        start = stop
    if start < len(text):
        yield start, len(text)


def word_cut(text: str, start: int, limit: int) -> int:
    """Return where to cut `text[start:limit]`: after the last space of its second half, else between two characters."""
    for position in range(limit, (start + limit) // 2, -1):
        if text[position - 1].isspace():
            return clean_cut(text, start, position)
    return clean_cut(text, start, limit)


def clean_cut(text: str, start: int, position: int) -> int:
    """Return the last place up to `position`, and after `start`, that parts no character from its marks; else it."""
    earliest = max(start, position - _MOST_COMBINING_CHARS)
    return next((place for place in range(position, earliest, -1) if not _is_inside_character(text, place)), position)


def _sentence_ends(text: str, start: int, stop: int) -> list[int]:
    """Where sentences end, after blank lines if there are any; Thai and Lao only have spaces for it."""
    part, ends, end = text[start:stop], list[int](), 0
    safe = part if part.isascii() else _UNSAFE.sub(lambda match: " " if match[0].isspace() else "\ufffd", part)
    safe = safe.replace("Ms. ", "Mr. ")  # the one title that the segmenter takes for the end of a sentence
    for sentence in sentencex.segment(_LANGUAGE, safe):
        if ends and part[end : end + len(sentence)].isspace():
            ends.pop()
        end += len(sentence)
        ends.append(end)
    ends[-1:] = [len(part)]  # the segmenter may leave out white space at the end
    if not part.isascii():
        ends = sorted({*ends, *(match.end() for match in _SPACES_OF_THAI.finditer(part))})
    return [start + end for end in ends]


def _between(start: int, stop: int, ends: Sequence[int]) -> Iterator[Span]:
    for end in ends:
        yield start, end
        start = end
    if start < stop:
        yield start, stop


def _is_wrapped(text: str, lines: Sequence[Span]) -> bool:
    """True for prose whose lines are broken for their width: long ones that go on in lower case."""
    if len(lines) == 1:
        return False
    wrapped = sum(1 for a, b in lines[:-1] if b - a > WRAPPED_LINE_CHARS and text[b].islower())
    return wrapped >= _WRAPPED_SHARE * (len(lines) - 1)


def _is_inside_character(text: str, position: int) -> bool:
    before, after = text[position - 1 : position], text[position : position + 1]
    if before in ("", "\u200d") or not after:
        return bool(before and after)
    if unicodedata.category(after).startswith("M") or after in _JOINERS or (before, after) == ("\r", "\n"):
        return True
    return "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
