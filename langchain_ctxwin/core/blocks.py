"""What a block of message content is, across the forms of OpenAI, Anthropic, Google, Bedrock and LangChain.

`kind_of` is the one place that says it. LangChain's own `content_blocks` is not used: it gives media random ids, so
that no request would equal the one before it, and hides what another provider made as `non_standard`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_core.messages import AnyMessage, BaseMessage

M = TypeVar("M", bound=BaseMessage)

MEDIA_TYPES = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "media": "file",
    "text-plain": "text file",
}
"""Types of blocks that hold media, with their kind."""

CALL_TYPES = frozenset(
    {
        "tool_use",
        "tool_call",
        "tool_call_chunk",
        "invalid_tool_call",
        "function_call",
        "custom_tool_call",
        "computer_call",
    }
)
"""Types of blocks that state a call for the application; calls that a server answers itself are none of them."""

RESULT_TYPES = {
    "tool_result": "tool_use_id",
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
    "computer_call_output": "call_id",
}
"""Types of blocks that state the result of a call, with the key that names the call."""

RESULT_KEYS = ("content", "output")  # where they keep what the tool returned

REASONING_TYPES = frozenset(
    {"reasoning", "reasoning_content", "thinking", "redacted_thinking"}
)
COMPACTION_TYPE = "compaction"  # a block in which a provider wrote down what was before it; it ignores the rest
TOOL_REFERENCE_TYPE = "tool_reference"  # a block that brings the definition of a deferred tool into the prompt

BLOCK_KINDS: Mapping[str, str] = {
    "text": "text",
    COMPACTION_TYPE: "compaction",
    TOOL_REFERENCE_TYPE: "tool reference",
    **MEDIA_TYPES,
    **dict.fromkeys(CALL_TYPES, "call"),
    **dict.fromkeys(RESULT_TYPES, "result"),
    **dict.fromkeys(REASONING_TYPES, "reasoning"),
}
"""Kind by type. Every other type is a provider's own: kind `other`."""

MEDIA_KINDS = frozenset({"image", "audio", "video", "file"})

MAX_DEPTH = 8  # blocks inside blocks that are followed as such; results hold blocks, and those hold no further results
MAX_PARTS = (
    10_000  # values of one unknown block that are looked at, so that a cyclic one ends
)
UNSENT_KEYS = frozenset(
    {
        "type",
        "id",
        "index",
        "signature",
        "cache_control",
        "extras",
        "annotations",
        "encrypted_content",
    }
)
"""Keys of unknown blocks whose values are no content of the prompt."""

# base64: no word or path is as long
_BLOB = re.compile(r"data:[^,\s]{0,200},|[A-Za-z0-9+/_-]{1024}")


def kind_of(block: Any) -> str:
    """Return the kind of a block: text, call, result, reasoning, a kind of media, compaction, tool reference, or other.

    Examples:
        >>> [
        ...     kind_of(block)
        ...     for block in (
        ...         "Hi",
        ...         {"type": "tool_use"},
        ...         {"type": "input_image"},
        ...         {"type": "web_search"},
        ...     )
        ... ]
        ['text', 'call', 'image', 'other']
    """
    if isinstance(block, str):
        return "text"
    if not isinstance(block, Mapping):
        return "other"
    kind = block.get("type", "text" if "text" in block else "")
    return BLOCK_KINDS.get(kind, "other") if isinstance(kind, str) else "other"


def blocks_of(content: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the blocks of a content that are no plain strings, without LangChain's wrapper of what is not standard."""
    for block in content if isinstance(content, list | tuple) else ():
        if isinstance(block, Mapping):
            inner = block.get("value") if block.get("type") == "non_standard" else None
            yield inner if isinstance(inner, Mapping) else block


def block_text(block: Any) -> str | None:
    """Return the text of a block of text; None for any other block."""
    if isinstance(block, str):
        return block
    text = block.get("text") if kind_of(block) == "text" else None
    return text if isinstance(text, str) else None


def text_of(content: Any) -> str:
    """Return the plain text of message content, blocks joined."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "".join(filter(None, map(block_text, content)))


def spoken(message: BaseMessage) -> str:
    """Return the transcript of a spoken answer, whose content is empty: its integration sends the id of the audio."""
    audio = message.additional_kwargs.get("audio")
    if not isinstance(audio, Mapping) or not (
        audio.get("id") or audio.get("transcript")
    ):
        return ""
    return str(audio.get("transcript") or "[audio]")


def said_in(message: BaseMessage) -> str:
    """Return what a message says, in writing or spoken."""
    return text_of(message.content) or spoken(message)


def without_blocks(content: Any, is_unwanted: Callable[[Any], bool]) -> Any:
    """Return a content without some of its blocks; the same object where there are none, a text where none is left."""
    if not isinstance(content, list):
        return content
    others = [block for block in content if not is_unwanted(block)]
    if len(others) == len(content):
        return content
    return others or ""


def with_fields(message: M, **fields: Any) -> M:
    """Return a message with these fields; the same object where it has them."""
    changes = {
        name: value for name, value in fields.items() if getattr(message, name) != value
    }
    return message.model_copy(update=changes) if changes else message


def media_count(message: AnyMessage) -> int:
    """Return how many content blocks are not text."""
    content = message.content if isinstance(message.content, list) else []
    return sum(block_text(block) is None for block in content)


@dataclass(frozen=True, slots=True)
class Media:
    """One block of media and its kind: image, audio, video, file, text file, encrypted or blob (not known)."""

    kind: str
    block: Mapping[str, Any]


def leaves(value: Any) -> Iterator[str | Media]:
    """Yield the texts inside a value of any shape; long runs of base64 and bytes come out as media.

    At most `MAX_PARTS` values are looked at, so that this ends on cyclic and on heavily shared ones.
    """
    stack = [value]
    for _ in range(MAX_PARTS):
        if not stack:
            return
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += [part for key, part in item.items() if key not in UNSENT_KEYS][
                :MAX_PARTS
            ]
        elif isinstance(item, list | tuple):
            stack += item[:MAX_PARTS]
        elif isinstance(item, bytes | bytearray):
            yield Media("blob", {"data": bytes(item)})
        elif isinstance(item, str) and _BLOB.match(item):
            yield Media("blob", {"data": item})
        elif item is not None:
            yield str(item)


def compact_json(value: Any) -> str:
    """Return JSON without spaces; a string is taken as JSON already, what is no JSON as its text."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        return " ".join(leaf for leaf in leaves(value) if isinstance(leaf, str))
