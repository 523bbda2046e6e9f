"""Text weights: a logistic model of good answers over words and phrases, and how it is fitted to outcomes."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from langchain_ctxwin.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

WEIGHTS_FILE = "weights.json"  # comes with the package; `benchmarks/fit_routing.py` makes it from public outcomes
CHEAP, DEAR = "(cheap)", "(dear)"  # columns for models that the weights do not know by name
READ_CHARS = 2048  # at either end of a longer text, where what is asked stands; bounds the time of a score
PHRASE_WORDS = 3  # of the longest phrase with a weight: three hold how a question is asked, a fourth adds nothing
NUMBER_DIGITS = 3  # `7` and `9` are one token, as are all numbers of three digits or more: only the length matters
MAX_LOGIT = 12.0  # no text makes a model surer than this: one failure in 160,000
LEAST_TEXTS = 3  # in which a phrase has to occur: what stands in one or two says nothing about others
PENALTY = 2.0  # on the squared weights, chosen by cross-validation; 1 to 4 give the same within noise
STEP, STEPS = 0.5, 30  # length and number of the steps of the descent; twice as many rank texts alike
LEAST_SAMPLES = 200  # of a model before it has a column of its own: with fewer its strength says more

_TOKEN = re.compile(r"[^\W\d]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWeights:
    """A logistic model over words and phrases, one column per kind of model. Plain data: `Quality.fit` makes it.

    Raises:
        ConfigError: a row has not one finite number per column.
    """

    columns: tuple[str, ...]
    """`CHEAP`, `DEAR`, then the models that have weights of their own."""

    base: tuple[float, ...]
    """Log-odds of a good answer to a text without any known phrase, per column."""

    phrases: Mapping[str, tuple[float, ...]]
    """Phrase -> how rare it is, then its weight per column."""

    usual: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Bucket -> mean log-odds per column over the texts that the weights were made from."""

    def __post_init__(self) -> None:
        width = len(self.columns)
        rows = [(self.base, width), *((row, width) for row in self.usual.values())]
        rows += ((row, 1 + width) for row in self.phrases.values())
        for row, expected in rows:
            if len(row) != expected or not all(map(math.isfinite, row)):
                raise ConfigError(f"weights {row!r} are not {expected} finite numbers: fit them again")

    def logits(self, text: str) -> tuple[float, ...]:
        """Return the log-odds of a good answer per column."""
        counted = ((self.phrases.get(phrase), count) for phrase, count in phrase_counts(text).items())
        known = [(row, (1 + math.log(count)) * row[0]) for row, count in counted if row]
        size = math.sqrt(sum(share * share for _, share in known)) or 1.0
        shifts = (sum(share * row[column] for row, share in known) / size for column in range(1, 1 + len(self.base)))
        odds = (base + shift for base, shift in zip(self.base, shifts, strict=True))
        return tuple(max(-MAX_LOGIT, min(MAX_LOGIT, logit)) for logit in odds)

    def of_model(self, logits: Sequence[float], model: str, strength: float) -> float:
        """Return the log-odds of one model: its own column, else by strength between the cheap and the dear end."""
        if model in self.columns:
            return logits[self.columns.index(model)]
        return (1 - strength) * logits[0] + strength * logits[1]


def phrase_counts(text: str) -> Counter[str]:
    """Return the tokens of a text and its phrases of up to `PHRASE_WORDS` of them, with how often each occurs.

    A token is a word, a number, of which only the length is kept, or a sign: punctuation and operators tell a
    question about a formula from one about a story in fields whose words are not known.
    """
    plain = _TOKEN.findall(read_part(text).lower())
    tokens = ["0" * min(NUMBER_DIGITS, len(token)) if token[0].isdecimal() else token for token in plain]
    counts = Counter(tokens)
    for length in range(2, PHRASE_WORDS + 1):
        counts.update(map(" ".join, zip(*(tokens[start:] for start in range(length)), strict=False)))
    return counts


def read_part(text: str) -> str:
    """Return what is read of a text: all, or the beginning and the end of a long one."""
    return text if len(text) <= 2 * READ_CHARS else f"{text[:READ_CHARS]}\n{text[-READ_CHARS:]}"


@lru_cache(maxsize=1)
def shipped() -> TextWeights:
    """Return the weights that come with the package."""
    return loaded(files(__package__).joinpath(WEIGHTS_FILE).read_text(encoding="utf-8"))


def dumped(weights: TextWeights) -> str:
    """Return weights as JSON."""
    return _WEIGHTS.dump_json(weights).decode()


