"""Which scripts is a text written in? Counts of characters beyond ASCII by block, with byte tables only.

Characters of two UTF-8 bytes are told apart by their first byte, the others by the high byte of their UTF-16 form;
blocks that hold two scripts are looked at again, and only when they occur.
"""

from __future__ import annotations

from collections.abc import Iterator

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
