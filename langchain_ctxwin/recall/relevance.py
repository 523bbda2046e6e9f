"""How well does each passage, and so each message, match a query?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AnyMessage

from langchain_ctxwin.errors import ContextWindowError
from langchain_ctxwin.recall.passages import Passage, passages_of
from langchain_ctxwin.text.bm25 import bm25_library
from langchain_ctxwin.text.terms import query_terms, terms

TERM_SATURATION = 0.9
LENGTH_NORMALIZATION = 0.4
"""BM25's k1 and b: the values that Anserini uses for passages (Yang et al., 2017)."""

MAX_PASSAGES = 16_384
"""Passages whose terms are remembered: a very long conversation, about 20 MB when they are chat messages."""

NEIGHBOR_SHARES = (0.5, 0.25)
"""What a passage gets of the score of those one and two places away: an answer stands beside its question, a result
beside its call. Halving is as good as any other decline that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that matches a query."""

    index: int
    """Position of the message."""

    score: float
    start_char: int
    """Where its best passage begins in its readable text."""


def find(messages: Sequence[AnyMessage], query: str, embeddings: Embeddings | None = None) -> list[Hit]:
    """Return the messages that match, best first and newer before older; by words, or by meaning with embeddings."""
    passages = passages_of(messages)
    if embeddings is None or not passages:
        return _best(passages, _spread(word_scores(passages, query)))
    vectors = embeddings.embed_documents([passage.text for passage in passages])
    return _best(passages, meaning_scores(vectors, embeddings.embed_query(query), len(passages)))


async def afind(messages: Sequence[AnyMessage], query: str, embeddings: Embeddings | None = None) -> list[Hit]:
    """Like `find`, awaiting the embeddings."""
    passages = passages_of(messages)
    if embeddings is None or not passages:
        return _best(passages, _spread(word_scores(passages, query)))
    vectors = await embeddings.aembed_documents([passage.text for passage in passages])
    return _best(passages, meaning_scores(vectors, await embeddings.aembed_query(query), len(passages)))


def word_scores(passages: Sequence[Passage], query: str) -> list[float]:
    """Return the BM25 score of each passage; 0 without a common term.

    The index knows only the terms of the query; all others count as one, for the lengths.
    """
    vocabulary = {term: number for number, term in enumerate(query_terms(query), start=1)}
    known = [[vocabulary.get(term, 0) for term in _passage_terms(passage.text)] for passage in passages]
    if not any(map(any, known)):
        return [0.0] * len(passages)
    index = bm25_library().BM25(k1=TERM_SATURATION, b=LENGTH_NORMALIZATION, method="lucene")
    # `index.index` is the same behind a log line per call, which reaches handlers whatever their logger's level.
    index.scores = index.build_index_from_ids([0, *vocabulary.values()], known, show_progress=False)
    scores: list[float] = index.get_scores_from_ids(list(vocabulary.values())).tolist()
    return scores


def meaning_scores(vectors: Sequence[Sequence[float]], query: Sequence[float], expected: int) -> list[float]:
    """Return the cosine between each vector and the query's; 0 where one of them is zero."""
    import numpy as np  # noqa: PLC0415  # comes with bm25s; see there

    if len(vectors) != expected or any(len(vector) != len(query) for vector in vectors):
        raise ContextWindowError(
            f"the embeddings returned {len(vectors)} vectors for {expected} passages, or vectors that are not as long "
            f"as the query's ({len(query)}): use one model for documents and queries"
        )
    documents, wanted = np.asarray(vectors, dtype=np.float32), np.asarray(query, dtype=np.float32)
    lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(wanted)
    cosines = np.divide(documents @ wanted, lengths, out=np.zeros(expected, dtype=np.float32), where=lengths > 0)
    scores: list[float] = cosines.tolist()
    return scores


@lru_cache(maxsize=MAX_PASSAGES)
def _passage_terms(text: str) -> tuple[str, ...]:
    return tuple(terms(text))


def _spread(scores: Sequence[float]) -> list[float]:
    """Give each passage shares of its neighbors' scores: what a short message is about is said around it."""
    spread = list(scores)
    for distance, share in enumerate(NEIGHBOR_SHARES, start=1):
        for position in range(distance, len(scores)):
            spread[position] += share * scores[position - distance]
            spread[position - distance] += share * scores[position]
    return spread


def _best(passages: Sequence[Passage], scores: Sequence[float]) -> list[Hit]:
    """The best passage of each message that matches at all."""
    hits: dict[int, Hit] = {}
    for passage, score in zip(passages, scores, strict=True):
        known = hits.get(passage.index)
        if score > 0 and (known is None or score > known.score):
            hits[passage.index] = Hit(index=passage.index, score=score, start_char=passage.start_char)
    return sorted(hits.values(), key=lambda hit: (-hit.score, -hit.index))
