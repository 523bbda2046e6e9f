"""Extraction: the most telling whole statements of a long text, and a note of how much was left out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import log

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.text.sentences import Span, clean_cut, statement_spans, word_cut

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

MOST_WORDS = 64
"""Most query words: a question has fewer, and of a pasted document the first ones say what it is about."""

QUERY_CHARS = 20_000
"""How much of one argument or message is read for query words."""

STEM_CHARS = 5
"""Words are compared by so many letters at their beginning, since endings differ: `refund`, `refunds`, `refunded`."""

QUERY_POINTS = 8.0
"""A rare query word counts more than everything else together; one that is everywhere says little."""

KEYWORD_POINTS = 3.0
CUE_POINTS = 1.5
"""A rule, a cause, a failure, a request or a sum is what most questions are after, in whatever words they ask."""

FIRST_POINTS = 1.0
"""The first statement says what a text is about, or greets; a cue says more."""

LAST_POINTS = 0.5
"""The last one says how it ended, or takes leave."""

FIGURE_POINTS = 0.5
"""For a number, and as much again for an identifier, an amount, a date or an address."""

REPEATED_POINTS = -2.0
"""A line like an earlier one but for its numbers, as in logs, says little that is new."""

_WIDE = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_WIDE_RUN = re.compile(rf"[{_WIDE}]{{2,}}")  # scripts without spaces between words, or with long words
_MARKS = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"  # accents, vowel signs: not in \w
_PART = rf"(?:[^\W_]|[{_MARKS}])++"
_WORD = re.compile(rf"{_PART}(?:[-_.:/@]{_PART})*")
_PARTS = re.compile(_PART)
_DIGITS = re.compile(r"\d+")
_FIGURE = re.compile(r"\d(?:(?<=[$€£¥₹#].)|(?<=[^\W\d].)|(?<=[^\W\d]-.)|\s?[%€£¥]|[./]\d|\d{3}-\d)")
_ADDRESSES = ("@", "://")
_REQUEST_WORDS = """
the and for are was were been being has have had does did can could will would shall should may might must not but
who whom whose which what when where why how this that these those there here its his her hers him she they them
their our ours you your yours from with into onto about over under out off than then too very just also all any
each every some more most less much many few one only own same such per via let please show give tell find get list
look want need like make know say see use using me my we us
"""
_GRAMMAR = frozenset(_REQUEST_WORDS.split())  # what is common in the text itself counts little in any language
# Cues, in English, German, Spanish, French, Portuguese, Chinese and Japanese; what is in other languages does without.
# Left out is what begins like common words: `important` like `import`, `agreed` like `agreement`.
_RULES = """
must not t no never only cannot unless except required forbidden prohibited allowed exceeds limit maximum minimum
muss müssen nicht nie kein keine keinen nur verboten nunca solo sólo debe deben prohibido pas jamais seulement doit
doivent não deve devem 必须 不能 不得 不可 只能 禁止 必ず せん のみ だけ
"""  # the t of don't, the せん of ません
_CAUSES = """
because cause due reason weil wegen grund ursache porque causa debido parce raison 因为 由于 原因 理由
"""
_FAILURES = """
error fail fails failed failure wrong broken problem warning missing denied declined rejected refused cancelled
terminated expired died death fehler fehlt abgelehnt gekündigt fallo avería rechazado erreur panne échec supprimé
erro falha 错误 失败 故障 エラ 失敗
"""
_REQUESTS = """
please deadline until urgent bitte frist spätestens plazo veuillez délai prazo 截止 期限 くだ
"""
_SUMS = "total decided gesamt 合计 总计 合計 决定 決定"
_CUES = frozenset(word[:STEM_CHARS] for word in f"{_RULES} {_CAUSES} {_FAILURES} {_REQUESTS} {_SUMS}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the reader of a text is after; all words are casefolded."""

    query: frozenset[str] = frozenset()
    """What `query_words` found in the arguments of the call and in the user's message."""

    keywords: frozenset[str] = frozenset()
    """Configured words or phrases."""


NO_WORDS = Words()


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


