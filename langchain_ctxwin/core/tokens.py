"""`TokenEstimator`, `CharRatioCounter`: the tokens of texts, media and messages; and a message as a reader sees it."""

from __future__ import annotations

import base64
import binascii
import re
import string
import struct
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from operator import mul
from typing import Any, ClassVar

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
    convert_to_messages,
)

from langchain_ctxwin.core.pairing import calls_of
from langchain_ctxwin.core.provider_blocks import (
    MAX_DEPTH,
    MEDIA_TYPES,
    RESULT_KEYS,
    Media,
    compact_json,
    kind_of,
    leaves,
    spoken,
)
from langchain_ctxwin.core.token_weights import (
    BOUNDS,
    COMMON,
    FEATURES,
    STARTS,
    WEIGHTS,
)
from langchain_ctxwin.core.tool_schemas import (
    FRAMING,
    Framing,
    TextPrice,
    schema_tokens,
)
from langchain_ctxwin.errors import ConfigError, expect

WholePrice = Callable[[str], int]
"""The price of a text, in whole tokens."""


@dataclass(frozen=True, slots=True)
class TokenEstimator:
    """Estimates tokens from the classes of characters in a text, with weights fitted to a family's tokenizer.

    About 5 to 10 % off on average over prose, code, JSON and other languages. Every character counts, in texts of any
    length; what ordinary texts hardly have costs the tokens that its bytes need. A megabyte takes some 35 ms in ASCII,
    and three times as much else.

    Raises:
        ConfigError: the family is unknown.

    Examples:
        >>> TokenEstimator("openai").count_text("How many tokens is this?") in range(
        ...     4, 10
        ... )
        True
    """

    family: str = "generic"
    """A tokenizer family: openai, cl100k, anthropic, claude3, gemini, llama, qwen, deepseek or generic."""

    margin: float = 0.0
    """Share that is added to every count."""

    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        expect(self.margin, int | float, "margin", "a share, for example 0.2")
        if (
            expect(self.family, str, "family", "the name of a tokenizer family")
            not in WEIGHTS
        ):
            raise ConfigError(
                f"family={self.family!r} is unknown: use one of {', '.join(sorted(WEIGHTS))}"
            )

    def __call__(
        self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None
    ) -> int:
        """Return the tokens of a request: messages with their framing, media by kind and size, tools by structure."""
        return ceil(
            request_tokens(messages, tools, FRAMING[self.family], self._text)
            * (1 + self.margin)
        )

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
        # calls without arguments, answers that only call
        return sum(map(mul, WEIGHTS[self.family], features(text)), 0.0) if text else 0.0


@dataclass(frozen=True, slots=True)
class CharRatioCounter:
    """Divides characters by a constant: the published heuristics, for comparison and for tests.

    `CharRatioCounter()` is exactly `len(text) // 4`, the rule of thumb for English, within 20 % of the truth on about
    half of real texts; 2.5 characters, and 4.0 with a margin of 0.2, are the two others.
    """

    chars_per_token: float = 4.0
    margin: float = 0.0

    exact: ClassVar[bool] = False

    def __call__(
        self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None
    ) -> int:
        """Return the tokens of all text in messages and tool definitions, media by kind and size."""
        return int(request_tokens(messages, tools, CHAR_RATIO_FRAMING, self.count_text))

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text."""
        return int(len(text) / self.chars_per_token * (1 + self.margin))


# Role and separators of one message, the constant of LangChain's own counter, and nothing else beside the text.
CHAR_RATIO_FRAMING = replace(
    FRAMING["generic"], request=0, message=3, call=0, any_tools=0, tool=0
)


def request_tokens(
    messages: Iterable[MessageLikeRepresentation],
    tools: Any,
    framing: Framing,
    price: TextPrice,
) -> float:
    """Return the tokens of a request: text at `price`, all else by the constants of a family."""
    tokens = float(framing.request)
    for message in messages:
        message_tokens = 0.0
        for piece in pieces(message):
            if isinstance(piece, str):
                message_tokens += price(piece)
            elif isinstance(piece, Call):
                text = piece.text(is_plain=framing.plain_arguments)
                message_tokens += framing.call + price(text)
            else:
                message_tokens += media_tokens(piece, framing, price)
        tokens += framing.message + message_tokens
    return tokens + schema_tokens(tools, framing, price) if tools else tokens


def text_price(counter: Callable[..., int] | None) -> WholePrice:
    """Return the price of a text in tokens; a counter of messages alone prices it as one user message."""
    count = counter or TokenEstimator()
    count_text: WholePrice | None = getattr(count, "count_text", None)
    if count_text is not None:
        return count_text
    base = count([])
    return lambda text: count([HumanMessage(text)]) - base


# ---- what a provider counts of a message -----------------------------------------------------------------------------

REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where in `additional_kwargs` integrations keep reasoning that they send again, such as those of Ollama."""

