"""What a block of message content is, and what a provider made for itself: who can read it.

`kind_of` is the one place that says what a block is, across the forms of OpenAI, Anthropic, Google, Bedrock and
LangChain. LangChain's own `content_blocks` is not used: it gives media random ids, so that no request would equal the
one before it, and hides what another provider made as `non_standard`.

    answer of provider A  --to A-->  as it is          --to B-->  `readable`: what B can use, as labelled text
    its compaction block  --to A-->  the request begins there: A ignores what is before

Every block that only its maker reads stays as it is for its maker, whatever its type, so that blocks of a future type
are safe. For another provider's request a copy of the message is made, the same one each time.

Pictures and files cost few tokens and many bytes, so that a request can be too large long before its window is full.
Apart from its message a block of them leaves its digest in its place; documents whose text is in their block stay,
because a search reads it, and so do bytes, which are no JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, inf
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from langchain_ctxwin.core.overflow import ContextOverflow

M = TypeVar("M", bound=BaseMessage)
Block = Mapping[str, Any]
Messages = Sequence[AnyMessage]

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
    }
)
"""Types of blocks that state a call for the application; calls that a server answers itself are none of them."""

RESULT_TYPES = {
    "tool_result": "tool_use_id",
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
}
"""Types of blocks that state the result of a call, with the key that names the call."""

RESULT_KEYS = ("content", "output")  # where they keep what the tool returned

REASONING_TYPES = frozenset(
    {"reasoning", "reasoning_content", "thinking", "redacted_thinking"}
)
COMPACTION_TYPE = "compaction"  # a block in which a provider wrote down what was before it; it ignores the rest

BLOCK_KINDS: Mapping[str, str] = {
    "text": "text",
    COMPACTION_TYPE: "compaction",
    **MEDIA_TYPES,
    **dict.fromkeys(CALL_TYPES, "call"),
    **dict.fromkeys(RESULT_TYPES, "result"),
    **dict.fromkeys(REASONING_TYPES, "reasoning"),
}
"""Kind by type. Every other type is a provider's own: kind `other`."""

MEDIA_KINDS = frozenset({"image", "audio", "video", "file"})

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
    """Return the kind of a block: text, call, result, reasoning, a kind of media, compaction, or other.

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
    return BLOCK_KINDS.get(kind, "other")


def blocks_of(content: Any) -> Iterator[Block]:
    """Yield the blocks of a content that are no plain strings, without LangChain's wrapper of what is not standard."""
    for block in content if isinstance(content, list | tuple) else ():
        if inner := inside(block):
            yield inner


def inside(block: Any) -> Block:
    """Return a block without LangChain's wrapper of what is not standard; an empty one for a plain string."""
    if not isinstance(block, Mapping):
        return {}
    inner = block.get("value") if block.get("type") == "non_standard" else None
    return inner if isinstance(inner, Mapping) else block


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
    if not isinstance(audio, Mapping):  # Gemini's is its bytes
        return ""
    text = audio.get("transcript")
    return str(text or "[audio]") if text or audio.get("id") else ""


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
    block: Block


def leaves(value: Any) -> Iterator[str | Media]:
    """Yield the texts inside a value of any shape; long runs of base64 and bytes come out as media."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in UNSENT_KEYS:
                yield from leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, bytes) or (isinstance(value, str) and _BLOB.match(value)):
        yield Media("blob", {"data": value})
    elif value is not None:
        yield str(value)


def compact_json(value: Any) -> str:
    """Return JSON without spaces; a string is taken as JSON already, what is no JSON as text in it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def digest(*texts: str) -> str:
    """Return a fingerprint by which equal texts are known, the same in every process; lone surrogates have one, too."""
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=12).hexdigest()


# Providers by a word in the name that an integration or a catalog gives them; the first that is found counts.
PROVIDERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "gemini",
    "gemini": "gemini",
    "vertex": "gemini",
}
PORTABLE_KINDS = frozenset({"text", "call", "result", "text file", *MEDIA_KINDS})
"""Blocks that every integration sends in its provider's own shape, or leaves to `tool_calls`."""

# their prompt holds the definition of every tool, however it is marked
NEVER_DEFER = frozenset({"gemini", "other"})
# Reasoning that Anthropic signs; newer models tie each block to all that precedes it (Anthropic, preserved thinking).
BOUND_TYPES = frozenset({"thinking", "redacted_thinking"})

