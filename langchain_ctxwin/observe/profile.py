"""What kind of text is in a request? Numbers that explain a wrong count and quote nothing."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage

from langchain_ctxwin.core.edits import Media, pieces
from langchain_ctxwin.core.tokens import sample

PROFILED_MESSAGES = 1_000
"""Messages that are looked at, evenly spaced, so that a profile takes a few milliseconds at most."""

SHARE_DIGITS = 3
"""Digits of a share: finer ones are noise of the sample."""

_ASCII_CLASSES = {
    "ascii_letters": string.ascii_letters.encode(),
    "digits": string.digits.encode(),
    "whitespace": string.whitespace.encode(),
}
_BEYOND_ASCII = bytes(range(0x80, 0x100))
_CJK = re.compile(
    "["
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # Korean
    "\u3040-\u30ff\u31f0-\u31ff"  # Japanese syllables
    "\u2e80-\u303f\u3100-\u312f\u31a0-\u31ef\u3200-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # ideographs
    "\uff00-\uffef"  # full-width forms
    "]+"
)


def profile(messages: Sequence[AnyMessage], tools: Sequence[Any]) -> dict[str, Any]:
    """Return numbers about a request: sizes, and shares of character classes (taken from a sample of a long text).

    Of more than `PROFILED_MESSAGES` messages only so many are looked at, which `profiled_messages` states. A request
    with content that cannot be read has a shorter profile.
    """
    sizes = {"messages": len(messages), "tools": len(tools)}
    looked_at = messages[:: -(-len(messages) // PROFILED_MESSAGES) or 1]
    try:
        read = [_read(message) for message in looked_at]
    except Exception:  # noqa: BLE001  # content of any shape, perhaps being changed: what is known of it is enough
        return sizes
    text = "".join(text for text, _ in read)
    return {
        **sizes,
        "profiled_messages": len(looked_at),
        "characters": len(text),
        "longest_message_characters": max((len(text) for text, _ in read), default=0),
        "media_blocks": sum(media for _, media in read),
        **_shares(sample(text)),
    }


def _read(message: BaseMessage) -> tuple[str, int]:
    """The texts of a message in one string, and the number of its media."""
    found = list(pieces(message))
    texts = [piece if isinstance(piece, str) else piece.text for piece in found if not isinstance(piece, Media)]
    return "".join(texts), len(found) - len(texts)


def _shares(text: str) -> dict[str, float]:
    """Share of each class of characters; they add up to 1, or are all 0 for an empty text."""
    ascii_text = text.encode("utf-8", "replace").translate(None, _BEYOND_ASCII)
    counts = {name: len(ascii_text) - len(ascii_text.translate(None, chars)) for name, chars in _ASCII_CLASSES.items()}
    counts["punctuation"] = len(ascii_text) - sum(counts.values())
    counts["cjk"] = sum(map(len, _CJK.findall(text)))
    counts["other"] = len(text) - sum(counts.values())
    return {name: round(count / max(1, len(text)), SHARE_DIGITS) for name, count in counts.items()}
