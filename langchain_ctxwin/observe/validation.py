"""How close do our counts come to what providers and exact counters say, model by model?"""

from __future__ import annotations

import random as randomness
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from statistics import fmean
from typing import Any, Literal

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.calibration import is_absurd
from langchain_ctxwin.core.edits import Media, pieces
from langchain_ctxwin.core.spending import MAX_TOKENS, count_of
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import Clock, RequestCounter, TokenCounter
from langchain_ctxwin.util.background import ForkSafeLock, Worker
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, once

SAMPLE_SHARE = 0.01  # of answers whose request is also counted exactly: a question to a provider, while usage is free
DISCREPANCY = 0.3  # error above which a count is worth a look at its text
ACCURATE_WITHIN = 0.2  # error up to which a count is accurate
MIN_ACCURATE_SHARE = 0.85  # of counts; under it what was learned about a model is not believed any more
MIN_SAMPLES = 20  # below, a share says little: of so many, four have to be off before it is too low
WINDOW = 40  # latest comparisons: 17 to 40 tell a bias within 3 %, more would be slower to show that a model changed
MAX_MODELS = 256  # remembered, a few kilobytes each: dozens are in use, but gateways may make up a name per tenant
MAX_WAITING = 8  # requests for the counter; each keeps all its messages in memory, so these are few
LOG_SECONDS = 60.0  # between two entries of one kind: a text that is counted wrong is in every later request
FLUSH_SECONDS = 5.0  # unless told: an endpoint that counts takes a fraction of a second
SHARE_DIGITS = 3  # in the log: finer ones are noise of the sample
PROFILED_MESSAGES = 1_000  # evenly spaced, so that a profile takes a few milliseconds at most
PROFILED_CHARACTERS = 6_000  # evenly spaced, of a long text
KINDS = ("ascii_letters", "digits", "whitespace", "punctuation", "cjk", "other")
FIRST_CJK = "\u2e80"  # from here on nearly all letters are Chinese, Japanese or Korean


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the answer to a request says about our count of it."""

    error: float | None = None
    """Our count over the reported size, minus 1; None when there was nothing to compare."""

    reset: bool = False
    """The model's accuracy fell too low: forget what was learned about its sizes. Said once per fall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How close the latest counts for one model came."""

    share: float
    """Share of the comparisons in which our count was at most 20 % off."""

    # Comparisons since the last reset, 40 at most, and those of them that an exact counter made.
    samples: int
    exact_samples: int
    """Comparisons since the last reset, 40 at most, and those of them that an exact counter made."""

    mean_error: float
    """Mean of the errors with their signs: above 0 when we count too much."""

    @property
    def is_too_low(self) -> bool:
        """True when what was learned about the model is not to be believed any more."""
        return self.samples >= MIN_SAMPLES and self.share < MIN_ACCURATE_SHARE


