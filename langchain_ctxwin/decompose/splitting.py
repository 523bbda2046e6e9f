"""Chunks of the input: documents, or pieces that end where a reader would cut, distributed over parts that fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, Literal, NotRequired, TypedDict

from langchain_core.documents import Document

from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.errors import BudgetExceededError, ConfigError, brief
from langchain_ctxwin.text.sentences import sentence_spans, word_cut

CITED = ("id", "source", "url", "title", "page", "section")
"""Metadata that a model is shown beside a chunk, so that it can cite it; other fields may be of any size and kind."""
LONGEST_CITED_CHARS = 200  # a longer value is no source id; its beginning is shown
PIECES_PER_ROOM = 16
"""Neighbouring units are taken together up to this part of the room: prices cost time, and a part wastes less."""
LONGEST_HEADING_CHARS = 500  # a longer piece is no heading that stands alone
HEAD_SHARE = 2 / 3  # of what is kept: answers state the main thing first and conclude at the end
SHRINK = 0.9  # of the computed length: the marker costs tokens, and text is not equally dense everywhere

Boundary = Literal["end", "section", "paragraph", "line", "sentence", "hard"]
"""What ends where a piece ends: the whole text, a unit of it, or only a word or character (`hard`)."""

_HEADING = re.compile(r"(?m)^(#{1,6})[ \t]+\S|^[^\n]+\n(?:(={3,})|-{3,})[ \t\r]*$|(\f)")
_ONLY_HEADINGS = re.compile(
    r"(?:#{1,6}[ \t][^\n]*+(?:\n|\Z)|[^\n]++\n(?:={3,}|-{3,})[ \t\r]*+(?:\n|\Z)|[^\S\n]*+(?:\n|\Z))*+"
)
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
# Not before another end, a run of empty lines is one, and not before the line under a heading.
_LINE_END = re.compile(r"(?m)\n(?!\n|(?:={3,}|-{3,})[ \t\r]*$)|\r(?!\n)")


class Place(TypedDict):
    """Where a chunk stands in the input: the document by its number, and characters of its text."""

    document: int
    source: dict[str, str]
    start: int
    stop: int


class Chunk(TypedDict):
    """A whole document, a piece of one, or the answer to some of them; JSON, because it is part of a checkpoint."""

    document: int
    source: dict[str, str]
    """What of the metadata is shown."""
    start: int
    """Where the text begins in its document, in characters."""
    text: str
    covers: NotRequired[list[Place]]
    """For an answer: the chunks that it was written from."""


class Cut(TypedDict):
    """A place inside a document where one part ends and the next begins."""

    document: int
    at: int
    """Characters of the document before the cut."""
    kind: Boundary
    """`hard` inside a sentence, because not even a sentence fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a text that fits; pieces follow each other without gaps."""

    start: int
    stop: int
    tokens: int
    ends: Boundary


def chunk_of(number: int, given: Any) -> Chunk:
    """Return a document, its text, or its JSON form `{"page_content": ..., "metadata": ...}` as one chunk.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(given, str):
        return Chunk(document=number, source={}, start=0, text=given)
    if isinstance(given, Document):
        given = {"id": given.id, "page_content": given.page_content, "metadata": given.metadata}
    text = given.get("page_content") if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise ConfigError(f"documents[{number}]={brief(given)}: pass a str, a Document, or a dict with page_content")
    stated = {} if given.get("metadata") is None else given["metadata"]
    if not isinstance(stated, dict):
        raise ConfigError(
            f"documents[{number}]: metadata={brief(stated)}: pass a dict, for example {{'source': 'a.md'}}"
        )
    metadata = {"id": given.get("id"), **stated}
    source = {name: str(metadata[name])[:LONGEST_CITED_CHARS] for name in CITED if metadata.get(name) is not None}
    return Chunk(document=number, source=source, start=0, text=text)


