"""What of a message can be searched and read again, and in which passages?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.edits import Call, Media, Piece, compact_json, pieces

PASSAGE_CHARS = 1_200
"""Longest passage: a few paragraphs, about one subject; nearly every chat message is one passage."""

_REASONING = frozenset({"reasoning", "reasoning_content", "thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of one message that is searched as a unit."""

    index: int
    """Position of the message."""

    start_char: int
    """Where the passage begins in the readable text of its message."""

    text: str


def passages_of(messages: Sequence[AnyMessage]) -> list[Passage]:
    """Return the passages of all messages, in order; messages without text have none.

    The first passage of a message begins with the name of its speaker or tool, so that they are found by it.
    """
    found: list[Passage] = []
    for index, message in enumerate(messages):
        text, name = readable_text(message), message.name or ""
        for start, stop in spans(text, PASSAGE_CHARS):
            shown = text[start:stop]
            found.append(Passage(index, start, f"{name} {shown}" if name and not start else shown))
    return found


def readable_text(message: AnyMessage) -> str:
    """Return a message as plain text: texts, tool calls as name and JSON, media as markers; reasoning is left out."""
    if isinstance(message.content, str) and (isinstance(message, ToolMessage) or not _has_calls(message)):
        return message.content
    said = message.model_copy(update={"content": _without_reasoning(message.content), "name": None})
    return "\n".join(filter(None, map(_readable, pieces(said))))


def spans(text: str, size_chars: int) -> Iterator[tuple[int, int]]:
    """Yield where to cut a text into pieces of at most `size_chars`: after a line, else after a space, else anywhere.

    Example:
        >>> list(spans("one two three", 8))
        [(0, 8), (8, 13)]
    """
    start = 0
    while len(text) - start > size_chars:
        stop = _cut(text, start, start + size_chars)
        yield start, stop
        start = stop
    if start < len(text):
        yield start, len(text)


def _cut(text: str, start: int, limit: int) -> int:
    """Position after the last line or space in the second half of the piece, so that pieces do not get tiny."""
    middle = (start + limit) // 2
    for mark in ("\n", " "):
        found = text.rfind(mark, middle, limit)
        if found >= 0:
            return found + 1
    return limit


def _has_calls(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and bool(
        message.tool_calls or message.invalid_tool_calls or message.additional_kwargs
    )


def _without_reasoning(content: Any) -> Any:
    return [block for block in content if not _is_reasoning(block)] if isinstance(content, list) else content


def _is_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    return _is_reasoning(block.get("value")) if kind == "non_standard" else kind in _REASONING


def _readable(piece: Piece) -> str:
    if isinstance(piece, Media):
        return _attached_text(piece.block) or f"[{piece.kind}]"
    if isinstance(piece, Call):
        return f"{piece.name} {compact_json(piece.arguments)}".strip()
    return piece


def _attached_text(block: Mapping[str, Any]) -> str:
    """Text of a document that is attached as text."""
    source = block.get("source")
    is_text = isinstance(source, Mapping) and source.get("type") == "text"
    text = source.get("data") if isinstance(source, Mapping) and is_text else block.get("text")
    return text if isinstance(text, str) else ""
