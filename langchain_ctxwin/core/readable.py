"""A message as a person, or a model that was not there, reads it: plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.blocks import REASONING_TYPES, compact_json
from langchain_ctxwin.core.tokens import REASONING_KEYS, Call, Piece, pieces


def readable_text(message: AnyMessage) -> str:
    """A message as plain text: texts, tool calls as name and JSON, media as markers; reasoning is left out."""
    content: Any = message.content
    if isinstance(content, str) and not isinstance(message, AIMessage):
        return content
    if isinstance(content, list):
        content = [block for block in content if not _is_reasoning(block)]
    beside = {
        key: value
        for key, value in message.additional_kwargs.items()
        if key not in REASONING_KEYS
    }
    said = message.model_copy(
        update={"content": content, "name": None, "additional_kwargs": beside}
    )
    return "\n".join(filter(None, map(_readable, pieces(said))))


def _is_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    return (
        _is_reasoning(block.get("value"))
        if kind == "non_standard"
        else kind in REASONING_TYPES
    )


def _readable(piece: Piece) -> str:
    """A piece as text; of a document that is attached as text, that text."""
    if isinstance(piece, Call):
        return f"{piece.name} {compact_json(piece.arguments)}".strip()
    if isinstance(piece, str):
        return piece
    source: Any = piece.block.get("source")
    is_source = isinstance(source, Mapping) and source.get("type") == "text"
    text = source.get("data") if is_source else piece.block.get("text")
    return text if isinstance(text, str) and text else f"[{piece.kind}]"
