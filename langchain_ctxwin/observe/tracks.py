"""What is remembered of each model: its latest comparisons, a reset that is due, what was logged last."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from langchain_ctxwin.observe.pace import LogPace

WINDOW = 40
"""Latest comparisons that an accuracy is taken from: 17 to 40 counts tell a bias within 3 %, and more of them would be
slower to show that a model changed."""

MIN_SAMPLES = 20
"""Comparisons below which a share says little: of so many, four have to be off before it is too low."""

ACCURATE_WITHIN = 0.2
"""Error up to which a count is accurate."""

MIN_ACCURATE_SHARE = 0.85
"""Share of accurate counts under which what was learned about a model is not believed any more."""

MAX_MODELS = 256
"""Models remembered, a few kilobytes each: a deployment talks to dozens; gateways may make up a name per tenant."""

CountedBy = Literal["usage", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One count of ours against a better one."""

    error: float
    counted_by: CountedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How close the latest counts for one model came."""

    share: float
    """Share of the comparisons in which our count was at most 20 % off."""

    samples: int
    """Comparisons since the last reset, 40 at most."""

    exact_samples: int
    """Those of them that an exact counter made."""

    mean_error: float
    """Mean of the errors with their signs: above 0 when we count too much."""


@dataclass(slots=True, kw_only=True)
class _Track:
    comparisons: deque[Comparison] = field(default_factory=lambda: deque(maxlen=WINDOW))
    resets: int = 0
    reset_due: bool = False
    pace: LogPace = field(default_factory=LogPace)


class Tracks:
    """Keeps accuracies per model; thread-safe, and forgets the models that were used least recently."""

    def __init__(self) -> None:
        self._tracks: OrderedDict[str, _Track] = OrderedDict()
        self._lock = threading.Lock()

    def resets(self, model: str) -> int:
        """Return how often the model started anew: a comparison belongs to the count's time, not to its own."""
        with self._lock:
            return self._track(model).resets

    def record(self, model: str, comparison: Comparison, *, resets: int) -> Accuracy | None:
        """Remember a comparison; return the accuracy if it is too low by now, and start anew.

        One of a count that was made before the latest reset is ignored.
        """
        with self._lock:
            track = self._track(model)
            if track.resets != resets:
                return None
            track.comparisons.append(comparison)
            accuracy = _accuracy(track.comparisons)
            if accuracy.samples < MIN_SAMPLES or accuracy.share >= MIN_ACCURATE_SHARE:
                return None
            track.comparisons.clear()
            track.resets += 1
            track.reset_due = True
            return accuracy

    def accuracy(self, model: str) -> Accuracy | None:
        """Return the accuracy of the latest counts; None when there are none."""
        with self._lock:
            track = self._tracks.get(model)
            return _accuracy(track.comparisons) if track and track.comparisons else None

    def take_reset(self, model: str) -> bool:
        """Say once that the model started anew."""
        with self._lock:
            track = self._track(model)
            due, track.reset_due = track.reset_due, False
            return due

    def take_log(self, model: str, now: float) -> int | None:
        """Return how many discrepancies were not logged since the last one that was, or None: too early for another."""
        with self._lock:
            return self._track(model).pace.take(now)

    def _track(self, model: str) -> _Track:
        """The track of a model, used just now; the lock is held."""
        track = self._tracks.setdefault(model, _Track())
        self._tracks.move_to_end(model)
        if len(self._tracks) > MAX_MODELS:
            self._tracks.popitem(last=False)
        return track


def _accuracy(comparisons: Collection[Comparison]) -> Accuracy:
    errors = [comparison.error for comparison in comparisons]
    return Accuracy(
        share=sum(abs(error) <= ACCURATE_WITHIN for error in errors) / len(errors),
        samples=len(errors),
        exact_samples=sum(comparison.counted_by == "exact" for comparison in comparisons),
        mean_error=fmean(errors),
    )