class Validator:
    """Compares counts with reported usage, and now and then with an exact counter; thread-safe, one for an engine.

    Every answer that reports its usage is compared. A share of the requests is also counted exactly, in a background
    thread that neither callers nor the exit wait for; a counter that fails or hangs loses such samples and nothing
    else. Three warnings are logged:

    - `validation.discrepancy`: an error over 30 %, with a profile of the text and never the text; at most one a minute
      and model, `unlogged` says how many were passed over since the last one.
    - `validation.accuracy_dropped`: less than 85 % of a model's latest 40 counts were at most 20 % off.
    - `validation.count_failed`: the exact counter gave no count; at most one a minute, `lost` says how many in all.

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
        # A counter of requests is asked as such: called like a plain one, it may answer with its estimate.
        count: Any = getattr(counter, "count_request", None) or counter
        wanted = "a callable (messages, *, tools) -> int, or None"
        self._count: Callable[..., Any] | None = expect(count, Callable | None, "counter", wanted)
        self._share, self._clock, self._random = share, clock, random
        self._worker = Worker("ctxwin-validation", max_waiting=MAX_WAITING)
        self._lost, self._loss_pace = 0, _LogPace()
        self._tracks: Lru[_Track] = Lru(MAX_MODELS)
        self._lock = ForkSafeLock()

    @property
    def lost_samples(self) -> int:
        """Requests that were to be counted exactly and could not be."""
        return self._lost

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
        if not count_of(expected_tokens):
            return Verdict()
        request = _Request(
            model=model,
            messages=tuple(messages),  # kept for the counter, while the caller goes on with its own
            tools=tuple(tools),
            expected_tokens=expected_tokens,
            resets=self.resets(model),
        )
        error, reported = None, count_of(reported_tokens)
        if reported and not is_absurd(reported, expected_tokens):
            error = self._compare(request, reported, "usage")
        if self._count is not None and self._random() < self._share:
            self._sample(partial(self._count_exactly, self._count, request))
        with self._lock.held:
            track = once(self._tracks, model, _Track)
            due, track.reset_due = track.reset_due, False
        return Verdict(error=error, reset=due)

    def accuracy(self, model: str) -> Accuracy | None:
        """Return how close the latest counts came; None when nothing was compared, or not since the last reset."""
        with self._lock.held:
            track = self._tracks.get(model)
            return _accuracy(track.comparisons) if track and track.comparisons else None

    def resets(self, model: str) -> int:
        """Return how often the counts of a model were found wrong: what was calibrated before the last time is void."""
        with self._lock.held:
            return once(self._tracks, model, _Track).resets

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all samples are counted or lost; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)

    def _sample(self, task: Callable[[], object]) -> None:
        """Have a request counted, one after the other, in a thread that no exit waits for and no callback sees."""
        try:
            if not self._worker.submit(task):
                self._lose(f"the counter is busy and {MAX_WAITING} requests wait")
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._lose(str(error))

    def _count_exactly(self, count: Callable[..., Any], request: _Request) -> None:
        try:
            answer = count(list(request.messages), tools=list(request.tools))
        except BaseException as error:  # noqa: BLE001  # ends here: this thread is ours, and nobody waits for the count
            self._lose(type(error).__name__)  # its text may quote the request
            return
        if counted := count_of(answer):
            self._compare(request, counted, "exact")
        else:
            self._lose(f"the counter returned {type(answer).__name__}: expected a number from 1 to {MAX_TOKENS:,}")

    def _lose(self, reason: str) -> None:
        with self._lock.held:
            self._lost += 1
            is_early = self._loss_pace.take(self._clock()) is None
        if not is_early:
            log.warning("validation.count_failed", reason=reason, lost=self._lost)

    def _compare(self, request: _Request, counted_tokens: int, counted_by: Literal["usage", "exact"]) -> float:
        """Remember and return the error; where it makes the accuracy too low, the model starts anew.

        A count of ours that was made before the latest reset is not remembered.
        """
        error = (request.expected_tokens - counted_tokens) / counted_tokens
        unlogged = fallen = None
        with self._lock.held:
            track = once(self._tracks, request.model, _Track)
            if abs(error) > DISCREPANCY:
                unlogged = track.pace.take(self._clock())
            if track.resets == request.resets:
                track.comparisons.append((error, counted_by))
                accuracy = _accuracy(track.comparisons)
                fallen = accuracy if accuracy.is_too_low else None
            if fallen:
                track.comparisons.clear()
                track.resets += 1
                track.reset_due = True
        if unlogged is not None:
            log.warning(
                "validation.discrepancy",
                model=request.model,
                expected_tokens=request.expected_tokens,
                counted_tokens=counted_tokens,
                counted_by=counted_by,
                error=round(error, SHARE_DIGITS),
                unlogged=unlogged,
                profile=profile(request.messages, request.tools),
            )
        if fallen:
            share = round(fallen.share, SHARE_DIGITS)
            log.warning("validation.accuracy_dropped", model=request.model, share=share, samples=fallen.samples)
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    model: str
    messages: tuple[AnyMessage, ...]
    tools: tuple[Any, ...]
    expected_tokens: int
    resets: int  # of the model, when our count was made


@dataclass(slots=True, kw_only=True)
class _LogPace:
    """Lets one entry a minute through and counts the others; its owner holds a lock."""

    logged_at: float = -inf
    unlogged: int = 0

    def take(self, now: float) -> int | None:
        """Return how many were not logged since the last one that was, or None: too early for another."""
        if 0 <= now - self.logged_at < LOG_SECONDS:  # a clock that was set back silences nothing
            self.unlogged += 1
            return None
        unlogged, self.unlogged, self.logged_at = self.unlogged, 0, now
        return unlogged


@dataclass(slots=True, kw_only=True)
class _Track:
    # Errors, and by what they were found.
    comparisons: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    resets: int = 0
    reset_due: bool = False
    pace: _LogPace = field(default_factory=_LogPace)


def _accuracy(comparisons: Collection[tuple[float, str]]) -> Accuracy:
    errors = [error for error, _ in comparisons]
    return Accuracy(
        share=sum(abs(error) <= ACCURATE_WITHIN for error in errors) / len(errors),
        samples=len(errors),
        exact_samples=sum(counted_by == "exact" for _, counted_by in comparisons),
        mean_error=fmean(errors),
    )


def profile(messages: Sequence[AnyMessage], tools: Sequence[Any]) -> dict[str, Any]:
    """Return numbers about a request: sizes, and shares of character classes (taken from a sample of a long text).

    Of more than `PROFILED_MESSAGES` messages only so many are looked at, which `profiled_messages` states. A request
    with content that cannot be read has a shorter profile.
    """
    sizes = {"messages": len(messages), "tools": len(tools)}
    looked_at = messages[:: -(-len(messages) // PROFILED_MESSAGES) or 1]
    texts: list[str] = []
    media = 0
    try:
        for message in looked_at:
            found = list(pieces(message))
            shown = [piece if isinstance(piece, str) else piece.text for piece in found if not isinstance(piece, Media)]
            texts.append("".join(shown))
            media += len(found) - len(shown)
    except Exception:  # noqa: BLE001  # content of any shape, perhaps being changed: what is known of it is enough
        return sizes
    text = "".join(texts)
    kinds = Counter(map(_kind, text[:: len(text) // PROFILED_CHARACTERS or 1]))
    return {
        **sizes,
        "profiled_messages": len(looked_at),
        "characters": len(text),
        "longest_message_characters": max(map(len, texts), default=0),
        "media_blocks": media,
        **{kind: round(kinds[kind] / max(1, kinds.total()), SHARE_DIGITS) for kind in KINDS},
    }


def _kind(character: str) -> str:
    if character.isascii():
        if character.isalpha():
            return "ascii_letters"
        return "digits" if character.isdigit() else "whitespace" if character.isspace() else "punctuation"
    return "cjk" if character.isalpha() and character >= FIRST_CJK else "other"
