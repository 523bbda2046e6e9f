"""How many tokens is this? A content-aware estimate per tokenizer family, and the published character heuristics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, isfinite
from operator import mul
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage, HumanMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.content import Call, Media, Piece, compact_json, pieces
from langchain_ctxwin.core.families import BOUNDS, WEIGHTS
from langchain_ctxwin.core.features import features, sample
from langchain_ctxwin.core.framing import FRAMING, GENERIC, Framing
from langchain_ctxwin.core.media import media_tokens
from langchain_ctxwin.core.tool_schemas import UNREADABLE, TextPrice, schema_tokens
from langchain_ctxwin.errors import ConfigError

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

    Example:
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
        if not text:
            return 0.0
        seen = sample(text)
        tokens: float = sum(map(mul, WEIGHTS[self.family], features(seen)))
        return tokens * (len(text) / len(seen))


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
