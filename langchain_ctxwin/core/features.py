"""What in a text costs tokens: counts of characters and runs by class, taken with byte tables only.

Tokenizers split text into runs of letters, digits, punctuation and white space, and scripts differ in how many
characters a token holds. Linear weights over such counts are additive over concatenation, cheap, and close to any
byte-pair tokenizer. Long texts are sampled, so that the cost of a count is bounded.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from langchain_ctxwin.core.scripts import SCRIPT_FEATURES, script_counts

SAMPLE_ABOVE_CHARS = 16_384
"""Texts up to this length are counted in full."""

SAMPLE_WINDOWS = 64
SAMPLE_WINDOW_CHARS = 128
"""Longer texts: this many evenly spaced windows of this length. The number of windows matters more than their size."""

COLLAPSE_RUN_CHARS = 16
"""Runs of one symbol from this length on are shortened: tokenizers have tokens for rules and blank lines."""

LONG_SPACES = 64
"""Of spaces only such runs are shortened: shorter ones indent code, and are cheap already."""

KEPT_OF_LONG_RUNS = {**dict.fromkeys("=-_*#~.+ ", 16), **dict.fromkeys("\n─═━", 8)}
"""Symbols whose long runs are shortened, and of how many characters one is kept: the usual price of a symbol then gives
the 64 characters of a token that rules and spaces have, and the 16 of blank lines and drawn lines."""

ASCII_FEATURES = (
    "characters", "letters", "letter_runs", "digits", "digit_runs", "symbols", "symbol_runs", "capitals", "camel_humps",
    "newlines", "indents", "space_runs", "consonant_blocks", "rare_letters", "escapes", "vowel_endings", "en_endings",
    "long_words", "table_rules",
)  # fmt: skip
FEATURES = (*ASCII_FEATURES, *SCRIPT_FEATURES)
"""Names of the counts, in the order of `features`."""


def features(text: str) -> list[int]:
    """Return the counts of a text, in the order of `FEATURES`; never fails, a lone surrogate counts as a `?`.

    Text in ASCII has no others than `ASCII_FEATURES`, and the list ends there.

    Example:
        >>> dict(zip(FEATURES, features("Hello world")))["letter_runs"]
        2
    """
    collapsed = _collapsed(text)
    raw = collapsed.encode("utf-8", "replace")
    if raw.isascii():
        return list(_ascii(raw))
    chars = raw.translate(None, _CONTINUATION)
    return [*_ascii(chars), *script_counts(collapsed, raw, chars)]


def sample(text: str) -> str:
    """Return the text, or evenly spaced windows of a long one, joined."""
    size = len(text)
    if size <= SAMPLE_ABOVE_CHARS:
        return text
    stride = (size - SAMPLE_WINDOW_CHARS) / (SAMPLE_WINDOWS - 1)
    starts = (int(number * stride) for number in range(SAMPLE_WINDOWS))
    return "".join([text[start : start + SAMPLE_WINDOW_CHARS] for start in starts])


def _table(*classes: tuple[str, str]) -> bytes:
    """A byte table that maps each named set to one character and everything else to a space."""
    table = bytearray(b" " * 256)
    for characters, mark in classes:
        for character in characters.encode("latin-1"):
            table[character] = ord(mark)
    return bytes(table)


_LETTERS = _table((string.ascii_letters, "a"))
_CASES = _table((string.ascii_lowercase, "a"), (string.ascii_uppercase, "A"))
_DIGITS = _table((string.digits, "d"))
_CONTROL = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_SYMBOLS = _table((string.punctuation + _CONTROL, "p"))
_SPACES = bytes(ord("s") if byte in b" \t\r\n" else ord("x") for byte in range(256))
_CONSONANTS = _table(("bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ", "c"))
_ENDINGS = _table((string.ascii_letters, "l"), ("aiouAIOU", "v"))
_RARE = b"kzjKZJ"
_ESCAPES = f"\\{_CONTROL}".encode()
_CONTINUATION = bytes(range(0x80, 0xC0))
_RUNS = {
    symbol * (LONG_SPACES if symbol == " " else COLLAPSE_RUN_CHARS): kept for symbol, kept in KEPT_OF_LONG_RUNS.items()
}


def _collapsed(text: str) -> str:
    """Shorten long runs of one symbol; a search for the plain run comes first, it is cheap."""
    for start, kept in _RUNS.items():
        if start in text:
            text = _shortened(text, start, kept)
    return text


def _shortened(text: str, start: str, kept: int) -> str:
    symbol = start[0]

    def shorter(run: re.Match[str]) -> str:
        return symbol * (1 + len(run[0]) // kept)

    return re.sub(f"{re.escape(start)}{re.escape(symbol)}*", shorter, text)


def _ascii(chars: bytes) -> Iterator[int]:
    """Counts of the ASCII part; every other character stands as one byte above 127."""
    letters, digits, symbols = chars.translate(_LETTERS), chars.translate(_DIGITS), chars.translate(_SYMBOLS)
    cases = chars.translate(_CASES)
    yield len(chars)
    yield letters.count(b"a")
    yield _runs(letters, b"a")
    yield digits.count(b"d")
    yield _runs(digits, b"d")
    yield symbols.count(b"p")
    yield _runs(symbols, b"p")
    yield cases.count(b"A")
    yield cases.count(b"aA")
    yield chars.count(b"\n")
    yield chars.count(b"\n ") + chars.count(b"\n\t")
    yield chars.translate(_SPACES).count(b"xss")
    yield chars.translate(_CONSONANTS).count(b"cccc")
    yield len(chars) - len(chars.translate(None, _RARE))
    yield len(chars) - len(chars.translate(None, _ESCAPES))
    yield chars.translate(_ENDINGS).count(b"v ")
    yield chars.count(b"en ")
    yield letters.count(b"a" * 16)
    yield chars.count(b"|-")


def _runs(view: bytes, mark: bytes) -> int:
    return view.count(b" " + mark) + view.startswith(mark)
