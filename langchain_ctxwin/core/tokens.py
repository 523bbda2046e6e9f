"""`TokenEstimator`: tokens by text features and family; `CharRatioCounter`: the published heuristics."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, isfinite
from operator import mul
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage, HumanMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.edits import Call, Media, Piece, compact_json, pieces
from langchain_ctxwin.core.media import media_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING, GENERIC, UNREADABLE, Framing, TextPrice, schema_tokens
from langchain_ctxwin.errors import ConfigError

_TWO_BYTE = {
    "latin1_symbols": (0xC2, 0xC3), "latin1": (0xC3, 0xC4), "latin_extended": (0xC4, 0xCA),
    "ipa_diacritics": (0xCA, 0xCE), "greek": (0xCE, 0xD0), "cyrillic": (0xD0, 0xD2), "cyrillic_extended": (0xD2, 0xD4),
    "armenian": (0xD4, 0xD7), "hebrew": (0xD7, 0xD8), "arabic": (0xD8, 0xE0),
}  # fmt: skip
"""First bytes of UTF-8, the last one excluded."""

_BLOCKS = {
    "cjk_low": ((0x4E, 0x68),), "cjk_high": ((0x68, 0xA0),), "hangul": ((0xAC, 0xD8),),
    "ethiopic": ((0x12, 0x14),), "khmer": ((0x17, 0x18),), "vietnamese": ((0x1E, 0x1F),), "typography": ((0x20, 0x21),),
    "box": ((0x25, 0x26),), "braille": ((0x28, 0x29),), "symbols_e2": ((0x21, 0x25), (0x26, 0x28), (0x29, 0x30)),
    "rare_cjk": ((0x31, 0x4E),), "private": ((0xE0, 0xF9),), "selectors": ((0xFE, 0xFF),),
    "fullwidth": ((0xFF, 0x100),),
    "other_scripts": (
        (0x08, 0x09), (0x0F, 0x10), (0x11, 0x12), (0x14, 0x17), (0x18, 0x1E), (0x1F, 0x20), (0xA0, 0xAC), (0xF9, 0xFE),
    ),
}  # fmt: skip
"""High bytes of UTF-16, the last one excluded; frequent scripts first: what was counted is taken out of the way."""

_SHARED = {
    ("devanagari", "bengali"): (0x09, b"\xe0\xa6", b"\xe0\xa7"),
    ("gurmukhi", "gujarati"): (0x0A, b"\xe0\xaa", b"\xe0\xab"),
    ("oriya", "tamil"): (0x0B, b"\xe0\xae", b"\xe0\xaf"),
    ("telugu", "kannada"): (0x0C, b"\xe0\xb2", b"\xe0\xb3"),
    ("malayalam", "sinhala"): (0x0D, b"\xe0\xb6", b"\xe0\xb7"),
    ("thai", "lao"): (0x0E, b"\xe0\xba", b"\xe0\xbb"),
    ("myanmar", "georgian"): (0x10, b"\xe1\x83"),
    ("kana", "cjk_symbols"): (0x30, b"\xe3\x80"),
    ("rare_astral", "emoji"): (0xD8, b"\xf0\x9f"),
}
"""Two scripts of one block: its high byte, and the UTF-8 prefixes of the second."""

SCRIPT_FEATURES = (*_TWO_BYTE, *_BLOCKS, *(name for pair in _SHARED for name in pair), "latin1_runs", "foreign_runs")
"""Names of the counts, in the order of `script_counts`."""


def script_counts(text: str, raw: bytes, chars: bytes) -> Iterator[int]:
    """Yield the counts in the order of `SCRIPT_FEATURES`.

    `raw` is the text in UTF-8, and `chars` the same without continuation bytes: one byte per character.
    """
    leads = chars.translate(_LEAD_CODES, _NOT_TWO_BYTE)
    for low, _ in _TWO_BYTE.values():
        yield leads.count(low)
    blocks = b"" if len(leads) == _foreign(chars) else _high_bytes(text)
    for unwanted in _BLOCK_BYTES.values():
        rest = blocks.translate(None, unwanted)
        yield len(blocks) - len(rest)
        blocks = rest
    for code, *prefixes in _SHARED.values():
        total = blocks.count(code)
        second = sum(map(raw.count, prefixes)) if total else 0
        yield total - second
        yield second
    yield chars.translate(_LATIN1).count(b"LLL") if leads else 0
    runs = chars.translate(_FOREIGN)
    yield runs.count(b" x") + runs.startswith(b"x")


def _foreign(chars: bytes) -> int:
    return len(chars.translate(None, _ASCII))


def _high_bytes(text: str) -> bytes:
    """One byte per character of three or four UTF-8 bytes; the second halves of surrogate pairs are left out."""
    return text.encode("utf-16-le", "replace")[1::2].translate(_HIGH_CODES, _NOT_THREE_BYTE)


def _codes(ranges: Iterator[tuple[int, int]]) -> bytes:
    """A byte table that maps each range to its first byte."""
    table = bytearray(range(256))
    for low, high in ranges:
        table[low:high] = bytes((low,)) * (high - low)
    return bytes(table)


_ASCII = bytes(range(0x80))
_LEAD_CODES = _codes(iter(_TWO_BYTE.values()))
_NOT_TWO_BYTE = bytes({*range(0xC2), *range(0xE0, 0x100)})
_HIGH_CODES = _codes(iter([(0xD8, 0xDC)]))
_NOT_THREE_BYTE = bytes({*range(0x08), *range(0xDC, 0xE0)})
_BLOCK_BYTES = {name: bytes(byte for span in spans for byte in range(*span)) for name, spans in _BLOCKS.items()}
_LATIN1 = bytes(ord("L") if byte in b"\xc2\xc3" else ord(" ") for byte in range(256))
_FOREIGN = b" " * 128 + b"x" * 128

SAMPLE_ABOVE_CHARS = 4_096
"""The beginning of a text that is counted in full."""

SAMPLE_WINDOWS = 32
SAMPLE_WINDOW_CHARS = 32
"""Behind it, of every stretch that doubles the text: so many windows of this length. Their number matters more than
their size. They stand at the same places however long the text becomes, so that no count falls when text is added."""

COLLAPSE_RUN_CHARS = 6
"""Of a run of one symbol, the characters after so many are thinned: tokenizers have tokens for rules and blank lines.
The first ones stay, so that a run never costs less than a shorter one."""

LONG_SPACES = 64
"""Of spaces only what is beyond so many is thinned: shorter runs indent code, and are cheap already."""

KEPT_OF_LONG_RUNS = {**dict.fromkeys("=-_*#.", 32), " ": 16, **dict.fromkeys("─═━", 8), "\n": 4}
"""Symbols whose long runs are thinned, and of how many characters one is kept: the usual price of a symbol then gives
the 64 characters of a token that rules and spaces have, and the 16 of blank lines and drawn lines."""

LONG_WORD_CHARS = 32
"""Unbroken letters of which names in code are rarely made: a guard for texts without spaces."""

ASCII_FEATURES = (
    "characters", "letters", "letter_runs", "digits", "digit_runs", "symbols", "symbol_runs", "capitals", "camel_humps",
    "coded_digits", "newlines", "indents", "spaced_digits", "spaced_symbols", "symbol_pairs", "consonant_blocks",
    "rare_letters", "escapes", "a_endings", "i_endings", "en_endings", "long_words",
)  # fmt: skip
FEATURES = (*ASCII_FEATURES, *SCRIPT_FEATURES)
"""Names of the counts, in the order of `features`."""


def features(text: str) -> list[int]:
    """Return the counts of a text, in the order of `FEATURES`; never fails, a lone surrogate counts as a `?`.

    Text in ASCII has no others than `ASCII_FEATURES`, and the list ends there. None falls when text is appended.

    Examples:
        >>> dict(zip(FEATURES, features("Hello world")))["letter_runs"]
        2
    """
    collapsed = _collapsed(text)
    raw = collapsed.encode("utf-8", "replace")
    if raw.isascii():
        return list(_ascii(raw))
    chars = raw.translate(None, _CONTINUATION)
    return [*_ascii(chars), *script_counts(collapsed, raw, chars)]


def sample(text: str) -> Iterator[tuple[str, float]]:
    """Yield the beginning of a text and windows of its stretches, each with the characters one of it stands for."""
    yield text[:SAMPLE_ABOVE_CHARS], 1.0
    start = SAMPLE_ABOVE_CHARS
    while start < len(text):
        stride = start // SAMPLE_WINDOWS
        windows = range(start + (stride - SAMPLE_WINDOW_CHARS) // 2, min(2 * start, len(text)), stride)
        yield "".join([text[at : at + SAMPLE_WINDOW_CHARS] for at in windows]), stride / SAMPLE_WINDOW_CHARS
        start *= 2


def _table(*classes: tuple[str, str]) -> bytes:
    """A byte table that maps each named set to one character and everything else to a space."""
    table = bytearray(b" " * 256)
    for characters, mark in classes:
        for character in characters.encode("latin-1"):
            table[character] = ord(mark)
    return bytes(table)


_LETTERS = _table((string.ascii_letters, "a"))
_CASES = _table((string.ascii_lowercase, "a"), (string.ascii_uppercase, "A"), (string.digits, "d"))
_DIGITS = _table((string.digits, "d"))
_CONTROL = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_SYMBOLS = _table((string.punctuation + _CONTROL, "p"))
_SPACING = _table((string.digits, "d"), (string.punctuation + _CONTROL, "p"), (" \t", "s"), ("\n", "n"))
_CONSONANTS = _table(("bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZ", "c"))
_RARE = b"kzjKZJ"
_ESCAPES = f"\\{_CONTROL}".encode()
_CONTINUATION = bytes(range(0x80, 0xC0))
_RUNS = {
    symbol * (LONG_SPACES if symbol == " " else COLLAPSE_RUN_CHARS): kept for symbol, kept in KEPT_OF_LONG_RUNS.items()
}
_ASCII_RUNS = {start: kept for start, kept in _RUNS.items() if start.isascii()}


def _collapsed(text: str) -> str:
    """Thin long runs of one symbol; a search for the plain run comes first, it is cheap."""
    for start, kept in (_ASCII_RUNS if text.isascii() else _RUNS).items():
        if start in text:
            text = _shortened(text, start, kept)
    return text


def _shortened(text: str, start: str, kept: int) -> str:
    symbol = start[0]

    def shorter(run: re.Match[str]) -> str:
        return start + symbol * ((len(run[0]) - len(start)) // kept)

    return re.sub(f"{re.escape(start)}{re.escape(symbol)}+", shorter, text)


def _ascii(chars: bytes) -> Iterator[int]:
    """Counts of the ASCII part; every other character stands as one byte above 127."""
    letters, digits, symbols = chars.translate(_LETTERS), chars.translate(_DIGITS), chars.translate(_SYMBOLS)
    cases, spacing = chars.translate(_CASES), chars.translate(_SPACING)
    yield len(chars)
    yield letters.count(b"a")
    yield _runs(letters, b"a")
    yield digits.count(b"d")
    yield _runs(digits, b"d")
    yield symbols.count(b"p")
    yield _runs(symbols, b"p")
    yield cases.count(b"A")
    yield cases.count(b"aA")
    yield cases.count(b"dA") + cases.count(b"Ad")
    yield chars.count(b"\n") - chars.count(b"\n\n")
    yield spacing.count(b"ns")
    yield spacing.count(b"sd")
    yield spacing.count(b"ps")
    yield spacing.count(b"pp")
    yield chars.translate(_CONSONANTS).count(b"cccc")
    yield len(chars) - len(chars.translate(None, _RARE))
    yield len(chars) - len(chars.translate(None, _ESCAPES))
    yield chars.count(b"a ")
    yield chars.count(b"i ")
    yield chars.count(b"en ")
    yield letters.count(b"a" * LONG_WORD_CHARS)


def _runs(view: bytes, mark: bytes) -> int:
    return view.count(b" " + mark) + view.startswith(mark)


# fmt: off
WEIGHTS: dict[str, tuple[float, ...]] = {
    "openai": (
        0.042, 0.025, 0.612, 0.244, 1.030, 0.020, 0.457, 0.117, 0.436, 1.080, 0.525, 0.669,
        0.739, 0.352, 0.357, 0.630, 0.215, 0.793, 0.911, 1.000, 0.755, 4.000, 1.003, 0.276,
        0.150, 0.994, 0.279, 0.236, 0.275, 0.189, 0.313, 0.227, 0.020, 1.816, 0.493, 1.974,
        0.573, 0.250, 0.500, 0.600, 2.500, 1.409, 2.500, 2.500, 0.020, 0.600, 3.000, 0.217,
        0.245, 0.474, 0.265, 1.200, 0.239, 0.414, 0.339, 0.271, 0.511, 0.372, 1.831, 0.486,
        0.189, 0.606, 1.182, 2.800, 1.774, 2.000, 0.401,
    ),
    "cl100k": (
        0.051, 0.029, 0.567, 0.234, 1.071, 0.020, 0.392, 0.111, 0.305, 1.278, 0.479, 0.528,
        0.738, 0.375, 0.413, 0.650, 0.469, 0.868, 1.000, 1.000, 1.854, 4.000, 1.229, 0.876,
        0.659, 1.037, 0.858, 0.445, 3.363, 1.995, 0.982, 0.673, 0.133, 2.599, 0.923, 2.914,
        1.613, 0.250, 0.824, 0.800, 2.500, 1.421, 2.500, 2.500, 0.403, 0.993, 3.000, 1.005,
        1.290, 1.781, 1.821, 2.400, 1.377, 1.869, 1.871, 1.710, 2.002, 0.923, 2.105, 2.001,
        1.986, 0.893, 0.732, 2.800, 2.076, 8.475, 0.681,
    ),
    "anthropic": (
        0.043, 0.195, 0.391, 0.114, 1.329, 0.452, 0.342, 0.539, 0.567, 0.020, 1.286, 0.412,
        1.191, 0.020, 0.020, 0.805, 1.073, 0.765, 1.000, 1.000, 2.646, 3.538, 1.110, 0.766,
        0.196, 0.150, 0.656, 0.340, 2.031, 0.600, 0.717, 0.712, 0.917, 1.335, 1.221, 1.535,
        1.049, 1.092, 0.600, 0.800, 2.500, 2.065, 2.500, 2.500, 0.020, 0.750, 3.000, 0.771,
        0.872, 2.464, 0.976, 2.400, 0.834, 0.855, 1.956, 1.128, 1.040, 0.820, 1.344, 1.079,
        0.662, 0.743, 0.815, 2.800, 2.981, 37.243, 0.281,
    ),
    "claude3": (
        0.048, 0.024, 0.657, 0.180, 0.980, 0.113, 0.782, 0.190, 0.915, 0.967, 0.985, 0.577,
        1.286, 0.020, 0.020, 1.276, 0.732, 0.938, 1.000, 1.000, 2.104, 4.000, 2.513, 0.363,
        0.237, 0.150, 0.653, 0.329, 2.015, 0.587, 0.706, 0.698, 0.857, 1.417, 1.208, 1.530,
        1.043, 0.763, 0.600, 0.800, 2.500, 2.449, 2.500, 2.500, 0.020, 0.750, 3.000, 0.760,
        0.857, 2.453, 0.965, 2.400, 0.828, 0.843, 1.947, 1.121, 1.028, 0.815, 1.338, 1.071,
        0.651, 0.743, 0.634, 2.800, 3.349, 24.465, 0.297,
    ),
    "gemini": (
        0.022, 0.002, 0.853, 0.946, 0.219, 0.065, 0.880, 0.092, 0.692, 0.810, 1.043, 0.844,
        0.849, 0.020, 0.020, 0.739, 0.309, 0.488, 0.623, 1.000, 1.135, 4.000, 0.400, 0.147,
        0.150, 0.259, 0.350, 0.272, 1.559, 0.499, 0.490, 0.310, 0.308, 1.026, 0.545, 0.811,
        0.442, 0.250, 0.500, 0.600, 2.500, 1.480, 2.500, 2.500, 0.020, 1.048, 3.000, 0.233,
        0.222, 0.592, 0.367, 1.200, 0.198, 0.425, 0.376, 0.289, 0.455, 0.303, 0.540, 0.396,
        0.368, 0.343, 1.066, 2.800, 1.294, 2.000, 0.167,
    ),
    "llama": (
        0.050, 0.035, 0.549, 0.233, 1.075, 0.020, 0.393, 0.109, 0.270, 1.279, 0.515, 0.477,
        0.756, 0.352, 0.426, 0.666, 0.507, 0.946, 1.000, 1.000, 2.033, 4.000, 0.521, 1.016,
        0.150, 0.901, 0.355, 0.278, 3.895, 1.767, 1.108, 0.368, 0.300, 1.487, 0.616, 2.925,
        1.643, 0.250, 0.600, 0.700, 2.500, 1.911, 2.500, 2.500, 0.020, 0.700, 3.000, 0.537,
        1.398, 1.910, 1.926, 2.400, 1.447, 1.935, 1.936, 1.749, 2.097, 0.413, 1.979, 2.050,
        2.062, 0.551, 0.726, 2.800, 2.414, 2.000, 0.126,
    ),
    "qwen": (
        0.047, 0.052, 0.467, 0.929, 0.601, 0.020, 0.387, 0.113, 0.197, 1.135, 0.499, 0.529,
        0.765, 0.364, 0.415, 0.648, 0.677, 0.969, 1.000, 1.000, 1.807, 4.000, 4.515, 1.228,
        0.150, 0.150, 0.950, 0.438, 2.531, 1.087, 0.401, 0.420, 0.252, 1.187, 0.745, 1.123,
        1.216, 0.250, 3.144, 0.600, 2.200, 1.210, 2.200, 2.500, 0.020, 0.700, 3.000, 1.061,
        1.186, 1.843, 1.705, 1.500, 1.171, 1.627, 1.518, 1.371, 1.643, 0.520, 1.278, 1.583,
        1.076, 0.473, 1.126, 2.000, 1.957, 2.000, 0.056,
    ),
    "deepseek": (
        0.042, 0.035, 0.600, 0.226, 0.995, 0.020, 0.614, 0.161, 0.500, 0.823, 0.546, 0.488,
        0.772, 0.135, 0.334, 0.852, 0.355, 0.940, 1.000, 1.000, 1.566, 4.000, 0.400, 0.151,
        0.412, 0.955, 0.343, 0.225, 2.299, 0.417, 0.319, 0.228, 0.189, 0.998, 0.511, 2.250,
        1.170, 0.250, 0.500, 0.600, 2.500, 1.908, 2.500, 2.500, 0.102, 0.600, 3.000, 0.472,
        0.237, 0.866, 0.774, 1.200, 0.428, 0.680, 0.673, 0.752, 0.920, 0.298, 1.774, 0.849,
        0.664, 0.529, 1.083, 2.800, 1.426, 7.133, 0.767,
    ),
    "generic": (
        0.052, 0.034, 0.546, 0.229, 1.070, 0.020, 0.567, 0.127, 0.304, 1.295, 0.534, 0.396,
        1.145, 0.187, 0.360, 0.576, 0.507, 0.820, 1.000, 1.000, 1.718, 4.000, 2.786, 0.390,
        0.150, 0.315, 0.466, 0.256, 2.082, 0.541, 0.503, 0.287, 0.182, 1.469, 0.534, 1.746,
        1.098, 0.250, 2.409, 0.700, 2.500, 1.978, 2.500, 2.500, 0.020, 0.700, 3.000, 0.597,
        0.834, 1.722, 0.905, 2.400, 0.811, 0.811, 1.656, 1.035, 0.951, 0.442, 1.549, 1.041,
        0.641, 0.536, 1.133, 2.800, 1.561, 9.233, 0.658,
    ),
}
"""Tokens per count, in the order of `FEATURES`; none is negative, so that no count falls when text is appended.

