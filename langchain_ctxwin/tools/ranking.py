"""How well does each tool serve a request, as a whole and part by part?"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Real
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import ToolRanker
from langchain_ctxwin.text.terms import MAX_WORDS, TermIndex, query_terms, terms
from langchain_ctxwin.tools.entries import Entry
from langchain_ctxwin.tools.needs import Needs, without_phrasing
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.forks import ForkSafeLock
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru

MEANING_SHARE = 0.4
"""Weight of meaning beside words when there are embeddings: neither alone finds what both together find."""

FEEDBACK_SHARE = 0.3
"""Weight of tools that resemble the best ones: enough to order those that share no word with the request."""

MAX_QUERIES = 256
"""Embedded requests that are remembered: the parts of a plan come back step after step."""

CLEAR_TERMS = 2
"""Words that a tool shares with a part of a request when it is more than a chance match."""

CLEAR_TERM_SHARE = 1 / 3
"""Least share of the words of a part that such a tool has."""

CLEAR_COSINE = 0.45
"""Meaning so near is no chance match either; unrelated sentences are below 0.3 in common models."""

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

TERM_SATURATION = 1.5
LENGTH_NORMALIZATION = 0.75
"""BM25's k1 and b, the usual values: descriptions differ from a word to a page."""

Scores = Any
"""A numpy vector with a score per tool; numpy is imported where it is used."""

