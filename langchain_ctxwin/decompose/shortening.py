"""How does a text become short enough without hiding that something is missing?"""

from __future__ import annotations

from math import ceil

from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.text.sentences import word_cut

HEAD_SHARE = 2 / 3
"""Part of what is kept that comes from the beginning: answers state the main thing first and conclude at the end."""

SHRINK = 0.9
"""Share of the computed length that is tried: the marker costs tokens, and text is not equally dense everywhere."""


def shortened(text: str, most_tokens: int, price: WholePrice) -> str:
    """Return the beginning and the end of `text` with a marker between that says how much is missing.

    A room too small for the marker gets the marker alone.
    """
    tokens, kept_chars, found = price(text), len(text), text
    while tokens > most_tokens and kept_chars:
        kept_chars = min(kept_chars - 1, int(kept_chars * SHRINK * most_tokens / tokens))
        head = word_cut(text, 0, ceil(kept_chars * HEAD_SHARE)) if kept_chars else 0
        tail = len(text) - (kept_chars - head)
        found = f"{text[:head]}\n[... {tail - head:,} characters left out ...]\n{text[tail:]}"
        tokens = price(found)
    return found
