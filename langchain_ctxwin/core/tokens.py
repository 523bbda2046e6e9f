"""`TokenEstimator`: tokens by text features and family; `CharRatioCounter`: the published heuristics."""

from __future__ import annotations

import base64
import binascii
import re
import string
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from operator import mul
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage, HumanMessage, MessageLikeRepresentation, convert_to_messages

from langchain_ctxwin.core.edits import Call, Media, Piece, compact_json, pieces
from langchain_ctxwin.core.token_weights import BOUNDS, COMMON, WEIGHTS
from langchain_ctxwin.core.tool_schemas import FRAMING, GENERIC, Framing, TextPrice, schema_tokens, tool_definition
from langchain_ctxwin.errors import ConfigError, expect

WholePrice = Callable[[str], int]
"""The price of a text, in whole tokens."""


@dataclass(frozen=True, slots=True)
class TokenEstimator:
    """Estimates tokens from the classes of characters in a text, with weights fitted to a family's tokenizer.

    About 5 to 10 % off on average over prose, code, JSON and other languages. Every character counts, in texts of any
    length; what ordinary texts hardly have costs the tokens that its bytes need. A megabyte takes some 20 ms in ASCII,
    and twice as much else.

    Raises:
        ConfigError: the family is unknown, or the margin negative or not finite.

    Examples:
        >>> TokenEstimator("openai").count_text("How many tokens is this?") in range(4, 10)
        True
    """

    family: str = "generic"
    """A tokenizer family: openai, cl100k, anthropic, claude3, gemini, llama, qwen, deepseek or generic."""

    margin: float = 0.0
    """Share that is added to every count."""

    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if expect(self.family, str, "family", "the name of a tokenizer family") not in WEIGHTS:
            raise ConfigError(f"family={self.family!r} is unknown: use one of {', '.join(sorted(WEIGHTS))}")
        _require_margin(self.margin)

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the tokens of a request: messages with their framing, media by kind and size, tools by structure."""
        return ceil(request_tokens(messages, tools, FRAMING[self.family], self._text) * (1 + self.margin))

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text, without any framing."""
        return ceil(self._text(text) * (1 + self.margin))

    def upper(self, tokens: int) -> int:
        """Size that the true count exceeds for one text in twenty."""
        return ceil(tokens * BOUNDS[self.family][0])

    def lower(self, tokens: int) -> int:
        """Size that the true count falls below for one text in twenty."""
        return int(tokens * BOUNDS[self.family][1])

    def _text(self, text: str) -> float:
        return sum(map(mul, WEIGHTS[self.family], features(text)), 0.0)


@dataclass(frozen=True, slots=True)
class CharRatioCounter:
    """Divides characters by a constant: the published heuristics, for comparison and for tests.

    `CharRatioCounter()` is exactly `len(text) // 4`, the rule of thumb for English, within 20 % of the truth on about
    half of real texts; 2.5 characters, and 4.0 with a margin of 0.2, are the two others.

    Raises:
        ConfigError: the ratio is not positive, the margin negative, or one of them not finite.
    """

    chars_per_token: float = 4.0
    margin: float = 0.0

    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (
            expect(self.chars_per_token, int | float, "chars_per_token", "a number of characters") > 0
            and isfinite(self.chars_per_token)
        ):
            raise ConfigError(f"chars_per_token={self.chars_per_token!r}: give a positive number of characters")
        _require_margin(self.margin)

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the tokens of all text in messages and tool definitions, media by kind and size."""
        tokens = sum(self.count_text(compact_json(tool_definition(tool))) for tool in tools or ())
        for message in messages:
            found = [*_pieces_of(message)]
            texts = (piece if isinstance(piece, str) else piece.text for piece in found if not isinstance(piece, Media))
            media = sum(media_tokens(piece, GENERIC, self.count_text) for piece in found if isinstance(piece, Media))
            tokens += CHAR_RATIO_MESSAGE_TOKENS + self.count_text("".join(texts)) + int(media)
        return tokens

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text."""
        return int(len(text) / self.chars_per_token * (1 + self.margin))


CHAR_RATIO_MESSAGE_TOKENS = 3  # role and separators of one message, the constant of LangChain's own counter


def request_tokens(
    messages: Iterable[MessageLikeRepresentation], tools: Any, framing: Framing, price: TextPrice
) -> float:
    """Return the tokens of a request: text at `price`, all else by the constants of a family."""
    tokens = float(framing.request)
    for message in messages:
        shown = 0.0
        for piece in _pieces_of(message):
            if isinstance(piece, str):
                shown += price(piece)
            elif isinstance(piece, Call):
                shown += framing.call + price(piece.plain_text if framing.plain_arguments else piece.text)
            else:
                shown += media_tokens(piece, framing, price)
        tokens += framing.message + shown
    return tokens + schema_tokens(tools, framing, price) if tools else tokens