# Of an answer's `additional_kwargs`: what no provider signs.
UNSEALED_KEYS = frozenset({"tool_calls", "function_call", "audio"})

BLOCK_ID = "ctxwin-compaction"  # of the message that begins a request with a block
COMPACTED_TEXT = "[Summary that the provider before wrote of what came earlier]"
UNREADABLE_TEXT = (
    "[A summary that only the provider before can read was left out here.]"
)


def provider_named(name: object) -> str:
    """Return the provider that a name belongs to; empty where it says nothing."""
    lowered = str(name or "").lower()
    return next(
        (provider for word, provider in PROVIDERS.items() if word in lowered), ""
    )


def compaction_in(message: BaseMessage) -> Block:
    """Return the newest compaction by a provider that a message brings; empty without one, or for one that failed."""
    if not isinstance(message, AIMessage):
        return {}
    finished = [
        block
        for block in blocks_of(message.content)
        if kind_of(block) == "compaction"
        and (block.get("content") or block.get("encrypted_content"))
    ]
    return finished[-1] if finished else {}


def is_compacted_by(message: BaseMessage, provider: str) -> bool:
    """True when a message brings a compaction by a provider, which ignores what is before; an unknown one may be it."""
    block = compaction_in(message)
    return bool(block) and provider in {"", _maker(message, block)}


def block_message(block: Block, provider: str) -> AIMessage | None:
    """Return the message that begins a request to the provider that made a block on demand; None for any other."""
    message = AIMessage([dict(block)], id=BLOCK_ID)
    return message if _maker(message, block) == provider != "" else None


def readable(message: AnyMessage, provider: str) -> AnyMessage:
    """Return the message as a provider can take it; the same object when it made it, or nothing in it is special.

    Text, media and calls stay. Reasoning is left out, as every integration does. What else has text becomes text with a
    label; what has none is left out. A compaction in another message than an answer is its text, and nothing else.

    Examples:
        >>> answer = AIMessage(
        ...     [{"type": "compaction", "content": "Ann flies on Monday."}]
        ... )
        >>> readable(answer, "gemini").content[0]["text"].splitlines()[1]
        'Ann flies on Monday.'
    """
    if not provider or not isinstance(message.content, list):
        return message
    if not isinstance(message, AIMessage):
        said = [_claimed(block) for block in message.content]
        message = with_fields(message, content=said)
    special = (
        b for b in blocks_of(message.content) if kind_of(b) not in PORTABLE_KINDS
    )
    block = next(special, None)
    if block is None or _maker(message, block) in {"", provider}:
        return message
    return with_fields(message, content=_portable(message.content))


def unsealed(message: AnyMessage) -> AnyMessage:
    """Return an answer as text and calls alone, without anything that its provider signed or encrypted.

    Examples:
        >>> answer = AIMessage(
        ...     [{"type": "reasoning", "encrypted_content": "x"}, "4"],
        ...     additional_kwargs={"reasoning": {"id": "rs_1"}},
        ... )
        >>> unsealed(answer).content, unsealed(answer).additional_kwargs
        (['4'], {})
    """
    if not isinstance(message, AIMessage):
        return message
    kwargs = message.additional_kwargs
    extras = {key: kwargs[key] for key in UNSEALED_KEYS & kwargs.keys()}
    content = _portable(message.content)
    return with_fields(message, content=content, additional_kwargs=extras)


def has_bound_reasoning(message: AnyMessage) -> bool:
    """True when a message brings reasoning that is tied to what preceded it."""
    return without_bound_reasoning(message) is not message


def without_bound_reasoning(message: AnyMessage) -> AnyMessage:
    """Return the message without reasoning that is tied to what preceded it; the same object where there is none.

    Examples:
        >>> answer = AIMessage(
        ...     [
        ...         {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        ...         {"type": "text", "text": "4"},
        ...     ]
        ... )
        >>> without_bound_reasoning(answer).content
        [{'type': 'text', 'text': '4'}]
    """
    if not isinstance(message, AIMessage):
        return message
    content = without_blocks(message.content, lambda block: _is_bound(message, block))
    return with_fields(message, content=content)


def in_prompt(tools: Sequence[Any], provider: str) -> Sequence[Any]:
    """Return what the prompt of a provider holds of these tools before any is loaded: nothing of a deferred one."""
    if provider in NEVER_DEFER:
        return tools
    return [tool for tool in tools if not tool_marks(tool).get("defer_loading")]


