"""Pictures and files of a request: how many there are, in how many bytes, and which are shown within what an API takes.

They cost few tokens and many bytes, so that a request can be too large long before its window is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, inf
from typing import Any, TypeVar

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.blobs import CHARS, media_in, with_media
from langchain_ctxwin.core.blocks import (
    MAX_DEPTH,
    kind_of,
    with_fields,
)
from langchain_ctxwin.core.overflow import ContextOverflow

K = TypeVar("K")

# Of the bytes that an API takes; the rest is for text, a million tokens of which have four megabytes.
BYTES_SHARE = 0.875
REFUSED_SHARE = 0.75  # of what a refused request had, where the refusal states no limit
DROPPED_SHARE = (
    0.5  # of a limit that is left out at once, so that the prefix changes rarely
)
ALL = 1_000_000  # pictures and files, more than any message has
INLINE_CHARS = 256  # a shorter text in a block is a name, an address or a type; a picture is longer


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """The pictures and files that one request may have; None where nobody knows.

    Examples:
        >>> MediaLimits(max_images=100).smallest(
        ...     MediaLimits(max_bytes=1_000, max_images=20)
        ... )
        MediaLimits(max_bytes=1000, max_images=20)
    """

    max_bytes: int | None = None
    """Bytes of the whole request, as an API takes them."""

    max_images: int | None = None

    def smallest(self, other: MediaLimits) -> MediaLimits:
        """Return the limits of both; of those that both have, the smaller."""
        pairs = ((self.max_bytes, other.max_bytes), (self.max_images, other.max_images))
        most_bytes, most_images = (
            min((n for n in pair if n is not None), default=None) for pair in pairs
        )
        return MediaLimits(max_bytes=most_bytes, max_images=most_images)

    def to_json(self) -> dict[str, int]:
        """Return the JSON form: the limits that are known."""
        limits = {"max_bytes": self.max_bytes, "max_images": self.max_images}
        return {name: most for name, most in limits.items() if most is not None}


NO_LIMITS = MediaLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSize:
    """The pictures and files of a message."""

    num_bytes: int = 0
    """Characters of what is sent inline, such as base64; an address has none."""

    images: int = 0

    @classmethod
    def of(cls, message: AnyMessage) -> MediaSize:
        """Return the media of a message that a person, a tool or an application wrote."""
        blocks = media_in(message)
        return cls(
            num_bytes=sum(map(_inline_chars, blocks)),
            images=sum(kind_of(block) == "image" for block in blocks),
        )

    @classmethod
    def of_all(cls, messages: Iterable[AnyMessage]) -> MediaSize:
        """Return the media of a request."""
        lists = (message for message in messages if isinstance(message.content, list))
        return cls.sum_of(map(cls.of, lists))

    @classmethod
    def sum_of(cls, sizes: Iterable[MediaSize]) -> MediaSize:
        """Return the sizes together."""
        all_sizes = [*sizes]
        return cls(
            num_bytes=sum(size.num_bytes for size in all_sizes),
            images=sum(size.images for size in all_sizes),
        )


def has_media(message: AnyMessage) -> bool:
    """Return whether a message that a person, a tool or an application wrote has pictures or files."""
    return any(media_in(message))


def learned_limits(overflow: ContextOverflow, sent: MediaSize) -> MediaLimits:
    """Return the limits that a refusal of bytes or images teaches: below what was sent; none where nothing was."""
    if overflow.unit == "images" and sent.images:
        return MediaLimits(
            max_images=min(overflow.most or sent.images, max(1, sent.images - 1))
        )
    if overflow.unit == "bytes" and sent.num_bytes:
        refused = int(REFUSED_SHARE * sent.num_bytes / BYTES_SHARE)
        return MediaLimits(max_bytes=min(overflow.most or refused, refused))
    return NO_LIMITS


def left_out(
    visible_media: Mapping[K, MediaSize], spared: MediaSize, limits: MediaLimits
) -> frozenset[K]:
    """Return the keys of the messages whose media are not shown: the oldest, as many as it takes, never the newest.

    They are left out by whole halves of a limit: the same ones until the next half is needed.

    Args:
        visible_media: the media of each message that may be shown without, the oldest first.
        spared: those of messages that are always shown whole, together.
        limits: what a request may have.
    """
    count = 0
    if limits.max_bytes is not None:
        sizes = [size.num_bytes for size in visible_media.values()]
        most_bytes = limits.max_bytes * BYTES_SHARE
        count = _oldest_beyond(sizes, spared.num_bytes, most_bytes)
    if limits.max_images is not None:
        sizes = [size.images for size in visible_media.values()]
        surplus_images = _oldest_beyond(sizes, spared.images, limits.max_images)
        count = max(count, surplus_images)
    return (
        frozenset([*visible_media][: min(count, len(visible_media) - 1)])
        if visible_media
        else frozenset()
    )


def _oldest_beyond(sizes: Sequence[int], spared: int, most: float) -> int:
    """How many of the oldest have to leave, in steps of half a limit, so that the rest is within it."""
    surplus = sum(sizes) + spared - most
    if surplus <= 0:
        return 0
    part = max(1.0, DROPPED_SHARE * most)
    wanted = ceil(surplus / part) * part
    sums = [*accumulate(sizes)]
    return next(
        (number for number, total in enumerate(sums, 1) if total >= wanted), len(sizes)
    )


def surplus(message: AnyMessage, spared: MediaSize, limits: MediaLimits) -> int:
    """Return how many of the first pictures and files of a message have no room beside the spared ones; never all.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> pictures = HumanMessage([{"type": "image"}] * 5)
        >>> surplus(pictures, MediaSize(images=1), MediaLimits(max_images=3))
        3
    """
    blocks = media_in(message)
    images = spared.images + sum(kind_of(block) == "image" for block in blocks)
    num_bytes = spared.num_bytes + sum(map(_inline_chars, blocks))
    most_bytes = BYTES_SHARE * (limits.max_bytes or inf)
    for gone, block in enumerate(blocks[:-1]):
        if images <= (limits.max_images or inf) and num_bytes <= most_bytes:
            return gone
        images -= kind_of(block) == "image"
        num_bytes -= _inline_chars(block)
    return max(0, len(blocks) - 1)


def without_media(message: AnyMessage, key: str, most: int = ALL) -> AnyMessage:
    """Return the message with a line in the place of each of its first pictures and files."""
    remaining = iter(range(most))

    def line(block: Mapping[str, Any]) -> Mapping[str, Any]:
        if next(remaining, None) is None:
            return block
        marker = f"[{kind_of(block)} left out; still in the history as message {key}]"
        return {"type": "text", "text": marker}

    return with_fields(message, content=with_media(message.content, line))


def _inline_chars(value: Any, depth: int = 0) -> int:
    """Characters of the texts in a block that are no names or addresses."""
    if isinstance(value, Mapping) and type(value.get(CHARS)) is int:
        return int(value[CHARS])
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return sum(_inline_chars(part, depth + 1) for part in value.values())
    if isinstance(value, bytes | bytearray):
        return len(value) * 4 // 3
    is_inline = (
        isinstance(value, str)
        and len(value) >= INLINE_CHARS
        and not value.startswith(("http:", "https:"))
    )
    return len(value) if is_inline else 0
