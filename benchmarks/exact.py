"""Exact sizes of requests: a real tokenizer whose vocabulary comes with its wheel, plus chat framing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import quicktok
from langchain_core.messages import AIMessage, BaseMessage

ENCODING = "o200k_base"
MESSAGE_TOKENS = 4  # role and separators of one message in OpenAI's chat format
REPLY_TOKENS = 3  # the primed reply
TOOL_TOKENS = 8  # framing of one definition, the published per-tool constant plus its description's

PDF_PAGE_TOKENS = 1_500  # the low end of what Anthropic states for a page (PDF guide)
IMAGE_TILE_TOKENS = 170  # per tile of 512 pixels (OpenAI, images guide)
IMAGE_TILE_PIXELS = 512
IMAGE_BASE_TOKENS = 85
MEDIA_TYPES = frozenset({"image", "image_url", "file"})

_encoding = quicktok.get_encoding(ENCODING)


@lru_cache(maxsize=200_000)
def text_tokens(text: str) -> int:
    return int(_encoding.count(text.encode("utf-8", "replace").decode("utf-8")))


def payload(message: BaseMessage) -> str:
    """The text of a message that is sent: content (media as their digest), calls and what they answer."""
    calls = ""
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = json.dumps(
            [[c["name"], c["args"]] for c in message.tool_calls], ensure_ascii=False
        )
    return "\n".join(text for text, _ in content_blocks(message.content)) + calls


def message_tokens(message: BaseMessage) -> int:
    media = sum(tokens for _, tokens in content_blocks(message.content))
    return text_tokens(payload(message)) + media + MESSAGE_TOKENS


def tools_tokens(tools: Sequence[dict[str, Any]]) -> int:
    return sum(text_tokens(_typescript(tool)) + TOOL_TOKENS for tool in tools)


def request_tokens(
    messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]
) -> int:
    return sum(map(message_tokens, messages)) + tools_tokens(tools) + REPLY_TOKENS


def common_tokens(
    old: Sequence[BaseMessage], new: Sequence[BaseMessage], tools: list[dict[str, Any]]
) -> int:
    """Tokens of the common prefix of two requests, tools included: what a provider's prompt cache can reuse."""
    tokens = tools_tokens(tools) + REPLY_TOKENS
    for before, after in zip(old, new, strict=False):
        a, b = payload(before), payload(after)
        if before.type != after.type:
            return tokens
        if a != b:
            return tokens + text_tokens(os.path.commonprefix([a, b]))  # noqa: RUF071  # by character is meant
        tokens += message_tokens(before)
    return tokens


def _typescript(tool: dict[str, Any]) -> str:
    """A definition as models are shown it: a typed signature with comments, not its JSON."""
    function = tool.get("function", tool)
    fields = (function.get("parameters") or {}).get("properties") or {}
    lines = [
        f"// {f.get('description', '')}\n{name}: {f.get('type', f.get('enum', 'any'))},"
        for name, f in fields.items()
    ]
    return (
        f"// {function.get('description', '')}\ntype {function['name']} = (_: {{\n"
        + "\n".join(lines)
        + "\n}) => any;"
    )


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
