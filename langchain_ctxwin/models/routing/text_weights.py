"""How likely is a good answer to a text? Weights of its words, signs and phrases, one column per kind of model."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.routing.complexity import read_part

CHEAP, DEAR = "(cheap)", "(dear)"
"""Columns for models that the weights do not know by name: the weaker and the stronger end."""

PHRASE_WORDS = 3
"""Tokens of the longest phrase that has a weight: three words hold how a question is asked; a fourth adds nothing."""

FORMAT_VERSION = 1
DECIMALS = 3
"""Kept in the written form: the third moves a chance by less than a thousandth."""

MAX_LOGIT = 12.0
"""No text makes a model surer than this: one failure in 160,000."""

NUMBER_DIGITS = 3
"""Not what a number is matters but how long it is: `7` and `9` are one token, as are all of three digits or more."""

_TOKEN = re.compile(r"[^\W\d]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWeights:
    """A logistic model over words and phrases. Plain data: `training.trained` makes it, `dumped` writes it."""

    columns: tuple[str, ...]
    """`CHEAP`, `DEAR`, then the models that have weights of their own."""

    base: tuple[float, ...]
    """Log-odds of a good answer to a text without any known phrase, per column."""

    phrases: Mapping[str, tuple[float, ...]]
    """Phrase -> how rare it is, then its weight per column."""

    usual: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Bucket -> mean log-odds per column over the texts that the weights were made from."""

    def logits(self, text: str) -> tuple[float, ...]:
        """Return the log-odds of a good answer per column."""
        counted = ((self.phrases.get(phrase), count) for phrase, count in phrase_counts(text).items())
        found = [(known, (1 + math.log(count)) * known[0]) for known, count in counted if known]
        size = math.sqrt(sum(share * share for _, share in found)) or 1.0
        shifts = (
            sum(share * known[column] for known, share in found) / size for column in range(1, 1 + len(self.base))
        )
        return tuple(_bounded(base + shift) for base, shift in zip(self.base, shifts, strict=True))

    def of_model(self, logits: tuple[float, ...], model: str, strength: float) -> float:
        """Return the log-odds of one model: its own column, else by strength between the cheap and the dear end."""
        if model in self.columns:
            return logits[self.columns.index(model)]
        return (1 - strength) * logits[0] + strength * logits[1]


def phrase_counts(text: str) -> Counter[str]:
    """Return the tokens of a text and its phrases of up to `PHRASE_WORDS` of them, with how often each occurs.

    A token is a word, a number, of which only the length is kept, or a sign: punctuation and operators tell a
    question about a formula from one about a story in fields whose words are not known.
    """
    tokens = [_plain(token) for token in _TOKEN.findall(read_part(text).lower())]
    counts = Counter(tokens)
    for length in range(2, PHRASE_WORDS + 1):
        counts.update(map(" ".join, zip(*(tokens[start:] for start in range(length)), strict=False)))
    return counts


def _plain(token: str) -> str:
    return "0" * min(NUMBER_DIGITS, len(token)) if token[0].isdecimal() else token


def dumped(weights: TextWeights) -> str:
    """Return the written form: a line of JSON about the columns, then one line per phrase."""
    head = {
        "version": FORMAT_VERSION,
        "columns": weights.columns,
        "base": _rounded(weights.base),
        "usual": {bucket: _rounded(means) for bucket, means in sorted(weights.usual.items())},
    }
    lines = ("\t".join([phrase, *map(str, _rounded(row))]) for phrase, row in sorted(weights.phrases.items()))
    return "\n".join([json.dumps(head), *lines])


def loaded(text: str) -> TextWeights:
    """Return the weights that `dumped` wrote.

    Raises:
        ConfigError: the text was not written by it, or by a newer version.
    """
    try:
        first, *lines = text.splitlines()
        head = json.loads(first)
        if head["version"] != FORMAT_VERSION:
            raise ConfigError(
                f"weights of version {head['version']!r}: this package reads {FORMAT_VERSION}: fit them again"
            )
        width = len(head["columns"])
        rows = [line.split("\t") for line in lines]
        return TextWeights(
            columns=tuple(head["columns"]),
            base=_numbers(head["base"], width),
            phrases={phrase: _numbers(row, 1 + width) for phrase, *row in rows},
            usual={bucket: _numbers(means, width) for bucket, means in head["usual"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"no text weights ({type(error).__name__}: {error}): pass what `dumped` returned") from error


def _numbers(values: Sequence[object], width: int) -> tuple[float, ...]:
    numbers = tuple(float(str(value)) for value in values)
    if len(numbers) != width or not all(map(math.isfinite, numbers)):
        raise ValueError(f"{values!r} are not {width} finite numbers")
    return numbers


def _rounded(values: tuple[float, ...]) -> list[float]:
    return [round(value, DECIMALS) for value in values]


def _bounded(logit: float) -> float:
    return max(-MAX_LOGIT, min(MAX_LOGIT, logit))
