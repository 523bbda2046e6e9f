"""Calibration: how far off estimates are for one model and tool set, learned from the sizes that a provider reports.

A reported size is `fixed + offset + (1 + slope) * text`: what is in every request but not in our sums (the rendering of
tools, hidden preambles) is a constant, what a tokenizer sees differently is a share. One ratio would mix the two and be
wrong as soon as the history shrinks. The state is a Gaussian over both numbers, updated as in a Kalman filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.turns import Shown
from langchain_ctxwin.core.view import Position, message_id

# Standard deviations between the median and the 95 % quantile of a Gaussian: the quantile that routing uses.
QUANTILE_SD = 1.645
# Uncertainty of the price of tool definitions: a share for how a provider renders them, a constant for what it says
# about tools at all. Fitted to provider-reported sizes of 293 recorded requests, rounded up: models differ.
TOOLS_SD_SHARE, TOOLS_SD_TOKENS = 0.1, 200.0
FIXED_SD_TOKENS = 40.0  # uncertainty of the constants around a request without tools, fitted to the same requests
MAX_NUMBER = 1e15  # numbers of a stored belief are below this; it also keeps their squares finite
MAX_SPANS = 48  # spans kept per model, about 1 KB in a checkpoint; of more, the two smallest neighbours become one
MAX_MEASURED = 2  # models whose spans are kept: one, and the one it takes turns with
# A reported difference is that of the text between when it is within this factor and this constant of its estimate.
PLAUSIBLE_RATIO, PLAUSIBLE_TOKENS = 4.0, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """How far a counter may be off before any report: learned when it was fitted, or stated by the counter.

    By default for one that states nothing: the rules of thumb see a quarter of a Chinese text.
    """

    slope_sd: float = 1.0  # standard deviation of true over estimated size of all texts of a conversation
    noise_share: float = 0.2  # standard deviation of that of one text around all: different texts, different errors
    lower_share: float = 1.0  # distance of the lower bound from the median, as a share of that of the upper one
    has_margin: bool = True  # False for a counter that is taken as it is: upper and lower bound are then its count


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is known about offset and slope. Offsets are tokens, slopes are shares of a text's estimate."""

    offset: float = 0.0
    slope: float = 0.0
    offset_variance: float
    covariance: float = 0.0
    slope_variance: float
    reports: int = 0  # reported sizes behind it

    def to_json(self) -> list[float]:
        """Return the six numbers, rounded: they go into every checkpoint."""
        numbers = (self.offset, self.slope, self.offset_variance, self.covariance, self.slope_variance)
        return [*map(float, map("{:.6g}".format, numbers)), self.reports]

    @classmethod
    def from_json(cls, value: object) -> Belief | None:
        """Read `to_json`; None for anything that is not a valid belief."""
        if not isinstance(value, list | tuple) or len(value) != len(cls.__dataclass_fields__):
            return None
        if [number for number in value if not isinstance(number, int | float) or not abs(number) < MAX_NUMBER]:
            return None
        _, _, offset_variance, covariance, slope_variance, reports = value
        if min(offset_variance, slope_variance, reports) < 0 or covariance**2 > offset_variance * slope_variance * 1.01:
            return None
        return cls(**dict(zip(cls.__dataclass_fields__, [*value[:-1], int(reports)], strict=True)))

    def variance(self, constant: int, text_tokens: float) -> float:
        """Variance of `constant * offset + text_tokens * slope`, in square tokens."""
        mixed = 2 * constant * text_tokens * self.covariance
        return max(0.0, constant * self.offset_variance + mixed + text_tokens**2 * self.slope_variance)

    def updated(self, constant: int, text_tokens: float, surplus_tokens: float, noise: float) -> Belief:
        """Kalman update for one observation of `constant * offset + text_tokens * slope`."""
        offset_gain = constant * self.offset_variance + text_tokens * self.covariance
        slope_gain = constant * self.covariance + text_tokens * self.slope_variance
        total = constant * offset_gain + text_tokens * slope_gain + noise
        surprise = surplus_tokens - constant * self.offset - text_tokens * self.slope
        return Belief(
            offset=self.offset + offset_gain / total * surprise,
            slope=self.slope + slope_gain / total * surprise,
            offset_variance=max(0.0, self.offset_variance - offset_gain**2 / total),
            covariance=self.covariance - offset_gain * slope_gain / total,
            slope_variance=max(0.0, self.slope_variance - slope_gain**2 / total),
            reports=self.reports + 1,
        )


