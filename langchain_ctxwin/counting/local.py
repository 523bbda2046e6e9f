"""How many tokens is this, by the model's own tokenizer on this machine?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, ClassVar

from langchain_core.messages import MessageLikeRepresentation

from langchain_ctxwin.core.tokens import request_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError

Count = Callable[[str], int]
"""Tokens of a text that is valid Unicode."""


class LocalCounter:
    """Counts every text with a tokenizer; framing, tool structure and media by the constants of a family.

    What a provider adds around the text is published nowhere, so a request may be off by a few tokens a message.
    Texts of any kind are counted: special tokens as plain text, lone surrogates as the replacement character.

    Raises:
        ConfigError: the family is unknown.
    """

    exact: ClassVar[bool] = True

    def __init__(self, count: Count, *, family: str) -> None:
        if family not in FRAMING:
            raise ConfigError(f"family={family!r} is unknown: use one of {', '.join(sorted(FRAMING))}")
        self.family = family
        self._count = count

    def __call__(self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None) -> int:
        """Return the tokens of a request."""
        return ceil(request_tokens(messages, tools, FRAMING[self.family], self.count_text))

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text, without any framing."""
        return self._count(_valid(text)) if text else 0


def _valid(text: str) -> str:
    """What arrives at a provider: surrogates in pairs are one character, lone ones the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
