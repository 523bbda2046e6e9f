"""Where may a page of plain text end, and in which readable passages does a phrase stand?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.text.sentences import Span, clean_cut, sentence_spans

MOST_CHARS_PER_TOKEN = 8
"""A page has at most so many characters per token of its budget: text of longer tokens is rules and blanks."""

FULL_SHARE = 0.5
"""A page that uses at least this part of its budget is not filled up with a part of the next unit."""

GROUPS = 8
"""Units are priced in so many groups, and the first group that does not fit in as many again: prices cost time."""

SHRINK_SHARE = 1 / 16
"""Least part of the room that is given up when all units fit and the page does not: prices do not quite add up."""

PASSAGE_CHARS = 300
"""Longest passage around a phrase, without it: about three printed lines, or two sentences."""

LONGEST_HEADING_CHARS = 500
"""How far back from its end a page is searched for a heading that would stand there alone."""

_SECTION = re.compile(r"(?m)^#{1,6}[ \t]+\S|^(?:={3,}|-{3,})[ \t\r]*$|\f")
_RULE = re.compile(r"(?:={3,}|-{3,})\s*")
_HEADING_ALONE = re.compile(r"#{1,6}[ \t][^\n]*+\s*|[^\n]++\n(?:={3,}|-{3,})\s*|(?:={3,}|-{3,})\s*")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
_LINE_END = re.compile(r"\n|\r(?!\n)")
_SPACES = re.compile(r"\s++")


def page_end(text: str, start: int, budget_tokens: int, price: WholePrice, stop: int | None = None) -> int:
    """Return where the page ends that begins at `start`, at most at `stop`: as much as fits in `budget_tokens`.

    It ends between sections where that fills half of the budget, else between paragraphs, lines, sentences, words or
    characters. It has at least one character, whatever that costs. Its price is checked as a whole.
    """
    end = len(text) if stop is None else min(stop, len(text))
    limit = min(end, start + budget_tokens * MOST_CHARS_PER_TOKEN)
    found = _furthest(text, start, limit, budget_tokens, price, is_edge=limit == end)
    return found if found > start else min(start + 1, end)


def tail_start(text: str, budget_tokens: int, price: WholePrice, earliest: int) -> int:
    """Return where the longest end of `text` begins that fits in `budget_tokens`, at `earliest` or after it.

    It begins where a page could end; at `len(text)` when nothing fits.
    """
    limit = max(earliest, len(text) - budget_tokens * MOST_CHARS_PER_TOKEN)
    return _furthest(text, len(text), limit, budget_tokens, price, is_edge=limit == earliest)


def passages(text: str, needle: str, start: int) -> Iterator[Span]:
    r"""Yield where the sentences or lines are that contain `needle`, in order, apart from each other, from `start` on.

    The search is literal and without case, character by character: `ss` is not found by `ß`, nor a composed accent by
    its parts, nor a space by a line break. A search that begins where a passage does finds the same passages.

    Example:
        >>> [*passages("One cat. Two dogs.\nNo CATS.", "cat", 0)]
        [(0, 18), (19, 27)]
    """
    flags = re.NOFLAG if needle.lower() == needle.upper() else re.IGNORECASE
    pattern = re.compile(re.escape(needle), flags)
    at = start
    while needle and (match := pattern.search(text, at)):
        first, last = _around(text, *match.span())
        first, at = max(first, at), match.end()
        while match := pattern.search(text, at, last + len(needle) - 1):  # one that begins in the passage, too
            at = match.end()
            last = max(last, at)
        yield first, last
        at = last


def _furthest(text: str, anchor: int, limit: int, budget_tokens: int, price: WholePrice, *, is_edge: bool) -> int:
    """How far from `anchor` towards `limit` the budget reaches; `is_edge` when `limit` is a boundary itself."""

    def cost(span: Span) -> int:
        return price(text[min(span) : max(span)])

    if anchor == limit or budget_tokens <= 0:
        return anchor
    if is_edge and cost((anchor, limit)) <= budget_tokens:
        return limit
    room = budget_tokens
    while room > 0:
        found = _reached(text, anchor, limit, room, cost, is_edge=is_edge)
        over = cost((anchor, found)) - budget_tokens
        if found == anchor or over <= 0:
            return found
        room -= max(over, ceil(room * SHRINK_SHARE))
    return anchor


def _reached(text: str, anchor: int, limit: int, room: int, cost: Callable[[Span], int], *, is_edge: bool) -> int:
    """As far as whole units reach, with finer ones for the rest while half of the room is unused."""
    while (middle := (anchor + limit) // 2) not in (anchor, limit) and cost((anchor, middle)) > room:
        limit, is_edge = middle, False
    at, used = anchor, 0
    for units in _UNITS:
        low, high = sorted((at, limit))
        cuts = [cut for cut in units(text, low, high) if low < cut < high]
        ordered = [*(cuts if at == low else reversed(cuts)), *([limit] if is_edge else [])]
        at = _last_that_fits(at, ordered, room - used, cost)
        used = cost((anchor, at))
        if used >= FULL_SHARE * room or at == limit:
            break
    at = clean_cut(text, min(anchor, limit), at)
    return at if limit < anchor else _without_heading(text, anchor, at)


def _last_that_fits(at: int, cuts: Sequence[int], room: int, cost: Callable[[Span], int]) -> int:
    """The last of `cuts`, which lead away from `at`, that the room reaches; `at` when it reaches none."""
    while cuts:
        size = ceil(len(cuts) / GROUPS)
        ends = [*cuts[size - 1 :: size], *cuts[len(cuts) - len(cuts) % size :][-1:]]
        fit: Fit[Span] = take_while_fits(list(pairwise([at, *ends])), room, cost)
        at, room = (fit.kept[-1][1] if fit.kept else at), room - fit.tokens
        first = len(fit.kept) * size
        cuts = cuts[first : first + size - 1]  # the end of the first group that does not fit is known not to
    return at


def _sections(text: str, low: int, high: int) -> Iterator[int]:
    """Before headings and rules, after form feeds."""
    for match in _SECTION.finditer(text, low, high):
        if match[0] == "\f":
            yield match.end()
        elif match[0].startswith("#"):
            yield match.start()
        else:
            yield from _rule_start(text, match.start())


def _rule_start(text: str, rule: int) -> Iterator[int]:
    """Before a rule, or before the line that it underlines; nowhere when that line has a rule above it, too."""
    line = text.rfind("\n", max(0, rule - LONGEST_HEADING_CHARS), max(0, rule - 1)) + 1
    if not text[line:rule].strip():
        yield rule
        return
    above = text.rfind("\n", max(0, line - LONGEST_HEADING_CHARS), max(0, line - 1)) + 1
    if not _RULE.fullmatch(text, above, line):
        yield line


def _paragraphs(text: str, low: int, high: int) -> Iterator[int]:
    return (match.end() for match in _BLANK_LINES.finditer(text, low, high))


def _lines(text: str, low: int, high: int) -> Iterator[int]:
    return (match.end() for match in _LINE_END.finditer(text, low, high))


def _sentences(text: str, low: int, high: int) -> Iterator[int]:
    return (stop for _, stop in sentence_spans(text, low, high))


def _words(text: str, low: int, high: int) -> Iterator[int]:
    return (match.end() for match in _SPACES.finditer(text, low, high))


def _characters(_: str, low: int, high: int) -> Iterable[int]:
    return range(low + 1, high)


_UNITS: tuple[Callable[[str, int, int], Iterable[int]], ...] = (
    _sections,
    _paragraphs,
    _lines,
    _sentences,
    _words,
    _characters,
)


def _without_heading(text: str, start: int, end: int) -> int:
    """Move the end of a page before a heading that would be the last thing on it."""
    cuts = sorted(_sections(text, max(start + 1, end - LONGEST_HEADING_CHARS), end), reverse=True)
    for cut in cuts:
        if cut <= start or not _HEADING_ALONE.fullmatch(text, cut, end):
            break
        end = cut
    return end


def _around(text: str, first: int, last: int) -> Span:
    """The line around a place, or its sentence when the line is too long, or as many whole words as are allowed."""
    low, high = max(0, first - PASSAGE_CHARS // 2), min(len(text), last + PASSAGE_CHARS // 2)
    low = max(low, text.rfind("\n", low, first) + 1)
    end = text.find("\n", last, high)
    high = high if end < 0 else end
    if text[low - 1 : low] in ("", "\n") and text[high : high + 1] in ("", "\n"):
        return low, high
    parts = [span for span in sentence_spans(text, low, high) if span[1] > first and span[0] < last]
    low, high = _word_start(text, parts[0][0], first), _word_stop(text, last, parts[-1][1])
    return clean_cut(text, 0, low), clean_cut(text, last, high)


def _word_start(text: str, low: int, first: int) -> int:
    """Skip the end of a word that `low` cuts."""
    if low == 0 or text[low - 1].isspace() or text[low].isspace():
        return low
    space = _SPACES.search(text, low, first)
    return space.end() if space else low


def _word_stop(text: str, last: int, high: int) -> int:
    """Leave out the beginning of a word that `high` cuts."""
    if high == len(text) or text[high].isspace() or text[high - 1].isspace():
        return high
    spaces = list(_SPACES.finditer(text, last, high))
    return spaces[-1].start() if spaces else high
