"""Which parts of the history has the provider counted already? Their sizes stay known after a compaction.

Two reported sizes of which one request extends the other differ by the size of what was added. Such a span of history
keeps its own ratio of reported to estimated tokens, so what stays in the view needs no estimate when the start moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import le, lt
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.turns import Step
from langchain_ctxwin.core.view import Position, message_id

MAX_SPANS = 48
"""Spans kept per model, about 1 KB in a checkpoint; of more, the two smallest neighbours become one."""

MAX_MEASURED = 2
"""Models whose spans are kept: one, and the one it takes turns with."""

NOWHERE = 1 << 62
"""Position behind every history."""

PLAUSIBLE_RATIO = 4.0
PLAUSIBLE_TOKENS = 300
"""A reported difference is that of the text between when it is within this factor and this constant of its estimate."""


class Span(NamedTuple):
    """Whole steps at `start <= index < stop` of the history; a tuple, because dozens are read with every measure."""

    start: int
    stop: int
    estimate: int
    """Our estimate of them when they were counted, in tokens."""

    tokens: int
    """What the provider counted."""


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

    def price(self, steps: Iterable[Step]) -> tuple[float, list[int]]:
        """Return the counted size of the steps that lie in spans, and the estimates of the others, in tokens."""
        spans, inside, rest, number = self.spans, [0] * len(self.spans), list[int](), 0
        start, stop = spans[0][:2] if spans else (NOWHERE, NOWHERE)
        for step in steps:
            index = step.index
            while index >= stop:
                number += 1
                start, stop = spans[number][:2] if number < len(spans) else (NOWHERE, NOWHERE)
            if index >= start:
                inside[number] += step.tokens
            else:
                rest.append(step.tokens)
        counted = 0.0
        for shown, span in zip(inside, spans, strict=True):
            # Text that was added since has another ratio; nothing is known of it.
            counted += min(shown, span.estimate) * span.tokens / span.estimate
            if shown > span.estimate:
                rest.append(shown - span.estimate)
        return counted, rest

    def with_span(self, span: Span, last: Position) -> Measured:
        """Return these and a newer span, at most `MAX_SPANS`."""
        return replace(self, last=last, spans=_bounded((*self.spans, span)))

    def since(self, start: int) -> Measured:
        """Return what is still in a view that starts at `start`."""
        return replace(self, spans=tuple(span for span in self.spans if span.stop > start))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        spans = [list(span) for span in self.spans]
        last = {"id": self.last.id, "index": self.last.index} if self.last else None
        return {"last": last, "spans": spans}

    @classmethod
    def from_json(cls, value: object) -> Measured:
        """Read `to_json`; of anything else nothing is measured."""
        last, spans = (value.get("last"), value.get("spans")) if isinstance(value, Mapping) else (None, None)
        if not isinstance(last, Mapping) or not isinstance(spans, list) or not _are_spans(spans):
            return cls()
        index = last.get("index")
        if type(index) is not int or index < 0:
            return cls()
        return cls(last=Position(id=str(last.get("id")), index=index), spans=tuple(map(Span._make, spans)))


def _are_spans(rows: list[Any]) -> bool:
    """True for rows of start, stop, estimate and tokens, in order; without a loop, because every measure asks."""
    width = len(Span._fields)
    if not all(isinstance(row, list | tuple) for row in rows) or {*map(len, rows)} - {width}:
        return False
    numbers = list(chain.from_iterable(rows))
    if {*map(type, numbers)} - {int}:
        return False
    starts, stops, estimates = numbers[0::width], numbers[1::width], numbers[2::width]
    in_order = all(map(lt, starts, stops)) and all(map(le, stops, starts[1:]))
    return in_order and min(numbers, default=0) >= 0 and min(estimates, default=1) > 0


def is_plausible(tokens: int, estimate: int) -> bool:
    """True when a reported difference can be the size of a text with this estimate."""
    if tokens <= 0 or estimate <= 0:
        return False
    largest = PLAUSIBLE_RATIO * estimate + PLAUSIBLE_TOKENS
    return estimate / PLAUSIBLE_RATIO - PLAUSIBLE_TOKENS <= tokens <= largest


def _bounded(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    if len(spans) <= MAX_SPANS:
        return spans
    pairs = [i for i in range(len(spans) - 1) if spans[i].stop == spans[i + 1].start]
    if not pairs:
        return spans[1:]
    at = min(pairs, key=lambda i: spans[i].estimate + spans[i + 1].estimate)
    first, second = spans[at], spans[at + 1]
    joined = Span(
        start=first.start,
        stop=second.stop,
        estimate=first.estimate + second.estimate,
        tokens=first.tokens + second.tokens,
    )
    return (*spans[:at], joined, *spans[at + 2 :])
