"""The extension points: what can be swapped, one method each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.events import Event
from langchain_ctxwin.core.model_info import ModelInfo

Clock = Callable[[], float]
"""Seconds since the epoch, like `time.time`."""


class TokenCounter(Protocol):
    """Counts the input tokens of a request; `count_tokens_approximately` has this shape.

    A counter may also have `exact = True` (its counts are reported as exact), and `upper(tokens)` and
    `lower(tokens)`, the bounds of the true count behind an estimate; without them the count is taken as it is. What a
    counter raises, such as for tools that it does not take, is logged once, and estimated.
    """

    def __call__(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the tokens of `messages` (role overhead included) and of the tool definitions."""
        ...


@runtime_checkable
class LimitMemory(Protocol):
    """Remembers which limits providers stated, for every conversation."""

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits learned of a model, in tokens by field of `ModelLimits`; empty when none were."""
        ...

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember limits that a provider stated; at once, without I/O on the caller's thread."""
        ...


@runtime_checkable
class Summarizer(Protocol):
    """Writes one summary of a previous summary and the messages that follow it."""

    def summarize(
        self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int
    ) -> str:
        """Return the new summary, at most about `max_tokens` long, or raise `SummarizationError`.

        Called in a thread of its own.
        """
        ...


@runtime_checkable
class ResultStore(Protocol):
    """Keeps large tool results as bytes until they expire; may be called by several threads at once.

    A store that also has coroutine methods `aput`, `aget` and `adelete` with the same arguments is awaited in async
    runs. Whatever a method raises counts as a store that is down: the tool's result is then shortened, with a note.
    One that also has `clear(namespace) -> int`, which deletes all keys of a namespace, can be given to `forget`.
    """

    def put(self, key: str, value: bytes, ttl_seconds: float) -> None:
        """Keep `value` for `ttl_seconds`, in the place of what was kept under this key.

        A key is `namespace/name`: the namespace belongs to one tenant and thread.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """Return the value stored under this key, or None: never stored, expired, displaced or deleted."""
        ...

    def delete(self, key: str) -> None:
        """Forget what is kept under this key; no effect when there is nothing."""
        ...


class ToolRanker(Protocol):
    """Says how well tools serve a request."""

    def rank(self, query: str, tools: Sequence[Any]) -> list[float]:
        """Return a score per tool, in the order of `tools`; larger is better, 0 or less is no match."""
        ...


@runtime_checkable
class MetricsSink(Protocol):
    """Takes what happens, in the thread of the run: it has to return at once, and several threads may call it.

    One that is slow needs a queue of its own. What a sink raises is logged, and the turn goes on.
    """

    def emit(self, event: Event) -> None:
        """Take one event."""
        ...


@runtime_checkable
class ModelSource(Protocol):
    """States facts about models; it may be slow, fail or be wrong: a registry copes with each.

    A source may also have `name` (shown as provenance; by default its class) and `tier`, one of `explicit`, `learned`,
    `provider`, `profile`, `catalog` and `guess`, in order of trust; without a tier it counts as a provider.
    """

    def fetch(self, name: str | None) -> Sequence[ModelInfo]:
        """Return the facts about one model, or about all models; empty when the source knows none."""
        ...