def query_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words that say what is asked for: no grammar, pairs of characters in scripts without spaces.

    Example:
        >>> sorted(query_words(["Where is my order INV-7?", "退款政策"]))
        ['inv', 'inv-7', 'order', '政策', '款政', '退款']
    """
    found = (word for text in texts for word in _content_words(text[:QUERY_CHARS].casefold()))
    return frozenset(list(dict.fromkeys(found))[:MOST_WORDS])


def by_salience(text: str, statements: Iterable[Sequence[Span]], words: Words) -> tuple[list[Span], list[Span]]:
    """Return the pieces of the statements of `text` that have points, and the others, each the most telling first.

    Of two that say as much the earlier one comes first. What is there twice is returned once, and of a statement in
    several pieces those after the first only when they have a word that is asked for.
    """
    is_first = {piece: place == 0 for pieces in statements for place, piece in enumerate(pieces)}
    distinct = {text[start:stop]: (start, stop) for start, stop in reversed(is_first)}
    found = sorted(distinct.values())
    folded = [text[start:stop].casefold() for start, stop in found]
    points = [_figure_points(text[start:stop]) for start, stop in found]
    for index, added in chain(_points_of_place(len(found)), _points_of_repeats(folded), _points_of_cues(folded)):
        points[index] += added
    asked = dict.fromkeys(range(len(found)), 0.0)
    for index, added in _points_of_words(folded, words):
        asked[index] += added
    total = {index: points[index] + asked[index] for index in asked if asked[index] or is_first[found[index]]}
    ranked = sorted(total, key=lambda index: (-total[index], index))
    return (
        [found[index] for index in ranked if total[index] > 0],
        [found[index] for index in ranked if total[index] <= 0],
    )


def stem(word: str) -> str:
    """Return the beginning that forms of one word have in common; a number has no forms."""
    return word if _DIGITS.search(word) else word[:STEM_CHARS]


def _content_words(folded: str) -> Iterator[str]:
    for word in _WORD.findall(_WIDE_RUN.sub(" ", folded)):
        parts = _PARTS.findall(word)
        if len(parts) > 1 and ("_" in word or _DIGITS.search(word)):
            yield word
        yield from (part for part in parts if _is_telling(part, is_part=len(parts) > 1))
    yield from _pairs(folded)


def _pairs(folded: str) -> Iterator[str]:
    for run in _WIDE_RUN.findall(folded):
        yield from (run[at : at + 2] for at in range(len(run) - 1))


def _is_telling(word: str, *, is_part: bool) -> bool:
    if _DIGITS.search(word):
        return len(word) > 1 and not is_part  # the 7 of INV-7 is in many numbers
    return len(word) > 2 and word not in _GRAMMAR  # noqa: PLR2004  # shorter words are grammar in most languages


def _figure_points(piece: str) -> float:
    if not _DIGITS.search(piece):
        return FIGURE_POINTS * any(mark in piece for mark in _ADDRESSES)
    return FIGURE_POINTS * (2 if _FIGURE.search(piece) else 1)


def _points_of_place(count: int) -> Iterator[tuple[int, float]]:
    if count:
        yield 0, FIRST_POINTS
        yield count - 1, LAST_POINTS


def _points_of_repeats(folded: Sequence[str]) -> Iterator[tuple[int, float]]:
    seen: set[str] = set()
    for index, piece in enumerate(folded):
        shape = _DIGITS.sub("0", piece)
        if shape in seen:
            yield index, REPEATED_POINTS
        seen.add(shape)


def _points_of_cues(folded: Sequence[str]) -> Iterator[tuple[int, float]]:
    """Points for the rarest cue of each piece; one that all have says nothing."""
    cues = [_CUES.intersection(chain(map(stem, _PARTS.findall(piece)), _pairs(piece))) for piece in folded]
    having = Counter(chain.from_iterable(cues))
    for index, found in enumerate(cues):
        if found:
            yield index, CUE_POINTS * (1 - min(having[cue] for cue in found) / len(folded))


def _points_of_words(folded: Sequence[str], words: Words) -> Iterator[tuple[int, float]]:
    """Points of each piece for each word that it has."""
    starts = [0, *accumulate(len(piece) + 1 for piece in folded)]
    joined = "\n".join(folded) + "\n\n"
    for word in sorted(words.query)[:MOST_WORDS]:
        found = list(_having(stem(word.strip()), joined, starts))
        rarity = log(1 + len(folded) / max(1, len(found))) / log(1 + max(1, len(folded)))
        yield from ((index, QUERY_POINTS * rarity) for index in found)
    for keyword in sorted(words.keywords)[:MOST_WORDS]:
        yield from ((index, KEYWORD_POINTS) for index in _having(keyword.casefold().strip(), joined, starts))


def _having(key: str, joined: str, starts: Sequence[int]) -> Iterator[int]:
    """Positions of the pieces in which a word begins with `key`, each once.

    A number has to end there, a short word may have one letter more, as a plural has.
    """
    is_wide = _WIDE_RUN.match(key) is not None
    further = 1 if _DIGITS.search(key) else 2 if len(key) < STEM_CHARS and not is_wide else 0
    at = joined.find(key) if key else -1
    while at >= 0:
        index, end = bisect_right(starts, at) - 1, at + len(key)
        begins = is_wide or not joined[max(0, at - 1) : at].isalnum()
        if begins and not joined[end : end + further].isalnum():
            yield index
            end = starts[index + 1]
        at = joined.find(key, end)
