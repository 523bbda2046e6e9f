"""Prices of images, audio, video and files in tokens, by kind and size, not by the length of their base64."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_ctxwin.core.edits import Media
from langchain_ctxwin.core.tool_schemas import Framing, TextPrice

HEADER_CHARS = 65_536  # base64 text that is decoded at most: enough for the dimensions behind a photo's metadata
DATA_URL_HEAD_CHARS = 256  # a data URL states its media type and encoding in fewer characters
DEFAULT_SIDE_PIXELS = 1024  # assumed width and height of an image whose size cannot be seen
BYTES_PER_PAGE = 50_000  # assumed size of one PDF page: typical of office documents; scans cost less per byte
# Assumed rates of compressed audio (128 kbit/s) and of the PCM that speech models take (16 bits at 24 kHz).
AUDIO_BYTES_PER_SECOND, PCM_BYTES_PER_SECOND = 16_000, 48_000
# Bytes of a unit, and its tokens. Of video a second at 2 Mbit/s, one frame and the sound (Gemini API, token counting
# guide; few other models take any). Encrypted reasoning is about as long as its text, four characters a token.
TOKENS_BY_SIZE = {"video": (250_000, 263), "encrypted": (4, 1)}
UNKNOWN_BYTES = 500_000  # assumed size of media that is only referenced
MAX_DEPTH = 4  # mappings inside a block that are searched: integrations nest the data once or twice

KINDS = {
    **dict.fromkeys(("png", "jpg", "jpeg", "gif", "webp", "image"), "image"),
    **dict.fromkeys(("wav", "mp3", "pcm16", "flac", "ogg", "opus", "aac", "m4a", "audio"), "audio"),
    **dict.fromkeys(("mp4", "mov", "mkv", "webm", "mpeg", "video"), "video"),
    **dict.fromkeys(("txt", "md", "csv", "html", "json", "xml", "yaml", "javascript", "text"), "text"),
    "pdf": "file",
}
"""Kind by the parts of a media type (`image/png`) or by a bare format (`wav`)."""

# First bytes that give a format away.
MAGIC = ((b"\x89PNG", "image"), (b"GIF8", "image"), (b"\xff\xd8\xff", "image"), (b"%PDF", "file"), (b"ID3", "audio"))


def media_tokens(media: Media, framing: Framing, price: TextPrice) -> float:
    """Return the price of one media block, in tokens; `price` is asked for the text of text files."""
    block = media.block
    if (text := _plain_text(media)) is not None:
        return price(text)
    data = next(_values(block, "data", "base64", "bytes", "url", "image_url", "file_data"), None)
    payload = _Payload() if data is None else _payload(data)
    kind, size_bytes = _kind(media, payload), payload.size_bytes
    if kind == "image":
        if framing.image_low_tokens and "low" in _values(block, "detail"):
            return framing.image_low_tokens
        width, height = image_size(payload.head)
        return framing.image(width or DEFAULT_SIDE_PIXELS, height or DEFAULT_SIDE_PIXELS)
    if kind == "audio":
        stated = f"{payload.stated_type} {[*_values(block, 'mime_type', 'format')]}".lower()
        is_raw = any(name in stated for name in ("wav", "pcm", "l16"))
        rate = PCM_BYTES_PER_SECOND if is_raw else AUDIO_BYTES_PER_SECOND
        if payload.head.startswith(b"RIFF"):
            rate = int.from_bytes(payload.head[28:32], "little") or rate  # a WAV file states it
        return 1 + size_bytes * framing.audio_tokens_per_second // rate
    if kind == "text" and payload.head:
        return price(payload.head.decode("utf-8", "replace")) * max(1.0, size_bytes / len(payload.head))
    unit_bytes, unit_tokens = TOKENS_BY_SIZE.get(kind, (BYTES_PER_PAGE, framing.page_tokens))
    return (1 + size_bytes // unit_bytes) * unit_tokens


def _plain_text(media: Media) -> str | None:
    """The text of a text file that is given as such, not in base64."""
    if media.kind not in {"text", "file"}:
        return None
    source = media.block.get("source")
    names = ("text", "data") if isinstance(source, Mapping) and source.get("type") == "text" else ("text",)
    return next((value for value in _values(media.block, *names) if isinstance(value, str)), None)


def _kind(media: Media, payload: _Payload) -> str:
    """The kind by the stated media type or format, else by the first bytes, else by the block's type."""
    for stated in (payload.stated_type, *_values(media.block, "mime_type", "media_type", "format")):
        group, _, detail = str(stated).lower().partition("/")
        kind = KINDS.get(group) or KINDS.get(detail.partition(";")[0].rpartition("+")[2])
        if kind:
            return kind
    if media.kind not in {"blob", "file"}:
        return media.kind
    if payload.head.startswith(b"RIFF"):
        return "image" if payload.head[8:12] == b"WEBP" else "audio"
    return next((kind for magic, kind in MAGIC if payload.head.startswith(magic)), media.kind)