KEEPS_REASONING_IN_CONTENT = ("openai", "anthropic", "google", "gemini", "vertex")
"""Words in the names of providers whose integrations do not send it from there."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call or the reference of a result to its call: adds framing beside its text."""

    name: str = ""
    arguments: Any = ""

    def text(self, *, is_plain: bool) -> str:
        """Return name and arguments as JSON, or each where it is shown as it is; nested values are still JSON."""
        if not (is_plain and isinstance(self.arguments, Mapping)):
            return f"{self.name}{compact_json(self.arguments)}"
        values = (f"{key}\n{compact_json(one)}" for key, one in self.arguments.items())
        return "\n".join([self.name, *values])


Piece = str | Media | Call


def pieces(raw_message: MessageLikeRepresentation) -> Iterator[Piece]:
    """Yield everything of a message that a provider counts, in no particular order."""
    message = (
        raw_message
        if isinstance(raw_message, BaseMessage)
        else convert_to_messages([raw_message])[0]
    )
    if message.name:
        yield message.name
    if isinstance(message, ToolMessage):
        yield Call()
    yield from _said(message)
    if isinstance(message, AIMessage) and message.additional_kwargs:
        yield from _thought(message)


def _said(message: BaseMessage, *left_out: str) -> Iterator[Piece]:
    """What is in a message without its name, its calls included; without blocks of some kinds."""
    if not isinstance(message, AIMessage):
        yield from _pieces_in(message.content, left_out)
        return
    yield from _pieces_in(message.content, ("call", *left_out))
    for call in calls_of(message):
        yield Call(call["name"] or "", call["args"])
    if text := spoken(message):
        yield text


def _thought(message: AIMessage) -> Iterator[Piece]:
    """The reasoning in `additional_kwargs` that integrations send, each text once."""
    maker = str(message.response_metadata.get("model_provider") or "")
    if any(word in maker for word in KEEPS_REASONING_IN_CONTENT):
        return
    reasoning = [
        leaf
        for key in REASONING_KEYS
        for leaf in leaves(message.additional_kwargs.get(key))
    ]
    yield from dict.fromkeys(leaf for leaf in reasoning if isinstance(leaf, str))
    yield from (leaf for leaf in reasoning if isinstance(leaf, Media))


def _pieces_in(
    content: Any, left_out: Sequence[str] = (), depth: int = 0
) -> Iterator[Piece]:
    """The pieces of a content without blocks of some kinds."""
    if isinstance(content, str):
        yield content
        return
    for block in content if isinstance(content, list | tuple) else ():
        if isinstance(block, str):
            yield block
        elif not isinstance(block, Mapping) or depth > MAX_DEPTH:
            yield from leaves(block)
        elif kind_of(block) not in left_out:
            yield from _pieces_of(block, left_out, depth + 1)


def _pieces_of(
    block: Mapping[str, Any], left_out: Sequence[str], depth: int
) -> Iterator[Piece]:
    kind = kind_of(block)
    sealed = block.get("data") or block.get("encrypted_content") or ""
    source = block.get("source")
    if kind == "text" and isinstance(text := block.get("text"), str):
        yield text
    elif block.get("type") == "redacted_thinking" or (
        kind == "compaction" and sealed and not block.get("content")
    ):
        yield Media("encrypted", {"data": sealed})
    elif kind == "result":
        for key in RESULT_KEYS:
            yield from _pieces_in(block.get(key), (), depth)
    elif block.get("type") == "non_standard":
        yield from _pieces_in([block.get("value")], left_out, depth)
    elif kind in MEDIA_TYPES.values() and not (
        isinstance(source, Mapping) and source.get("type") == "content"
    ):
        yield Media(kind, block)
    else:
        yield from leaves(block)


