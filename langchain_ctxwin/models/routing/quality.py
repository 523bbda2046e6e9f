"""How likely does each model answer a request well? What its words say, corrected by what was recorded."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Self

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.routing.complexity import Complexity, complexity, read_part
from langchain_ctxwin.models.routing.outcomes import FLUSH_SECONDS, Outcomes
from langchain_ctxwin.models.routing.text_weights import TextWeights, loaded
from langchain_ctxwin.models.routing.training import Sample, trained
from langchain_ctxwin.models.routing.weights import LEVEL_BOUNDS, TEXT_WEIGHTS
from langchain_ctxwin.protocols import Clock

PRIOR_TRIALS = 10.0
"""Outcomes that weigh as much as what the words of a text say: a share of ten is known to about 15 points."""

LEVELS = ("easy", "medium", "hard")

KINDS = ("code", "math")
"""Parts of the complexity that name the kind of a task, from `KIND_FROM` on."""

KIND_FROM = 0.5

_OPTION = re.compile(r"^[ \t]*\(?([B-D])[.):][ \t]", re.MULTILINE)


class Quality:
    """Estimates the chance of a good answer per model; thread-safe, about a millisecond a request.

    Three layers: words, signs and phrases of the request, by a logistic model of public outcomes of a weaker and
    a stronger model, or by `fit` from your own; between those two ends a model stands by its `strength`; and counted
    outcomes per model and task bucket shift the chance of that bucket.

    Args:
        path: JSON file for the outcomes, shared between processes; in memory only by default.
        weights: from `fit(...).weights` or `text_weights.loaded`; by default the ones that come with the package.
        clock: when an outcome was recorded.

    Raises:
        ConfigError: the path names no place, or the weights are of another type.

    Example:
        >>> quality = Quality()
        >>> small, large = quality.chances("Hello", ["small", "large"], strengths=[0.0, 1.0])
        >>> small < large
        True
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        weights: TextWeights | None = None,
        clock: Clock = time.time,
    ) -> None:
        if not isinstance(weights, TextWeights | None):
            raise ConfigError(f"weights={weights!r}: pass TextWeights, from `Quality().fit(samples).weights`")
        self.weights = weights or _shipped()
        self.outcomes = Outcomes(path, clock=clock)

    def complexity(self, text: str, *, needs_tools: bool = False) -> Complexity:
        """Return how demanding a request looks, with its parts."""
        return complexity(_required_text(text), needs_tools=needs_tools)

    def bucket(self, text: str, *, needs_tools: bool = False) -> str:
        """Return the kind of task and its level, under which outcomes are counted, e.g. `math/hard`."""
        found = self.complexity(text, needs_tools=needs_tools)
        kind = _kind(text, found, needs_tools=needs_tools)
        level = sum(found.score >= bound for bound in LEVEL_BOUNDS[kind])
        return f"{kind}/{LEVELS[level]}"

    def chances(
        self, text: str, models: Sequence[str], *, strengths: Sequence[float], needs_tools: bool = False
    ) -> list[float]:
        """Return each model's chance of a good answer, between 0 and 1.

        Args:
            text: the request: the latest user message.
            models: their names, as outcomes are recorded for them.
            strengths: where each stands between the weakest (0) and the strongest (1), e.g. by price.
            needs_tools: whether the request is answered with tools.

        Raises:
            ConfigError: not one strength from 0 to 1 per model.
        """
        _require_strengths(models, strengths)
        bucket = self.bucket(text, needs_tools=needs_tools)
        logits = self.weights.logits(text)
        usual = self.weights.usual.get(bucket, self.weights.base)
        of_model = self.weights.of_model
        return [
            _chance(of_model(logits, model, strength) + self._shift(bucket, model, of_model(usual, model, strength)))
            for model, strength in zip(models, strengths, strict=True)
        ]

    def record(self, bucket: str, model: str, *, success: bool) -> None:
        """Count one outcome of a model in a bucket; returns at once, the file is written in the background.

        Raises:
            ConfigError: a name is empty or too long, or `success` is no boolean.
        """
        self.outcomes.record(bucket, model, success=success)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until recorded outcomes are saved, or could not be; false when that takes longer."""
        return self.outcomes.flush(timeout_seconds)

    def fit(self, samples: Iterable[Sample]) -> Self:
        """Return a quality with weights made from these samples, which counts outcomes where this one does.

        Needs a few hundred texts with the outcomes of two models or more; ten thousand take some seconds.

        Raises:
            ConfigError: a sample is not valid, or there are not two models and two texts.
        """
        fitted = type(self)(weights=trained(samples, bucket=self.bucket))
        fitted.outcomes = self.outcomes
        return fitted

    def _shift(self, bucket: str, model: str, usual: float) -> float:
        """By how much the recorded outcomes move the log-odds of a bucket away from what its texts usually say."""
        known = self.outcomes.of(bucket, model)
        expected = PRIOR_TRIALS * _chance(usual)
        share = (expected + known.successes) / (PRIOR_TRIALS + known.trials)
        return math.log(share / (1 - share)) - usual


def _kind(text: str, found: Complexity, *, needs_tools: bool) -> str:
    if needs_tools:
        return "tools"
    best = max(KINDS, key=lambda kind: found.parts[kind])
    if found.parts[best] >= KIND_FROM:
        return best
    offered = set(_OPTION.findall(read_part(text)))
    return "choice" if len(offered) > 1 else "text"


@lru_cache(maxsize=1)
def _shipped() -> TextWeights:
    return loaded(TEXT_WEIGHTS)


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _required_text(text: object) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"text is a {type(text).__name__}: pass the request as a string")
    return text


def _require_strengths(models: Sequence[str], strengths: Sequence[float]) -> None:
    if len(models) != len(strengths) or not all(0 <= strength <= 1 for strength in strengths):
        raise ConfigError(f"{len(models)} models with strengths {list(strengths)}: give each a number from 0 to 1")
