"""How close do our counts come to what providers and exact counters say, model by model?"""

from __future__ import annotations

import random as randomness
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.spending import count_of
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import RequestCounter, TokenCounter
from langchain_ctxwin.util.background import Worker
from langchain_ctxwin.util.failures import FailureLog
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, once

SAMPLE_SHARE = 0.01  # of answers whose request is also counted exactly: a question to a provider, while usage is free
DISCREPANCY = 0.3  # error above which a count is worth a look
ACCURATE_WITHIN = 0.2  # error up to which a count is accurate
MIN_ACCURATE_SHARE = (
    0.85  # of counts; under it what was learned about a model is not believed any more
)
MIN_SAMPLES = 20  # below, a share says little: of so many, four have to be off before it is too low
WINDOW = 40  # latest comparisons: 17 to 40 tell a bias within 3 %, more would be slower to show that a model changed
MAX_MODELS = (
    256  # remembered: dozens are in use, but gateways may make up a name per tenant
)
MAX_WAITING = 8  # requests for the counter; each keeps all its messages in memory, so these are few
FLUSH_SECONDS = 5.0  # unless told: an endpoint that counts takes a fraction of a second
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
    """Compares counts with reported usage, and now and then with an exact counter; thread-safe, one for an engine.

    Every answer that reports its usage is compared. A share of the requests is also counted exactly, in a background
    thread that neither callers nor the exit wait for; a counter that fails loses such samples and nothing else. Three
    warnings are logged, none with a text of a message:

    - `validation.discrepancy`: an error over 30 %, the first among a model's latest 40 counts.
    - `validation.accuracy_dropped`: less than 85 % of a model's latest 40 counts were at most 20 % off. What was
      learned about its sizes is forgotten then.
    - `validation.count_failed`: the exact counter gave no count.

    Setup:
        ```bash
        pip install langchain-ctxwin
        ```

    Key init args:
        counter: counts requests exactly; None compares with reported usage only.
        share: of the answers, how many are counted exactly, from 0 to 1.

    Instantiate:
        ```python
        validator = Validator(counter=GeminiCounter(model), share=0.01)
        ```

    Use:
        ```python
        nodes = ContextNodes(engine, validator=validator)
        validator.accuracy(
            name
        )  # 0.95: of the latest 40 counts, 38 were at most 20 % off
        ```

    Raises:
        ConfigError: the share is not from 0 to 1, or the counter cannot count.
    """

    def __init__(
        self,
        counter: RequestCounter | TokenCounter | None = None,
        *,
        share: float = SAMPLE_SHARE,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        if not 0 <= share <= 1:
            raise ConfigError(
                f"share={share!r} is not from 0 to 1: give a share of the answers, for example 0.01"
            )
        # A counter of requests is asked as such: called like a plain one, it may answer with its estimate.
        count: Any = getattr(counter, "count_request", None) or counter
        wanted = "a callable (messages, *, tools) -> int, or None"
        self._count: Callable[..., Any] | None = expect(
            count, Callable | None, "counter", wanted
        )
        self._share, self._random = share, random
        self._worker = Worker("ctxwin-validation", max_waiting=MAX_WAITING)
        self._failures = FailureLog()
        self._tracks: Lru[_Track] = Lru(MAX_MODELS)
        self._lock = threading.Lock()

    def check(
        self,
        *,
        model: str,
        messages: Sequence[AnyMessage],
        tools: Sequence[Any],
        expected_tokens: int,
        reported_tokens: int | None,
    ) -> None:
        """Compare our count of a request that was answered; waits for nothing, so it may run on an event loop.

        Args:
            model: the model that answered.
            messages: the request as it was sent.
            tools: the definitions it was sent with.
            expected_tokens: our count, made before the answer came.
            reported_tokens: the prompt size in the answer's usage; None when it has none.
        """
        compare = partial(self._compare, model, expected_tokens)
        if reported := count_of(reported_tokens):
            compare(reported, "usage")
        if self._count is not None and self._random() < self._share:
            count = partial(self._count, list(messages), tools=list(tools))
            if not self._worker.submit(lambda: self._count_exactly(count, compare)):
                self._failures.note(
                    "validation.count_failed",
                    f"{MAX_WAITING} requests wait for the counter",
                )

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

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all samples are counted or lost; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)

    def _count_exactly(
        self, count: Callable[[], Any], compare: Callable[[int, str], None]
    ) -> None:
        try:
            answer = count()
        except Exception as error:  # noqa: BLE001  # ends here: this thread is ours, and nobody waits for the count
            # its text may quote the request
            self._failures.note("validation.count_failed", type(error).__name__)
            return
        if counted := count_of(answer):
            compare(counted, "exact")
        else:
            self._failures.note(
                "validation.count_failed",
                f"the counter returned {type(answer).__name__}",
            )

    def _compare(
        self, model: str, expected_tokens: int, counted_tokens: int, counted_by: str
    ) -> None:
        """Remember the error; where it makes the accuracy too low, the model starts anew."""
        error = (expected_tokens - counted_tokens) / counted_tokens
        with self._lock:
            track = once(self._tracks, model, _Track)
            is_first = not any(abs(known) > DISCREPANCY for known in track.errors)
            track.errors.append(error)
            accuracy = track.accuracy or 0.0
            is_too_low = (
                len(track.errors) >= MIN_SAMPLES and accuracy < MIN_ACCURATE_SHARE
            )
            if is_too_low:
                track.errors.clear()
                track.resets += 1
        if abs(error) > DISCREPANCY and is_first:
            log.warning(
                "validation.discrepancy",
                model=model,
                expected_tokens=expected_tokens,
                counted_tokens=counted_tokens,
                counted_by=counted_by,
                error=round(error, SHARE_DIGITS),
            )
        if is_too_low:
            log.warning(
                "validation.accuracy_dropped",
                model=model,
                share=round(accuracy, SHARE_DIGITS),
            )
