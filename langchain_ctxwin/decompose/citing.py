"""How much of its source is shown beside a chunk, when there is more than the room can spare?"""

from __future__ import annotations

from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.decompose.chunks import LONGEST_CITED_CHARS, Chunk
from langchain_ctxwin.decompose.splitting import Frame

LEAST_CITED_CHARS = 25
"""A shorter beginning names no source: whole fields are left out instead, the last ones first."""


def cited_within(chunk: Chunk, most_tokens: int, price: WholePrice, frame: Frame) -> Chunk:
    """Return the chunk, its source shortened until what is shown around it costs at most `most_tokens`.

    All fields are cut to the same length first. A chunk whose source fits is returned as it is.
    """
    found, longest_chars = chunk, LONGEST_CITED_CHARS
    while found["source"] and price(frame(found)) > most_tokens:
        longest_chars = max(LEAST_CITED_CHARS, longest_chars // 2)
        shorter = {name: value[:longest_chars] for name, value in found["source"].items()}
        if shorter == found["source"]:
            shorter.popitem()
        found = {**found, "source": shorter}
    return found
