"""How are the weights of words and phrases made from outcomes? A logistic regression with a quadratic penalty."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.routing.text_weights import CHEAP, DEAR, TextWeights, phrase_counts

if TYPE_CHECKING:
    import numpy as np

LEAST_TEXTS = 3
"""Texts in which a phrase has to occur: what stands in one or two says nothing about others."""

PENALTY = 2.0
"""On the squared weights, chosen by cross-validation; 1 to 4 give the same within noise."""

APART_PENALTY = 4.0
"""On how far the weights of one column are from the mean of all, chosen likewise: what is hard for one model is mostly
hard for the other, and what tells two models apart has to show itself twice as clearly."""

POWER_STEPS = 8
"""Of the power method: a step length a few per cent off is corrected by the descent itself."""

STEPS = 30
"""Of the accelerated descent; with 60 the ranking of texts is the same within 0.001."""

LEAST_SAMPLES = 200
"""Of a model before it has a column of its own: with fewer its strength says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one model made of one text."""

    text: str
    model: str
    success: float
    """1 or True for a good answer, 0 or False for a bad one, or the share of good ones."""


def trained(samples: Iterable[Sample], *, bucket: Callable[[str], str], max_phrases: int | None = None) -> TextWeights:
    """Return weights that predict the outcomes of each model, and of the cheaper and dearer half of them.

    Halves are made by the share of successes. With `max_phrases`, all but the phrases that tell the halves apart best
    are left out.

    Raises:
        ConfigError: a sample is not valid, or fewer than two models or texts were given.
    """
    outcomes = _by_text(samples)
    columns = _columns(outcomes)
    groups = list(dict.fromkeys(columns.values()))  # of two models, each is also a half: learned once
    good, weight = _targets(outcomes, groups)
    bags = [phrase_counts(text) for text in outcomes]
    rarity = _rarity(bags)
    weights, base, logits = _learned(bags, rarity, good, weight)
    if max_phrases is not None and len(rarity) > max_phrases:
        rarity = _most_telling(rarity, bags, weights, max_phrases)
        weights, base, logits = _learned(bags, rarity, good, weight)
    spread = [groups.index(members) for members in columns.values()]
    rows = weights[:, spread].tolist()
    return TextWeights(
        columns=tuple(columns),
        base=tuple(base[spread].tolist()),
        phrases={phrase: (rare, *row) for (phrase, rare), row in zip(rarity.items(), rows, strict=True)},
        usual=_usual([bucket(text) for text in outcomes], logits[:, spread]),
    )


def _by_text(samples: Iterable[Sample]) -> dict[str, dict[str, list[float]]]:
    """Text -> model -> its outcomes."""
    outcomes: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if not isinstance(sample.text, str) or not isinstance(sample.model, str) or not 0 <= sample.success <= 1:
            raise ConfigError(f"{sample!r}: give a text, a model's name, and a success of True, False or a share")
        outcomes[sample.text][sample.model].append(float(sample.success))
    return outcomes


def _columns(outcomes: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, frozenset[str]]:
    """Column -> the models whose outcomes it is made from."""
    heard: dict[str, list[float]] = defaultdict(list)
    for models in outcomes.values():
        for model, successes in models.items():
            heard[model] += successes
    if len(heard) < 2 or len(outcomes) < 2:  # noqa: PLR2004  # two of each can differ
        raise ConfigError(f"samples of {len(heard)} models and {len(outcomes)} texts: give two of each at least")
    ranked = sorted(heard, key=lambda model: (sum(heard[model]) / len(heard[model]), model))
    middle = len(ranked) // 2
    own = {model: frozenset({model}) for model in ranked if len(heard[model]) >= LEAST_SAMPLES}
    return {CHEAP: frozenset(ranked[:middle]), DEAR: frozenset(ranked[middle:]), **own}


def _targets(
    outcomes: Mapping[str, Mapping[str, Sequence[float]]], groups: Sequence[frozenset[str]]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Share of successes per text and group of models, and 1 where there are any outcomes, else 0."""
    import numpy as np  # noqa: PLC0415  # only training needs it

    good, weight = np.zeros((2, len(outcomes), len(groups)))
    for row, models in enumerate(outcomes.values()):
        for column, members in enumerate(groups):
            heard = [success for model in members for success in models.get(model, ())]
            if heard:
                good[row, column], weight[row, column] = sum(heard) / len(heard), 1.0
    return good, weight


