"""How do chunks of any size become parts that fit, each chunk in one of them, in order?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.decompose.boundaries import Boundary, pieces_of
from langchain_ctxwin.decompose.chunks import Chunk, joined

Frame = Callable[[Chunk], str]
"""What a request shows around the text of a chunk."""


class Cut(TypedDict):
    """A place inside a document where one part ends and the next begins."""

    document: int
    at: int
    """Characters of the document before the cut."""
    kind: Boundary
    """`hard` inside a sentence, because not even a sentence fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Chunks in parts that fit, and where that cut a document."""

    parts: tuple[tuple[Chunk, ...], ...]
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    chunk: Chunk
    tokens: int
    frame_tokens: int
    ends: Boundary


def split_chunks(chunks: Iterable[Chunk], room_tokens: int, price: WholePrice, frame: Frame) -> Split:
    """Distribute `chunks` over as few parts as their order allows, each at most `room_tokens` large.

    Chunks that fit are kept whole and several share a part; only a larger one is cut, where its sections, else its
    paragraphs, lines or sentences end. The texts of all parts, one after the other, are those of `chunks`. A room that
    hardly holds what is shown around a chunk makes parts that are too large by that.
    """
    parts: list[list[_Sized]] = []
    used = 0
    for sized in _sized(chunks, room_tokens, price, frame):
        goes_on = bool(parts) and parts[-1][-1].chunk["document"] == sized.chunk["document"]
        cost = sized.tokens + (0 if goes_on else sized.frame_tokens)
        if parts and used + cost <= room_tokens:
            parts[-1].append(sized)
            used += cost
        else:
            parts.append([sized])
            used = sized.tokens + sized.frame_tokens
    cuts = tuple(_cut(part[-1]) for part in parts if part[-1].ends != "end")
    return Split(parts=tuple(tuple(joined([sized.chunk for sized in part])) for part in parts), cuts=cuts)


def _sized(chunks: Iterable[Chunk], room_tokens: int, price: WholePrice, frame: Frame) -> Iterator[_Sized]:
    for chunk in chunks:
        # What may be cut is shown with a position: the largest one is priced for all.
        last: Chunk = {**chunk, "start": chunk["start"] + len(chunk["text"])}
        frame_tokens = price(frame(last if len(chunk["text"]) > room_tokens else chunk))
        for piece in pieces_of(chunk["text"], max(1, room_tokens - frame_tokens), price):
            text = chunk["text"][piece.start : piece.stop]
            part: Chunk = {**chunk, "start": chunk["start"] + piece.start, "text": text}
            yield _Sized(chunk=part, tokens=piece.tokens, frame_tokens=frame_tokens, ends=piece.ends)


def _cut(last: _Sized) -> Cut:
    return Cut(document=last.chunk["document"], at=last.chunk["start"] + len(last.chunk["text"]), kind=last.ends)


def halves(items: Sequence[Chunk]) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Return the first and the second half of several chunks, by number."""
    middle = len(items) // 2
    return tuple(items[:middle]), tuple(items[middle:])
