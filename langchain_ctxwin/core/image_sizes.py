"""How large is an image? Width and height, read from the first bytes of the common formats."""

from __future__ import annotations

import struct

JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the JPEG segments that state the dimensions (ITU T.81, table B.1)."""

WEBP_BITS = 0x3FFF
"""WebP without extensions keeps each dimension in 14 bits (RFC 9649)."""


def image_size(raw: bytes) -> tuple[int, int]:
    """Return width and height in pixels; (0, 0) when the bytes do not say, or are no PNG, GIF, WebP or JPEG.

    Example:
        >>> image_size(b"GIF89a" + bytes((64, 0, 48, 0)))
        (64, 48)
    """
    try:
        return _parsed(raw)
    except (struct.error, IndexError):
        return 0, 0


def _parsed(raw: bytes) -> tuple[int, int]:
    if raw.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", raw[16:24])
        return width, height
    if raw.startswith(b"GIF8"):
        width, height = struct.unpack("<HH", raw[6:10])
        return width, height
    if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        return _webp(raw)
    return _jpeg(raw) if raw.startswith(b"\xff\xd8") else (0, 0)


def _webp(raw: bytes) -> tuple[int, int]:
    kind = raw[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if kind == b"VP8L":
        (packed,) = struct.unpack("<I", raw[21:25])
        return 1 + (packed & WEBP_BITS), 1 + (packed >> 14 & WEBP_BITS)
    width, height = struct.unpack("<HH", raw[26:30])
    return width & WEBP_BITS, height & WEBP_BITS


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