def _rarity(bags: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Phrase -> how rare it is among the texts: the usual inverse document frequency."""
    spread = Counter(phrase for bag in bags for phrase in bag)
    total = 1 + len(bags)
    kept = sorted(phrase for phrase, texts in spread.items() if texts >= LEAST_TEXTS)
    return {phrase: 1 + math.log(total / (1 + spread[phrase])) for phrase in kept}


def _most_telling(
    rarity: Mapping[str, float], bags: Sequence[Mapping[str, int]], weights: np.ndarray[Any, Any], count: int
) -> dict[str, float]:
    """The phrases that move the difference between the dear and the cheap end most, summed over the texts."""
    spread = Counter(phrase for bag in bags for phrase in bag)
    differences = (weights[:, 1] - weights[:, 0]).tolist()
    told = {
        phrase: abs(difference) * rare * math.sqrt(spread[phrase])
        for (phrase, rare), difference in zip(rarity.items(), differences, strict=True)
    }
    kept = sorted(sorted(told, key=lambda phrase: (-told[phrase], phrase))[:count])
    return {phrase: rarity[phrase] for phrase in kept}


def _usual(buckets: Sequence[str], logits: np.ndarray[Any, Any]) -> dict[str, tuple[float, ...]]:
    members: dict[str, list[int]] = defaultdict(list)
    for row, bucket in enumerate(buckets):
        members[bucket].append(row)
    return {bucket: tuple(logits[rows].mean(axis=0).tolist()) for bucket, rows in members.items()}


def _learned(
    bags: Sequence[Mapping[str, int]],
    rarity: Mapping[str, float],
    good: np.ndarray[Any, Any],
    weight: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Weights, base, and the log-odds that they give the texts."""
    rows = _Rows(bags, rarity)
    weights, base = _descended(rows, good, weight)
    return weights, base, rows.times(weights) + base


class _Rows:
    """Texts as rows of a sparse matrix, each of length one, and its transpose."""

    def __init__(self, bags: Sequence[Mapping[str, int]], rarity: Mapping[str, float]) -> None:
        import numpy as np  # noqa: PLC0415  # only training needs it

        place = {phrase: number for number, phrase in enumerate(rarity)}
        known = [[(place[phrase], count) for phrase, count in bag.items() if phrase in place] for bag in bags]
        self.shape = (len(bags), len(place))
        self._row = np.repeat(np.arange(len(bags)), [len(entries) for entries in known])
        self._column = np.array([column for entries in known for column, _ in entries], dtype=np.int64)
        counts = np.array([count for entries in known for _, count in entries], dtype=float)
        values = (1 + np.log(counts)) * np.array(list(rarity.values()))[self._column]
        sizes = np.sqrt(np.bincount(self._row, values**2, self.shape[0]))
        self._value = values / sizes[self._row]
        order = np.argsort(self._column, kind="stable")
        self._turned = (self._column[order], self._row[order], self._value[order])

    def times(self, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return _products(self._row, self._column, self._value, weights, self.shape[0])

    def turned_times(self, residuals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return _products(*self._turned, residuals, self.shape[1])


def _products(
    to: np.ndarray[Any, Any],
    of: np.ndarray[Any, Any],
    values: np.ndarray[Any, Any],
    vectors: np.ndarray[Any, Any],
    size: int,
) -> np.ndarray[Any, Any]:
    import numpy as np  # noqa: PLC0415  # only training needs it

    columns = [np.bincount(to, values * vectors[of, column], size) for column in range(vectors.shape[1])]
    return np.stack(columns, axis=1)


def _descended(
    rows: _Rows, good: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The weights and the base of every column, by Nesterov's accelerated descent."""
    import numpy as np  # noqa: PLC0415  # only training needs it

    phrases = rows.shape[1]
    weights = ahead = np.zeros((phrases, good.shape[1]))
    base = base_ahead = np.zeros(good.shape[1])
    slope = 0.25 * _largest_stretch(rows) + max(PENALTY, APART_PENALTY)
    momentum = 1.0
    for _ in range(STEPS):
        error = (1 / (1 + np.exp(-(rows.times(ahead) + base_ahead))) - good) * weight
        mean = ahead.mean(axis=1, keepdims=True)
        pull = PENALTY * mean + APART_PENALTY * (ahead - mean)
        stepped = ahead - (rows.turned_times(error) + pull) / (2 * slope)
        base_stepped = base_ahead - error.sum(axis=0) / (0.5 * np.maximum(1.0, weight.sum(axis=0)))
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        push = (momentum - 1) / following
        ahead, base_ahead = stepped + push * (stepped - weights), base_stepped + push * (base_stepped - base)
        weights, base, momentum = stepped, base_stepped, following
    return weights, base


def _largest_stretch(rows: _Rows) -> float:
    """The largest eigenvalue of the matrix times its transpose, nearly, by the power method: bounds the step."""
    import numpy as np  # noqa: PLC0415  # only training needs it

    vector = np.ones((rows.shape[1], 1))
    for _ in range(POWER_STEPS):
        vector = vector / np.linalg.norm(vector)
        vector = rows.turned_times(rows.times(vector))
    return float(np.linalg.norm(vector))