# ---- features of a text ---------------------------------------------------------------------------------------------

ASCII_FEATURES = FEATURES[: FEATURES.index("latin_runs")]
"""Names of the counts that a text in ASCII has."""

SCRIPT_STARTS = dict(
    sorted((start, name) for name, starts in STARTS.items() for start in starts)
)
"""First characters of the classes that characters beside ASCII are counted in, in order."""

RUN_SYMBOLS = "=-_*#.─ \n"
RUN_STARTS = [symbol * 9 for symbol in RUN_SYMBOLS]
LONG_RUN = re.compile(f"([{re.escape(RUN_SYMBOLS)}])\\1{{8,}}")
"""Rules, indents and blank lines, for which tokenizers have long tokens: behind the eighth symbol of a run, one of
eight counts. The beginning stays, so that a run never costs less than a shorter one, and code its indents."""


def features(text: str) -> list[int]:
    """Return the counts of a text, in the order of `FEATURES`; never fails, a lone surrogate counts as a `?`.

    Text in ASCII has no others than `ASCII_FEATURES`, and the list ends there. None falls when text is appended.

    Examples:
        >>> dict(zip(FEATURES, features("Hello world")))["letter_runs"]
        2
    """
    if any(map(text.__contains__, RUN_STARTS)):  # a search for plain texts is cheap
        text = LONG_RUN.sub(_thinned, text)
    raw = text.encode("utf-8", "replace")
    if raw.isascii():
        return _ascii_counts(raw)
    chars = raw.translate(None, _CONTINUATION)
    return _ascii_counts(chars) + _foreign_counts(raw.decode(), chars)


def script_of(character: str) -> str:
    """Return the class of a character beside ASCII.

    Examples:
        >>> script_of("ά"), script_of("😀")
        ('greek', 'emoji')
    """
    return SCRIPT_STARTS[_STARTS[bisect(_STARTS, ord(character)) - 1]]


@lru_cache(maxsize=65_536)
def _feature_of(character: str) -> int:
    """The place of the feature that a character beside ASCII counts in.

    Characters that ordinary texts hardly have are spelled byte by byte.
    """
    name = script_of(character)
    if character not in _COMMON and character <= "\uffff":
        name = "rare_two_byte" if character < "\u0800" else "rare_three_byte"
    return FEATURES.index(name)


