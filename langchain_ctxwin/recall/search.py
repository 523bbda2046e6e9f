"""Which messages of a history answer a query, within a token budget?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import (
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    convert_to_messages,
)

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.recall.relevance import Hit, afind, find

MAX_TOKENS = 2_000
"""What one search may return, in tokens: about fifty chat messages."""


class Found(list[AnyMessage]):
    """The messages that a search found and that fit, most relevant first: a list that also says what was left out."""

    def __init__(self, kept: Iterable[AnyMessage] = (), *, dropped: Iterable[AnyMessage] = (), tokens: int = 0) -> None:
        super().__init__(kept)
        self.dropped = tuple(dropped)
        """Messages that match but did not fit, most relevant first."""
        self.tokens = tokens
        """What the kept messages cost, each priced alone: together they cost no more."""

    @property
    def truncated(self) -> bool:
        """True when a message that matches did not fit."""
        return bool(self.dropped)


def search_messages(
    messages: Sequence[MessageLikeRepresentation],
    query: str,
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    embeddings: Embeddings | None = None,
) -> Found:
    """Return the messages that match a query and fit in `max_tokens`, whole and most relevant first.

    Words count by how rare they are in this history (BM25); texts, tool calls with their arguments and tool results are
    searched, reasoning is not. A message is also found by what stands right before and after it. One that does not fit
    is left out, and smaller ones may follow. Nothing that matches is left out silently: see `Found`.

    Args:
        messages: the history to search, for example a graph state's `messages`.
        query: words, names, numbers or a question, in any language.
        max_tokens: what all returned messages may cost together.
        counter: counts tokens; by default `TokenEstimator()`.
        embeddings: rank by meaning instead of by words. Every passage is embedded in every call: wrap them in a
            `CacheBackedEmbeddings` when you search the same history often.

    Raises:
        ConfigError: an argument is empty, of the wrong type or out of range.

    Example:
        >>> history = [("user", "My order is ORD-1234."), ("ai", "Thank you."), ("user", "Nice weather today.")]
        >>> [message.text for message in search_messages(history, "Which order?", max_tokens=20)]
        ['My order is ORD-1234.']
    """
    history = checked(messages, query, max_tokens, counter, embeddings)
    return _fitting(history, find(history, query, embeddings), max_tokens, counter)


async def asearch_messages(
    messages: Sequence[MessageLikeRepresentation],
    query: str,
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    embeddings: Embeddings | None = None,
) -> Found:
    """Like `search_messages`, awaiting the embeddings."""
    history = checked(messages, query, max_tokens, counter, embeddings)
    return _fitting(history, await afind(history, query, embeddings), max_tokens, counter)


def checked(messages: Any, query: Any, max_tokens: Any, counter: Any, embeddings: Any) -> list[AnyMessage]:
    """Return the history as messages; raise `ConfigError` for arguments that cannot be used."""
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(f"query={query!r}: give the words to search for")
    check_settings(max_tokens, counter, embeddings)
    if isinstance(messages, str | bytes | BaseMessage) or not isinstance(messages, Iterable):
        raise ConfigError(f"messages={messages!r:.80}: give a list of messages")
    given: list[Any] = list(messages)
    try:
        history: list[Any] = given if all(isinstance(m, BaseMessage) for m in given) else convert_to_messages(given)
    except (ValueError, NotImplementedError) as error:  # what LangChain raises for what is no message
        raise ConfigError(f"messages: {error}; give a list of messages") from error
    return [message for message in history if message.type != "remove"]


def check_settings(max_tokens: Any, counter: Any, embeddings: Any) -> None:
    """Raise `ConfigError` for settings that cannot be used."""
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens <= 0:
        raise ConfigError(f"max_tokens={max_tokens!r}: give a positive number of tokens, for example {MAX_TOKENS}")
    if counter is not None and (isinstance(counter, type) or not callable(counter)):
        raise ConfigError(f"counter={counter!r}: give a callable that counts the tokens of messages, or None")
    if embeddings is not None and not isinstance(embeddings, Embeddings):
        raise ConfigError(f"embeddings={embeddings!r:.80}: give LangChain `Embeddings`, or None to search by words")


def _fitting(
    history: Sequence[AnyMessage], hits: Sequence[Hit], max_tokens: int, counter: TokenCounter | None
) -> Found:
    count = counter or TokenEstimator()
    base = count([])
    ranked = [history[hit.index] for hit in hits]
    # Any message costs more than an empty one, so what is ranked behind as many as could fill the room is not priced.
    most = max(0, (max_tokens - base) // (count([HumanMessage("")]) - base + 1))
    fit: Fit[AnyMessage] = take_while_fits(
        ranked[:most], max_tokens - base, lambda message: count([message]) - base, on_overflow="skip"
    )
    tokens = base + fit.tokens if fit.kept else 0
    return Found(fit.kept, dropped=(*fit.dropped, *ranked[most:]), tokens=tokens)
