"""Where does one statement end and the next begin, in prose, code and tool output of any size?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import sentencex

FRAGMENT_CHARS = 300
"""Longest fragment taken from one line of machine output: about three printed lines, enough for its first fields."""

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
    safe = _UNSAFE.sub(lambda match: " " if match[0].isspace() else "\ufffd", block)
    start = 0
    for sentence in sentencex.segment(_LANGUAGE, safe):
        yield block[start : start + len(sentence)]
        start += len(sentence)


def _fragment(line: str) -> str:
    if len(line) <= FRAGMENT_CHARS:
        return line
    separators = [match.start() for match in _SEPARATORS.finditer(line, FRAGMENT_CHARS // 2, FRAGMENT_CHARS)]
    return line[: separators[-1] if separators else FRAGMENT_CHARS].rstrip()
