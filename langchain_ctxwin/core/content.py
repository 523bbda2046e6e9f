"""What of a message is sent: its texts, its calls and its media, each once, whatever shape the integration uses.

`additional_kwargs` repeat calls for older integrations, and those count when nothing else states them. The reasoning
in them (`reasoning_content`) does not: OpenAI-shaped requests have no place for it, and it is left out of the next one
(langchain-openai sends only calls, audio and names of them). Reasoning inside the content is sent, and counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

MEDIA_TYPES = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "input_audio": "audio", "video": "video", "video_url": "video",
    "file": "file", "input_file": "file", "document": "file", "media": "file", "text-plain": "text",
}  # fmt: skip
"""Content block types that hold media, with their kind."""

CALL_TYPES = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call", "tool_call_chunk"})
"""Blocks that state a call; mostly one that `tool_calls` states too."""

CALL_ARGUMENTS = ("input", "args", "arguments", "partial_json")
"""Where blocks keep the arguments of a call."""

ENCRYPTED_TYPE = "redacted_thinking"
"""A block whose data is reasoning that only the provider can read."""

UNSENT_KEYS = frozenset(
    {"type", "id", "index", "signature", "cache_control", "extras", "annotations", "encrypted_content"}
)
"""Keys of unknown blocks that are no content of the prompt."""

MAX_DEPTH = 8
"""Blocks inside blocks that are followed as such; results hold blocks, and those hold no further results."""

MAX_PARTS = 10_000
"""Values of one unknown block that are looked at, so that a cyclic one ends."""

BLOB_CHARS = 1_024
"""Text of an unknown block that begins with so many base64 characters is data: no word or path is as long."""

_BLOB = re.compile(rf"data:[^,\s]{{0,200}},|[A-Za-z0-9+/_-]{{{BLOB_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Media:
    """One block of media and its kind: image, audio, video, text, file, encrypted or blob (to be found out)."""

    kind: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call or the reference of a result to its call: adds framing beside its text."""

    name: str = ""
    arguments: Any = ""

    @property
    def text(self) -> str:
        """Name and arguments as JSON."""
        return f"{self.name}{compact_json(self.arguments)}"

    @property
    def plain_text(self) -> str:
        """Name and arguments where each is shown as it is, without JSON's escapes; nested values are still JSON."""
        if not isinstance(self.arguments, Mapping):
            return self.text
        return "\n".join([self.name, *(f"{key}\n{compact_json(value)}" for key, value in self.arguments.items())])


Piece = str | Media | Call


def pieces(message: BaseMessage) -> Iterator[Piece]:
    """Yield everything of a message that a provider counts, in no particular order."""
    content = message.content
    if message.name:
        yield message.name
    if isinstance(message, AIMessage):
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        yield from _content(content, tuple(call.get("id") for call in calls))
        for call in calls:
            yield _call(call)
        if not calls and message.additional_kwargs:
            yield from _raw_calls(message.additional_kwargs)
        return
    if isinstance(message, ToolMessage):
        yield Call()
    yield from _content(content, ())


def compact_json(value: Any) -> str:
    """Return JSON without spaces; a string is taken as JSON already, what is no JSON as its text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        return " ".join(leaf for leaf in leaves(value) if isinstance(leaf, str))


def leaves(value: Any) -> Iterator[str | Media]:
    """Yield the texts inside a value of any shape; long runs of base64 and bytes come out as media.

    At most `MAX_PARTS` values are looked at, so that this ends on cyclic and on heavily shared ones.
    """
    stack, left = [value], MAX_PARTS
    while stack and left:
        left -= 1
        item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend([part for key, part in item.items() if key not in UNSENT_KEYS][:left])
        elif isinstance(item, list | tuple):
            stack.extend(item[:left])
        elif isinstance(item, bytes | bytearray) or (isinstance(item, str) and _BLOB.match(item)):
            yield Media("blob", {"data": item if isinstance(item, str) else bytes(item)})
        elif item is not None:
            yield str(item)


def _content(content: Any, sent: tuple[Any, ...], depth: int = 0) -> Iterator[Piece]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for block in content:
            if isinstance(block, Mapping) and depth < MAX_DEPTH:
                yield from _block(block, sent, depth)
            else:
                yield from leaves(block) if not isinstance(block, str) else (block,)


def _block(block: Mapping[str, Any], sent: tuple[Any, ...], depth: int) -> Iterator[Piece]:
    kind, text = block.get("type", "text"), block.get("text")
    if not isinstance(kind, str):
        yield from leaves(block)
    elif kind == "text" and isinstance(text, str):
        yield text
    elif kind in MEDIA_TYPES:
        yield from _media(MEDIA_TYPES[kind], block, depth)
    elif kind == ENCRYPTED_TYPE:
        yield Media("encrypted", block)
    elif kind == "tool_result":
        yield from _content(block.get("content"), (), depth + 1)
    elif kind == "non_standard":
        yield from _content([block.get("value")], sent, depth + 1)
    elif kind not in CALL_TYPES:
        yield from leaves(block)
    elif not _repeats(block, sent):
        yield _call(block)


def _media(kind: str, block: Mapping[str, Any], depth: int) -> Iterator[Piece]:
    """A block of media; a document may hold blocks of its own, and states its title and context as text."""
    for key in ("title", "context"):
        if isinstance(text := block.get(key), str):
            yield text
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "content":
        yield from _content(source.get("content"), (), depth + 1)
    else:
        yield Media(kind, block)


def _repeats(block: Mapping[str, Any], sent: tuple[Any, ...]) -> bool:
    """Say whether `tool_calls` state this call too; a block without an id belongs to them."""
    ids = [name for key in ("id", "call_id") if (name := block.get(key)) is not None]
    return any(name in sent for name in ids) if ids else bool(sent)


def _call(call: Mapping[str, Any]) -> Call:
    arguments = next((found for key in CALL_ARGUMENTS if (found := call.get(key)) is not None), "")
    return Call(str(call.get("name") or ""), arguments)


def _raw_calls(kept: Mapping[str, Any]) -> Iterator[Call]:
    """Calls in the provider's own shape, of integrations that did not parse them."""
    raw = kept.get("tool_calls")
    functions = [call.get("function") for call in raw if isinstance(call, Mapping)] if isinstance(raw, list) else []
    for function in (*functions, kept.get("function_call")):
        if isinstance(function, Mapping):
            yield _call(function)
