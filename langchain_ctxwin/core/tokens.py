"""`TokenEstimator`: the tokens of texts, media and messages; and a message as a reader sees it."""

from __future__ import annotations

import re
import string
from base64 import urlsafe_b64decode
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from operator import mul
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
    convert_to_messages,
)

from langchain_ctxwin.core.pairing import calls_of, standard
from langchain_ctxwin.core.provider_blocks import (
    MEDIA_TYPES,
    RESULT_KEYS,
    Block,
    Media,
    block_text,
    compact_json,
    inside,
    kind_of,
    leaves,
    provider_named,
    spoken,
)
from langchain_ctxwin.core.token_weights import (
    COMMON,
    COUNTED,
    FEATURES,
    LOWER,
    UPPER,
    WEIGHTS,
)
from langchain_ctxwin.core.tool_schemas import (
    FRAMING,
    Framing,
    TextPrice,
    image_tokens,
    schema_tokens,
)
from langchain_ctxwin.errors import ConfigError

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

    def __post_init__(self) -> None:
        if self.family not in WEIGHTS:
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
        return ceil(tokens * UPPER[self.family][0])

    def lower(self, tokens: int) -> int:
        """Size that the true count falls below for one text in twenty."""
        return int(tokens * LOWER[self.family][0])

    def _text(self, text: str) -> float:
        # calls without arguments, answers that only call
        return sum(map(mul, WEIGHTS[self.family], features(text)), 0.0) if text else 0.0


def request_tokens(
    messages: Iterable[MessageLikeRepresentation],
    tools: Any,
    framing: Framing,
    price: TextPrice,
) -> float:
    """Return the tokens of a request: text at `price`, all else by the constants of a family."""
    tokens = float(framing.request)
    for message in convert_to_messages(messages):
        tokens += framing.message
        for piece in pieces(message):
            if isinstance(piece, str):
                tokens += price(piece)
            elif isinstance(piece, Call):
                text = piece.text(is_plain=framing.plain_arguments)
                tokens += framing.call + price(text)
            else:
                tokens += media_tokens(piece, framing, price)
    return tokens + schema_tokens(tools, framing, price) if tools else tokens


def text_price(counter: Callable[..., int] | None) -> WholePrice:
    """Return the price of a text in tokens; a counter of messages alone prices it as one user message."""
    count = counter or TokenEstimator()

    def price(text: str) -> int:
        return count([HumanMessage(text)]) - count([])

    return getattr(count, "count_text", price)


# ---- what a provider counts of a message -----------------------------------------------------------------------------

REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where in `additional_kwargs` integrations keep reasoning that they send again, such as those of Ollama."""


class Call(NamedTuple):
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


def pieces(message: BaseMessage) -> Iterator[Piece]:
    """Yield everything of a message that a provider counts, in no particular order."""
    if message.name:
        yield message.name
    if isinstance(message, ToolMessage):
        yield Call()
    yield from _said(message)
    maker = message.response_metadata.get("model_provider")
    # Integrations of the named providers keep what they send again in the content.
    if message.additional_kwargs and not provider_named(maker):
        kept = [message.additional_kwargs.get(key) for key in REASONING_KEYS]
        yield from {str(leaf): leaf for leaf in leaves(kept)}.values()


def _said(message: BaseMessage, *left_out: str) -> Iterator[Piece]:
    """What is in a message without its name, its calls included; without blocks of some kinds."""
    yield from _pieces_in(message.content, ("call", *left_out))
    if isinstance(message, AIMessage):
        for call in calls_of(*standard(message)):
            yield Call(call["name"] or "", call["args"])
        if text := spoken(message):
            yield text


def _pieces_in(content: Any, left_out: tuple[str, ...] = ()) -> Iterator[Piece]:
    """The pieces of a content without blocks of some kinds."""
    if isinstance(content, str):
        yield content
        return
    for outer in content if isinstance(content, list | tuple) else ():
        block: Any = inside(outer) or outer
        if (text := block_text(block)) is not None:
            yield text
        elif not isinstance(block, Mapping):
            yield from leaves(block)
        elif kind_of(block) not in left_out:
            yield from _pieces_of(block)


def _pieces_of(block: Block) -> Iterator[Piece]:
    kind, source = kind_of(block), block.get("source")
    sealed = block.get("data") or block.get("encrypted_content")
    is_sealed = block.get("type") == "redacted_thinking" or (
        kind == "compaction" and not block.get("content")
    )
    if kind == "result":
        for key in RESULT_KEYS:
            yield from _pieces_in(block.get(key))
    elif sealed and is_sealed:
        yield Media("encrypted", {"data": sealed})
    elif kind in MEDIA_TYPES.values() and not (
        isinstance(source, Mapping) and "content" in source
    ):
        yield Media(kind, block)
    else:
        yield from leaves(block)


# ---- features of a text ---------------------------------------------------------------------------------------------

RUN_SYMBOLS = "=-_*#.─ \n"
RUN_STARTS = [symbol * 9 for symbol in RUN_SYMBOLS]
LONG_RUN = re.compile(f"([{re.escape(RUN_SYMBOLS)}])\\1{{8,}}")
"""Rules, indents and blank lines, for which tokenizers have long tokens: behind the eighth symbol of a run, one of
eight counts. The beginning stays, so that a run never costs less than a shorter one, and code its indents."""


def features(text: str) -> list[int]:
    """Return the counts of a text, in the order of `FEATURES`; never fails, a lone surrogate counts as a `?`.

    Text in ASCII has none of the characters beside it, and the list ends before them. None falls when text is appended.

    Examples:
        >>> dict(zip(FEATURES, features("Hello world")))["letter_runs"]
        2
    """
    if any(map(text.__contains__, RUN_STARTS)):  # a search for plain texts is cheap
        text = LONG_RUN.sub(lambda run: run[0][: 8 + (len(run[0]) - 8) // 8], text)
    raw = text.encode("utf-8", "replace")
    chars = _BEFORE + raw.translate(None, _CONTINUATION)
    views = {name: chars.translate(table) for name, table in VIEWS.items()}
    counts = [len(chars) - 1, *[views[view].count(marks) for view, marks in PATTERNS]]
    if raw.isascii():
        return counts
    counts += [0] * (len(FEATURES) - len(counts))
    for character, times in Counter(raw.decode()).items():
        if character > "\x7f":
            counts[_feature_of(character)] += times
    return counts


SCRIPT_STARTS = sorted(
    (int(start, 16), FEATURES[place])
    for place, counted in enumerate(COUNTED)
    if counted.startswith("0x")
    for start in counted.split(",")
)
"""First characters of the classes that characters beside ASCII are counted in, in order."""


@lru_cache(maxsize=65_536)
def _feature_of(character: str) -> int:
    """The place of the feature that a character beside ASCII counts in.

    Characters that ordinary texts hardly have are spelled byte by byte.
    """
    _, name = SCRIPT_STARTS[bisect(SCRIPT_STARTS, (ord(character) + 1,)) - 1]
    if character not in COMMON and character <= "\uffff":
        name = "rare_two_byte" if character < "\u0800" else "rare_three_byte"
    return FEATURES.index(name)


def _table(**marked: str) -> bytes:
    """A byte table that maps each set of characters to its mark and everything else to a space."""
    table = bytearray(b" " * 256)
    for mark, characters in marked.items():
        for byte in characters.encode("latin-1"):
            table[byte] = ord(mark)
    return bytes(table)


# stands before a text, so that a run at its beginning is one
_BEFORE = b"\x80"
# of UTF-8: without them one byte stands for each character
_CONTINUATION = bytes(range(0x80, 0xC0))
_CONTROL = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_SYMBOLS = string.punctuation + _CONTROL
VIEWS = {
    "text": bytes(range(256)),
    "letters": _table(a=string.ascii_letters),
    "cases": _table(
        a=string.ascii_lowercase, A=string.ascii_uppercase, d=string.digits
    ),
    "digits": _table(d=string.digits),
    "symbols": _table(p=_SYMBOLS),
    "spacing": _table(d=string.digits, p=_SYMBOLS, s=" \t", n="\n"),
    "ends": _table(n="\n", r="\r", s=" ", e="\\" + _CONTROL),
    "consonants": _table(c="bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ"),
    "rare": _table(r="kzjKZJ"),
    # the first bytes of Latin letters beside ASCII, and of all characters beside it
    "latin": _table(L="".join(map(chr, range(0xC2, 0xCE)))),
    "foreign": _table(x="".join(map(chr, range(0xC0, 0x100)))),
}
"""What the patterns of a text are counted in: its characters by class, with a space for every other one."""

PATTERNS = [
    (view, marks.replace("_", " ").encode())
    for view, is_pattern, marks in (counted.partition(":") for counted in COUNTED)
    if is_pattern
]


# ---- media -----------------------------------------------------------------------------------------------------------

HEADER_CHARS = 131_072  # of base64 that is decoded for the size of an image: enough to pass the metadata of photos
# A data URL states its media type and encoding in fewer characters, and so do names, addresses and ids.
HEAD_CHARS = 256
SPELLED = {"text file": (3, 1), "encrypted": (4, 1)}
"""Bytes of a token of what is a text in base64, whatever its length."""

# assumed width and height of an image whose size cannot be seen
DEFAULT_SIDE_PIXELS = 1024
UNKNOWN_BYTES = 500_000  # assumed size of media that is only referenced
# a media type (`image/png`) or a bare format (`csv`), alone or as a data URL begins
_FORMAT = re.compile(
    r"(?:data:)?(?:(image|audio|video)|text|(?:application/)?(?:txt|md|csv|html|json|xml|yaml|javascript))(?=[/;,]|$)"
)
_PNG_SIZE = re.compile(rb"\x89PNG.{12}(....)(....)", re.DOTALL)
# the header of a frame in a JPEG (ITU T.81): the picture's own comes behind that of its preview
_JPEG_SIZE = re.compile(rb"\xff[\xc0-\xcf]\x00[\x0b\x11\x14]\x08(..)(..)", re.DOTALL)


def media_tokens(media: Media, framing: Framing, price: TextPrice) -> float:
    """Return the price of one media block, in tokens; `price` is asked for the text of text files."""
    kind = media.kind
    if kind in {"file", "text file"} and (text := _plain_text(media.block)) is not None:
        return price(text)
    texts = [
        leaf if isinstance(leaf, str) else leaf.block["data"]
        for leaf in leaves(media.block)
    ]
    data = max(texts, key=len, default="")
    if kind in {"file", "text file", "blob"}:
        stated = (_FORMAT.match(text) for text in texts if isinstance(text, str))
        kind = next((found[1] or "text file" for found in stated if found), kind)
    if kind == "image":
        return image_tokens(*image_size(data))
    # Bytes of a unit, and its tokens: a second of compressed audio at 128 kbit/s, or of video at 2 Mbit/s, one frame
    # and the sound (Gemini API, token counting guide); a page of a document.
    unit_bytes, unit_tokens = {
        "audio": (16_000, 32),
        "video": (250_000, 263),
        **SPELLED,
    }.get(kind, (50_000, framing.page_tokens))
    num_bytes = len(data)
    if isinstance(data, str):  # in base64, or an address or id, which does not tell it
        is_name = len(data) <= HEAD_CHARS or "://" in data[:HEAD_CHARS]
        is_known = kind in SPELLED or not is_name
        num_bytes = num_bytes * 3 // 4 if is_known else UNKNOWN_BYTES
    return (1 + num_bytes // unit_bytes) * unit_tokens


def image_size(data: str | bytes) -> tuple[int, int]:
    """Return width and height in pixels; assumed ones when the data does not say, or is no PNG or JPEG.

    It is what stands in a block: bytes, base64, a data URL, or a link, which says nothing.

    Examples:
        >>> image_size(bytes.fromhex("89504e47") + bytes(15) + b"@" + bytes(3) + b"0")
        (64, 48)
    """
    if isinstance(data, str):
        start = data.find(",", 0, HEAD_CHARS) + 1
        try:
            data = urlsafe_b64decode(f"{data[start : start + HEADER_CHARS]}==")
        except ValueError:
            data = b""
    png, jpeg = _PNG_SIZE.match(data), _JPEG_SIZE.findall(data)
    height, width = jpeg[-1] if jpeg else (b"", b"")
    if png:
        width, height = png.groups()
    return (
        int.from_bytes(width) or DEFAULT_SIDE_PIXELS,
        int.from_bytes(height) or DEFAULT_SIDE_PIXELS,
    )


def _plain_text(block: Block) -> str | None:
    """The text of a text file that is given as such, not in base64."""
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text":
        return str(source.get("data"))
    text = block.get("text")
    return text if isinstance(text, str) else None


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