def loaded(text: str) -> TextWeights:
    """Return the weights that `dumped` wrote.

    Raises:
        ConfigError: the text is no JSON of weights.
    """
    try:
        return _WEIGHTS.validate_json(text)
    except ValueError as error:
        raise ConfigError(f"no text weights: {error}: pass what `dumped` returned") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one model made of one text."""

    text: str
    model: str
    success: float
    """1 or True for a good answer, 0 or False for a bad one, or the share of good ones."""


def trained(
    samples: Iterable[Sample], *, bucket: Callable[[str], str], only: Collection[str] | None = None
) -> TextWeights:
    """Return weights that predict the outcomes of each model, and of the cheaper and dearer half of them.

    Halves are made by the share of successes.

    Args:
        samples: the outcomes.
        bucket: names the kind of task of a text, to state what is usual for it.
        only: the phrases that may have a weight; None for all that stand in several texts.

    Raises:
        ConfigError: a sample is not valid, or fewer than two models or texts were given.
    """
    outcomes = _by_text(samples)
    columns = _columns(outcomes)
    bags = [phrase_counts(text) for text in outcomes]
    rarity = _rarity(bags, only)
    weights, logits = _descended(bags, rarity, *_targets(outcomes, columns.values()))
    *rows, base = weights.tolist()
    members = defaultdict(list)
    for row, text in enumerate(outcomes):
        members[bucket(text)].append(row)
    return TextWeights(
        columns=tuple(columns),
        base=tuple(base),
        phrases={phrase: (rare, *row) for (phrase, rare), row in zip(rarity.items(), rows, strict=True)},
        usual={name: tuple(logits[texts].mean(axis=0).tolist()) for name, texts in members.items()},
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
    outcomes: Mapping[str, Mapping[str, Sequence[float]]], columns: Collection[frozenset[str]]
) -> tuple[Array, Array]:
    """Share of successes per text and column, and 1 where there are any outcomes, else 0."""
    import numpy as np  # noqa: PLC0415  # only training needs it

    good, weight = np.zeros((2, len(outcomes), len(columns)))
    for row, models in enumerate(outcomes.values()):
        for column, members in enumerate(columns):
            heard = [success for model in members for success in models.get(model, ())]
            if heard:
                good[row, column], weight[row, column] = sum(heard) / len(heard), 1.0
    return good, weight


def _rarity(bags: Sequence[Mapping[str, int]], only: Collection[str] | None) -> dict[str, float]:
    """Phrase -> how rare it is among the texts: the usual inverse document frequency."""
    spread = Counter(phrase for bag in bags for phrase in bag)
    kept = sorted(p for p, texts in spread.items() if texts >= LEAST_TEXTS and (only is None or p in only))
    return {phrase: 1 + math.log((1 + len(bags)) / (1 + spread[phrase])) for phrase in kept}


def _descended(
    bags: Sequence[Mapping[str, int]], rarity: Mapping[str, float], good: Array, weight: Array
) -> tuple[Array, Array]:
    """The weights of every phrase, in the last row those of a text without any, and the log-odds of every text.

    Adagrad on a sparse matrix with a text in each row, of length one, beside a column of ones.
    """
    import numpy as np  # noqa: PLC0415  # see above

    place = {phrase: number for number, phrase in enumerate(rarity)}
    entries = [(row, place[p], count) for row, bag in enumerate(bags) for p, count in bag.items() if p in place]
    row, column, counts = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    value = (1 + np.log(counts)) * np.array(list(rarity.values()))[column]
    value /= np.sqrt(np.bincount(row, value**2, len(bags)))[row]
    row = np.concatenate([row, np.arange(len(bags))])
    column = np.concatenate([column, np.full(len(bags), len(place))])
    value = np.concatenate([value, np.ones(len(bags))])

    def product(to: Array, of: Array, vectors: Array, size: int) -> Array:
        return np.stack([np.bincount(to, value * vector[of], size) for vector in vectors.T], axis=1)

    weights = np.zeros((len(place) + 1, good.shape[1]))
    seen = np.full_like(weights, np.finfo(float).tiny)
    for _ in range(STEPS):
        error = (1 / (1 + np.exp(-product(row, column, weights, len(bags)))) - good) * weight
        slope = product(column, row, error, len(weights)) + PENALTY * weights
        seen += slope**2
        weights -= STEP * slope / np.sqrt(seen)
    return weights, product(row, column, weights, len(bags))


_WEIGHTS = TypeAdapter(TextWeights)
