"""How telling is a statement, by its place, its figures, words that announce news and those its reader is after?"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import log

from langchain_ctxwin.sentences import Span

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
