"""Sentences: where one statement ends and the next begins, in prose, code and tool output of any size."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import sentencex

Span = tuple[int, int]
"""Where a piece of a text begins and where it stops."""

FRAGMENT_CHARS = 300
"""Longest fragment taken from one line of machine output: about three printed lines, enough for its first fields."""

LONGEST_SENTENCE_CHARS = 600
"""Longest sentence that has a position. As much is segmented at once: time can grow with the square."""

SHORT_LINE_CHARS = 60
"""A line up to this length is one statement: what it holds belongs together."""

WRAPPED_LINE_CHARS = 40
"""Lines that are broken for their width are at least this long."""

_WRAPPED_SHARE = 1 / 3  # of the lines of wrapped prose that many go on in lower case; of logs and tables hardly any do
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
_SPACES_OF_THAI = re.compile(r"(?<=[\u0e00-\u0eff])[ \t]++(?=[\u0e00-\u0eff])")
_LINE_END = re.compile(r"\n(?:[^\S\n]*+\n)*+")
_JOINERS = "\u200d\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"  # zero width joiner, skin tones
_MOST_COMBINING_CHARS = 16  # more marks than that on one character are no writing
_LANGUAGE = "en"  # sets the abbreviations that do not end a sentence; punctuation of other scripts is known in any case
_CODE_FENCE = "```"
_CODE_LINE = re.compile(r"[{}\[\]();:,=<>|\\]\s*$|^\s*[}\])]")
_CODE_SHARE = 0.5  # prose has a line or two that look like code, code has mostly such lines
_OPENINGS_OF_MARKUP = ("{", "[", "<")
_INFORMATIVE = re.compile(r"\w.*\w")
_SEPARATORS = re.compile(r"[\s,;|}\]]")
# The segmenter cannot encode lone surrogates and fails on some non-ASCII spaces: it sees a stand-in of equal length.
_UNSAFE = re.compile(r"[^\S \t\n\r\f\v]|[\ud800-\udfff]")


def statements(text: str) -> list[str]:
    """Return the sentences of prose and the lines of code or markup in `text`, verbatim, in order, stripped.

    Example:
        >>> statements("Never call Dr. Smith. Use a.py only.")
        ['Never call Dr. Smith.', 'Use a.py only.']
    """
    found: list[str] = []
    for number, block in enumerate(text.split(_CODE_FENCE)):
        is_fenced = number % 2 == 1
        found.extend(block.splitlines() if is_fenced or _looks_like_code(block) else _sentences(block))
    stripped = [statement.strip() for statement in found]
    return [statement for statement in stripped if statement] or ([text.strip()] if text.strip() else [])


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


def fragments(text: str) -> list[str]:
    """Return the informative lines of machine output (those with a word), each cut to `FRAGMENT_CHARS` at a separator.

    Text without any informative line gives all its lines that are not blank.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    informative = [line for line in lines if _INFORMATIVE.search(line[:FRAGMENT_CHARS])]
    return [_fragment(line) for line in informative or lines]


def edges(text: str, edge_chars: int) -> tuple[str, ...]:
    """Return the whole text, or its first and its last `edge_chars` characters when it is longer than both."""
    return (text,) if len(text) <= 2 * edge_chars else (text[:edge_chars], text[-edge_chars:])


def whole(pieces: Sequence[Sequence[str]]) -> list[str]:
    """Join the statements of one edge, or of two without the statement that was cut at the inner end of each."""
    if len(pieces) == 1:
        return list(pieces[0])
    head, tail = pieces
    return [*(head[:-1] or head), *(tail[1:] or tail)]


def _looks_like_code(block: str) -> bool:
    lines = [line for line in block.splitlines() if line.strip()]
    if len(lines) <= 1:
        return False
    if block.lstrip().startswith(_OPENINGS_OF_MARKUP):
        return True
    return sum(1 for line in lines if _CODE_LINE.search(line)) > _CODE_SHARE * len(lines)


def _sentences(block: str) -> Iterator[str]:
    start = 0
    for length in _lengths(block):
        yield block[start : start + length]
        start += length


def _sentence_ends(text: str, start: int, stop: int) -> list[int]:
    """Where sentences end, after blank lines if there are any; Thai and Lao only have spaces for it."""
    part, ends, end = text[start:stop], list[int](), 0
    for length in _lengths(part):
        if ends and part[end : end + length].isspace():
            ends.pop()
        end += length
        ends.append(end)
    ends[-1:] = [len(part)]  # the segmenter may leave out white space at the end
    if not part.isascii():
        ends = sorted({*ends, *(match.end() for match in _SPACES_OF_THAI.finditer(part))})
    return [start + end for end in ends]


def _lengths(block: str) -> list[int]:
    safe = block if block.isascii() else _UNSAFE.sub(lambda match: " " if match[0].isspace() else "\ufffd", block)
    safe = safe.replace("Ms. ", "Mr. ")  # the one title that the segmenter takes for the end of a sentence
    return [len(sentence) for sentence in sentencex.segment(_LANGUAGE, safe)]


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


def _fragment(line: str) -> str:
    if len(line) <= FRAGMENT_CHARS:
        return line
    separators = [match.start() for match in _SEPARATORS.finditer(line, FRAGMENT_CHARS // 2, FRAGMENT_CHARS)]
    return line[: separators[-1] if separators else FRAGMENT_CHARS].rstrip()