Fitted by `benchmarks/fit_tokens.py` to 4,110 texts, counted exactly: code, documents, tables and traces of public
projects (CPython, the JDK, lodash, serde, Dubbo, jsoup, Petclinic, Vue, zod, rxjs, NumPy, Debian, ...), recorded agents
(SWE-agent, tau-bench), GitHub's and Stripe's example responses, guides and declarations in 60 languages.
"""

BOUNDS: dict[str, tuple[float, float]] = {
    "openai": (1.148, 0.889),
    "cl100k": (1.158, 0.877),
    "anthropic": (1.152, 0.886),
    "claude3": (1.140, 0.898),
    "gemini": (1.103, 0.921),
    "llama": (1.156, 0.873),
    "qwen": (1.144, 0.876),
    "deepseek": (1.162, 0.888),
    "generic": (1.536, 0.826),
}
"""True count over estimate: 95 % and 5 % quantile over agent-like texts."""

CHARS_PER_TOKEN = 4.0
"""The published rule of thumb for English; within 20 % of the truth on about half of real texts."""

CHAR_RATIO_MESSAGE_TOKENS = 3
"""Role and separators of one message, the constant of LangChain's own counter."""

WholePrice = Callable[[str], int]
"""The price of a text, in whole tokens."""


@dataclass(frozen=True, slots=True)
class TokenEstimator:
    """Estimates tokens from the classes of characters in a text, with weights fitted to a family's tokenizer.

    About 5 to 10 % off on average over prose, code, JSON and other languages; bounded in time for any length.

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
        if self.family not in WEIGHTS:
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
        weights = WEIGHTS[self.family]
        tokens: float
        if len(text) <= SAMPLE_ABOVE_CHARS:  # nearly all
            tokens = sum(map(mul, weights, features(text)))
        else:
            tokens = sum(share * sum(map(mul, weights, features(part))) for part, share in sample(text))
        return tokens


@dataclass(frozen=True, slots=True)
class CharRatioCounter:
    """Divides characters by a constant: the published heuristics, for comparison and for tests.

    `CharRatioCounter()` is exactly `len(text) // 4`; 2.5 characters, and 4.0 with a margin of 0.2, are the two others.

    Raises:
        ConfigError: the ratio is not positive, the margin negative, or one of them not finite.
    """

    chars_per_token: float = CHARS_PER_TOKEN
    margin: float = 0.0

    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (self.chars_per_token > 0 and isfinite(self.chars_per_token)):
            raise ConfigError(f"chars_per_token={self.chars_per_token!r}: give a positive number of characters")
        _require_margin(self.margin)

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the tokens of all text in messages and tool definitions, media by kind and size."""
        tokens = sum(CHAR_RATIO_MESSAGE_TOKENS + self._message(message) for message in _messages(messages))
        return tokens + sum(self.count_text(compact_json(tool_definition(tool))) for tool in tools or ())

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text."""
        return int(len(text) / self.chars_per_token * (1 + self.margin))

    def _message(self, message: BaseMessage) -> int:
        found = list(pieces(message))
        texts = (piece if isinstance(piece, str) else piece.text for piece in found if not isinstance(piece, Media))
        media = sum(media_tokens(piece, GENERIC, self.count_text) for piece in found if isinstance(piece, Media))
        return self.count_text("".join(texts)) + int(media)


def request_tokens(
    messages: Iterable[MessageLikeRepresentation], tools: Any, framing: Framing, price: TextPrice
) -> float:
    """Return the tokens of a request: text at `price`, all else by the constants of a family."""
    tokens = float(framing.request)
    for message in _messages(messages):
        tokens += framing.message + sum(_piece_tokens(piece, framing, price) for piece in pieces(message))
    if tools:
        tokens += schema_tokens(tools, framing, price)
    return tokens


def text_price(counter: Callable[..., int] | None) -> WholePrice:
    """Return the price of a text in tokens; a counter of messages alone prices it as one user message."""
    count = counter or TokenEstimator()
    count_text: WholePrice | None = getattr(count, "count_text", None)
    if count_text is not None:
        return count_text
    base = count([])
    return lambda text: count([HumanMessage(text)]) - base


def _piece_tokens(piece: Piece, framing: Framing, price: TextPrice) -> float:
    if isinstance(piece, str):
        return price(piece)
    if isinstance(piece, Call):
        return framing.call + price(piece.plain_text if framing.plain_arguments else piece.text)
    return media_tokens(piece, framing, price)


def _messages(messages: Iterable[MessageLikeRepresentation]) -> Iterable[Any]:
    """Messages as they are; only other message-likes are converted."""
    given = list(messages)
    return given if all(isinstance(message, BaseMessage) for message in given) else convert_to_messages(given)


def tool_definition(tool: Any) -> Any:
    """Return a tool in OpenAI's form; one that LangChain cannot convert as it is."""
    try:
        return convert_to_openai_tool(tool)
    except UNREADABLE:
        return tool


def _require_margin(margin: float) -> None:
    if not (margin >= 0 and isfinite(margin)):
        raise ConfigError(f"margin={margin!r}: give a share of at least 0, for example 0.2")
