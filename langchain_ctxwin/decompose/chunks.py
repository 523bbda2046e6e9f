"""What is a chunk of the input, and how do documents, texts and answers become chunks?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NotRequired, TypedDict

from langchain_core.documents import Document

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.measurer import shown

CITED = ("id", "source", "url", "title", "page", "section")
"""Metadata that a model is shown beside a chunk, so that it can cite it; other fields may be of any size and kind."""

LONGEST_CITED_CHARS = 200
"""A longer value is no source id; its beginning is shown."""


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
        raise ConfigError(f"documents[{number}]={shown(given)}: pass a str, a Document, or a dict with page_content")
    stated = {} if given.get("metadata") is None else given["metadata"]
    if not isinstance(stated, dict):
        raise ConfigError(
            f"documents[{number}]: metadata={shown(stated)}: pass a dict, for example {{'source': 'a.md'}}"
        )
    metadata = {"id": given.get("id"), **stated}
    source = {name: str(metadata[name])[:LONGEST_CITED_CHARS] for name in CITED if metadata.get(name) is not None}
    return Chunk(document=number, source=source, start=0, text=text)


def places_of(chunks: Iterable[Chunk]) -> list[Place]:
    """Return where the chunks, or what they answer, stand in the input; neighbours in one document as one place."""
    found: list[Place] = []
    for place in (place for chunk in chunks for place in chunk.get("covers") or [_place(chunk)]):
        if found and found[-1]["document"] == place["document"] and found[-1]["stop"] == place["start"]:
            found[-1] = {**found[-1], "stop": place["stop"]}
        elif place not in found[-1:]:
            found.append(place)
    return found


def joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks with those that follow each other in one document as one."""
    found: list[Chunk] = []
    for chunk in chunks:
        if found and _follows(found[-1], chunk):
            found[-1] = {**found[-1], "text": found[-1]["text"] + chunk["text"]}
        else:
            found.append(chunk)
    return found


def _follows(one: Chunk, other: Chunk) -> bool:
    return one["document"] == other["document"] and one["start"] + len(one["text"]) == other["start"]


def _place(chunk: Chunk) -> Place:
    stop = chunk["start"] + len(chunk["text"])
    return Place(document=chunk["document"], source=chunk["source"], start=chunk["start"], stop=stop)