def tool_marks(tool: Any) -> Mapping[str, Any]:
    """Return what a definition says beside name, description and parameters, such as a breakpoint of a cache."""
    marks = tool if isinstance(tool, Mapping) else getattr(tool, "extras", None)
    return marks or {}


def _maker(message: BaseMessage, block: Block) -> str:
    """The provider that made a block: as the message states it, of a compaction else by its shape; may be empty."""
    provider = provider_named(message.response_metadata.get("model_provider"))
    if provider or kind_of(block) != "compaction":
        return provider
    return "anthropic" if block.get("content") else "openai"


def _is_bound(message: BaseMessage, block: Any) -> bool:
    """True for Anthropic's reasoning, in its own form or in LangChain's."""
    inner = inside(block)
    if inner.get("type") in BOUND_TYPES:
        return True
    return kind_of(inner) == "reasoning" and _maker(message, inner) == "anthropic"


def _portable(content: Any) -> Any:
    """A content as every provider takes it."""
    if not isinstance(content, list):
        return content
    return [part for block in content if (part := _portable_block(block))] or ""


def _portable_block(block: Any) -> Any:
    """A block as every provider takes it; None where there is nothing to take."""
    inner = inside(block)
    kind = kind_of(inner)
    if not inner:
        return block
    if kind in {"call", "reasoning"}:
        return None
    if kind == "text":
        return text_block(block_text(inner) or "")
    if kind in PORTABLE_KINDS:
        return dict(inner)
    if kind == "compaction":
        text = inner.get("content")
        return text_block(f"{COMPACTED_TEXT}\n{text}" if text else UNREADABLE_TEXT)
    texts = "\n".join(leaf for leaf in leaves(inner) if isinstance(leaf, str))
    label = f"[{inner.get('type', 'block')}]"
    return text_block(f"{label}\n{texts}") if texts.strip() else None


def _claimed(block: Any) -> Any:
    """A block of a message that no provider wrote: of a compaction only the text."""
    inner = inside(block)
    is_compaction = kind_of(inner) == "compaction"
    return text_block(str(inner.get("content") or "")) if is_compaction else block


def text_block(text: str) -> dict[str, str]:
    """Return a block of text."""
    return {"type": "text", "text": text}


# ---- pictures and files ----------------------------------------------------------------------------------------------

DIGEST, CHARS = "ctxwin_digest", "ctxwin_chars"  # of what was in the place of a block
# Of the bytes that an API takes; the rest is for text, a million tokens of which have four megabytes.
BYTES_SHARE = 0.875
REFUSED_SHARE = 0.75  # of what a refused request had, where the refusal states no limit
# of a limit that is left out at once, so that the prefix changes rarely
DROPPED_SHARE = 0.5
ALL = 1_000_000  # pictures and files, more than any message has

K = TypeVar("K")


def media_in(message: AnyMessage) -> list[Block]:
    """Return the pictures and files in a message that a person, a tool or an application wrote."""
    content: Any = message.content
    if isinstance(message, AIMessage) or not isinstance(content, list):
        return []
    return [block for block in content if kind_of(block) in MEDIA_KINDS]


def with_media(message: M, change: Callable[[Block], Block]) -> M:
    """Return such a message with its pictures and files changed; what a model made is sent again as it is."""
    content: Any = message.content
    if isinstance(message, AIMessage) or not isinstance(content, list):
        return message
    changed = [change(b) if kind_of(b) in MEDIA_KINDS else b for b in content]
    return with_fields(message, content=changed)


def without_media(message: AnyMessage, key: str, most: int = ALL) -> AnyMessage:
    """Return the message with a line in the place of each of its first pictures and files."""
    remaining = iter(range(most))

    def line(block: Block) -> Block:
        if next(remaining, None) is None:
            return block
        return text_block(
            f"[{kind_of(block)} left out; still in the history as message {key}]"
        )

    return with_media(message, line)


