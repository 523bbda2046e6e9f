"""How do messages read as plain text, for a summarizer and for a person?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

USER = "User"
ASSISTANT = "Assistant"
CALL = "Assistant called"
TOOL_RESULT = "Tool result"
TOOL_ERROR = "Tool error"
NOTE = "Note"
SPEAKERS = (USER, CALL, ASSISTANT, TOOL_RESULT, TOOL_ERROR, NOTE)
"""Every label a line of a transcript can start with; tool labels are followed by the tool's name in parentheses."""

_LEFT_OUT = frozenset({"reasoning", "reasoning_content", "thinking", "redacted_thinking"})
_SHOWN_AS_CALLS = frozenset({"tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta"})
_UNSAFE_IN_LABEL = re.compile(r"[()\s]+")  # a label has to be recognized when a summary is read again
_MEDIA_KINDS = ("image", "audio", "video", "file", "document")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message as text: who speaks, what is said, which tools are called."""

    speaker: str
    """One of `SPEAKERS`."""
    tool: str
    """Name of the tool whose result this is, else empty."""
    text: str
    calls: tuple[str, ...] = ()
    """Tool calls as `name(arguments)`; their ids are not shown."""

    @property
    def label(self) -> str:
        """The speaker, with the tool's name where there is one."""
        return f"{self.speaker} ({self.tool})" if self.tool else self.speaker

    @property
    def rendered(self) -> str:
        """The whole entry: text first, then one line per tool call; empty when nothing can be shown."""
        said = [f"{self.label}: {self.text}"] if self.text else []
        return "\n".join([*said, *(f"{CALL}: {call}" for call in self.calls)])


def entries(messages: Sequence[BaseMessage]) -> tuple[Entry, ...]:
    """Return one entry per message, in order.

    Reasoning is left out, media become markers such as `[image]`, and a tool result is labelled with the name of the
    call it answers (the latest call before it where an id was reused).

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> entries([HumanMessage("Hello.")])[0].rendered
        'User: Hello.'
    """
    tool_names: dict[str | None, str] = {}
    shown = []
    for message in messages:
        if isinstance(message, AIMessage):
            tool_names.update((call["id"], call["name"]) for call in message.tool_calls)
        shown.append(_entry(message, tool_names))
    return tuple(shown)


def _entry(message: BaseMessage, tool_names: Mapping[str | None, str]) -> Entry:
    text = _text(message.content)
    if isinstance(message, ToolMessage):
        name = message.name or tool_names.get(message.tool_call_id, "")
        speaker = TOOL_ERROR if message.status == "error" else TOOL_RESULT
        return Entry(speaker=speaker, tool=_UNSAFE_IN_LABEL.sub("_", name), text=text)
    if isinstance(message, AIMessage):
        return Entry(speaker=ASSISTANT, tool="", text=text, calls=tuple(_calls(message)))
    return Entry(speaker=USER if message.type == "human" else NOTE, tool="", text=text)


def _calls(message: AIMessage) -> Iterable[str]:
    for call in message.tool_calls:
        yield f"{call['name']}({json.dumps(call['args'], ensure_ascii=False, default=str)})"
    for broken in message.invalid_tool_calls:
        yield f"{broken.get('name') or 'unknown'}({broken.get('args') or ''})"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, list):
        return ""
    return "\n".join(part for part in map(_block_text, content) if part).strip()


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return ""
    kind = str(block.get("type") or "")
    if kind in _LEFT_OUT or kind in _SHOWN_AS_CALLS:
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else f"[{_media_kind(kind, block)}]"


def _media_kind(kind: str, block: Mapping[str, Any]) -> str:
    stated, otherwise = (str(block.get("mime_type")), "file") if kind == "media" else (kind, kind or "content")
    return next((known for known in _MEDIA_KINDS if known in stated), otherwise)
