"""Which passages were embedded before? Losing this loses time and money only."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

from langchain_ctxwin.util.memo import Lru

MAX_VECTORS = 10_000
"""Vectors that are kept: a very long conversation, 60 MB at 1,536 numbers each."""


class RememberedEmbeddings(Embeddings):
    """Embeds each text once while it is remembered; thread-safe and bounded, for any number of conversations."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self._known: Lru[array[float]] = Lru(MAX_VECTORS)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text; only unknown ones are embedded."""
        known, new = self._look_up(texts)
        return self._complete(texts, known, new, self._embeddings.embed_documents(new) if new else [])

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Like `embed_documents`."""
        known, new = self._look_up(texts)
        return self._complete(texts, known, new, await self._embeddings.aembed_documents(new) if new else [])

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self._embeddings.embed_query(text)

    async def aembed_query(self, text: str) -> list[float]:
        """Like `embed_query`."""
        return await self._embeddings.aembed_query(text)

    def _look_up(self, texts: Sequence[str]) -> tuple[dict[str, array[float]], list[str]]:
        known = {text: vector for text in dict.fromkeys(texts) if (vector := self._known.get(text)) is not None}
        return known, [text for text in dict.fromkeys(texts) if text not in known]

    def _complete(
        self, texts: Sequence[str], known: dict[str, array[float]], new: Sequence[str], vectors: list[list[float]]
    ) -> list[list[float]]:
        """All vectors in order; as many as came back, when that are not as many as were asked for."""
        added = {text: self._known.put(text, array("f", vector)) for text, vector in zip(new, vectors, strict=False)}
        found = {**known, **added}
        return [list(found[text]) for text in texts if text in found]
