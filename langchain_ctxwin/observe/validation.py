"""How close do our counts come to what providers report, model by model?"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from langchain_ctxwin.core.events import Event, StepEvent
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, once

DISCREPANCY = 0.3  # error above which a count is worth a look
ACCURATE_WITHIN = 0.2  # error up to which a count is accurate
# of counts; less is worth a warning
MIN_ACCURATE_SHARE = 0.85
MIN_SAMPLES = 20  # below, a share says little: of so many, four have to be off before it is too low
WINDOW = 40  # latest comparisons: 17 to 40 tell a bias within 3 %, more would be slower to show that a model changed
# remembered: dozens are in use, but gateways may make up a name per tenant
MAX_MODELS = 256
SHARE_DIGITS = 3  # in the log: finer ones are noise of the sample


@dataclass(slots=True)
class _Track:
    """The latest errors of the counts for one model."""

    errors: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def accuracy(self) -> float | None:
        """Share of the errors that are at most 20 %; None when there are none."""
        accurate = sum(abs(error) <= ACCURATE_WITHIN for error in self.errors)
        return accurate / len(self.errors) if self.errors else None


class Validator:
    """A sink that compares counts with reported usage; thread-safe, one for any number of engines.

    Two warnings are logged, none with a text of a message:

    - `validation.discrepancy`: an error over 30 %, the first among a model's latest 40 counts.
    - `validation.accuracy_dropped`: less than 85 % of a model's latest 40 counts were at most 20 % off. The next 20
      are waited for before it is said again.

    Instantiate:
        ```python
        validator = Validator()
        ```

    Use:
        ```python
        engine = ContextEngine(limits=model, sinks=[validator])
        validator.accuracy(
            name
        )  # 0.95: of the latest 40 counts, 38 were at most 20 % off
        ```
    """

    def __init__(self) -> None:
        self._tracks: Lru[_Track] = Lru(MAX_MODELS)
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Compare our count of an answered request with the size that its provider reports, if it does."""
        if not isinstance(event, StepEvent):
            return
        model, expected = event.model, event.estimated_tokens
        reported = event.reported_tokens
        if expected is None or not reported:
            return
        error = (expected - reported) / reported
        with self._lock:
            track = once(self._tracks, model, _Track)
            is_first = not any(abs(earlier) > DISCREPANCY for earlier in track.errors)
            track.errors.append(error)
            accuracy, is_enough = (
                track.accuracy or 0.0,
                len(track.errors) >= MIN_SAMPLES,
            )
            is_too_low = is_enough and accuracy < MIN_ACCURATE_SHARE
            if is_too_low:
                track.errors.clear()
        if abs(error) > DISCREPANCY and is_first:
            log.warning(
                "validation.discrepancy",
                model=model,
                expected_tokens=expected,
                reported_tokens=reported,
                error=round(error, SHARE_DIGITS),
            )
        if is_too_low:
            share = round(accuracy, SHARE_DIGITS)
            log.warning("validation.accuracy_dropped", model=model, share=share)

    def accuracy(self, model: str) -> float | None:
        """Return the share of the latest 40 counts that were at most 20 % off.

        None when nothing was compared, or not since the accuracy was last too low.
        """
        with self._lock:
            return once(self._tracks, model, _Track).accuracy
