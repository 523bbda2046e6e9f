"""Limits of models that change: what providers stated, what they took all the same, and what a registry says now.

What one conversation hears holds for that one, because what it sends may bring it about; what two heard, for all.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage

from langchain_ctxwin.core.limits import ModelLimits, unrefuted
from langchain_ctxwin.core.model_info import ModelInfo, family_of, model_name
from langchain_ctxwin.errors import UnknownModelError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru

# How long an accepted size refutes smaller limits: after an hour the server may have been restarted with less room.
ACCEPTED_SECONDS = 3_600.0
# How long a stated limit holds for other conversations: one that is obeyed is never stated again, so only expiry finds
# out that it was raised, at the price of one refused request a day.
HEARD_SECONDS = 24 * 3_600.0
DIGEST_BYTES = 16  # two conversations do not meet by chance


class Corroboration:
    """Tells what two different conversations met within a time from what only one did; thread-safe, bounded."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds, self._clock = seconds, clock
        self._met: Lru[tuple[str, float]] = Lru(MAX_TEXTS)

    def by_another(self, fact: Hashable, conversation: str) -> bool:
        """Note that a conversation met a fact; true when the one that met it last is another, and not long ago."""
        now = self._clock()
        known, at = self._met.get(fact) or (conversation, now)
        self._met.put(fact, (conversation, now))
        return known != conversation and now - at < self._seconds


def conversation_of(messages: Sequence[BaseMessage]) -> str:
    """Return what tells a conversation from others: a digest of its first message beside system messages, and its id.

    Nothing of its text: what is kept of it outlives the conversation.
    """
    first = next((message for message in messages if not isinstance(message, SystemMessage)), None)
    if first is None:
        return ""
    told = f"{first.id}\0{first.content}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(told, digest_size=DIGEST_BYTES).hexdigest()


class HeardLimits:
    """The limits that providers stated within a day, by model: an engine's own `LimitMemory`."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._known: Lru[tuple[Mapping[str, int], float]] = Lru(MAX_TEXTS)
        self._heard = Corroboration(HEARD_SECONDS, clock)

    def confirmed(self, model: str, limits: Mapping[str, int], conversation: str) -> dict[str, int]:
        """Return the limits that another conversation heard before; the others are once one does."""
        heard = self._heard
        return {name: n for name, n in limits.items() if heard.by_another((model, name, n), conversation)}

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits heard of a model."""
        limits, until = self._known.get(model) or ({}, 0.0)
        return limits if self._clock() < until else {}

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember limits; of a model without a name nothing, because it could be any."""
        if model:
            self._known.put(model, ({**self.recall(model), **limits}, self._clock() + HEARD_SECONDS))

    def accepted(self, model: str, tokens: int) -> None:
        """Forget the limits below an input that the model took."""
        known = self._known.get(model)
        if known and (left := unrefuted(known[0], tokens)) != known[0]:
            self._known.put(model, (left, known[1]))


class AcceptedSizes:
    """The largest inputs that models took lately; thread-safe, losing them costs a check."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: Lru[tuple[int, float]] = Lru(MAX_TEXTS)

    def note(self, model: str, tokens: int) -> None:
        """Remember an input that a model took."""
        if tokens >= self.of(model):
            self._known.put(model, (tokens, self._clock() + ACCEPTED_SECONDS))

    def of(self, model: str) -> int:
        """Return the largest known input of a model in tokens; 0 when none is."""
        tokens, until = self._known.get(model) or (0, 0.0)
        return tokens if self._clock() < until else 0


def is_registry(value: Any) -> bool:
    """True for what looks models up, such as a `ModelRegistry`; it is asked with each request."""
    return not isinstance(value, type) and callable(getattr(value, "lookup", None))


@dataclass(frozen=True, slots=True)
class FollowedLimits:
    """Limits of one model as a registry states them now: asked whenever they are read, which the registry caches."""

    registry: Any
    model: Any

    @property
    def limits(self) -> ModelLimits:
        """What the registry says; of a model that it does not know, what that states of itself.

        Raises:
            UnknownModelError: neither states a limit.
        """
        own = ModelLimits.of(self.model)
        try:
            found: ModelLimits = self.registry.lookup(self.model).limits
        except UnknownModelError:
            if not own.known:
                raise
            return own
        output, requested = found.max_output_tokens, own.requested_output_tokens
        if requested is None or (found.context_window is not None and requested >= found.context_window):
            return found
        output = output if output is None or requested <= output else None
        return replace(found, requested_output_tokens=requested, max_output_tokens=output)

    @property
    def name(self) -> str:
        """Name of the model."""
        return model_name(self.model)

    @property
    def tokenizer_family(self) -> str:
        """Family of its tokenizer."""
        return family_of(self.model)


def followed(limits: Any, learned: Any) -> Any:
    """Return limits that follow the registry they were looked up in, where that is the memory of an engine, too."""
    is_looked_up = isinstance(limits, ModelInfo) and is_registry(learned)
    return FollowedLimits(learned, limits) if is_looked_up else limits
