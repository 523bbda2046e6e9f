"""Which tools share words with a request, and which resemble those that do? Built once per tool set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from langchain_ctxwin.terms import MAX_WORDS, query_terms, terms
from langchain_ctxwin.tools.entries import Entry
from langchain_ctxwin.tools.postings import Postings, Scores
from langchain_ctxwin.tools.wording import kinds_of_values, without_phrasing

WEIGHTS = {"title": 2.0, "description": 1.0, "fields": 1.0, "field_texts": 1.0, "values": 0.5}
"""How much a word counts by where it stands: names are short and say most, a choice of values only what is possible."""

FRAGMENT_CHARS = 4
"""Characters of a fragment: `convert` and `conversion` share one, which their endings hide."""

FRAGMENT_FIELDS = ("title", "description")
"""Where fragments are looked for: elsewhere they are many, and chance."""

FRAGMENT_SHARE = 0.3
"""Weight of fragments beside words: enough to find another form of a word, not enough to beat the word itself."""

MAX_FRAGMENTS = 60
"""Fragments that are taken from one word: longer runs are no words."""

PHRASING_WEIGHT = 0.1
"""Weight of a word that requests are phrased with: a tool that is called `help` is still found."""

FEEDBACK_TOOLS = 10
"""The best tools whose words extend a request."""

FEEDBACK_TERMS = 30
"""Words that extend a request: a paragraph."""

_LETTERS = re.compile(r"[^\W\d_]+")


class WordIndex:
    """The words of a tool set. Immutable once it is built, so that threads may share it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        import numpy as np  # noqa: PLC0415  # comes with bm25s; imported at the first choice

        kinds = [_kind(entry) for entry in entries]
        texts = [_weighed(entry, WEIGHTS, terms) for entry in entries]
        self._words = Postings(texts, kinds)
        self._fragments = Postings([_weighed(entry, FRAGMENT_FIELDS, _fragments) for entry in entries], kinds)
        self.terms = [frozenset(self._words.numbers(text)) for text in texts]
        titles = (self._words.numbers(query_terms(entry.title)) for entry in entries)
        self.telling = [self._words.rare.intersection(numbers) for numbers in titles]
        """Per tool, the rare terms of its name."""

        # Without common words, which would lead anywhere.
        own = (self._words.numbers(query_terms(_text(entry))) for entry in entries)
        self._own = [np.array(sorted(numbers), dtype=np.int64) for numbers in own]

    def scores(self, text: str) -> Scores:
        """Return a score per tool, 1 for the best; 0 without a common word or fragment."""
        asked = without_phrasing(text)
        wanted = dict.fromkeys(self._numbers(text), PHRASING_WEIGHT)
        wanted |= dict.fromkeys(self._numbers(f"{asked} {kinds_of_values(text)}"), 1.0)
        near = self._fragments.scores(dict.fromkeys(self._fragments.numbers(_telling_fragments(asked)), 1.0))
        return to_one(to_one(self._words.scores(wanted)) + FRAGMENT_SHARE * to_one(near))

    def numbers(self, text: str) -> list[int]:
        """Return the known terms of what a request asks for."""
        return self._numbers(without_phrasing(text))

    def resembling(self, scores: Scores) -> Scores:
        """Return a score per tool for having the words of the best tools: how tools that share no word are found."""
        import numpy as np  # noqa: PLC0415  # see above

        weights = np.zeros(len(self._words))
        for index in np.argsort(-scores, kind="stable")[:FEEDBACK_TOOLS]:
            own = self._own[index]
            weights[own] += scores[index] * self._words.rarity[own]
        telling = np.argsort(-weights, kind="stable")[:FEEDBACK_TERMS]
        return self._words.scores({int(number): float(weights[number]) for number in telling if weights[number] > 0})

    def _numbers(self, text: str) -> list[int]:
        """The known terms of a text; plain numbers are values of parameters, and say nothing of the tool."""
        return self._words.numbers(term for term in query_terms(text) if not term.isdigit())


def to_one(scores: Scores) -> Scores:
    """Scale so that the best is 1; scores without a match stay."""
    best = float(scores.max()) if len(scores) else 0.0
    return scores / best if best > 0 else scores


def _kind(entry: Entry) -> tuple[str, ...]:
    """What copies of one tool have in common: their names up to numbers."""
    return tuple(term for term in terms(entry.title) if not term.isdigit()) or (entry.title,)


def _weighed(entry: Entry, fields: Iterable[str], cut: Callable[[str], Iterable[str]]) -> dict[str, float]:
    """How much each piece of a tool's texts counts."""
    weighed: dict[str, float] = {}
    for field in fields:
        for piece in cut(getattr(entry, field)):
            weighed[piece] = weighed.get(piece, 0.0) + WEIGHTS[field]
    return weighed


def _fragments(text: str) -> list[str]:
    return [fragment for word in _LETTERS.findall(text) for fragment in _cut(word)]


def _telling_fragments(text: str) -> list[str]:
    """Fragments of the words that are not common."""
    telling = set(query_terms(text))
    return [fragment for word in _LETTERS.findall(text) if _term(word) in telling for fragment in _cut(word)]


@lru_cache(maxsize=MAX_WORDS)
def _term(word: str) -> str:
    return terms(word)[0]


@lru_cache(maxsize=MAX_WORDS)
def _cut(word: str) -> tuple[str, ...]:
    """Every four letters in a row; a short word whole."""
    plain = word.casefold()
    last = min(max(1, len(plain) - FRAGMENT_CHARS + 1), MAX_FRAGMENTS)
    return tuple(plain[start : start + FRAGMENT_CHARS] for start in range(last))


def _text(entry: Entry) -> str:
    return " ".join(getattr(entry, field) for field in WEIGHTS)
