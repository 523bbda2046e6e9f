"""What a good summarizer writes, the same for everybody: the key sentences, as many as its answer can hold."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import exact
from arena_parts.script import KEY_SENTENCE
from arena_parts.sizes import Part

ASKED_TOKENS = re.compile(r"at most ([\d,]+) tokens")
KEY_SHARE = 0.8  # of the answer goes to key sentences at most
FILLED_SHARE = 0.6  # of the answer is used in any case: models write more than the facts
SENTENCE = re.compile(r"[^.\n。]{20,200}[.。]")


def summary_of(parts: Sequence[Part], longest_tokens: int) -> str:
    """The summary of a request, as long as it asks for."""
    text = "\n".join(part.text for part in parts[1:])
    asked = [int(found.replace(",", "")) for found in ASKED_TOKENS.findall(text)]
    return extract(text, min([longest_tokens, *asked]))


def extract(text: str, max_tokens: int) -> str:
    """Key sentences, chosen by their digest where they do not all fit so that no place is favoured, then others."""
    keys = list(dict.fromkeys(KEY_SENTENCE.findall(text)))
    kept, used = set(), 0
    for sentence in sorted(keys, key=lambda s: (not s.startswith("Standing"), hashlib.sha256(s.encode()).digest())):
        used += exact.text_tokens(sentence) + 1
        if used > KEY_SHARE * max_tokens:
            break
        kept.add(sentence)
    lines = [sentence for sentence in keys if sentence in kept]
    used = sum(exact.text_tokens(line) + 1 for line in lines)
    for found in SENTENCE.finditer(text):
        size = exact.text_tokens(found.group()) + 1
        if used + size > FILLED_SHARE * max_tokens:
            break
        if not KEY_SENTENCE.search(found.group()):
            lines.append(found.group().strip())
            used += size
    return "\n".join(lines) or "Nothing of note."
