"""How one message is shown shorter than it is: cleared, or clamped to its head and tail.

Edits never touch the history; they make a copy for the request. Their texts name ids and characters, never token
counts, so that they are the same in every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.view import Clamp, View

TextEdit = Callable[[str], str]


def edit(message: AnyMessage, key: str, view: View) -> AnyMessage:
    """Return the message as `view` shows it; the same object when the view does not edit it."""
    if isinstance(message, ToolMessage) and key in view.cleared:
        return message.model_copy(update={"content": cleared_text(message, key), "artifact": None})
    clamp = view.clamped.get(key)
    return message if clamp is None else clamp_message(message, key, clamp)


def cleared_text(message: AnyMessage, key: str) -> str:
    """Return the stub that stands for a tool result whose content was cleared."""
    media = media_count(message)
    extra = f" and {media} media items" if media else ""
    size = f"{len(text_of(message.content)):,} characters{extra}"
    return f"[Tool result cleared: {size}; still in the history as message {key}.]"


def clamp_message(message: AnyMessage, key: str, clamp: Clamp) -> AnyMessage:
    """Return a copy with long text cut to head and tail; media, ids, signatures and reasoning stay as they are.

    In an AI message the string values inside tool call arguments are cut too, so that they stay valid JSON.
    """

    def shorten(text: str) -> str:
        return clamp_text(text, key, clamp)

    changes: dict[str, Any] = {"content": _clamp_content(message.content, key, clamp)}
    if isinstance(message, AIMessage):
        changes["content"] = _edit_call_blocks(changes["content"], shorten)
        changes["tool_calls"] = [{**call, "args": _edit_strings(call["args"], shorten)} for call in message.tool_calls]
        changes["invalid_tool_calls"] = [
            {**call, "args": _edit_strings(call["args"], shorten)} for call in message.invalid_tool_calls
        ]
        changes["additional_kwargs"] = _without_raw_calls(message.additional_kwargs)
    return message.model_copy(update=changes)


def clamp_text(text: str, key: str, clamp: Clamp) -> str:
    """Return head and tail of a text with a marker between them; the text itself when that would not be shorter."""
    left_out = len(text) - clamp.head_chars - clamp.tail_chars
    marker = f"\n[... {left_out:,} characters left out; in the history as message {key} ...]\n"
    if left_out <= len(marker):
        return text
    return text[: clamp.head_chars] + marker + text[len(text) - clamp.tail_chars :]


def clampable_chars(message: AnyMessage) -> int:
    """Length of the longest piece of text that clamping would cut, in characters."""
    pieces = [len(text_of(message.content))]
    if isinstance(message, AIMessage):
        calls = (*message.tool_calls, *message.invalid_tool_calls)
        pieces.extend(len(text) for call in calls for text in _strings(call["args"]))
    return max(pieces)


def text_of(content: Any) -> str:
    """Return the plain text of message content, blocks joined."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "".join(filter(None, map(_block_text, content)))


def media_count(message: AnyMessage) -> int:
    """Return how many content blocks are not text."""
    if not isinstance(message.content, list):
        return 0
    return sum(1 for block in message.content if _block_text(block) is None)


def _block_text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) and block.get("type", "text") == "text" else None
    return text if isinstance(text, str) else None


def _clamp_content(content: Any, key: str, clamp: Clamp) -> Any:
    if not isinstance(content, list):
        return clamp_text(content, key, clamp) if isinstance(content, str) else content
    whole = text_of(content)
    clamped = clamp_text(whole, key, clamp)
    if clamped is whole:
        return content
    others = [block for block in content if _block_text(block) is None]
    return [{"type": "text", "text": clamped}, *others]


def _edit_call_blocks(content: Any, shorten: TextEdit) -> Any:
    """Cut arguments inside tool-call content blocks (Anthropic `input`, standard `args`) like the calls themselves."""
    if not isinstance(content, list):
        return content
    return [_edit_call_block(block, shorten) if isinstance(block, dict) else block for block in content]


def _edit_call_block(block: dict[str, Any], shorten: TextEdit) -> dict[str, Any]:
    if block.get("type") not in {"tool_use", "tool_call", "function_call"}:
        return block
    edited: dict[str, Any] = {name: _edit_strings(block[name], shorten) for name in ("input", "args") if name in block}
    return {**{name: value for name, value in block.items() if name != "partial_json"}, **edited}


def _without_raw_calls(additional: dict[str, Any]) -> dict[str, Any]:
    """Drop the provider's raw copy of the calls; integrations rebuild it from `tool_calls`."""
    return {key: value for key, value in additional.items() if key not in {"tool_calls", "function_call"}}


def _edit_strings(value: Any, change: TextEdit) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _edit_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_edit_strings(item, change) for item in value]
    return value


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]
