"""How well each tool serves a request, as a whole and part by part, by its words and by meaning (embeddings)."""

from __future__ import annotations

import asyncio
import math
import operator
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import nlargest
from numbers import Real

from langchain_core.embeddings import Embeddings

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import ToolRanker
from langchain_ctxwin.text import MAX_WORDS, TermIndex, query_terms, terms
from langchain_ctxwin.tools.entries import Entry, Needs
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.failures import log_failure
from langchain_ctxwin.util.memo import Lru, once

MEANING_SHARE = 0.4  # beside words, where there are embeddings: neither alone finds what both together find
# A part of a request is a clear wish when its best tool shares a third of its words, two of them or one that few tools
# are named by; or is so near in meaning: unrelated sentences are below 0.3 in common models.
CLEAR_TERMS, CLEAR_TERM_SHARE = 2, 1 / 3
FEW_TOOLS = 5
CLEAR_COSINE = 0.45

# How much a word counts by where it stands: names are short and say most, a choice of values only what is possible.
WEIGHTS = {
    "title": 2.0,
    "description": 1.0,
    "fields": 1.0,
    "field_texts": 1.0,
    "values": 0.5,
}
# Fragments of four letters find another form of a word: `convert` and `conversion` share one. Their weight is too small
# to beat the word itself, they are looked for where they are few, and a run of more than 60 is no word.
FRAGMENT_CHARS, MAX_FRAGMENTS = 4, 60
FRAGMENT_FIELDS = ("title", "description")
FRAGMENT_SHARE = 0.3

# A request is extended by the words (a paragraph) of the best tools: enough to order tools that share no word with it.
FEEDBACK_SHARE, FEEDBACK_TOOLS, FEEDBACK_TERMS = 0.3, 10, 30

# BM25's k1 and b, the usual: descriptions are a word to a page long
TERM_SATURATION, LENGTH_NORMALIZATION = (1.5, 0.75)
MAX_QUERIES = 256  # embedded requests that are remembered: the parts of a plan come back step after step

_LETTERS = re.compile(r"[^\W\d_]+")
Scores = list[float]  # one per tool
Vector = list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing that is wanted, and how well each tool serves it."""

    scores: Scores  # 1 for the best tool
    is_clear: bool  # the best tool is more than a chance match


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The tools in the order of their use for a request."""

    order: tuple[int, ...]  # positions of all tools, best first
    wishes: tuple[Wish, ...]  # the request as a whole, and its parts
    scores: Scores  # 0 is no match


