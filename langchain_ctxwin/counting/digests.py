"""Is this the same request as before? A digest of everything in it that a provider counts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.core.tokens import tool_definition

DIGEST_BYTES = 16
"""128 bits: two requests do not meet by chance."""


def request_digest(messages: Sequence[AnyMessage], tools: Sequence[Any]) -> str:
    """Return a short text that differs whenever content, calls, results or tools differ.

    The ids of messages and what a response said about itself do not count: they are not sent.
    """
    parts = [*map(_message_parts, messages), list(map(tool_definition, tools))]
    seen = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        seen.update(f"{compact_json(part)}\n".encode("utf-8", "surrogatepass"))
    return seen.hexdigest()


def _message_parts(message: BaseMessage) -> list[Any]:
    # Signatures of calls and calls in a provider's own form are kept in `additional_kwargs`.
    parts: list[Any] = [message.type, message.content, message.name, message.additional_kwargs]
    if isinstance(message, AIMessage):
        parts += [message.tool_calls, message.invalid_tool_calls]
    if isinstance(message, ToolMessage):
        parts += [message.tool_call_id, message.status]
    return parts
