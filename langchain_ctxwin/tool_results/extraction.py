"""Which whole sentences of a long text say most, and how is it said what was left out?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.sentences import Span, clean_cut, statement_spans, word_cut
from langchain_ctxwin.tool_results.salience import NO_WORDS, Words, by_salience, query_words, stem

__all__ = ["NO_WORDS", "Words", "extract", "query_words"]

GAP = " … "
"""Stands where statements between two others were left out."""

MIN_CHARS = 60
"""Shortest text that has room for a few words and for the count of the others."""

EXAMINED_CHARS = 32_000
"""Texts up to this length are read in full, which takes a few milliseconds."""

HEAD_CHARS = 12_000
TAIL_CHARS = 4_000
WINDOW_CHARS = 1_000
MOST_WINDOWS = 16
"""Of longer texts the head, the tail and this many windows around query words are read, together as much."""

SCANNED_CHARS = 8_000_000
"""How far a longer text is searched for query words: some 50 ms."""

SCANNED_WORDS = 8
"""How many words it is searched for, the longest: they say most."""

SCANNED_AT_ONCE_CHARS = 65_536

COUNTED_CHARS = 256_000
"""In texts up to this length the words that were left out are counted, in longer ones the characters."""

SPACELESS_CHARS = 20
"""From so many characters per word on a text has no spaces between words: no language has words that long."""

HEAD_SHARE = 2 / 3
"""Part of a text without sentences that shows its head; beginnings say more about what a text is than ends."""

_SPACE = re.compile(r"\s")
_INFORMATIVE = re.compile(r"[^\W_]")


def extract(text: str, max_chars: int, words: Words = NO_WORDS) -> str:
    """Return the most telling whole statements of `text` in at most `max_chars`, verbatim and in order.

    A shorter text is returned as it is. Where statements are missing stands `GAP`, at the end the number of words (of
    characters in scripts without spaces) that were left out. A text without sentences is shown by head and tail, and
    less than `MIN_CHARS` by its first characters.

    Example:
        >>> text = "It rains today. Trains run on time. Bread costs 4.20. Cats sleep."
        >>> extract(text, 60, Words(query=frozenset({"bread"})))
        '… Bread costs 4.20. Cats sleep. ... [7 more words]'
    """
    if len(text) <= max_chars:
        return text
    if max_chars < MIN_CHARS:
        return f"{text[: clean_cut(text, 0, max_chars - 1)]}…" if max_chars > 0 else ""
    room = max_chars - len(_ending(len(text), "characters")) - len(GAP)
    spans = list(_statements(text, words))
    if _is_opaque(text, spans, room):
        return _head_and_tail(text, max_chars)
    telling, others = by_salience(text, [list(_pieces(text, span, room)) for span in spans], words)
    fit: Fit[Span] = take_while_fits(telling, room + len(GAP), _cost, on_overflow="skip")
    if not fit.truncated:  # else what says nothing would stand where something telling did not fit
        fit = take_while_fits([*telling, *others], room + len(GAP), _cost, on_overflow="skip")
    return _joined(text, sorted(fit.kept)) if fit.kept else _head_and_tail(text, max_chars)


def _cost(span: Span) -> int:
    return span[1] - span[0] + len(GAP)


def _statements(text: str, words: Words) -> Iterator[Span]:
    """The statements of what is read of the text; those that a window cuts at its edges are left out."""
    for start, stop in _examined(text, words):
        found = list(statement_spans(text, start, stop))
        is_cut_before, is_cut_after = start > 0, stop < len(text)
        whole = found[is_cut_before : len(found) - is_cut_after]
        yield from whole or found


def _examined(text: str, words: Words) -> list[Span]:
    if len(text) <= EXAMINED_CHARS:
        return [(0, len(text))]
    end = len(text) - TAIL_CHARS
    centers = sorted(set(_found_early(text, words)))
    windows = [(max(0, at - WINDOW_CHARS // 2), min(end, at + WINDOW_CHARS // 2)) for at in centers if at < end]
    merged = [(0, HEAD_CHARS)]
    for start, stop in windows:
        last_start, last_stop = merged[-1]
        if start <= last_stop:
            merged[-1] = (last_start, max(last_stop, stop))
        else:
            merged.append((start, stop))
    if merged[-1][1] == end:
        return [*merged[:-1], (merged[-1][0], len(text))]
    return [*merged, (end, len(text))]


def _found_early(text: str, words: Words) -> Iterator[int]:
    """Where the longest words are found after the head, each a few times, once in a stretch of text at most."""
    wanted = sorted(words.keywords | words.query, key=lambda word: (-len(word), word))[:SCANNED_WORDS]
    left = dict.fromkeys(map(stem, wanted), max(1, MOST_WINDOWS // max(1, len(wanted))))
    for start in range(HEAD_CHARS, min(len(text), SCANNED_CHARS), SCANNED_AT_ONCE_CHARS):
        folded = text[start : start + SCANNED_AT_ONCE_CHARS].lower() if left else ""
        found = {key: at for key in left if (at := folded.find(key)) >= 0}
        yield from (start + at for at in found.values())
        left = {key: times - (key in found) for key, times in left.items() if times > (key in found)}


def _is_opaque(text: str, spans: Sequence[Span], longest: int) -> bool:
    """True when most of the text has no place where it could be cut: encoded data, minified code."""
    unbroken = sum(b - a for a, b in spans if b - a > longest and not _SPACE.search(text, a, a + longest))
    return 2 * unbroken > sum(b - a for a, b in spans)


def _pieces(text: str, span: Span, longest: int) -> Iterator[Span]:
    """A statement without the space around it, in pieces when it is too long; rules and brackets alone say nothing."""
    start, stop = span
    while start < stop:
        end = stop if stop - start <= longest else word_cut(text, start, start + longest)
        piece = text[start:end]
        if _INFORMATIVE.search(piece):
            yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start = end


def _joined(text: str, kept: Sequence[Span]) -> str:
    """The kept pieces; what lies between two of them is shown as it is when it is a little white space."""
    shown: list[str] = []
    gaps: list[Span] = []
    end = 0
    for start, stop in kept:
        if not _is_blank(text, end, start):
            gaps.append((end, start))
            shown.append(GAP if shown else GAP.lstrip())
        elif shown:
            shown.append(text[end:start] if start - end <= len(GAP) else " ")
        shown.append(text[start:stop])
        end = stop
    if not _is_blank(text, end, len(text)):
        gaps.append((end, len(text)))
    return "".join([*shown, _ending(*_count(text, gaps)) if gaps else ""])


def _is_blank(text: str, start: int, stop: int) -> bool:
    return start == stop or text[start:stop].isspace()


def _count(text: str, gaps: Sequence[Span]) -> tuple[int, str]:
    chars = sum(stop - start for start, stop in gaps)
    if len(text) > COUNTED_CHARS:
        return chars, "characters"
    words = sum(len(text[start:stop].split()) for start, stop in gaps)
    return (words, "words") if words * SPACELESS_CHARS > chars else (chars, "characters")


def _ending(count: int, unit: str) -> str:
    return f" ... [{count:,} more {unit}]"


def _head_and_tail(text: str, max_chars: int) -> str:
    room = max_chars - len(_middle(len(text)))
    tail = clean_cut(text, 0, len(text) - int(room * (1 - HEAD_SHARE)))
    head = clean_cut(text, 0, max(0, room - (len(text) - tail)))
    return f"{text[:head]}{_middle(tail - head)}{text[tail:]}"


def _middle(chars: int) -> str:
    return f"… [{chars:,} more characters] …"