def prior(doubt: Doubt, *, tool_tokens: int, system_tokens: int) -> Belief:
    """Return the belief before any report about this model and tool set."""
    tools_sd = TOOLS_SD_SHARE * tool_tokens + TOOLS_SD_TOKENS if tool_tokens else 0.0
    offset_sd = hypot(tools_sd, doubt.slope_sd * system_tokens, FIXED_SD_TOKENS)
    return Belief(offset_variance=offset_sd**2, slope_variance=doubt.slope_sd**2)


def other_tools(known: Belief, fresh: Belief) -> Belief:
    """Return the belief about another tool set of a known model: the slope is the tokenizer's and stays."""
    return replace(fresh, slope=known.slope, slope_variance=known.slope_variance)


class Span(NamedTuple):
    """Whole steps at `start <= index < stop` of the history; a tuple, because dozens are read with every measure."""

    start: int
    stop: int
    estimate: int  # our estimate of them when they were counted, in tokens
    tokens: int  # what the provider counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The counted spans of one conversation, for one model, in order."""

    last: Position | None = None
    """The answer at the end of the newest span; elsewhere or gone, the history is another one."""

    spans: tuple[Span, ...] = ()

    def holds_for(self, messages: Sequence[AnyMessage]) -> bool:
        """True when the spans still lie where they were counted."""
        if self.last is None or self.last.index >= len(messages):
            return False
        return message_id(messages, self.last.index) == self.last.id

    def price(self, steps: Shown) -> tuple[float, int, int]:
        """Return the counted size of the steps that lie in spans, and of the others the estimates and their squares."""
        counted, rest, squares = 0.0, steps.total_tokens, steps.squares[-1]
        for span in self.spans:
            in_head = span.stop <= steps.head_stop
            inside, inside_squares = (span.estimate, 0) if in_head else steps.between(span.start, span.stop)
            # Text that was added since has another ratio; nothing is known of it.
            added = max(0, inside - span.estimate)
            counted += (inside - added) * span.tokens / span.estimate
            rest += added - inside
            squares += added**2 - inside_squares
        return counted, rest, squares

    def with_span(self, span: Span, last: Position) -> Measured:
        """Return these and a newer span; of more than `MAX_SPANS` two neighbours become one, or the oldest leaves."""
        spans = (*self.spans, span)
        if len(spans) > MAX_SPANS:
            pairs = [at for at, (one, other) in enumerate(pairwise(spans)) if one.stop == other.start]
            at = min(pairs, key=lambda at: spans[at].estimate + spans[at + 1].estimate, default=-1)
            if at < 0:
                spans = spans[1:]
            else:
                (start, _, estimate, tokens), other = spans[at : at + 2]
                joined = Span(start, other.stop, estimate + other.estimate, tokens + other.tokens)
                spans = (*spans[:at], joined, *spans[at + 2 :])
        return replace(self, last=last, spans=spans)

    def since(self, start: int) -> Measured:
        """Return what is still in a view that starts at `start`."""
        return replace(self, spans=tuple(span for span in self.spans if span.stop > start))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        last = {"id": self.last.id, "index": self.last.index} if self.last else None
        return {"last": last, "spans": [list(span) for span in self.spans]}

    @classmethod
    def from_json(cls, value: object) -> Measured:
        """Read `to_json`; of anything else nothing is measured."""
        last, rows = (value.get("last"), value.get("spans")) if isinstance(value, Mapping) else (None, None)
        if not isinstance(last, Mapping) or not isinstance(rows, list):
            return cls()
        index = last.get("index")
        if type(index) is not int or index < 0:
            return cls()
        stop_before, spans = 0, []
        for row in rows:
            if not isinstance(row, list | tuple) or len(row) != len(Span._fields) or {*map(type, row)} != {int}:
                return cls()
            span = Span._make(row)
            if not stop_before <= span.start < span.stop or span.estimate <= 0 or span.tokens < 0:
                return cls()
            stop_before = span.stop
            spans.append(span)
        return cls(last=Position(id=str(last.get("id")), index=index), spans=tuple(spans))


def is_plausible(tokens: int, estimate: int) -> bool:
    """True when a reported difference can be the size of a text with this estimate."""
    if tokens <= 0 or estimate <= 0:
        return False
    largest = PLAUSIBLE_RATIO * estimate + PLAUSIBLE_TOKENS
    return estimate / PLAUSIBLE_RATIO - PLAUSIBLE_TOKENS <= tokens <= largest
