"""How much does each tool say of each term? BM25, with copies of one tool counted once in how rare a term is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

TERM_SATURATION = 1.5
LENGTH_NORMALIZATION = 0.75
"""BM25's k1 and b, the usual values: descriptions differ from a word to a page."""

RARE_KINDS, RARE_SHARE = 2, 0.05
"""Kinds of tools that have a rare term: two in a small set, and a twentieth of a large one."""

Scores = Any
"""A numpy vector with a score per tool; numpy is imported where it is used."""


class Postings:
    """For every term, the tools that have it. Immutable once it is built, so that threads may share it."""

    def __init__(self, texts: Sequence[Mapping[str, float]], kinds: Sequence[Hashable]) -> None:
        """Weigh texts, given as how often each term counts.

        `kinds` tells copies: of tools of one kind, each is a fraction of one. A pool with fifty weather tools would
        make "weather" a common word, and the name of a town that one of them gives as an example the telling one.
        """
        import numpy as np  # noqa: PLC0415  # comes with bm25s; imported at the first choice

        self._count = len(texts)
        self._numbers: dict[str, int] = {}
        terms = np.array([self._number(term) for text in texts for term in text], dtype=np.int64)
        times = np.array([times for text in texts for times in text.values()], dtype=np.float64)
        tools = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        lengths = np.array([sum(text.values()) for text in texts], dtype=np.float64)
        # The least mean length is for tool sets without any word.
        relative = 1 - LENGTH_NORMALIZATION + LENGTH_NORMALIZATION * lengths / max(lengths.mean() if texts else 0, 1e-9)
        having, among = _kinds_having(terms, tools, kinds, len(self._numbers))
        saturated = times / (times + TERM_SATURATION * relative[tools])
        order = np.argsort(terms, kind="stable")
        weights = np.log1p((among - having + 0.5) / (having + 0.5))[terms] * saturated
        self._tools, self._weights = tools[order], weights[order]
        spread = np.bincount(terms, minlength=len(self._numbers))
        self._ends: list[int] = np.cumsum(spread).tolist()
        self._starts = [0, *self._ends]
        self.rarity = np.where(spread > 1, np.log(max(among, 1) / np.maximum(having, 1e-9)), 0.0)
        """How telling a term is, by its number; one that a single tool has leads to no other tool."""

        self.rare: frozenset[int] = frozenset(np.flatnonzero(having <= max(RARE_KINDS, RARE_SHARE * among)).tolist())
        """The numbers of the terms that few kinds of tools have."""

    def __len__(self) -> int:
        """Return the number of terms."""
        return len(self._numbers)

    def numbers(self, terms: Iterable[str]) -> list[int]:
        """Return the numbers of the known ones among terms."""
        return [self._numbers[term] for term in terms if term in self._numbers]

    def scores(self, wanted: Mapping[int, float]) -> Scores:
        """Return a score per tool for weighted terms, given by number; 0 without a common one."""
        import numpy as np  # noqa: PLC0415  # see above

        if not wanted:
            return np.zeros(self._count)
        parts = [slice(self._starts[number], self._ends[number]) for number in wanted]
        tools = np.concatenate([self._tools[part] for part in parts])
        weights = np.concatenate([self._weights[part] for part in parts])
        times = np.repeat(list(wanted.values()), [part.stop - part.start for part in parts])
        return np.bincount(tools, weights=weights * times, minlength=self._count)

    def _number(self, term: str) -> int:
        return self._numbers.setdefault(term, len(self._numbers))


def _kinds_having(terms: Any, tools: Any, kinds: Sequence[Hashable], vocabulary: int) -> tuple[Any, int]:
    """How many kinds of tools have each term, and how many kinds there are."""
    import numpy as np  # noqa: PLC0415  # see above

    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    kind_of = np.array([numbers[kind] for kind in kinds], dtype=np.int64)
    share = 1 / np.bincount(kind_of, minlength=len(numbers))
    return np.bincount(terms, weights=share[kind_of][tools], minlength=vocabulary), len(numbers)
