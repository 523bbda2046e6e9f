"""Sizes in a provider's tokens: our estimates, corrected by the sizes that the provider reported.

A request has `fixed + offset + counted + ratio * text` tokens. Texts between two reports keep the size that the
provider counted, as spans. The offset is what the last report has beyond all that is known: the rendering of tools,
hidden preambles, what a tokenizer sees differently in the texts that no span has. One ratio, learned slowly from the
spans, scales new text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, floor, hypot, sqrt
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.record import MAX_COUNT
from langchain_ctxwin.core.turns import VisibleSteps
from langchain_ctxwin.core.view import Position, message_id, position_in

QUANTILE_SD = 1.645
"""Standard deviations between the median and the 95 % quantile of a Gaussian: the quantile that routing uses."""

TOOLS_SD_SHARE, TOOLS_SD_TOKENS = 0.1, 200.0
"""Uncertainty of the price of tool definitions before any report: a share for how a provider renders them, a constant
for what it says about tools at all. Fitted to provider-reported sizes of 293 recorded requests, rounded up."""

TEXT_NOISE_TOKENS, FIXED_NOISE_SHARE = 10.0, 0.01
"""What remains unexplained of what a step adds, beside a share of it, and of what the offset was taken from."""

TYPICAL_TEXT_TOKENS = 500
"""Size of one message or result of an agent: the errors of many texts cancel out."""

PRIOR_TOKENS = 800
"""Tokens of text that the estimate counts for beside what the ratio was learned from."""

MAX_LEARNED_TOKENS = 10_000
"""Tokens of text that the ratio remembers, so that it follows a conversation that changes."""

PLAUSIBLE_RATIO, PLAUSIBLE_TOKENS = 4.0, 300
"""A reported difference is that of the text between when it is within this factor and this constant of its estimate."""

MAX_SPANS = 48
"""Spans kept per model, about 1 KB in a checkpoint; of more, the oldest leaves."""

MAX_NUMBER = 1e15
"""Stored numbers are below this."""

LEAST_FIXED_SHARE = 0.1
"""Part of its estimate that a prompt or tool definitions have, whatever was reported: they are there."""

FIXED_REGIONS = ("system_tokens", "tool_tokens", "summary_tokens", "pinned_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """How far a counter may be off before any report: learned when it was fitted, or stated by the counter."""

    ratio_sd: float = 1.0
    """Standard deviation of true over estimated size of all texts of a conversation."""

    noise_share: float = 0.2
    """Standard deviation of that of one text around all: different texts, different errors."""

    lower_share: float = 1.0
    """Distance of the lower bound from the median, as a share of that of the upper one, before any report."""

    has_margin: bool = True
    """False for a counter that is taken as it is: upper and lower bound are then its count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """The parts of one request, in tokens."""

    system_tokens: int
    tool_tokens: int
    summary_tokens: int
    pinned_tokens: int
    history_tokens: int

    @property
    def fixed_tokens(self) -> int:
        """Everything but the history."""
        return (
            self.system_tokens
            + self.tool_tokens
            + self.summary_tokens
            + self.pinned_tokens
        )

    @property
    def total_tokens(self) -> int:
        """All of them."""
        return self.fixed_tokens + self.history_tokens

    def scaled(self, total_tokens: int) -> Regions:
        """Return regions that add up to `total_tokens`: the history takes the difference, then all in proportion."""
        if total_tokens >= self.fixed_tokens:
            return replace(self, history_tokens=total_tokens - self.fixed_tokens)
        # what is there is not shown as nothing
        least = 1 if total_tokens >= len(FIXED_REGIONS) else 0
        fixed = dict[str, int]()
        for name in FIXED_REGIONS:
            size = getattr(self, name)
            fixed[name] = max(
                min(size, least), size * total_tokens // self.fixed_tokens
            )
        largest = max(fixed, key=lambda name: fixed[name])
        fixed[largest] -= max(0, sum(fixed.values()) - total_tokens)
        return Regions(**fixed, history_tokens=total_tokens - sum(fixed.values()))

    def with_offset(self, offset: float) -> Regions:
        """Return regions with an offset: it is mostly the rendering of tools, the prompt's where there are none."""
        name = "tool_tokens" if self.tool_tokens else "system_tokens"
        own = getattr(self, name)
        shifted = max(round(own + offset), ceil(LEAST_FIXED_SHARE * own))
        least = (
            max(len(FIXED_REGIONS), ceil(LEAST_FIXED_SHARE * self.fixed_tokens))
            if self.fixed_tokens
            else 0
        )
        return replace(self, **{name: shifted}).scaled(
            max(least, round(self.total_tokens + offset))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEstimate:
    """A size in the provider's counts and how sure it is. The regions add up to the median."""

    regions: Regions
    upper_tokens: int
    """The quantile that decides whether a request may be sent."""

    lower_tokens: int
    """The quantile that the size is most probably not below."""


class Span(NamedTuple):
    """Whole steps at `start <= index < stop` of the history; a tuple, because dozens are read with every measure."""

    start: int
    stop: int
    estimate: int
    """Our estimate of them when they were counted, in tokens."""

    tokens: int
    """What the provider counted."""


class ReportedSize(NamedTuple):
    """An input size that a provider reported, beside our plain estimate of the request; in tokens."""

    tokens: int
    estimate: int
    at: int = 0
    """Position of the answer that it came with."""

    model: str = ""
    """Name of the model that answered; empty when the answer does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The reported sizes of a conversation's requests to one model, and the calibration from them."""

    offset: float = 0.0
    """Tokens of each request that are in no region and no text, by the last report."""

    offset_text: float = 0.0
    """Estimated tokens of the text in the request that the offset was taken from, as far as no span has them."""

    ratio: float = 1.0
    """Counted over estimated tokens of new text."""

    learned: float = 0.0
    """Estimated tokens of the texts behind the ratio."""

    reports: int = 0
    """Reported sizes of requests with these tools."""

    tools: str = ""
    """Fingerprint of the tool definitions that the offset belongs to."""

    spans: tuple[Span, ...] = ()
    last: Position | None = None
    """The answer at the end of the newest span; elsewhere or gone, the history is another one."""

    doubted: ReportedSize | None = None
    """The last report, when it was not believed."""

    doubt: Doubt = field(default_factory=Doubt, compare=False)

    def size(self, estimates: Regions, steps: VisibleSteps) -> SizeEstimate:
        """Return the size of a request with these estimates, whose history consists of `steps`."""
        counted, rest = self.counted(steps)
        plain = self._scaled(estimates, counted + self.ratio * rest)
        text = rest + estimates.summary_tokens + estimates.pinned_tokens
        noise = self._noise(TYPICAL_TEXT_TOKENS * text)
        if self.reports:
            # The offset holds for the text that it was taken from: the ratio is in doubt for what is more or less.
            fixed = FIXED_NOISE_SHARE * (plain.total_tokens - self.ratio * text)
            spread = hypot(self._ratio_sd * (text - self.offset_text), fixed, noise)
        else:
            tools = (
                TOOLS_SD_SHARE * plain.tool_tokens + TOOLS_SD_TOKENS
                if plain.tool_tokens
                else 0.0
            )
            spread = hypot(
                self._ratio_sd * text,
                self.doubt.ratio_sd * plain.system_tokens,
                tools,
                noise,
            )
        share = 1.0 if self.reports else self.doubt.lower_share
        return self._bounded(plain.with_offset(self.offset), spread, share)

    def extended(
        self, estimates: Regions, reported_tokens: int, added: Sequence[int]
    ) -> SizeEstimate:
        """Return the size of a request that extends one of `reported_tokens` by texts of `added` estimated tokens."""
        text = sum(added)
        plain = self._scaled(estimates, estimates.history_tokens)
        regions = plain.with_offset(self.offset).scaled(
            reported_tokens + round(self.ratio * text)
        )
        noise = self._noise(sum([tokens * tokens for tokens in added])) if text else 0.0
        return self._bounded(regions, hypot(self._ratio_sd * text, noise))

    def counted(self, steps: VisibleSteps) -> tuple[float, int]:
        """Return the counted size of the steps that lie in spans, and the estimates of the others."""
        counted, rest = 0.0, steps.total_tokens
        for span in self.spans:
            inside = span.estimate
            is_whole = steps and steps[0].index <= span.start
            if not (is_whole and span.stop <= steps.counted[0]):
                # of text added since nothing is known
                inside = min(steps.between(span.start, span.stop), inside)
            counted += inside * span.tokens / span.estimate
            rest -= inside
        return counted, max(0, rest)

    # ---- after a report ----

    def with_request(self, tokens: int, *, fixed: float, text: float) -> Sizes:
        """Return the sizes after a whole request was reported: what is unexplained of it is the offset.

        Args:
            tokens: its reported size.
            fixed: prompt and tools as estimated, and what spans have of the history.
            text: the other texts as estimated.
        """
        offset = tokens - fixed - self.ratio * text
        return replace(
            self,
            offset=offset,
            offset_text=text,
            reports=self.reports + 1,
            doubted=None,
        )

    def with_refusal(self, tokens: int, *, fixed: float, text: float) -> Sizes:
        """Return the sizes after a provider stated the size of a request that it refused.

        What can be made smaller is blamed first, as far as a tokenizer can be off: only that leads to a request that
        fits, and the next answer tells whether it was right. The arguments are those of `with_request`.
        """
        ratio = (tokens - fixed - self.offset) / text if text else self.ratio
        ratio = min(max(ratio, 1 / PLAUSIBLE_RATIO), PLAUSIBLE_RATIO)
        return replace(self, ratio=ratio).with_request(tokens, fixed=fixed, text=text)

    def with_span(self, span: Span, last: Position) -> Sizes:
        """Return the sizes after the text between two reports was counted; the ratio learns from it."""
        weight = PRIOR_TOKENS + self.learned
        ratio = (self.ratio * weight + span.tokens) / (weight + span.estimate)
        learned = min(self.learned + span.estimate, MAX_LEARNED_TOKENS)
        return replace(
            self,
            ratio=ratio,
            learned=learned,
            spans=(*self.spans, span)[-MAX_SPANS:],
            last=last,
        )

    def of_tools(self, tools: str) -> Sizes:
        """Return the sizes for a tool set; for another set than before only the calibration of texts stays."""
        if tools == self.tools:
            return self
        return replace(self, offset=0.0, offset_text=0.0, reports=0, tools=tools)

    def in_history(self, messages: Sequence[AnyMessage]) -> Sizes:
        """Return the sizes with their spans, if those still lie where they were counted."""
        last = self.last
        if (
            last
            and last.index < len(messages)
            and message_id(messages, last.index) == last.id
        ):
            return self
        return replace(self, spans=(), last=None)

    # ---- stored ----

    def to_json(self) -> dict[str, Any]:
        """Return plain values, rounded: they go into every checkpoint."""
        numbers = {name: float(f"{getattr(self, name):.6g}") for name in NUMBERS}
        return {
            **numbers,
            "reports": self.reports,
            "tools": self.tools,
            "spans": [list(span) for span in self.spans],
            "last": asdict(self.last) if self.last else None,
            "doubted": list(self.doubted[:2]) if self.doubted else None,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Sizes:
        """Read what `to_json` returns."""
        plain = {name: value[name] for name in (*NUMBERS, "reports", "tools")}
        return cls(
            **plain,
            spans=tuple(Span(*row) for row in value["spans"]),
            last=position_in(value["last"]),
            doubted=ReportedSize(*value["doubted"]) if value["doubted"] else None,
        )

    # ---- bounds ----

    def _scaled(self, estimates: Regions, history_tokens: float) -> Regions:
        """The regions with the ratio of text."""
        return replace(
            estimates,
            summary_tokens=round(self.ratio * estimates.summary_tokens),
            pinned_tokens=round(self.ratio * estimates.pinned_tokens),
            history_tokens=round(history_tokens),
        )

    @property
    def _ratio_sd(self) -> float:
        """Standard deviation of the ratio: it narrows with the text that was counted."""
        return self.doubt.ratio_sd * sqrt(PRIOR_TOKENS / (PRIOR_TOKENS + self.learned))

    def _noise(self, squares: float) -> float:
        """Standard deviation of texts whose ratio is known, by the sum of the squares of their sizes."""
        return hypot(self.doubt.noise_share * sqrt(squares), TEXT_NOISE_TOKENS)

    def _bounded(
        self, regions: Regions, spread: float, lower_share: float = 1.0
    ) -> SizeEstimate:
        """A size with its bounds, by its standard deviation."""
        total, margin = (
            regions.total_tokens,
            QUANTILE_SD * spread if self.doubt.has_margin else 0.0,
        )
        upper, lower = ceil(total + margin), max(0, floor(total - lower_share * margin))
        return SizeEstimate(regions=regions, upper_tokens=upper, lower_tokens=lower)


NUMBERS = ("offset", "offset_text", "ratio", "learned")


def are_spans(value: Any) -> bool:
    """True for stored spans of one history; dozens are read with every measure."""
    spans = [Span(*row) for row in value]
    edges = [edge for span in spans for edge in span[:2]]
    counts = {count for span in spans for count in span}
    return (
        all(type(count) is int and 0 <= count <= MAX_COUNT for count in counts)
        and edges == sorted(edges)
        and all(span.start < span.stop and span.estimate for span in spans)
    )


def is_plausible(tokens: int, estimate: int) -> bool:
    """True when a reported difference can be the size of a text with this estimate."""
    if tokens <= 0 or estimate <= 0:
        return False
    largest = PLAUSIBLE_RATIO * estimate + PLAUSIBLE_TOKENS
    return estimate / PLAUSIBLE_RATIO - PLAUSIBLE_TOKENS <= tokens <= largest