def _thinned(run: re.Match[str]) -> str:
    return run[0][: 8 + (len(run[0]) - 8) // 8]


def _table(*classes: tuple[str, str]) -> bytes:
    """A byte table that maps each named set to one character and everything else to a space."""
    table = bytearray(b" " * 256)
    for characters, mark in classes:
        for character in characters.encode("latin-1"):
            table[character] = ord(mark)
    return bytes(table)


_STARTS, _COMMON = [*SCRIPT_STARTS], frozenset(COMMON)
# of UTF-8: without them one byte stands for each character
_CONTINUATION = bytes(range(0x80, 0xC0))
_CONTROL = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_LETTERS = _table((string.ascii_letters, "a"))
_CASES = _table(
    (string.ascii_lowercase, "a"), (string.ascii_uppercase, "A"), (string.digits, "d")
)
_DIGITS = _table((string.digits, "d"))
_SYMBOLS = _table((string.punctuation + _CONTROL, "p"))
_SPACING = _table(
    (string.digits, "d"),
    (string.punctuation + _CONTROL, "p"),
    (" \t", "s"),
    ("\n", "n"),
)
_CONSONANTS = _table(("bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ", "c"))
# first bytes of Latin letters beside ASCII
_LATIN = _table(("".join(map(chr, range(0xC2, 0xCE))), "L"))
_FOREIGN = b" " * 128 + b"x" * 128
_ESCAPES = f"\\{_CONTROL}".encode()
_LONG_SYMBOLS = b"p" * 48  # more than code and markup have in a row
# unbroken letters of which names in code are rarely made: a guard for texts without spaces
_LONG_WORD = b"a" * 32


def _ascii_counts(chars: bytes) -> list[int]:
    """Counts of the ASCII part; every other character stands as one byte above 127."""
    letters, digits, symbols = (
        chars.translate(_LETTERS),
        chars.translate(_DIGITS),
        chars.translate(_SYMBOLS),
    )
    cases, spacing = chars.translate(_CASES), chars.translate(_SPACING)
    return [
        len(chars),
        letters.count(b"a"),
        _runs(letters, b"a"),
        digits.count(b"d"),
        _runs(digits, b"d"),
        symbols.count(b"p"),
        _runs(symbols, b"p"),
        cases.count(b"A"),
        cases.count(b"aA"),
        cases.count(b"dA") + cases.count(b"Ad"),
        chars.count(b"\n")
        - chars.count(b"\n\n")
        + chars.count(b"\r")
        - chars.count(b"\r\n"),
        spacing.count(b"ns"),
        spacing.count(b"sd"),
        spacing.count(b"ps"),
        spacing.count(b"pp"),
        chars.translate(_CONSONANTS).count(b"cccc"),
        len(chars) - len(chars.translate(None, b"kzjKZJ")),
        len(chars)
        - len(chars.translate(None, _ESCAPES))
        + chars.count(b"\r\r")
        + chars.count(b"\r "),
        chars.count(b"a "),
        chars.count(b"i "),
        chars.count(b"en "),
        letters.count(_LONG_WORD),
        symbols.count(_LONG_SYMBOLS),
    ]


def _foreign_counts(text: str, chars: bytes) -> list[int]:
    """The counts behind those of `ASCII_FEATURES`; `chars` has one byte per character."""
    counts = [0] * len(FEATURES)
    counts[FEATURES.index("latin_runs")] = chars.translate(_LATIN).count(b"LLL")
    counts[FEATURES.index("foreign_runs")] = _runs(chars.translate(_FOREIGN), b"x")
    for character, times in Counter(text).items():
        if character > "\x7f":
            counts[_feature_of(character)] += times
    return counts[len(ASCII_FEATURES) :]


def _runs(marked: bytes, mark: bytes) -> int:
    """How many runs of a mark there are; spaces stand between them."""
    return marked.count(b" " + mark) + marked.startswith(mark)


# ---- media -----------------------------------------------------------------------------------------------------------

HEADER_CHARS = 65_536  # of base64 that is decoded for the size of an image: enough to pass the metadata of photos
# a data URL states its media type and encoding in fewer characters
DATA_URL_HEAD_CHARS = 256
# assumed width and height of an image whose size cannot be seen
DEFAULT_SIDE_PIXELS = 1024
UNKNOWN_BYTES = 500_000  # assumed size of media that is only referenced
DATA_KEYS = ("data", "base64", "bytes", "url", "image_url", "file_data")
TEXT_FORMATS = frozenset(
    {"text", "txt", "md", "csv", "html", "json", "xml", "yaml", "javascript"}
)


def media_tokens(media: Media, framing: Framing, price: TextPrice) -> float:
    """Return the price of one media block, in tokens; `price` is asked for the text of text files."""
    kind = media.kind
    if kind in {"file", "text file"} and (text := _plain_text(media.block)) is not None:
        return price(text)
    data = next(_values(media.block, *DATA_KEYS), b"")
    stated_type, size_bytes, head = _inline(data)
    if kind in {"file", "text file", "blob"}:
        kind = (
            _kind_of_types(
                stated_type, *_values(media.block, "mime_type", "media_type", "format")
            )
            or kind
        )
    if kind == "image":
        width, height = image_size(head)
        return framing.image(
            width or DEFAULT_SIDE_PIXELS, height or DEFAULT_SIDE_PIXELS
        )
    # Bytes of a unit, and its tokens: a second of compressed audio at 128 kbit/s, or of video at 2 Mbit/s, one frame
    # and the sound (Gemini API, token counting guide); four characters of encrypted reasoning, which is about as long
    # as its text, three of a text in base64; a page of an office document.
    unit_bytes, unit_tokens = {
        "audio": (16_000, framing.audio_tokens_per_second),
        "video": (250_000, 263),
        "encrypted": (4, 1),
        "text file": (3, 1),
    }.get(kind, (50_000, framing.page_tokens))
    return (1 + size_bytes // unit_bytes) * unit_tokens


def _plain_text(block: Mapping[str, Any]) -> str | None:
    """The text of a text file that is given as such, not in base64."""
    source = block.get("source")
    is_text = isinstance(source, Mapping) and source.get("type") == "text"
    text = (
        source.get("data")
        if isinstance(source, Mapping) and is_text
        else block.get("text")
    )
    return text if isinstance(text, str) else None


def _kind_of_types(*types: str | bytes) -> str:
    """The kind by a media type (`image/png`) or a bare format (`csv`)."""
    for media_type in types:
        group, _, detail = str(media_type).lower().partition("/")
        if group in {"image", "audio", "video"}:
            return group
        if {group, detail.partition(";")[0]} & TEXT_FORMATS:
            return "text file"
    return ""


def _values(
    block: Mapping[str, Any], *names: str, depth: int = 0
) -> Iterator[str | bytes]:
    """Texts and bytes of the named keys, at the top and inside nested mappings (`source`, `image_url`, ...)."""
    for key, value in block.items():
        if isinstance(value, str | bytes) and key in names:
            yield value
        elif isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _values(value, *names, depth=depth + 1)


def _inline(data: str | bytes) -> tuple[str, int, bytes]:
    """The stated media type, the size in bytes, and the first bytes of data; a link to elsewhere tells nothing."""
    if isinstance(data, bytes):
        return "", len(data) or UNKNOWN_BYTES, data[:HEADER_CHARS]
    media_type, start = "", 0
    if data.startswith("data:"):
        start = data.find(",", 0, DATA_URL_HEAD_CHARS) + 1
        media_type = data[len("data:") : start].partition(";")[0]
    elif "://" in data[:DATA_URL_HEAD_CHARS]:
        return "", UNKNOWN_BYTES, b""
    text = data[start : start + HEADER_CHARS].replace("-", "+").replace("_", "/")
    try:
        head = base64.b64decode(f"{text}==")
    except (binascii.Error, ValueError):
        head = b""
    return media_type, (len(data) - start) * 3 // 4, head


# Markers of the JPEG segments that state the dimensions (ITU T.81, table B.1).
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
NO_SIZE = (0, 0)


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
            width, height = _jpeg_size(raw) if raw.startswith(b"\xff\xd8") else NO_SIZE
    except (struct.error, IndexError):
        return NO_SIZE
    return (width, height) if width and height else NO_SIZE


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    """Walk the segments of a JPEG to its frame header."""
    position = 2
    while position + 9 < len(raw) and raw[position] == 0xFF:  # noqa: PLR2004  # every marker begins like this
        marker, length = (
            raw[position + 1],
            struct.unpack(">H", raw[position + 2 : position + 4])[0],
        )
        if marker in JPEG_FRAMES:
            height, width = struct.unpack(">HH", raw[position + 5 : position + 9])
            return width, height
        position += 2 + length
    return NO_SIZE


def readable_text(message: AnyMessage) -> str:
    """A message as plain text: texts, tool calls as name and JSON, media as markers; reasoning is left out."""
    content: Any = message.content
    if isinstance(content, str) and not isinstance(message, AIMessage):
        return content
    return "\n".join(filter(None, map(_readable, _said(message, "reasoning"))))


def _readable(piece: Piece) -> str:
    """A piece as text; of a document that is attached as text, that text."""
    if isinstance(piece, Call):
        return f"{piece.name} {compact_json(piece.arguments)}".strip()
    if isinstance(piece, str):
        return piece
    return _plain_text(piece.block) or f"[{piece.kind}]"