def _pieces_of(message: MessageLikeRepresentation) -> Iterator[Piece]:
    return pieces(message if isinstance(message, BaseMessage) else convert_to_messages([message])[0])


def text_price(counter: Callable[..., int] | None) -> WholePrice:
    """Return the price of a text in tokens; a counter of messages alone prices it as one user message."""
    count = counter or TokenEstimator()
    count_text: WholePrice | None = getattr(count, "count_text", None)
    if count_text is not None:
        return count_text
    base = count([])
    return lambda text: count([HumanMessage(text)]) - base


def _require_margin(margin: float) -> None:
    if not (margin >= 0 and isfinite(margin)):
        raise ConfigError(f"margin={margin!r}: give a share of at least 0, for example 0.2")


# ---- features of a text ---------------------------------------------------------------------------------------------

_TWO_BYTE = {
    "latin1_symbols": (0xC2, 0xC3), "latin1": (0xC3, 0xC4), "latin_extended": (0xC4, 0xCE), "greek": (0xCE, 0xD0),
    "cyrillic": (0xD0, 0xD2), "cyrillic_extended": (0xD2, 0xD4), "armenian": (0xD4, 0xD7), "hebrew": (0xD7, 0xD8),
    "arabic": (0xD8, 0xE0),
}  # fmt: skip
"""First bytes of UTF-8, the last one excluded."""

_BLOCKS = {
    "cjk": ((0x4E, 0xA0),), "hangul": ((0xAC, 0xD8),), "tamil": ((0x0B, 0x0C),), "ethiopic": ((0x12, 0x14),),
    "khmer": ((0x17, 0x18),), "vietnamese": ((0x1E, 0x1F),), "typography": ((0x20, 0x21),), "box": ((0x25, 0x26),),
    "signs": ((0x21, 0x25), (0x26, 0x30)), "selectors": ((0xFE, 0xFF),), "fullwidth": ((0xFF, 0x100),),
}  # fmt: skip
"""High bytes of UTF-16, the last one excluded; frequent scripts first: what was counted is taken out of the way."""

_SHARED = {
    ("devanagari", "bengali"): (0x09, b"\xe0\xa6", b"\xe0\xa7"),
    ("gurmukhi", "gujarati"): (0x0A, b"\xe0\xaa", b"\xe0\xab"),
    ("telugu", "kannada"): (0x0C, b"\xe0\xb2", b"\xe0\xb3"),
    ("malayalam", "sinhala"): (0x0D, b"\xe0\xb6", b"\xe0\xb7"),
    ("thai", "lao"): (0x0E, b"\xe0\xba", b"\xe0\xbb"),
    ("myanmar", "georgian"): (0x10, b"\xe1\x83"),
    ("kana", "cjk_symbols"): (0x30, b"\xe3\x80"),
    ("rare_astral", "emoji"): (0xD8, b"\xf0\x9f"),
}
"""Two scripts of one block: its high byte, and the UTF-8 prefixes of the second."""

ASCII_FEATURES = (
    "characters", "letters", "letter_runs", "digits", "digit_runs", "symbols", "symbol_runs", "capitals", "camel_humps",
    "coded_digits", "newlines", "indents", "spaced_digits", "spaced_symbols", "symbol_pairs", "consonant_blocks",
    "rare_letters", "escapes", "a_endings", "i_endings", "en_endings", "long_words", "long_symbols",
)  # fmt: skip
SCRIPTS = (*_TWO_BYTE, *_BLOCKS, *(name for pair in _SHARED for name in pair), "other_scripts")
# Names of the counts, in the order of `features`.
FEATURES = (*ASCII_FEATURES, "latin_runs", "foreign_runs", "rare_two_byte", "rare_three_byte", *SCRIPTS)

RARE = re.compile(f"[^\0-\x7f{re.escape(COMMON)}\U00010000-\U0010ffff]+")
"""Characters that ordinary texts hardly have: tokenizers spell them byte by byte, whatever their script."""

LONG_RUNS = {
    **{symbol * 6: 32 for symbol in "=-_*#."}, " " * 64: 8, **{symbol * 6: 8 for symbol in "─═━"}, "\n" * 6: 4,
}  # fmt: skip
"""Beginnings of long runs, and of how many characters behind them one is kept. Tokenizers have tokens for rules and
blank lines: the usual price of a symbol then gives the 64 characters of a token that rules have, the 40 of spaces, and
the 16 of blank and drawn lines. The beginning stays, so that a run never costs less than a shorter one, and code its
indents.
"""

