"""Pictures and files of a request: how many there are, in how many bytes, and which are shown within what an API takes.

They cost few tokens and many bytes, so that a request can be too large long before its window is full. Apart from its
message a block leaves its digest in its place; documents whose text is in their block stay, because a search reads it,
and so do bytes, which are no JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, inf
from operator import is_
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.provider_blocks import (
    MEDIA_KINDS,
    RESULT_KEYS,
    Media,
    kind_of,
    leaves,
    with_fields,
)

DIGEST, CHARS = "ctxwin_digest", "ctxwin_chars"  # of what was in the place of a block

Block = Mapping[str, Any]


def media_in(message: AnyMessage) -> list[Block]:
    """Return the blocks of media in the content of a message, and in the results that it states."""
    blocks = list[Block]()

    def noted(block: Block) -> Block:
        blocks.append(block)
        return block

    if not isinstance(message, AIMessage):
        with_media(message.content, noted)
    return blocks


def with_media(content: Any, change: Callable[[Block], Block]) -> Any:
    """Return a content with its blocks of media changed, those inside results included; the same one where none is."""
    if not isinstance(content, list):
        return content
    blocks = [_with_block(block, change) for block in content]
    return content if all(map(is_, blocks, content)) else blocks


def _with_block(block: Any, change: Callable[[Block], Block]) -> Any:
    kind = kind_of(block)
    if kind in MEDIA_KINDS:
        return change(block)
    if kind == "result":
        inner = {k: with_media(block[k], change) for k in RESULT_KEYS if k in block}
        is_same = all(value is block[key] for key, value in inner.items())
        return block if is_same else {**block, **inner}
    if isinstance(block, Mapping) and block.get("type") == "non_standard":
        value = _with_block(block.get("value"), change)
        is_media = kind_of(value) in MEDIA_KINDS
        is_same = value is block.get("value")
        return block if is_same else {**block, "value": value} if is_media else value
    return block


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
        except (TypeError, ValueError):
            return block
        digest = hashlib.sha256(text.encode()).hexdigest()
        data[digest] = text
        return {"type": block["type"], DIGEST: digest, CHARS: _inline_chars(block)}

    return _changed(message, reference), data


def filled(message: AnyMessage, data: Mapping[str, str]) -> AnyMessage:
    """Return the message with the pictures and files that are known in the place of their references."""

    def block_of(block: Block) -> Block:
        text = data.get(digest_of(block))
        return json.loads(text) if text else block

    return _changed(message, block_of)


def digest_of(block: Block) -> str:
    """Return the digest of what a block stands for; empty where it is no reference."""
    digest = block.get(DIGEST)
    return digest if isinstance(digest, str) else ""


def digests_in(message: AnyMessage) -> frozenset[str]:
    """Return the digests of what the references of a message stand for."""
    return frozenset(filter(None, map(digest_of, media_in(message))))


def _changed(message: AnyMessage, change: Callable[[Block], Block]) -> AnyMessage:
    """The message with its media changed; what a model made is sent again as it is."""
    if isinstance(message, AIMessage):
        return message
    return with_fields(message, content=with_media(message.content, change))


K = TypeVar("K")

# Of the bytes that an API takes; the rest is for text, a million tokens of which have four megabytes.
BYTES_SHARE = 0.875
REFUSED_SHARE = 0.75  # of what a refused request had, where the refusal states no limit
DROPPED_SHARE = (
    0.5  # of a limit that is left out at once, so that the prefix changes rarely
)
ALL = 1_000_000  # pictures and files, more than any message has
INLINE_CHARS = 256  # a shorter text in a block is a name, an address or a type; a picture is longer


class MediaSize(NamedTuple):
    """The pictures and files of a message."""

    num_bytes: int = 0
    """Characters of what is sent inline, such as base64; an address has none."""

    images: int = 0

    @classmethod
    def of_all(cls, messages: Iterable[AnyMessage]) -> MediaSize:
        """Return the media of a request."""
        return cls.sum_of(size for message in messages for size in sizes_of(message))

    @classmethod
    def sum_of(cls, sizes: Iterable[MediaSize]) -> MediaSize:
        """Return the sizes together."""
        return cls(*map(sum, zip(*sizes, strict=True)))


def has_media(message: AnyMessage) -> bool:
    """Return whether a message that a person, a tool or an application wrote has pictures or files."""
    return any(media_in(message))


def sizes_of(message: AnyMessage) -> list[MediaSize]:
    """Return the sizes of the pictures and files in a message that a person, a tool or an application wrote."""
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
    visible_media: Mapping[K, Sequence[MediaSize]],
    spared: MediaSize,
    limits: Mapping[str, int],
) -> dict[K, int]:
    """Return how many of the first pictures and files of each message are not shown: the oldest, never the last one.

    They are left out by whole halves of a limit, the same ones until the next half is needed; of the newest message no
    more than it takes.

    Args:
        visible_media: the pictures and files of each message that may be shown without, the oldest first.
        spared: those of messages that are always shown whole, together.
        limits: what a request may have: `max_bytes`, `max_images`.

    Examples:
        >>> pictures = [MediaSize(images=1)] * 5
        >>> hidden({"new": pictures}, MediaSize(images=1), {"max_images": 3})
        {'new': 3}
    """
    sizes = [size for media in visible_media.values() for size in media]
    if not sizes:
        return {}
    most_bytes = BYTES_SHARE * limits.get("max_bytes", inf)
    most = (most_bytes, limits.get("max_images", inf))
    units = [*zip(zip(*sizes, strict=True), spared, most, strict=True)]

    def beyond(share: float) -> int:
        return max(_oldest_beyond(*unit, share) for unit in units)

    older = len(sizes) - len([*visible_media.values()][-1])
    gone = min(max(beyond(0), min(beyond(DROPPED_SHARE), older)), len(sizes) - 1)
    counts = dict[K, int]()
    for key, media in visible_media.items():
        counts[key] = min(gone, len(media))
        gone -= counts[key]
    return counts


def _oldest_beyond(sizes: Sequence[int], spared: int, most: float, share: float) -> int:
    """How many of the oldest have to leave, in steps of a share of the limit, so that the rest is within it."""
    surplus = sum(sizes) + spared - most
    if surplus <= 0:
        return 0
    part = max(1.0, share * most)
    wanted = ceil(surplus / part) * part
    sums = enumerate(accumulate(sizes), 1)
    return next((number for number, total in sums if total >= wanted), len(sizes))


def without_media(message: AnyMessage, key: str, most: int = ALL) -> AnyMessage:
    """Return the message with a line in the place of each of its first pictures and files."""
    remaining = iter(range(most))

    def line(block: Mapping[str, Any]) -> Mapping[str, Any]:
        if next(remaining, None) is None:
            return block
        marker = f"[{kind_of(block)} left out; still in the history as message {key}]"
        return {"type": "text", "text": marker}

    return with_fields(message, content=with_media(message.content, line))


def _inline_chars(block: Block) -> int:
    """Characters of the texts in a block that are no names or addresses."""
    if type(block.get(CHARS)) is int:
        return int(block[CHARS])
    texts = [
        leaf if isinstance(leaf, str) else leaf.block["data"] for leaf in leaves(block)
    ]
    return sum(
        len(text)
        for text in texts
        if len(text) >= INLINE_CHARS and not str(text[:8]).startswith("http")
    )