def split_chunks(
    chunks: Iterable[Chunk],
    room_tokens: int,
    price: WholePrice,
    frame_price: Callable[[Chunk], int],
    *,
    least_tokens: int = 1,
) -> tuple[list[list[Chunk]], list[Cut]]:
    """Distribute `chunks` over as few parts as their order allows, each at most `room_tokens` large.

    Chunks that fit are kept whole and several share a part; only a larger one is cut, where its sections, else its
    paragraphs, lines or sentences end. The texts of all parts, one after the other, are those of `chunks`.

    Returns:
        The parts, and where a document was cut between them.

    Raises:
        BudgetExceededError: what is shown around a chunk that has to be cut leaves less than `least_tokens` for it.
    """
    parts, cuts = list[list[Chunk]](), list[Cut]()
    used = 0
    ends: Boundary = "end"
    for chunk, frame_tokens, piece in _pieces(chunks, room_tokens, price, frame_price, least_tokens):
        before = parts[-1][-1] if parts else None
        cost = piece.tokens + (0 if before and before["document"] == chunk["document"] else frame_tokens)
        if before is None or used + cost > room_tokens:
            if before is not None and ends != "end":
                cuts.append(Cut(document=before["document"], at=_end_of(before), kind=ends))
            parts.append([chunk])
            used = piece.tokens + frame_tokens
        else:
            used += cost
            if before["document"] == chunk["document"] and _end_of(before) == chunk["start"]:
                parts[-1][-1] = {**before, "text": before["text"] + chunk["text"]}
            else:
                parts[-1].append(chunk)
        ends = piece.ends
    return parts, cuts


def _pieces(
    chunks: Iterable[Chunk], room_tokens: int, price: WholePrice, frame_price: Callable[[Chunk], int], least_tokens: int
) -> Iterator[tuple[Chunk, int, Piece]]:
    """Yield each piece of each chunk as a chunk, with what is shown around it in tokens."""
    for chunk in chunks:
        # What may be cut is shown with a position: the largest one is priced for all.
        last: Chunk = {**chunk, "start": _end_of(chunk)}
        frame_tokens = frame_price(last if len(chunk["text"]) > room_tokens else chunk)
        left = room_tokens - frame_tokens
        if left < least_tokens and price(chunk["text"]) > left:
            raise BudgetExceededError(
                f"what is shown around documents[{chunk['document']}] needs {frame_tokens:,} tokens of a room of "
                f"{room_tokens:,}, which leaves {max(0, left):,} for its text (at least {least_tokens} are needed): "
                "shorten its metadata or use a larger window",
                report={"input_limit": room_tokens, "total_tokens": frame_tokens},
            )
        for piece in pieces_of(chunk["text"], left, price):
            text = chunk["text"][piece.start : piece.stop]
            yield {**chunk, "start": chunk["start"] + piece.start, "text": text}, frame_tokens, piece


def _end_of(chunk: Chunk) -> int:
    return chunk["start"] + len(chunk["text"])


def places_of(chunks: Iterable[Chunk]) -> list[Place]:
    """Return where the chunks, or what they answer, stand in the input; neighbours in one document as one place."""
    found: list[Place] = []
    for chunk in chunks:
        own = Place(document=chunk["document"], source=chunk["source"], start=chunk["start"], stop=_end_of(chunk))
        for place in chunk.get("covers") or [own]:
            if found and found[-1]["document"] == place["document"] and found[-1]["stop"] == place["start"]:
                found[-1] = {**found[-1], "stop": place["stop"]}
            elif place not in found[-1:]:
                found.append(place)
    return found