_LETTERS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that is wanted, and how well each tool serves it."""

    scores: Scores
    """1 for the best tool."""

    is_clear: bool
    """True when the best tool is more than a chance match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The tools in the order of their use for a request."""

    order: tuple[int, ...]
    """Positions of all tools, best first."""

    wishes: tuple[Wish, ...]
    """The request as a whole, and its parts."""

    scores: Scores
    """Per tool; 0 is no match."""


class Ranker:
    """Ranks one tool set by words, by meaning when there are embeddings, or as a custom ranker says; thread-safe."""

    def __init__(self, entries: Sequence[Entry], ranker: ToolRanker | None, embeddings: Embeddings | None) -> None:
        if ranker is not None and not callable(getattr(ranker, "rank", None)):
            raise ConfigError(f"ranker={ranker!r}: give an object with a method `rank(query, tools) -> list[float]`")
        self._entries = entries
        self._custom = ranker
        self._embeddings = embeddings
        self._queries: Lru[Scores] = Lru(MAX_QUERIES)
        self._words: WordIndex | None = None  # built at the first choice, once for all that wait
        self._building = ForkSafeLock()
        self._vectors: Scores | None = None

    def rank(self, needs: Needs) -> Ranking:
        """Return the tools in order.

        Raises:
            ConfigError: the custom ranker did not return a number per tool.
        """
        if self._custom is not None:
            return self._custom_ranking(self._custom, needs)
        texts = (needs.request, *needs.parts)
        try:
            self._embed(texts)
        except Exception as error:  # noqa: BLE001  # whatever a model's client raises: words rank as well
            log.warning("tools.embeddings_failed", error=f"{type(error).__name__}: {error}")
            return self._hybrid(texts, [None] * len(texts))
        return self._hybrid(texts, self._cosines(texts))

    async def arank(self, needs: Needs) -> Ranking:
        """Like `rank`, in a thread: an index of thousands of tools takes seconds, and embeddings ask a service."""
        ranked: Ranking = await asyncio.wrap_future(in_daemon(partial(copy_context().run, self.rank, needs)))
        return ranked

    def _custom_ranking(self, ranker: ToolRanker, needs: Needs) -> Ranking:
        import numpy as np  # noqa: PLC0415  # takes longer to import than this package

        given = list(ranker.rank(needs.request, [entry.tool for entry in self._entries]))
        if len(given) != len(self._entries) or not all(isinstance(score, Real) for score in given):
            raise ConfigError(
                f"{type(ranker).__name__}.rank returned {len(given)} values for {len(self._entries)} tools, or no "
                "numbers: return one score per tool, in their order"
            )
        scores = np.nan_to_num(np.asarray(given, dtype=np.float64), nan=0.0, posinf=1e9, neginf=0.0).clip(0)
        is_clear = bool(len(scores)) and float(scores.max()) > 0
        return _ranking(to_one(scores), (Wish(scores=to_one(scores), is_clear=is_clear),))

    def _hybrid(self, texts: Sequence[str], cosines: Sequence[Scores | None]) -> Ranking:
        import numpy as np  # noqa: PLC0415  # takes longer to import than this package

        wishes = [self._wish(text, cosine) for text, cosine in zip(texts, cosines, strict=True)]
        scores = wishes[0].scores
        if len(wishes) > 1:
            # The best of any part counts beside the whole, so that a request for several things gets tools for each.
            scores = to_one(scores + np.max([wish.scores for wish in wishes[1:]], axis=0))
        scores = scores + FEEDBACK_SHARE * to_one(self._index().resembling(scores))
        # However many copies of a tool one part wants, each other part has its best tool.
        best = [int(wish.scores.argmax()) for wish in wishes if wish.is_clear]
        scores[best] = np.nextafter(scores.max(initial=0.0), np.inf)
        return _ranking(scores, tuple(wishes))

    def _wish(self, text: str, cosines: Scores | None) -> Wish:
        index = self._index()
        scores = index.scores(text)
        if cosines is not None:
            scores = to_one((1 - MEANING_SHARE) * scores + MEANING_SHARE * to_one(cosines))
        best = int(scores.argmax()) if len(scores) else -1
        if best < 0 or scores[best] <= 0:
            return Wish(scores=scores, is_clear=False)
        wanted = index.numbers(text)
        shared = sum(number in index.terms[best] for number in wanted)
        is_near = cosines is not None and float(cosines[best]) >= CLEAR_COSINE
        is_clear = is_near or shared >= max(CLEAR_TERMS, CLEAR_TERM_SHARE * len(wanted))
        return Wish(scores=scores, is_clear=is_clear)

    def _index(self) -> WordIndex:
        with self._building:
            self._words = self._words or WordIndex(self._entries)
            return self._words

    def _embed(self, texts: Sequence[str]) -> None:
        if self._embeddings is None or not self._entries:
            return
        if self._vectors is None:
            self._vectors = _unit(self._embeddings.embed_documents([entry.text for entry in self._entries]))
        for text in texts:
            if self._queries.get(text) is None:
                self._queries.put(text, _unit([self._embeddings.embed_query(text)])[0])

    def _cosines(self, texts: Sequence[str]) -> list[Scores | None]:
        """The nearness of each tool to each text; None where there are no embeddings, or no usable ones."""
        vectors = self._vectors
        known = [self._queries.get(text) for text in texts]
        if vectors is None or len(vectors) != len(self._entries):
            return [None] * len(texts)
        return [None if one is None or len(one) != vectors.shape[1] else (vectors @ one).clip(0) for one in known]


def _ranking(scores: Scores, wishes: tuple[Wish, ...]) -> Ranking:
    import numpy as np  # noqa: PLC0415  # takes longer to import than this package

    order = tuple(np.argsort(-scores, kind="stable").tolist())
    return Ranking(order=order, wishes=wishes, scores=scores)


def _unit(vectors: Sequence[Sequence[float]]) -> Scores:
    import numpy as np  # noqa: PLC0415  # takes longer to import than this package

    found = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.divide(found, lengths, out=np.zeros_like(found), where=lengths > 0)


class WordIndex:
    """The words of a tool set. Immutable once it is built, so that threads may share it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        import numpy as np  # noqa: PLC0415  # takes longer to import than this package

        texts = [_weighed(entry, WEIGHTS, terms) for entry in entries]
        self._words = _indexed(texts)
        self._fragments = _indexed([_weighed(entry, FRAGMENT_FIELDS, _fragments) for entry in entries])
        self.terms = [frozenset(self._words.numbers(text)) for text in texts]
        having = self._words.having

        # How telling a term is, by its number; one that a single tool has leads to no other tool.
        self._rarity = np.where(having > 1, np.log(max(len(texts), 1) / np.maximum(having, 1)), 0.0)

        # Without common words, which would lead anywhere.
        joined = (" ".join(getattr(entry, field) for field in WEIGHTS) for entry in entries)
        own = (self._words.numbers(query_terms(text)) for text in joined)
        self._own = [np.array(sorted(numbers), dtype=np.int64) for numbers in own]

    def scores(self, text: str) -> Scores:
        """Return a score per tool, 1 for the best; 0 without a common word or fragment."""
        asked = without_phrasing(text)
        wanted = dict.fromkeys(self._numbers(text), PHRASING_WEIGHT)
        wanted |= dict.fromkeys(self._numbers(asked), 1.0)
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
            weights[own] += scores[index] * self._rarity[own]
        telling = np.argsort(-weights, kind="stable")[:FEEDBACK_TERMS]
        return self._words.scores({int(number): float(weights[number]) for number in telling if weights[number] > 0})

    def _numbers(self, text: str) -> list[int]:
        """The known terms of a text; plain numbers are values of parameters, and say nothing of the tool."""
        return self._words.numbers(term for term in query_terms(text) if not term.isdigit())


def _indexed(texts: Sequence[Mapping[str, float]]) -> TermIndex:
    return TermIndex(texts, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION)


def to_one(scores: Scores) -> Scores:
    """Scale so that the best is 1; scores without a match stay."""
    best = float(scores.max()) if len(scores) else 0.0
    return scores / best if best > 0 else scores


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
