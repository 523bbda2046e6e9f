"""What this process remembers of the limits of models: what providers stated, and what they took all the same."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru

# How long an accepted size refutes smaller limits: after an hour the server may have been restarted with less room.
ACCEPTED_SECONDS = 3_600.0


class HeardLimits:
    """The limits that providers stated since this process began, by model: an engine's own `LimitMemory`."""

    def __init__(self) -> None:
        self._known: Lru[Mapping[str, int]] = Lru(MAX_TEXTS)

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits heard of a model."""
        return self._known.get(model) or {}

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember limits; of a model without a name nothing, because it could be any."""
        if model:
            self._known.put(model, {**self.recall(model), **limits})

    def accepted(self, model: str, tokens: int) -> None:
        """Forget the limits below an input that the model took."""
        known = self.recall(model)
        if known and (left := unrefuted(known, tokens)) != known:
            self._known.put(model, left)


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