def shortened(text: str, most_tokens: int, price: WholePrice) -> str:
    """Return the beginning and the end of `text` with a marker between that says how much is missing.

    A room too small for the marker gets the marker alone.
    """
    tokens, kept_chars, found = price(text), len(text), text
    while tokens > most_tokens and kept_chars:
        kept_chars = min(kept_chars - 1, int(kept_chars * SHRINK * most_tokens / tokens))
        head = word_cut(text, 0, ceil(kept_chars * HEAD_SHARE)) if kept_chars else 0
        tail = len(text) - (kept_chars - head)
        found = f"{text[:head]}\n[... {tail - head:,} characters left out ...]\n{text[tail:]}"
        tokens = price(found)
    return found


def pieces_of(text: str, room_tokens: int, price: WholePrice) -> Iterator[Piece]:
    """Yield the pieces of `text` in order, each at most `room_tokens` large, cut at the coarsest units that fit.

    The units are sections by depth of their headings, paragraphs, lines, sentences, then words and characters. A
    heading stays with what follows it, down to its first sentence. Only a single character may cost more than the room.
    """

    def cut(start: int, stop: int, level: int, ends: Boundary) -> Iterator[Piece]:
        tokens = price(text[start:stop])
        if tokens <= room_tokens or stop - start <= 1:
            yield Piece(start=start, stop=stop, tokens=tokens, ends=ends)
            return
        if level == len(_LEVELS):
            middle = word_cut(text, start, (start + stop) // 2)
            yield from cut(start, middle, level, "hard")
            yield from cut(middle, stop, level, ends)
            return
        kind, unit_ends = _LEVELS[level]
        stops = [start, *(end for end in unit_ends(text, start, stop) if end < stop), stop]
        least_chars = (stop - start) * room_tokens // (tokens * PIECES_PER_ROOM)
        for group in _groups(_with_headings(text, stops), least_chars):
            first, last = group[0], group[-1]
            cost = price(text[first:last])
            if cost <= room_tokens:
                yield Piece(start=first, stop=last, tokens=cost, ends=ends if last == stop else kind)
                continue
            for one, other in pairwise(group):
                yield from cut(one, other, level + 1, ends if other == stop else kind)

    yield from cut(0, len(text), 0, "end")


def _groups(cuts: Sequence[int], least_chars: int) -> Iterator[list[int]]:
    """Take neighbouring units together until they have enough characters; each group begins where the last one ends."""
    group = [cuts[0]]
    for cut in cuts[1:]:
        group.append(cut)
        if cut - group[0] >= least_chars or cut == cuts[-1]:
            yield group
            group = [cut]


def _with_headings(text: str, cuts: list[int]) -> list[int]:
    """Drop each cut that would leave only headings, or blank lines, before it."""
    kept = cuts[:1]
    has_text = False
    for start, cut in pairwise(cuts):
        is_long = cut - kept[-1] > LONGEST_HEADING_CHARS
        has_text = has_text or is_long or not _ONLY_HEADINGS.fullmatch(text, start, cut)
        if has_text and cut != cuts[-1]:
            kept.append(cut)
            has_text = False
    return [*kept, cuts[-1]]


def _sections(depth: int, text: str, start: int, stop: int) -> Iterator[int]:
    """Before headings of this depth or above, after form feeds."""
    for match in _HEADING.finditer(text, start, stop):
        marks, underline, feed = match.groups()
        found_depth = len(marks) if marks else 1 if underline or feed else 2
        if found_depth <= depth:
            yield match.end() if feed else match.start()


def _ends_of(unit: re.Pattern[str], text: str, start: int, stop: int) -> Iterator[int]:
    return (match.end() for match in unit.finditer(text, start, stop))


_LEVELS: tuple[tuple[Boundary, Callable[[str, int, int], Iterable[int]]], ...] = (
    ("section", partial(_sections, 1)),
    ("section", partial(_sections, 2)),
    ("section", partial(_sections, 3)),
    ("section", partial(_sections, 6)),
    ("paragraph", partial(_ends_of, _BLANK_LINES)),
    ("line", partial(_ends_of, _LINE_END)),
    ("sentence", lambda text, start, stop: (end for _, end in sentence_spans(text, start, stop))),
)
