"""What of a message is sent: its texts, its calls and its media, each once, whatever shape the integration uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

MEDIA_TYPES = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "input_audio": "audio", "video": "video", "video_url": "video",
    "file": "file", "input_file": "file", "document": "file", "media": "file", "text-plain": "file",
}  # fmt: skip
"""Content block types that hold media, with their kind."""

CALL_TYPES = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call", "tool_call_chunk"})
"""Blocks that repeat what `tool_calls` says."""

UNSENT_KEYS = frozenset(
    {"type", "id", "index", "signature", "cache_control", "extras", "annotations", "encrypted_content"}
)
"""Keys of unknown blocks that are no content of the prompt."""


@dataclass(frozen=True, slots=True)
class Media:
    """One block of media and its kind."""

    kind: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call or the reference of a result to its call: adds framing beside its text."""

    text: str


Piece = str | Media | Call


def pieces(message: BaseMessage) -> Iterator[Piece]:
    """Yield everything of a message that a provider counts, in no particular order."""
    yield from _content(message.content, has_calls=_has_calls(message))
    if message.name:
        yield message.name
    if isinstance(message, AIMessage):
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            yield Call(f"{call['name']}{compact_json(call['args'])}")
    elif isinstance(message, ToolMessage):
        yield Call("")


def compact_json(value: Any) -> str:
    """Return JSON without spaces; a string is taken as JSON already, what is no JSON as its text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError):
        return str(value)


def _has_calls(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls or message.invalid_tool_calls)


def _content(content: Any, *, has_calls: bool) -> Iterator[Piece]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            yield from _block(block, has_calls=has_calls)


def _block(block: Any, *, has_calls: bool) -> Iterator[Piece]:
    if not isinstance(block, Mapping):
        yield str(block)
        return
    kind = block.get("type", "text")
    if kind in MEDIA_TYPES:
        yield Media(MEDIA_TYPES[kind], block)
    elif kind == "tool_result":
        yield from _content(block.get("content"), has_calls=False)
    elif not (kind in CALL_TYPES and has_calls):
        yield from _leaves(block)


def _leaves(value: Any) -> Iterator[str]:
    """The texts inside a block of any other type: text, reasoning, refusals, provider tools."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(part for key, part in item.items() if key not in UNSENT_KEYS)
        elif isinstance(item, list | tuple):
            stack.extend(item)
        elif item is not None:
            yield str(item)
