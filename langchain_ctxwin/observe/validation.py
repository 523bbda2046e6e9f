"""How close do our counts come to what providers report, model by model?"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from langchain_ctxwin.core.usage import count_of
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, once

DISCREPANCY = 0.3  # error above which a count is worth a look
ACCURATE_WITHIN = 0.2  # error up to which a count is accurate
# of counts; under it what was learned about a model is not believed any more
MIN_ACCURATE_SHARE = 0.85
MIN_SAMPLES = 20  # below, a share says little: of so many, four have to be off before it is too low
WINDOW = 40  # latest comparisons: 17 to 40 tell a bias within 3 %, more would be slower to show that a model changed
# remembered: dozens are in use, but gateways may make up a name per tenant
MAX_MODELS = 256
SHARE_DIGITS = 3  # in the log: finer ones are noise of the sample


@dataclass(slots=True)
class _Track:
    """The latest errors of the counts for one model, and how often they were found to be too large."""

    errors: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    resets: int = 0

    @property
    def accuracy(self) -> float | None:
        """Share of the errors that are at most 20 %; None when there are none."""
        accurate = sum(abs(error) <= ACCURATE_WITHIN for error in self.errors)
        return accurate / len(self.errors) if self.errors else None


class Validator:
    """Compares counts with reported usage; thread-safe, one for an engine.

    Two warnings are logged, none with a text of a message:

    - `validation.discrepancy`: an error over 30 %, the first among a model's latest 40 counts.
    - `validation.accuracy_dropped`: less than 85 % of a model's latest 40 counts were at most 20 % off. What was
      learned about its sizes is forgotten then.

    Instantiate:
        ```python
        validator = Validator()
        ```

    Use:
        ```python
        nodes = ContextNodes(engine, validator=validator)
        validator.accuracy(
            name
        )  # 0.95: of the latest 40 counts, 38 were at most 20 % off
        ```
    """

    def __init__(self) -> None:
        self._tracks: Lru[_Track] = Lru(MAX_MODELS)
        self._lock = threading.Lock()

    def check(
        self, *, model: str, expected_tokens: int, reported_tokens: int | None
    ) -> None:
        """Compare our count of a request that was answered; where the accuracy is too low, the model starts anew.

        Args:
            model: the model that answered.
            expected_tokens: our count, made before the answer came.
            reported_tokens: the prompt size in the answer's usage; None when it has none.
        """
        reported = count_of(reported_tokens)
        if not reported:
            return
        error = (expected_tokens - reported) / reported
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
                track.resets += 1
        if abs(error) > DISCREPANCY and is_first:
            log.warning(
                "validation.discrepancy",
                model=model,
                expected_tokens=expected_tokens,
                reported_tokens=reported,
                error=round(error, SHARE_DIGITS),
            )
        if is_too_low:
            share = round(accuracy, SHARE_DIGITS)
            log.warning("validation.accuracy_dropped", model=model, share=share)

    def accuracy(self, model: str) -> float | None:
        """Return the share of the latest 40 counts that were at most 20 % off.

        None when nothing was compared, or not since what was learned about the model was forgotten.
        """
        with self._lock:
            return once(self._tracks, model, _Track).accuracy

    def resets(self, model: str) -> int:
        """Return how often the counts of a model were found wrong: what was calibrated before the last time is void."""
        with self._lock:
            return once(self._tracks, model, _Track).resets