class Ranker:
    """Ranks the tools of a set; thread-safe."""

    def __init__(
        self,
        entries: Sequence[Entry],
        ranker: ToolRanker | None,
        embeddings: Embeddings | None,
    ) -> None:
        if ranker is not None and not callable(getattr(ranker, "rank", None)):
            raise ConfigError(
                f"ranker={ranker!r}: give an object with a method `rank(query, tools) -> list[float]`"
            )
        self._entries = entries
        self._custom = ranker
        self._embeddings = embeddings
        self._vectors: list[Vector] | None = None
        self._queries: Lru[Vector] = Lru(MAX_QUERIES)
        self._words: WordIndex | None = (
            None  # built at the first choice, once for all that wait
        )
        self._building = threading.Lock()

    def rank(self, needs: Needs) -> Ranking:
        """Return the tools in order; a custom ranker that does not return a score for each is a `ConfigError`."""
        if self._custom is not None:
            scores = self._custom_scores(self._custom, needs.request)
            wishes = [Wish(scores=scores, is_clear=any(scores))]
        else:
            wishes = self._wishes((needs.request, *needs.parts), needs.new)
            scores = self._combined(wishes)
        return Ranking(
            order=tuple(best_first(scores)), wishes=tuple(wishes), scores=scores
        )

    async def arank(self, needs: Needs) -> Ranking:
        """Like `rank`, in a thread: an index of thousands of tools takes seconds, and embeddings ask a service."""
        ranked: Ranking = await asyncio.wrap_future(
            in_daemon(partial(copy_context().run, self.rank, needs))
        )
        return ranked

    def _custom_scores(self, ranker: ToolRanker, request: str) -> Scores:
        scores = list(ranker.rank(request, [entry.tool for entry in self._entries]))
        is_each = len(scores) == len(self._entries)
        if not is_each or not all(isinstance(score, Real) for score in scores):
            raise ConfigError(
                f"{type(ranker).__name__}.rank returned {len(scores)} values for {len(self._entries)} tools, or no "
                "numbers: return one score per tool, in their order"
            )
        # NaN is no match
        return to_one(
            [min(float(score), 1e9) if score > 0 else 0.0 for score in scores]
        )

    def _wishes(self, texts: Sequence[str], new: Sequence[str]) -> list[Wish]:
        """The wish of each text, by its words, and by meaning where there are embeddings that answer.

        A text that a person has just said is clear by one word that few tools are named by.
        """
        try:
            cosines = self._cosines(texts)
        except Exception as error:  # noqa: BLE001  # whatever a model's client raises: words rank as well
            log_failure("tools.embeddings_failed", error)
            cosines = [None] * len(texts)
        pairs = zip(texts, cosines, strict=True)
        return [self._wish(text, cosine, by_name=text in new) for text, cosine in pairs]

    def _wish(self, text: str, cosines: Scores | None, *, by_name: bool) -> Wish:
        index = self._index()
        scores = index.scores(text)
        if cosines is not None:
            near = to_one(cosines)
            scores = to_one(
                [
                    (1 - MEANING_SHARE) * a + MEANING_SHARE * b
                    for a, b in zip(scores, near, strict=True)
                ]
            )
        best = max(range(len(scores)), key=scores.__getitem__, default=-1)
        if best < 0 or scores[best] <= 0:
            return Wish(scores=scores, is_clear=False)
        is_near = cosines is not None and cosines[best] >= CLEAR_COSINE
        return Wish(
            scores=scores, is_clear=is_near or index.serves(best, text, by_name=by_name)
        )

    def _combined(self, wishes: Sequence[Wish]) -> Scores:
        scores = wishes[0].scores
        if len(wishes) > 1:
            # The best of any part counts beside the whole, so that a request for several things gets tools for each.
            best = (
                max(column)
                for column in zip(*(wish.scores for wish in wishes[1:]), strict=True)
            )
            scores = to_one(list(map(operator.add, scores, best)))
        like = to_one(self._index().resembling(scores))
        scores = [
            score + FEEDBACK_SHARE * other
            for score, other in zip(scores, like, strict=True)
        ]
        # However many copies of a tool one part wants, each other part has its best tool.
        first = math.nextafter(max(scores, default=0.0), math.inf)
        for wish in wishes:
            if wish.is_clear:
                scores[wish.scores.index(max(wish.scores))] = first
        return scores

    def _index(self) -> WordIndex:
        with self._building:
            self._words = self._words or WordIndex(self._entries)
            return self._words

    def _cosines(self, texts: Sequence[str]) -> list[Scores | None]:
        """The nearness of each tool to each text; None where there are no embeddings, or no usable ones."""
        if self._embeddings is None or not self._entries:
            return [None] * len(texts)
        if self._vectors is None:
            embedded = self._embeddings.embed_documents(
                [entry.text for entry in self._entries]
            )
            self._vectors = list(map(_unit, embedded))
        vectors, embed_query = self._vectors, self._embeddings.embed_query
        queries = [
            once(self._queries, text, partial(_embedded, embed_query, text))
            for text in texts
        ]
        if len(vectors) != len(self._entries):
            return [None] * len(texts)
        sizes = {len(vector) for vector in vectors}
        return [
            [max(0.0, _dot(vector, one)) for vector in vectors]
            if {len(one)} == sizes
            else None
            for one in queries
        ]


def _embedded(embed_query: Callable[[str], Sequence[float]], text: str) -> Vector:
    return _unit(embed_query(text))


def _unit(vector: Sequence[float]) -> Vector:
    """The vector at length 1; one without a length, because it holds no number or only zeros, is near to nothing."""
    length = math.hypot(*vector)
    return (
        [value / length for value in vector]
        if 0 < length < math.inf
        else [0.0] * len(vector)
    )


def _dot(one: Vector, other: Vector) -> float:
    return math.fsum(map(operator.mul, one, other))


