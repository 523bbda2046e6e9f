"""How one message is shown shorter than it is: cleared, or clamped to its head and tail.

Edits never touch the history; they make a copy for the request. Their texts name ids and characters, never token
counts, so that they are the same in every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.media import without_media
from langchain_ctxwin.core.pairing import (
    is_result,
    result_ids,
    standard,
    without_kept_calls,
)
from langchain_ctxwin.core.provider_blocks import (
    RESULT_KEYS,
    block_text,
    kind_of,
    media_count,
    text_of,
)
from langchain_ctxwin.core.view import Clamp, View

TextEdit = Callable[[str], str]


def edit(message: AnyMessage, key: str, view: View) -> AnyMessage:
    """Return the message as `view` shows it; the same object when the view does not edit it."""
    if key in view.without_media:
        message = without_media(message, key, view.without_media[key])
    if key in view.cleared and is_result(message):
        return _cleared(message, key)
    clamp = view.clamped.get(key)
    return message if clamp is None else clamp_message(message, key, clamp)


def clamp_message(message: AnyMessage, key: str, clamp: Clamp) -> AnyMessage:
    """Return a copy with long text cut to head and tail; media, ids, signatures and reasoning stay as they are.

    In an AI message the string values inside tool call arguments are cut too, so that they stay valid JSON.
    """
    return _with_texts(message, lambda text: clamp_text(text, key, clamp))


def clamp_text(text: str, key: str, clamp: Clamp) -> str:
    """Return head and tail of a text with a marker between them; the text itself when that would not be shorter."""
    left_out = len(text) - clamp.head_chars - clamp.tail_chars
    reader = f", which {clamp.tool} reads" if clamp.tool else ""
    marker = f"\n[... {left_out:,} characters left out; in the history as message {key}{reader} ...]\n"
    if left_out <= len(marker):
        return text
    return text[: clamp.head_chars] + marker + text[len(text) - clamp.tail_chars :]


def clampable_chars(message: AnyMessage) -> int:
    """Length of the longest piece of text that clamping would cut, in characters."""
    lengths = [0]

    def measured(text: str) -> str:
        lengths.append(len(text))
        return text

    _with_texts(message, measured)
    return max(lengths)


def result_text(message: AnyMessage) -> str:
    """Return the text of the results that a message states, in whatever form."""
    return "\n".join(
        text_of(part.content)
        for part in standard(message)
        if isinstance(part, ToolMessage)
    )


def _cleared(message: AnyMessage, key: str) -> AnyMessage:
    """The message with a stub in the place of each result, which stays the result of its call."""
    media = media_count(message) if isinstance(message, ToolMessage) else 0
    size = f"{len(result_text(message)):,} characters"
    if media:
        size = f"{size} and {media} media items"
    stub = f"[Tool result cleared: {size}; still in the history as message {key}.]"
    if isinstance(message, ToolMessage):
        return message.model_copy(update={"content": stub, "artifact": None})
    content: Any = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": stub})
    return message.model_copy(
        update={"content": [_with_result(block, lambda _: stub) for block in content]}
    )


def _with_texts(message: AnyMessage, change: TextEdit) -> AnyMessage:
    """A copy of a message with its long texts changed: what it says, the results and the arguments it states."""
    content: Any = _with_text(message.content, change)
    if isinstance(content, list) and result_ids(message):
        content = [
            _with_result(block, lambda result: _with_text(result, change))
            for block in content
        ]
    if not isinstance(message, AIMessage):
        return message.model_copy(update={"content": content})
    if isinstance(content, list):
        content = [
            _with_arguments(block, change) if kind_of(block) == "call" else block
            for block in content
        ]
    return message.model_copy(
        update={
            "content": content,
            "tool_calls": [
                _with_arguments(call, change) for call in message.tool_calls
            ],
            "invalid_tool_calls": [
                _with_arguments(call, change) for call in message.invalid_tool_calls
            ],
            # Integrations rebuild the provider's raw copy of the calls from `tool_calls`.
            "additional_kwargs": without_kept_calls(message),
        }
    )


def _with_text(content: Any, change: TextEdit) -> Any:
    """The content with its blocks of text changed as one text, which stands where the first of them stood."""
    if isinstance(content, str):
        return change(content)
    whole = text_of(content)
    changed = change(whole) if whole else whole
    if changed == whole:
        return content
    blocks = list[Any]()
    for block in content:
        if block_text(block) is None:
            blocks.append(block)
        elif changed:
            blocks.append(
                {**block, "text": changed} if isinstance(block, dict) else changed
            )
            changed = ""
    return blocks


def _with_result(block: Any, change: Callable[[Any], Any]) -> Any:
    """A block that states a result, with its content changed; any other block as it is."""
    if kind_of(block) != "result":
        return block
    return {**block, **{key: change(block[key]) for key in RESULT_KEYS if key in block}}


def _with_arguments(call: Any, change: TextEdit) -> Any:
    """A call, or a block that states one, with the strings inside its arguments changed."""
    changed = {key: value for key, value in call.items() if key != "partial_json"}
    for key in ("input", "args"):
        if key in call:
            changed[key] = _with_strings(call[key], change)
    return changed


def _with_strings(value: Any, change: TextEdit) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _with_strings(item, change) for key, item in value.items()}
    return (
        [_with_strings(item, change) for item in value]
        if isinstance(value, list)
        else value
    )
