"""What does a request cost exactly? o200k tokens of each part, media by stated rules, and what two requests share."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

import exact

PDF_PAGE_TOKENS = 1_500  # the low end of what Anthropic states for a page (PDF guide)
IMAGE_TILE_TOKENS = 170  # per tile of 512 pixels (OpenAI, images guide)
IMAGE_TILE_PIXELS = 512
IMAGE_BASE_TOKENS = 85
MEDIA_TYPES = frozenset({"image", "image_url", "file"})


@dataclass(frozen=True, slots=True)
class Part:
    """A message, or the tools: what is compared with the same part of another request."""

    role: str
    text: str
    tokens: int


def parts_of(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> tuple[Part, ...]:
    """The request in the order in which providers read it: tools first."""
    definitions = json.dumps(list(tools), ensure_ascii=False)
    first = Part("tools", definitions, exact.tools_tokens(tools) + exact.REPLY_TOKENS)
    return (first, *map(_part, messages))


def total_tokens(parts: Sequence[Part]) -> int:
    return sum(part.tokens for part in parts)


def common_tokens(old: Sequence[Part], new: Sequence[Part]) -> int:
    """Tokens of the common prefix: what a prompt cache can reuse."""
    tokens = 0
    for before, after in zip(old, new, strict=False):
        if before.role != after.role or (before.role == "tools" and before.text != after.text):
            return tokens
        if before.text != after.text:
            shared = os.path.commonprefix([before.text, after.text])  # noqa: RUF071  # by character is meant
            return tokens + min(exact.text_tokens(shared), before.tokens)
        tokens += before.tokens
    return tokens


def is_empty(message: BaseMessage) -> bool:
    calls = isinstance(message, AIMessage) and message.tool_calls
    return not calls and not any(block[0].strip() or block[1] for block in content_blocks(message.content))


def _part(message: BaseMessage) -> Part:
    blocks = list(content_blocks(message.content))
    text = "\n".join(text for text, _ in blocks)
    if isinstance(message, AIMessage) and message.tool_calls:
        text += json.dumps([[c["name"], c["args"], c["id"]] for c in message.tool_calls], ensure_ascii=False)
    if isinstance(message, ToolMessage):
        text = f"{message.tool_call_id}\n{text}"
    media = sum(tokens for _, tokens in blocks)
    return Part(message.type, text, exact.text_tokens(text) + media + exact.MESSAGE_TOKENS)


def content_blocks(content: Any) -> Iterator[tuple[str, int]]:
    """Text and media tokens of each block; media are shown by their digest."""
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield block, 0
        elif block.get("type") in MEDIA_TYPES and (data := _base64(block)):
            yield _media(data)
        elif isinstance(block.get("text"), str):
            yield block["text"], 0
        elif block.get("type") not in {"tool_use", "tool_call", "function_call"}:
            yield json.dumps(block, ensure_ascii=False), 0


def _base64(block: dict[str, Any]) -> str:
    url = block.get("image_url")
    nested = url.get("url", "") if isinstance(url, dict) else ""
    return str(block.get("base64") or block.get("data") or nested.rpartition(",")[2])


@lru_cache(maxsize=1_000)
def _media(data: str) -> tuple[str, int]:
    raw = base64.b64decode(data)
    name = f"<media {hashlib.sha256(raw).hexdigest()[:12]}>"
    if raw.startswith(b"%PDF"):
        return name, PDF_PAGE_TOKENS * raw.count(b"/Type /Page\n")
    width, height = struct.unpack(">II", raw[16:24])
    tiles = -(-width // IMAGE_TILE_PIXELS) * -(-height // IMAGE_TILE_PIXELS)
    return name, IMAGE_BASE_TOKENS + IMAGE_TILE_TOKENS * tiles
