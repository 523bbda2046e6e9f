"""How do chunks of any size become parts that fit, each chunk in one of them, in order?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.decompose.boundaries import Boundary, pieces_of
from langchain_ctxwin.decompose.chunks import Chunk, joined
from langchain_ctxwin.errors import BudgetExceededError

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


def split_chunks(
    chunks: Iterable[Chunk], room_tokens: int, price: WholePrice, frame: Frame, *, least_tokens: int = 1
) -> Split:
    """Distribute `chunks` over as few parts as their order allows, each at most `room_tokens` large.

    Chunks that fit are kept whole and several share a part; only a larger one is cut, where its sections, else its
    paragraphs, lines or sentences end. The texts of all parts, one after the other, are those of `chunks`.

    Raises:
        BudgetExceededError: what is shown around a chunk that has to be cut leaves less than `least_tokens` for it.
    """
    parts: list[list[_Sized]] = []
    used = 0
    for sized in _sized(chunks, room_tokens, price, frame, least_tokens):
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


def _sized(
    chunks: Iterable[Chunk], room_tokens: int, price: WholePrice, frame: Frame, least_tokens: int
) -> Iterator[_Sized]:
    for chunk in chunks:
        # What may be cut is shown with a position: the largest one is priced for all.
        last: Chunk = {**chunk, "start": chunk["start"] + len(chunk["text"])}
        frame_tokens = price(frame(last if len(chunk["text"]) > room_tokens else chunk))
        left = room_tokens - frame_tokens
        if left < least_tokens and price(chunk["text"]) > left:
            raise _no_room(chunk, room_tokens, frame_tokens, least_tokens)
        for piece in pieces_of(chunk["text"], left, price):
            text = chunk["text"][piece.start : piece.stop]
            part: Chunk = {**chunk, "start": chunk["start"] + piece.start, "text": text}
            yield _Sized(chunk=part, tokens=piece.tokens, frame_tokens=frame_tokens, ends=piece.ends)


def _no_room(chunk: Chunk, room_tokens: int, frame_tokens: int, least_tokens: int) -> BudgetExceededError:
    return BudgetExceededError(
        f"what is shown around documents[{chunk['document']}] needs {frame_tokens:,} tokens of a room of "
        f"{room_tokens:,}, which leaves {max(0, room_tokens - frame_tokens):,} for its text (at least {least_tokens} "
        "are needed): shorten its metadata or use a larger window",
        report={"input_limit": room_tokens, "total_tokens": frame_tokens},
    )


def _cut(last: _Sized) -> Cut:
    return Cut(document=last.chunk["document"], at=last.chunk["start"] + len(last.chunk["text"]), kind=last.ends)


def halves(items: Sequence[Chunk]) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Return the first and the second half of several chunks, by number."""
    middle = len(items) // 2
    return tuple(items[:middle]), tuple(items[middle:])
