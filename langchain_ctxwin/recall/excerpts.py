"""How is a message shown to an agent that recalls it: whole, or from where to where?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from langchain_core.messages import AnyMessage, HumanMessage

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.core.turns import NOTE_KEY
from langchain_ctxwin.recall.handles import handles
from langchain_ctxwin.recall.passages import readable_text, spans

STEP_CHARS = 100
"""An excerpt ends at the end of such a piece, after a space where there is one: about a line of text."""

NAME_CHARS = 64
"""Longest name in a label, the longest that providers accept; anybody's message may have a longer one."""

SEPARATOR = "\n\n"

_ROLES = {"human": "user", "ai": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One message, or a part of it, under a line that says which it is."""

    index: int
    """Position of the message."""

    text: str
    tokens: int


class Showcase:
    """Shows the messages of one history within a number of tokens each."""

    def __init__(self, messages: Sequence[AnyMessage], price: WholePrice) -> None:
        self._messages = messages
        self._price = price
        self._handles = handles(messages)
        self._turns = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, HumanMessage) and NOTE_KEY not in message.additional_kwargs
        ]

    def whole(self, index: int) -> Block:
        """Return the whole message."""
        text = f"[{self._label(index)}]\n{self.text(index) or '(no text)'}"
        return self._block(index, text)

    def excerpt(self, index: int, start_char: int, room_tokens: int) -> Block:
        """Return the message from `start_char` on, as much of it as fits."""
        text = self.text(index)
        longest = self._part_label(index, len(text), len(text) - 1, len(text))
        # No piece costs less than a token.
        pieces = islice(spans(text[start_char:], STEP_CHARS), max(0, room_tokens))
        fit: Fit[tuple[int, int]] = take_while_fits(
            pieces,
            room_tokens - self._price(f"{longest}\n{SEPARATOR}"),
            lambda span: self._price(text[start_char + span[0] : start_char + span[1]]),
        )
        stop_char = start_char + (fit.kept[-1][1] if fit.kept else 0)
        label = self._part_label(index, start_char, stop_char, len(text))
        return self._block(index, f"{label}\n{text[start_char:stop_char]}")

    def text(self, index: int) -> str:
        """Return what of the message can be shown."""
        return readable_text(self._messages[index])

    def _block(self, index: int, text: str) -> Block:
        return Block(index=index, text=text, tokens=self._price(f"{text}{SEPARATOR}"))

    def _label(self, index: int) -> str:
        message = self._messages[index]
        speaker = " ".join(filter(None, (_ROLES.get(message.type, message.type), (message.name or "")[:NAME_CHARS])))
        return f"{self._handles[index]}, {speaker}, turn {bisect_right(self._turns, index)}"

    def _part_label(self, index: int, start_char: int, stop_char: int, chars: int) -> str:
        more = f"; read on with offset_chars={stop_char}" if stop_char < chars else ""
        return f"[{self._label(index)}, characters {start_char} to {stop_char} of {chars}{more}]"
