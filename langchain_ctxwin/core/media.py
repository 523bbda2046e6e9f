"""What does a block of media cost? A price by kind and size, never by the length of its base64 text."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxwin.core.content import Media
from langchain_ctxwin.core.framing import Framing

HEADER_CHARS = 65_536
"""Base64 text that is decoded at most: enough for the dimensions behind a photo's metadata."""

DEFAULT_PIXELS = 1024 * 1024
"""Assumed area of an image whose size cannot be seen."""

BYTES_PER_PAGE = 50_000
"""Assumed size of one PDF page: typical of office documents; scans have larger pages and cost less per byte."""

AUDIO_BYTES_PER_SECOND = 16_000
"""Assumed rate of audio: 128 kbit/s, a common setting of compressed speech and music."""

VIDEO_BYTES_PER_SECOND = 250_000
"""Assumed rate of video: 2 Mbit/s."""

VIDEO_FRAMES_PER_SECOND = 1
"""Frames that models look at per second of video (Gemini API, video understanding)."""

JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the JPEG segments that state the dimensions (ITU T.81, table B.1)."""

UNKNOWN_BYTES = 500_000
"""Assumed size of media that is only referenced."""

TEXT_CHARS_PER_TOKEN = 4
"""Plain-text files are priced by length: they are not decoded."""


def media_tokens(media: Media, framing: Framing) -> int:
    """Return the price of one media block, in tokens."""
    data = "".join(text for text in (_inline(media.block),) if text)
    size = len(data) * 3 // 4 if data else UNKNOWN_BYTES
    kind = _kind(media)
    if kind == "image":
        return _image_tokens(data, framing)
    if kind == "audio":
        return 1 + size * framing.audio_tokens_per_second // AUDIO_BYTES_PER_SECOND
    if kind == "video":
        frames = 1 + size * VIDEO_FRAMES_PER_SECOND // VIDEO_BYTES_PER_SECOND
        return frames * (framing.audio_tokens_per_second + int(DEFAULT_PIXELS / framing.image_pixels_per_token / 4))
    if kind == "text":
        return 1 + size // TEXT_CHARS_PER_TOKEN
    return (1 + size // BYTES_PER_PAGE) * framing.page_tokens


def _kind(media: Media) -> str:
    """The kind by the stated media type, else by the block's type."""
    stated = next((value for value in _strings(media.block, "mime_type", "media_type", "format") if "/" in value), "")
    group = stated.partition("/")[0]
    return group if group in {"image", "audio", "video", "text"} else media.kind


def _image_tokens(data: str, framing: Framing) -> int:
    width, height = _dimensions(data)
    pixels = width * height or DEFAULT_PIXELS
    return max(1, min(framing.image_limit_tokens, int(pixels / framing.image_pixels_per_token)))


def _inline(block: Mapping[str, Any]) -> str:
    """The base64 text of a block, wherever its integration puts it."""
    for text in _strings(block, "data", "base64", "url", "image_url", "file_data"):
        if text.startswith("data:"):
            return text.partition(",")[2]
        if not text.startswith(("http:", "https:", "gs:", "file:")):
            return text
    return ""


def _strings(block: Mapping[str, Any], *names: str) -> Iterator[str]:
    """String values of the named keys, at the top and inside nested mappings (`source`, `image_url`, `file`, ...)."""
    for key, value in block.items():
        if isinstance(value, str) and key in names:
            yield value
        elif isinstance(value, Mapping):
            yield from _strings(value, *names)


def _dimensions(data: str) -> tuple[int, int]:
    """Width and height of an image from its first bytes; (0, 0) when they do not say."""
    head = data[: HEADER_CHARS - HEADER_CHARS % 4]
    try:
        raw = base64.b64decode(head + "=" * (-len(head) % 4))
    except (binascii.Error, ValueError):
        return 0, 0
    try:
        return _parse(raw)
    except (struct.error, IndexError):
        return 0, 0


def _parse(raw: bytes) -> tuple[int, int]:
    if raw.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", raw[16:24])
        return width, height
    if raw.startswith(b"GIF8"):
        width, height = struct.unpack("<HH", raw[6:10])
        return width, height
    if raw.startswith(b"RIFF") and raw[8:16] == b"WEBPVP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    return _jpeg(raw) if raw.startswith(b"\xff\xd8") else (0, 0)


def _jpeg(raw: bytes) -> tuple[int, int]:
    """Walk the segments of a JPEG to its frame header."""
    position = 2
    while position + 9 < len(raw) and raw[position : position + 1] == b"\xff":
        marker, length = raw[position + 1], struct.unpack(">H", raw[position + 2 : position + 4])[0]
        if marker in JPEG_FRAMES:
            height, width = struct.unpack(">HH", raw[position + 5 : position + 9])
            return width, height
        position += 2 + length
    return 0, 0
