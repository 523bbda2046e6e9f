"""How close do our counts come to what providers and exact counters say, model by model?"""

from __future__ import annotations

import random as randomness
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.reported import is_absurd
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.exact import ExactCounts, is_count
from langchain_ctxwin.observe.profile import profile
from langchain_ctxwin.observe.tracks import Accuracy, Comparison, CountedBy, Tracks
from langchain_ctxwin.protocols import Clock, RequestCounter, TokenCounter

SAMPLE_SHARE = 0.01
"""Answers whose request is also counted exactly. Each is a question to a provider; usage comes for free."""

DISCREPANCY = 0.3
"""Error above which a count is worth a look at its text."""

FLUSH_SECONDS = 5.0
"""How long `flush` waits unless told: an endpoint that counts takes a fraction of a second."""

SHARE_DIGITS = 3
"""Digits of a share in the log."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the answer to a request says about our count of it."""

    error: float | None = None
    """Our count over the reported size, minus 1; None when there was nothing to compare."""

    reset: bool = False
    """The model's accuracy fell too low: forget what was learned about its sizes. Said once per fall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request that was answered, our count of it, and how often the model had started anew by then."""

    model: str
    messages: Sequence[AnyMessage]
    tools: Sequence[Any]
    expected_tokens: int
    resets: int


class Validator:
    """Compares counts with reported usage, and now and then with an exact counter; thread-safe, one for an engine.

    Every answer that reports its usage is compared. A share of the requests is also counted exactly, in a background
    thread that neither callers nor the exit wait for; a counter that fails or hangs loses such samples and nothing
    else. Three warnings are logged:

    - `validation.discrepancy`: an error over 30 %, with a profile of the text and never the text; at most one a minute
      and model, `unlogged` says how many were passed over since the last one.
    - `validation.accuracy_dropped`: less than 85 % of a model's latest 40 counts were at most 20 % off.
    - `validation.count_failed`: the exact counter gave no count; once, and again after one that succeeded, at most one
      a minute; `lost` says how many samples were lost in all.

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
        verdict = validator.check(
            model=name, messages=request, tools=tools, expected_tokens=1_250, reported_tokens=1_000
        )
        verdict.error  # 0.25
        validator.accuracy(name)  # Accuracy(share=0.0, samples=1, exact_samples=0, mean_error=0.25)
        ```

    Raises:
        ConfigError: the share is not from 0 to 1, or the counter cannot count.
    """

    def __init__(
        self,
        counter: RequestCounter | TokenCounter | None = None,
        *,
        share: float = SAMPLE_SHARE,
        clock: Clock = time.time,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        if not 0 <= share <= 1:
            raise ConfigError(f"share={share!r} is not from 0 to 1: give a share of the answers, for example 0.01")
        self._exact = None if counter is None else ExactCounts(counter, clock=clock)
        self._share = share
        self._clock = clock
        self._random = random
        self._tracks = Tracks()

    @property
    def lost_samples(self) -> int:
        """Requests that were to be counted exactly and could not be."""
        return 0 if self._exact is None else self._exact.lost

    def check(
        self,
        *,
        model: str,
        messages: Sequence[AnyMessage],
        tools: Sequence[Any],
        expected_tokens: int,
        reported_tokens: int | None,
    ) -> Verdict:
        """Compare our count of a request that was answered; waits for nothing, so it may run on an event loop.

        Takes microseconds, and milliseconds when a discrepancy in a long request is logged. A reported size that cannot
        be that of any request like this is not compared.

        Args:
            model: the model that answered.
            messages: the request as it was sent.
            tools: the definitions it was sent with.
            expected_tokens: our count, made before the answer came.
            reported_tokens: the prompt size in the answer's usage; None when it has none.
        """
        if not is_count(expected_tokens):
            return Verdict()
        request = _Request(
            model=model,
            messages=messages,
            tools=tools,
            expected_tokens=expected_tokens,
            resets=self._tracks.resets(model),
        )
        error = None
        if is_count(reported_tokens) and not is_absurd(reported_tokens, expected_tokens):
            error = self._compare(request, reported_tokens, "usage")
        if self._exact is not None and self._random() < self._share:
            kept = replace(request, messages=list(messages), tools=list(tools))
            self._exact.submit(kept.messages, kept.tools, lambda counted: self._compare(kept, counted, "exact"))
        return Verdict(error=error, reset=self._tracks.take_reset(model))

    def accuracy(self, model: str) -> Accuracy | None:
        """Return how close the latest counts came; None when nothing was compared, or not since the last reset."""
        return self._tracks.accuracy(model)

    def resets(self, model: str) -> int:
        """Return how often the counts of a model were found wrong: what was calibrated before the last time is void."""
        return self._tracks.resets(model)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all samples are counted or lost; false when that takes longer. Blocks its thread."""
        return self._exact is None or self._exact.flush(timeout_seconds)

    def _compare(self, request: _Request, counted_tokens: int, counted_by: CountedBy) -> float:
        error = (request.expected_tokens - counted_tokens) / counted_tokens
        if abs(error) > DISCREPANCY:
            self._report(request, counted_tokens, counted_by, error)
        comparison = Comparison(error=error, counted_by=counted_by)
        fallen = self._tracks.record(request.model, comparison, resets=request.resets)
        if fallen is not None:
            share = round(fallen.share, SHARE_DIGITS)
            _log.warning("validation.accuracy_dropped", model=request.model, share=share, samples=fallen.samples)
        return error

    def _report(self, request: _Request, counted_tokens: int, counted_by: CountedBy, error: float) -> None:
        unlogged = self._tracks.take_log(request.model, self._clock())
        if unlogged is None:
            return
        _log.warning(
            "validation.discrepancy",
            model=request.model,
            expected_tokens=request.expected_tokens,
            counted_tokens=counted_tokens,
            counted_by=counted_by,
            error=round(error, SHARE_DIGITS),
            unlogged=unlogged,
            profile=profile(request.messages, request.tools),
        )
