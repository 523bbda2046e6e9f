"""Exact sizes of requests: a real tokenizer whose vocabulary comes with its wheel, plus chat framing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import quicktok
from langchain_core.messages import AIMessage, AnyMessage

ENCODING = "o200k_base"
MESSAGE_TOKENS = 4  # role and separators of one message in OpenAI's chat format
REPLY_TOKENS = 3  # the primed reply
TOOL_TOKENS = 8  # framing of one definition, the published per-tool constant plus its description's

_encoding = quicktok.get_encoding(ENCODING)


@lru_cache(maxsize=200_000)
def text_tokens(text: str) -> int:
    return int(_encoding.count(text.encode("utf-8", "replace").decode("utf-8")))


def payload(message: AnyMessage) -> str:
    """The text of a message that is sent: content, calls and what they answer."""
    content = message.content if isinstance(message.content, str) else json.dumps(message.content, ensure_ascii=False)
    calls = ""
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = json.dumps([[c["name"], c["args"]] for c in message.tool_calls], ensure_ascii=False)
    return content + calls


def message_tokens(message: AnyMessage) -> int:
    return text_tokens(payload(message)) + MESSAGE_TOKENS


@lru_cache(maxsize=4_096)
def _definition_tokens(definition: str) -> int:
    return text_tokens(definition) + TOOL_TOKENS


def tools_tokens(tools: Sequence[dict[str, Any]]) -> int:
    return sum(_definition_tokens(_typescript(tool)) for tool in tools)


def request_tokens(messages: Sequence[AnyMessage], tools: Sequence[dict[str, Any]]) -> int:
    return sum(map(message_tokens, messages)) + tools_tokens(tools) + REPLY_TOKENS


def _typescript(tool: dict[str, Any]) -> str:
    """A definition as models are shown it: a typed signature with comments, not its JSON."""
    function = tool.get("function", tool)
    fields = (function.get("parameters") or {}).get("properties") or {}
    lines = [
        f"// {f.get('description', '')}\n{name}: {f.get('type', f.get('enum', 'any'))}," for name, f in fields.items()
    ]
    return (
        f"// {function.get('description', '')}\ntype {function['name']} = (_: {{\n" + "\n".join(lines) + "\n}) => any;"
    )