def _values(block: Mapping[str, Any], *names: str, depth: int = 0) -> Iterator[str | bytes]:
    """Texts and bytes of the named keys, at the top and inside nested mappings (`source`, `image_url`, ...)."""
    for key, value in block.items():
        if isinstance(value, str | bytes) and key in names:
            yield value
        elif isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _values(value, *names, depth=depth + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Payload:
    """The first bytes of the data, and the size of all of it."""

    head: bytes = b""
    size_bytes: int = UNKNOWN_BYTES
    stated_type: str = ""


def _payload(data: str | bytes) -> _Payload:
    """What is known of the data without decoding all of it; a link to elsewhere tells nothing."""
    if isinstance(data, bytes):
        return _Payload(head=data[:HEADER_CHARS], size_bytes=len(data))
    start, stated = 0, ""
    if data.startswith("data:"):
        start = data.find(",", 0, DATA_URL_HEAD_CHARS) + 1
        stated, _, encoding = data[len("data:") : max(start - 1, 0)].rpartition(";")
        if encoding != "base64":
            head = data[start : start + HEADER_CHARS].encode("utf-8", "replace")
            return _Payload(head=head, size_bytes=len(data) - start, stated_type=stated or encoding)
    elif "://" in data[:DATA_URL_HEAD_CHARS]:
        return _Payload()
    text = data[start : start + HEADER_CHARS].replace("-", "+").replace("_", "/")
    try:
        head = base64.b64decode(f"{text}==")
    except (binascii.Error, ValueError):
        head = b""
    return _Payload(head=head, size_bytes=(len(data) - start) * 3 // 4, stated_type=stated)


# ---- dimensions of an image -----------------------------------------------------------------------------------------

# Markers of the JPEG segments that state the dimensions (ITU T.81, table B.1).
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
WEBP_BITS = 0x3FFF  # WebP without extensions keeps each dimension in 14 bits (RFC 9649)


def image_size(raw: bytes) -> tuple[int, int]:
    """Return width and height in pixels; (0, 0) when the bytes do not say, or are no PNG, GIF, WebP or JPEG.

    Examples:
        >>> image_size(b"GIF89a" + bytes((64, 0, 48, 0)))
        (64, 48)
    """
    try:
        if raw.startswith(b"\x89PNG"):
            width, height = struct.unpack(">II", raw[16:24])
        elif raw.startswith(b"GIF8"):
            width, height = struct.unpack("<HH", raw[6:10])
        elif raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
            width, height = _webp_size(raw)
        else:
            width, height = _jpeg_size(raw) if raw.startswith(b"\xff\xd8") else (0, 0)
    except (struct.error, IndexError):
        return 0, 0
    return (width, height) if width and height else (0, 0)


def _webp_size(raw: bytes) -> tuple[int, int]:
    kind = raw[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if kind == b"VP8L":
        (packed,) = struct.unpack("<I", raw[21:25])
        return 1 + (packed & WEBP_BITS), 1 + (packed >> 14 & WEBP_BITS)
    width, height = struct.unpack("<HH", raw[26:30])
    return width & WEBP_BITS, height & WEBP_BITS


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    """Walk the segments of a JPEG to its frame header."""
    position = 2
    while position + 9 < len(raw) and raw[position : position + 1] == b"\xff":
        marker, length = raw[position + 1], struct.unpack(">H", raw[position + 2 : position + 4])[0]
        if marker in JPEG_FRAMES:
            height, width = struct.unpack(">HH", raw[position + 5 : position + 9])
            return width, height
        position += 2 + length
    return 0, 0
