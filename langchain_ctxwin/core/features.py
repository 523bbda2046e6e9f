"""What in a text costs tokens: counts of characters and runs by class, taken with byte tables only.

Tokenizers split text into runs of letters, digits, punctuation and white space, and scripts differ in how many
characters a token holds. Linear weights over such counts are additive over concatenation, cheap, and close to any
byte-pair tokenizer. Long texts are sampled, so that the cost of a count is bounded.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

SAMPLE_ABOVE_CHARS = 16_384
"""Texts up to this length are counted in full."""

SAMPLE_WINDOWS = 64
SAMPLE_WINDOW_CHARS = 128
"""Longer texts: this many evenly spaced windows of this length. The number of windows matters more than their size."""

COLLAPSE_RUN_CHARS = 16
"""Runs of one symbol from this length on are shortened: tokenizers have tokens for rules and blank lines."""

RUN_CHARS_PER_KEPT = 16
"""Of a longer run one character in so many is kept."""

ASCII_FEATURES = (
    "letters", "letter_runs", "digits", "digit_runs", "symbols", "symbol_runs", "capitals", "camel_humps", "newlines",
    "indents", "space_runs", "consonant_blocks", "rare_letters", "backslashes", "vowel_endings", "en_endings",
    "long_words",
)  # fmt: skip
_TWO_BYTE = {
    "latin1": (0xC2, 0xC4), "latin_extended": (0xC4, 0xCA), "ipa_diacritics": (0xCA, 0xCE), "greek": (0xCE, 0xD0),
    "cyrillic": (0xD0, 0xD4), "armenian": (0xD4, 0xD7), "hebrew": (0xD7, 0xD8), "arabic": (0xD8, 0xE0),
}  # fmt: skip
_PAIRS = {
    "devanagari": (b"\xe0\xa4", b"\xe0\xa5"), "bengali": (b"\xe0\xa6", b"\xe0\xa7"),
    "tamil": (b"\xe0\xae", b"\xe0\xaf"), "thai": (b"\xe0\xb8", b"\xe0\xb9"),
    "georgian": (b"\xe1\x82", b"\xe1\x83"), "khmer": (b"\xe1\x9e", b"\xe1\x9f"),
    "myanmar": (b"\xe1\x80", b"\xe1\x81"), "vietnamese": (b"\xe1\xba", b"\xe1\xbb"), "cjk_symbols": (b"\xe3\x80",),
    "kana": (b"\xe3\x81", b"\xe3\x82", b"\xe3\x83"),
}  # fmt: skip
_REST = ("indic", "other_e1", "typography", "cjk", "hangul", "fullwidth", "astral", "rare_ideographs", "foreign_runs")
FEATURES = (*ASCII_FEATURES, *_TWO_BYTE, *_PAIRS, *_REST)
"""Names of the counts, in the order of `features`."""


def features(text: str) -> list[int]:
    """Return the counts of a text, in the order of `FEATURES`; never fails, lone surrogates included.

    Example:
        >>> dict(zip(FEATURES, features("Hello world"), strict=True))["letter_runs"]
        2
    """
    raw = _collapsed(text).encode("utf-8", "surrogatepass")
    counts = list(_ascii(raw))
    if len(raw) == len(text) and text.isascii():
        return counts + [0] * (len(FEATURES) - len(counts))
    return [*counts, *_foreign(raw)]


def sample(text: str) -> str:
    """Return the text, or evenly spaced windows of a long one, joined."""
    size = len(text)
    if size <= SAMPLE_ABOVE_CHARS:
        return text
    stride = (size - SAMPLE_WINDOW_CHARS) / (SAMPLE_WINDOWS - 1)
    starts = (int(number * stride) for number in range(SAMPLE_WINDOWS))
    return "".join(text[start : start + SAMPLE_WINDOW_CHARS] for start in starts)


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
_FOREIGN = b" " * 128 + b"x" * 128
_RARE = b"kzjKZJ"
_NOT_LEAD = bytes(range(0xC0))
_LEADS = {name: bytes(set(range(256)) - set(range(low, high))) for name, (low, high) in _TWO_BYTE.items()}
_RUN = re.compile(rf"([^\w])\1{{{COLLAPSE_RUN_CHARS - 1},}}")
_RUN_STARTS = tuple(symbol * COLLAPSE_RUN_CHARS for symbol in "=-_*#~.+ \n─═━")


def _collapsed(text: str) -> str:
    """Shorten long runs of one symbol; looks for the common ones before it pays for a search."""
    if not any(run in text for run in _RUN_STARTS):
        return text
    return _RUN.sub(_kept_run, text)


def _kept_run(match: re.Match[str]) -> str:
    return match[1] * (1 + len(match[0]) // RUN_CHARS_PER_KEPT)


def _ascii(raw: bytes) -> Iterator[int]:
    letters, digits, symbols = raw.translate(_LETTERS), raw.translate(_DIGITS), raw.translate(_SYMBOLS)
    cases = raw.translate(_CASES)
    yield letters.count(b"a")
    yield _runs(letters, b"a")
    yield digits.count(b"d")
    yield _runs(digits, b"d")
    yield symbols.count(b"p")
    yield _runs(symbols, b"p")
    yield cases.count(b"A")
    yield cases.count(b"aA")
    yield raw.count(b"\n")
    yield raw.count(b"\n ") + raw.count(b"\n\t")
    yield raw.translate(_SPACES).count(b"xss")
    yield raw.translate(_CONSONANTS).count(b"cccc")
    yield len(raw) - len(raw.translate(None, _RARE))
    yield raw.count(b"\\")
    yield raw.translate(_ENDINGS).count(b"v ")
    yield raw.count(b"en ")
    yield letters.count(b"a" * 16)


def _runs(view: bytes, mark: bytes) -> int:
    return view.count(b" " + mark) + view.startswith(mark)


def _foreign(raw: bytes) -> Iterator[int]:
    leads = raw.translate(None, _NOT_LEAD)
    for others in _LEADS.values():
        yield len(leads.translate(None, others))
    pairs = {name: _pairs(raw, leads, starts) for name, starts in _PAIRS.items()}
    yield from pairs.values()
    e0, e1, e2, e3 = (leads.count(bytes((lead,))) for lead in (0xE0, 0xE1, 0xE2, 0xE3))
    yield e0 - sum(pairs[name] for name in ("devanagari", "bengali", "tamil", "thai"))
    yield e1 - sum(pairs[name] for name in ("georgian", "khmer", "myanmar", "vietnamese"))
    yield e2
    yield e3 - pairs["cjk_symbols"] - pairs["kana"] + sum(leads.count(bytes((lead,))) for lead in range(0xE4, 0xEA))
    yield sum(leads.count(bytes((lead,))) for lead in range(0xEA, 0xEF))
    yield leads.count(b"\xef")
    astral = len(leads.translate(None, bytes(range(0xF0))))
    rare = sum(raw.count(bytes((0xF0, second))) for second in range(0xA0, 0xB0)) if astral else 0
    yield astral - rare
    yield rare
    yield _runs(raw.translate(_FOREIGN), b"x")


def _pairs(raw: bytes, leads: bytes, starts: tuple[bytes, ...]) -> int:
    return sum(map(raw.count, starts)) if starts[0][:1] in leads else 0
