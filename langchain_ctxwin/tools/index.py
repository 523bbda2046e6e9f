"""Which tools share words with a request, and which resemble those that do? Built once per tool set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_ctxwin.bm25 import bm25_library
from langchain_ctxwin.terms import query_terms, terms
from langchain_ctxwin.tools.entries import Entry

REPEATS = {"title": 2, "description": 1, "fields": 1, "field_texts": 1}
"""How often a word counts by where it stands: names are short, and say most."""

TERM_SATURATION = 1.5
LENGTH_NORMALIZATION = 0.75
"""BM25's k1 and b, the usual values: descriptions differ from a word to a page."""

FEEDBACK_TOOLS = 10
"""The best tools whose words extend a request."""

FEEDBACK_TERMS = 30
"""Words that extend a request: a paragraph."""

Scores = Any
"""A numpy vector with a score per tool; numpy is imported where it is used."""


class WordIndex:
    """The words of a tool set. Immutable once it is built, so that threads may share it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        import numpy as np  # noqa: PLC0415  # comes with bm25s; see there

        self._count = len(entries)
        self._numbers: dict[str, int] = {}
        texts = [[self._number(term) for term in _entry_terms(entry)] for entry in entries]
        self.terms = [frozenset(text) for text in texts]
        library = bm25_library().BM25(k1=TERM_SATURATION, b=LENGTH_NORMALIZATION, method="lucene")
        vocabulary = list(range(len(self._numbers)))
        built: Mapping[str, Any] = (
            library.build_index_from_ids(vocabulary, texts, show_progress=False)
            if vocabulary
            else {"data": [], "indices": [], "indptr": [0]}
        )
        self._weights, self._tools = np.asarray(built["data"]), np.asarray(built["indices"])
        self._starts: list[int] = np.asarray(built["indptr"]).tolist()
        spread = np.diff(np.asarray(self._starts, dtype=np.int64))
        # How telling a term is; one that a single tool has leads to no other tool.
        self._rarity = np.where(spread > 1, np.log(max(1, self._count) / np.maximum(spread, 1)), 0.0)
        # Without common words, which would lead anywhere.
        own = ({self._numbers[term] for term in query_terms(_text(entry))} for entry in entries)
        self._own = [np.fromiter(sorted(numbers), dtype=np.int64) for numbers in own]

    def scores(self, text: str) -> Scores:
        """Return a score per tool; 0 without a common word."""
        return self._weighted(dict.fromkeys(self.numbers(text), 1.0))

    def numbers(self, text: str) -> list[int]:
        """Return the known terms of a request; plain numbers are its values, and say nothing of the tool."""
        return [self._numbers[term] for term in query_terms(text) if term in self._numbers and not term.isdigit()]

    def resembling(self, scores: Scores) -> Scores:
        """Return a score per tool for having the words of the best tools: how tools that share no word are found."""
        import numpy as np  # noqa: PLC0415  # see above

        weights = np.zeros(len(self._numbers))
        for index in np.argsort(-scores, kind="stable")[:FEEDBACK_TOOLS]:
            own = self._own[index]
            weights[own] += scores[index] * self._rarity[own]
        telling = np.argsort(-weights, kind="stable")[:FEEDBACK_TERMS]
        return self._weighted({int(number): float(weights[number]) for number in telling if weights[number] > 0})

    def _weighted(self, wanted: Mapping[int, float]) -> Scores:
        import numpy as np  # noqa: PLC0415  # see above

        scores = np.zeros(self._count)
        for number, weight in wanted.items():
            part = slice(self._starts[number], self._starts[number + 1])
            scores[self._tools[part]] += weight * self._weights[part]
        return scores

    def _number(self, term: str) -> int:
        return self._numbers.setdefault(term, len(self._numbers))


def _entry_terms(entry: Entry) -> list[str]:
    return [term for field, times in REPEATS.items() for term in terms(getattr(entry, field)) * times]


def _text(entry: Entry) -> str:
    return " ".join(getattr(entry, field) for field in REPEATS)