class WordIndex:
    """The words of a tool set. Immutable once it is built, so that threads may share it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._count = len(entries)
        self._texts = [_weighed(entry, WEIGHTS, terms) for entry in entries]
        self._words = TermIndex(
            self._texts, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION
        )
        fragments = [_weighed(entry, FRAGMENT_FIELDS, _fragments) for entry in entries]
        self._fragments = TermIndex(
            fragments, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION
        )
        self._names = [frozenset(terms(entry.title)) for entry in entries]
        # Without common words, which would lead anywhere.
        joined = (
            " ".join(getattr(entry, field) for field in WEIGHTS) for entry in entries
        )
        self._own = [query_terms(text) for text in joined]

    def scores(self, text: str) -> Scores:
        """Return a score per tool, 1 for the best; 0 without a common word or fragment."""
        telling = set(_wanted(text))
        words = (word for word in _LETTERS.findall(text) if _term(word) in telling)
        near = self._fragments.scores(
            dict.fromkeys((fragment for word in words for fragment in _cut(word)), 1.0)
        )
        alike = to_one(self._words.scores(dict.fromkeys(_wanted(text), 1.0)))
        return to_one(
            [a + FRAGMENT_SHARE * b for a, b in zip(alike, to_one(near), strict=True)]
        )

    def serves(self, tool: int, text: str, *, by_name: bool) -> bool:
        """Say whether a tool has enough of a text's words to be what it asks for, or is named by one of them."""
        wanted = [term for term in _wanted(text) if term in self._words]
        shared = [term for term in wanted if term in self._texts[tool]]
        is_named = by_name and any(
            term in self._names[tool] and self._words.having(term) <= FEW_TOOLS
            for term in shared
        )
        return len(shared) >= CLEAR_TERM_SHARE * len(wanted) and (
            is_named or len(shared) >= CLEAR_TERMS
        )

    def resembling(self, scores: Scores) -> Scores:
        """Return a score per tool for having the words of the best tools: how tools that share no word are found."""
        weights: dict[str, float] = {}
        for tool in best_first(scores, FEEDBACK_TOOLS):
            for term in self._own[tool]:
                having = self._words.having(term)
                # one that a single tool has leads to no other tool
                if having > 1 and scores[tool]:
                    weights[term] = weights.get(term, 0.0) + scores[tool] * math.log(
                        self._count / having
                    )
        telling = sorted(weights, key=lambda term: -weights[term])[:FEEDBACK_TERMS]
        return self._words.scores({term: weights[term] for term in telling})


def _wanted(text: str) -> list[str]:
    """What a request asks for; plain numbers are values of parameters, and say nothing of the tool."""
    return [term for term in query_terms(text) if not term.isdigit()]


def best_first(scores: Scores, most: int | None = None) -> list[int]:
    """Return the positions of scores, or of the `most` best, the largest first, equal ones in their order."""
    if most is None:
        return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    return nlargest(most, range(len(scores)), key=scores.__getitem__)


def to_one(scores: Scores) -> Scores:
    """Scale so that the best is 1; scores without a match stay."""
    best = max(scores, default=0.0)
    return [score / best for score in scores] if best > 0 else scores


def _weighed(
    entry: Entry, fields: Iterable[str], cut: Callable[[str], Iterable[str]]
) -> Mapping[str, float]:
    """How much each piece of a tool's texts counts."""
    weighed: dict[str, float] = {}
    for field in fields:
        for piece in cut(getattr(entry, field)):
            weighed[piece] = weighed.get(piece, 0.0) + WEIGHTS[field]
    return weighed


def _fragments(text: str) -> list[str]:
    return [fragment for word in _LETTERS.findall(text) for fragment in _cut(word)]


@lru_cache(maxsize=MAX_WORDS)
def _term(word: str) -> str:
    return terms(word)[0]


@lru_cache(maxsize=MAX_WORDS)
def _cut(word: str) -> tuple[str, ...]:
    """Every four letters in a row; a short word whole."""
    plain = word.casefold()
    last = min(max(1, len(plain) - FRAGMENT_CHARS + 1), MAX_FRAGMENTS)
    return tuple(plain[start : start + FRAGMENT_CHARS] for start in range(last))
