"""How many tokens does the offline model count? By its own rule, which the package does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

FRAME_TOKENS = 4
"""Role and separators around each message, as in OpenAI's chat format."""

TOOL_FRAME_TOKENS = 8
"""What wraps one function definition beside its JSON."""

REMEMBERED_TEXTS = 4_096
"""Texts whose size is remembered: a few conversations' worth."""

ENCODING = "o200k_base"

PIECE = re.compile(r"\s?[^\W\d_]{1,6}|\d{1,3}|\n\s*|[^\w\s]{1,2}|_|\s{1,8}")
"""About what byte-pair encodings make of text: short words whole, long words in parts, numbers in threes."""

WIDE_CHARS = re.compile(r"[^\x00-\u024f]")
"""Characters of scripts that take about a token each."""


def request_tokens(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()) -> int:
    """Return the input tokens of one request; the sum of its parts, so that histories can be added up."""
    return sum(map(message_tokens, messages)) + tools_tokens(tools)


def message_tokens(message: BaseMessage) -> int:
    """Return the tokens of one message with its frame, tool calls included."""
    tokens = FRAME_TOKENS + text_tokens(message.text)
    if isinstance(message, AIMessage):
        tokens += sum(text_tokens(call["name"] + json.dumps(call["args"])) for call in message.tool_calls)
    if isinstance(message, ToolMessage):
        tokens += text_tokens(message.tool_call_id)
    return tokens


def tools_tokens(tools: Sequence[dict[str, Any]]) -> int:
    """Return the tokens of tool definitions in the OpenAI form."""
    return sum(TOOL_FRAME_TOKENS + text_tokens(json.dumps(tool)) for tool in tools)


@lru_cache(maxsize=REMEMBERED_TEXTS)
def text_tokens(text: str) -> int:
    """Return the tokens of a text: exact for a current vocabulary when the extra `exact` is installed."""
    return _counter()(text.encode("utf-8", "replace").decode("utf-8"))


@cache
def _counter() -> Callable[[str], int]:
    try:
        import quicktok  # noqa: PLC0415  # optional package of the extra `exact`
    except ImportError:
        return by_pieces
    count: Callable[[str], int] = quicktok.get_encoding(ENCODING).count
    return count


def by_pieces(text: str) -> int:
    """Count words, numbers and punctuation: the rule without a vocabulary."""
    narrow, wide = WIDE_CHARS.subn("", text)
    return wide + sum(1 for _ in PIECE.finditer(narrow))