def apart(message: AnyMessage) -> tuple[AnyMessage, dict[str, str]]:
    """Return the message with references in the place of pictures and files, and these as JSON by their digest.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> picture = {"type": "image", "base64": "QUJD" * 300}
        >>> lean, data = apart(HumanMessage([picture]))
        >>> sorted(lean.content[0]), len(data)
        (['ctxwin_chars', 'ctxwin_digest', 'type'], 1)
        >>> filled(lean, data).content == [picture]
        True
    """
    data = dict[str, str]()

    def reference(block: Block) -> Block:
        if not any(isinstance(leaf, Media) for leaf in leaves(block)):
            return block
        try:
            text = json.dumps(block)
        except TypeError:
            return block
        key = digest(text)
        data[key] = text
        return {"type": block["type"], DIGEST: key, CHARS: _inline_chars(block)}

    return with_media(message, reference), data


def filled(message: AnyMessage, data: Mapping[str, str]) -> AnyMessage:
    """Return the message with the pictures and files that are known in the place of their references."""

    def block_of(block: Block) -> Block:
        text = data.get(digest_of(block))
        return json.loads(text) if text else block

    return with_media(message, block_of)


def digest_of(block: Block) -> str:
    """Return the digest of what a block stands for; empty where it is no reference."""
    return str(block.get(DIGEST) or "")


def digests_in(message: AnyMessage) -> frozenset[str]:
    """Return the digests of what the references of a message stand for."""
    return frozenset(filter(None, map(digest_of, media_in(message))))


class MediaSize(NamedTuple):
    """The size of a picture or file, or of some together."""

    num_bytes: int = 0
    """Characters of what is sent inline, such as base64; an address has none."""

    images: int = 0

    @classmethod
    def of_all(cls, messages: Iterable[AnyMessage]) -> MediaSize:
        """Return the media of a request."""
        sizes = [size for message in messages for size in sizes_of(message)]
        return cls(*map(sum, zip(*sizes, strict=True)))


def sizes_of(message: AnyMessage) -> list[MediaSize]:
    """Return the sizes of the pictures and files in a message."""
    return [
        MediaSize(num_bytes=_inline_chars(block), images=kind_of(block) == "image")
        for block in media_in(message)
    ]


def learned_limits(overflow: ContextOverflow, sent: MediaSize) -> dict[str, int]:
    """Return the limit that a refusal of bytes or images teaches: below what was sent; none where nothing was."""
    if overflow.unit == "images" and sent.images:
        below = max(1, sent.images - 1)
        return {"max_images": min(overflow.most or below, below)}
    if overflow.unit == "bytes" and sent.num_bytes:
        below = int(REFUSED_SHARE * sent.num_bytes / BYTES_SHARE)
        return {"max_bytes": min(overflow.most or below, below)}
    return {}


def hidden(
    media: Sequence[tuple[K, MediaSize]],
    spared: MediaSize,
    limits: Mapping[str, int | None],
) -> dict[K, int]:
    """Return how many of the first pictures and files of each message are not shown: the oldest, never the last one.

    They are left out by whole halves of a limit, the same ones until the next half is needed; of the newest message no
    more than it takes.

    Args:
        media: the pictures and files that may leave, with the key of their message, the oldest first.
        spared: those of messages that are always shown whole, together.
        limits: what a request may have, where that is known: `max_bytes`, `max_images`.

    Examples:
        >>> hidden(
        ...     [("new", MediaSize(images=1))] * 5,
        ...     MediaSize(images=1),
        ...     {"max_images": 3},
        ... )
        {'new': 3}
    """
    if not media:
        return {}
    keys = [key for key, _ in media]
    newest, gone = keys.index(keys[-1]), 0
    most_bytes = BYTES_SHARE * (limits.get("max_bytes") or inf)
    most_images = limits.get("max_images") or inf
    for unit, most in (("num_bytes", most_bytes), ("images", most_images)):
        sums = [*accumulate(getattr(size, unit) for _, size in media)]
        surplus = sums[-1] + getattr(spared, unit) - most
        if surplus > 0:
            part = max(1.0, DROPPED_SHARE * most)
            in_parts = bisect_left(sums, ceil(surplus / part) * part) + 1
            gone = max(gone, bisect_left(sums, surplus) + 1, min(in_parts, newest))
    return dict(Counter(keys[: min(gone, len(keys) - 1)]))


def _inline_chars(block: Block) -> int:
    """Characters of what a block holds as data; an address has none."""
    chars = block.get(CHARS)
    data = (one.block["data"] for one in leaves(block) if isinstance(one, Media))
    return chars if type(chars) is int else sum(map(len, data))