ASCII_RUNS = {start: kept for start, kept in LONG_RUNS.items() if start.isascii()}


def features(text: str) -> list[int]:
    """Return the counts of a text, in the order of `FEATURES`; never fails, a lone surrogate counts as a `?`.

    Text in ASCII has no others than `ASCII_FEATURES`, and the list ends there. None falls when text is appended.

    Examples:
        >>> dict(zip(FEATURES, features("Hello world")))["letter_runs"]
        2
    """
    for start, kept in (ASCII_RUNS if text.isascii() else LONG_RUNS).items():
        if start in text:  # a search for the plain run first: it is cheap
            text = _thinned(text, start, kept)
    raw = text.encode("utf-8", "replace")
    if raw.isascii():
        return _ascii_counts(raw)
    chars = raw.translate(None, _CONTINUATION)
    return _ascii_counts(chars) + _foreign_counts(raw.decode(), chars)


def _thinned(text: str, start: str, kept: int) -> str:
    symbol = start[0]

    def shorter(run: re.Match[str]) -> str:
        return start + symbol * ((len(run[0]) - len(start)) // kept)

    return re.sub(f"{re.escape(start)}{re.escape(symbol)}+", shorter, text)


def _table(*classes: tuple[str, str]) -> bytes:
    """A byte table that maps each named set to one character and everything else to a space."""
    table = bytearray(b" " * 256)
    for characters, mark in classes:
        for character in characters.encode("latin-1"):
            table[character] = ord(mark)
    return bytes(table)


_CONTROL = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_LETTERS = _table((string.ascii_letters, "a"))
_CASES = _table((string.ascii_lowercase, "a"), (string.ascii_uppercase, "A"), (string.digits, "d"))
_DIGITS = _table((string.digits, "d"))
_SYMBOLS = _table((string.punctuation + _CONTROL, "p"))
_SPACING = _table((string.digits, "d"), (string.punctuation + _CONTROL, "p"), (" \t", "s"), ("\n", "n"))
_CONSONANTS = _table(("bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ", "c"))
_ESCAPES = f"\\{_CONTROL}".encode()
_LONG_SYMBOLS = b"p" * 48  # more than code and markup have in a row
_LONG_WORD = b"a" * 32  # unbroken letters of which names in code are rarely made: a guard for texts without spaces


def _ascii_counts(chars: bytes) -> list[int]:
    """Counts of the ASCII part; every other character stands as one byte above 127."""
    letters, digits, symbols = chars.translate(_LETTERS), chars.translate(_DIGITS), chars.translate(_SYMBOLS)
    cases, spacing = chars.translate(_CASES), chars.translate(_SPACING)
    return [
        len(chars),
        letters.count(b"a"),
        letters.count(b" a") + letters.startswith(b"a"),
        digits.count(b"d"),
        digits.count(b" d") + digits.startswith(b"d"),
        symbols.count(b"p"),
        symbols.count(b" p") + symbols.startswith(b"p"),
        cases.count(b"A"),
        cases.count(b"aA"),
        cases.count(b"dA") + cases.count(b"Ad"),
        chars.count(b"\n") - chars.count(b"\n\n") + chars.count(b"\r") - chars.count(b"\r\n"),
        spacing.count(b"ns"),
        spacing.count(b"sd"),
        spacing.count(b"ps"),
        spacing.count(b"pp"),
        chars.translate(_CONSONANTS).count(b"cccc"),
        len(chars) - len(chars.translate(None, b"kzjKZJ")),
        len(chars) - len(chars.translate(None, _ESCAPES)) + chars.count(b"\r\r") + chars.count(b"\r "),
        chars.count(b"a "),
        chars.count(b"i "),
        chars.count(b"en "),
        letters.count(_LONG_WORD),
        symbols.count(_LONG_SYMBOLS),
    ]


def _first_of_range(ranges: Iterable[tuple[int, int]]) -> bytes:
    """A byte table that maps each range to its first byte."""
    table = bytearray(range(256))
    for low, high in ranges:
        table[low:high] = bytes((low,)) * (high - low)
    return bytes(table)


_ASCII = bytes(range(0x80))
_CONTINUATION = bytes(range(0x80, 0xC0))
_LEAD_CODES = _first_of_range(_TWO_BYTE.values())
_NOT_TWO_BYTE = bytes({*range(0xC2), *range(0xE0, 0x100)})
_HIGH_CODES = _first_of_range([(0xD8, 0xDC)])
_NOT_THREE_BYTE = bytes({*range(0x08), *range(0xDC, 0xE0)})
_BLOCK_BYTES = [bytes(byte for span in spans for byte in range(*span)) for spans in _BLOCKS.values()]
_LATIN = bytes(ord("L") if byte in range(0xC2, 0xCE) else ord(" ") for byte in range(256))
_FOREIGN = b" " * 128 + b"x" * 128


def _foreign_counts(text: str, chars: bytes) -> list[int]:
    """The counts behind those of `ASCII_FEATURES`; `chars` has one byte per character."""
    runs = chars.translate(_FOREIGN)
    rare = "".join(RARE.findall(text))
    three_byte = len(rare.encode()) - 2 * len(rare)
    return [
        chars.translate(_LATIN).count(b"LLL"),
        runs.count(b" x") + runs.startswith(b"x"),
        len(rare) - three_byte,
        three_byte,
        *script_counts(RARE.sub("", text) if rare else text),
    ]


def script_counts(text: str) -> list[int]:
    """Return how many characters a text has of each of `SCRIPTS`; none may be a surrogate.

    Examples:
        >>> sum(script_counts("Ελλάδα 1")), script_counts("ά")[SCRIPTS.index("greek")]
        (6, 1)
    """
    raw = text.encode()
    chars = raw.translate(None, _CONTINUATION)
    leads = chars.translate(_LEAD_CODES, _NOT_TWO_BYTE)
    counts = [leads.count(low) for low, _ in _TWO_BYTE.values()]
    blocks = b""
    if len(leads) < len(chars.translate(None, _ASCII)):
        # One byte per character of three or four UTF-8 bytes; the second halves of surrogate pairs are left out.
        blocks = text.encode("utf-16-le")[1::2].translate(_HIGH_CODES, _NOT_THREE_BYTE)
    for unwanted in _BLOCK_BYTES:
        rest = blocks.translate(None, unwanted)
        counts.append(len(blocks) - len(rest))
        blocks = rest
    others = len(blocks)
    for code, *prefixes in _SHARED.values():
        total = blocks.count(code)
        second = sum(map(raw.count, prefixes)) if total else 0
        counts += [total - second, second]
        others -= total
    return [*counts, others]


HEADER_CHARS = 65_536  # of base64 that is decoded unless it is text: enough for the dimensions behind photos' metadata
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
    if kind == "text" and payload.head and data:
        return price(_payload(data, chars=len(data)).head.decode("utf-8", "replace"))
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


def _payload(data: str | bytes, *, chars: int = HEADER_CHARS) -> _Payload:
    """What is known of the data from its first characters; a link to elsewhere tells nothing."""
    if isinstance(data, bytes):
        return _Payload(head=data[:chars], size_bytes=len(data))
    start, stated = 0, ""
    if data.startswith("data:"):
        start = data.find(",", 0, DATA_URL_HEAD_CHARS) + 1
        stated, _, encoding = data[len("data:") : max(start - 1, 0)].rpartition(";")
        if encoding != "base64":
            head = data[start : start + chars].encode("utf-8", "replace")
            return _Payload(head=head, size_bytes=len(data) - start, stated_type=stated or encoding)
    elif "://" in data[:DATA_URL_HEAD_CHARS]:
        return _Payload()
    text = data[start : start + chars].replace("-", "+").replace("_", "/")
    try:
        head = base64.b64decode(f"{text}==")
    except (binascii.Error, ValueError):
        head = b""
    return _Payload(head=head, size_bytes=(len(data) - start) * 3 // 4, stated_type=stated)


# ---- dimensions of an image -----------------------------------------------------------------------------------------

# Markers of the JPEG segments that state the dimensions (ITU T.81, table B.1).
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_size(raw: bytes) -> tuple[int, int]:
    """Return width and height in pixels; (0, 0) when the bytes do not say, or are no PNG or JPEG.

    Examples:
        >>> image_size(bytes.fromhex("89504e47") + bytes(15) + b"@" + bytes(3) + b"0")
        (64, 48)
    """
    try:
        if raw.startswith(b"\x89PNG"):
            width, height = struct.unpack(">II", raw[16:24])
        else:
            width, height = _jpeg_size(raw) if raw.startswith(b"\xff\xd8") else (0, 0)
    except (struct.error, IndexError):
        return 0, 0
    return (width, height) if width and height else (0, 0)


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
