"""Sizes in a provider's tokens: our estimates, corrected by the sizes that the provider reported.

A request has `fixed + offset + counted + ratio * text` tokens. Texts between two reports keep the size that the
provider counted, as spans. The offset is what the last report has beyond all that is known: the rendering of tools,
hidden preambles, what a tokenizer sees differently in the texts that no span has. One ratio, learned slowly from the
spans, scales new text.

Servers report other sizes, too: sums over the calls of a turn, the chunks of a stream or a whole session, what is left
of a request that they cut, only what was not cached. A size that contradicts the planned one is not believed before the
next report agrees with it; one that is too small never is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, floor, hypot, sqrt
from typing import Annotated, Any, NamedTuple, TypeGuard

from langchain_core.messages import AIMessage, AnyMessage
from pydantic import Field

from langchain_ctxwin.core.provider_blocks import compaction_in
from langchain_ctxwin.core.turns import Steps
from langchain_ctxwin.core.view import Count, Position, message_id

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
"""Spans kept, about 1 KB in a checkpoint; of more, the oldest leaves."""

MAX_NUMBER = 1e15
"""Stored numbers are below this."""

Number = Annotated[float, Field(strict=True, gt=-MAX_NUMBER, lt=MAX_NUMBER)]
Positive = Annotated[Number, Field(ge=0)]

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

    def adding_up_to(self, total_tokens: int, offset: float) -> Regions:
        """Return regions that add up to `total_tokens`: the history takes the difference, then all in proportion.

        The offset is mostly the rendering of tools, the prompt's where there are none. What is there is not shown as
        nothing.
        """
        fixed = {name: getattr(self, name) for name in FIXED_REGIONS}
        name = "tool_tokens" if self.tool_tokens else "system_tokens"
        least = ceil(LEAST_FIXED_SHARE * fixed[name])
        fixed[name] = max(round(fixed[name] + offset), least)
        fixed_tokens = sum(fixed.values())
        if fixed_tokens > total_tokens:
            least = int(total_tokens >= len(FIXED_REGIONS))
            for name, size in fixed.items():
                share = size * total_tokens // fixed_tokens
                fixed[name] = max(min(size, least), share)
            largest = max(fixed, key=lambda name: fixed[name])
            fixed[largest] -= max(0, sum(fixed.values()) - total_tokens)
        return Regions(**fixed, history_tokens=total_tokens - sum(fixed.values()))


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

    start: Count
    stop: Count
    estimate: Count
    """Our estimate of them when they were counted, in tokens."""

    tokens: Count
    """What the provider counted."""


class ReportedSize(NamedTuple):
    """An input size that a provider reported, beside our plain estimate of the request; in tokens."""

    tokens: Count
    estimate: Count
    at: Count = 0
    """Position of the answer that it came with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The reported sizes of a conversation's requests to one model, and the calibration from them."""

    offset: Number = 0.0
    """Tokens of each request that are in no region and no text, by the last report."""

    offset_text: Positive = 0.0
    """Estimated tokens of the text in the request that the offset was taken from, as far as no span has them."""

    ratio: Positive = 1.0
    """Counted over estimated tokens of new text."""

    learned: Positive = 0.0
    """Estimated tokens of the texts behind the ratio."""

    is_reported: Annotated[bool, Field(strict=True)] = False
    """Whether the size of a request with these tools was reported."""

    tools: str = ""
    """Fingerprint of the tool definitions that the offset belongs to."""

    model: str = ""
    """Name under which the model answered; empty while it stated none."""

    spans: tuple[Span, ...] = ()
    last: Position | None = None
    """The answer at the end of the newest span; elsewhere or gone, the history is another one."""

    doubted: ReportedSize | None = None
    """The last report, when it was not believed."""

    doubt: Doubt = field(default_factory=Doubt, compare=False)

    def size(
        self,
        estimates: Regions,
        steps: Steps,
        added: Sequence[int] | None = None,
    ) -> SizeEstimate:
        """Return the size of a request with these estimates, whose history consists of `steps`.

        Where it extends the one that was reported last, `added` has our estimates of the texts that follow that.
        """
        known, text = self.explained(estimates, steps)
        plain = self._scaled(estimates, known, text)
        fixed = plain.fixed_tokens
        total = max(
            min(fixed, len(FIXED_REGIONS)),
            ceil(LEAST_FIXED_SHARE * fixed),
            round(plain.total_tokens + self.offset),
        )
        regions = plain.adding_up_to(total, self.offset)
        if added is not None:
            noise = self._noise(sum(tokens * tokens for tokens in added))
            unsure = hypot(self._ratio_sd * sum(added), noise) if any(added) else 0.0
            return self._bounded(regions, unsure)
        if self.is_reported:
            # The offset holds for the text that it was taken from: the ratio is in doubt for what is more or less.
            # Where most of that is gone, what is left is in doubt as if nothing was reported, and so is the offset.
            ratio_spread = min(
                self._ratio_sd * abs(text - self.offset_text),
                hypot(self._ratio_sd * text, self.offset),
            )
            others, share = (
                FIXED_NOISE_SHARE * (plain.total_tokens - self.ratio * text),
                1.0,
            )
        else:
            ratio_spread = self._ratio_sd * text
            others, share = self._first_spread(estimates), self.doubt.lower_share
        spread = hypot(ratio_spread, others, self._noise(TYPICAL_TEXT_TOKENS * text))
        return self._bounded(regions, spread, share)

    def explained(self, estimates: Regions, steps: Steps) -> tuple[float, int]:
        """Return what is known of a request, as counted in spans or of its prompt and tools, and its other texts."""
        known = float(estimates.system_tokens + estimates.tool_tokens)
        text = estimates.summary_tokens + estimates.pinned_tokens + steps.total_tokens
        for span in self.spans:
            inside = span.estimate
            is_whole = steps and steps[0].index <= span.start
            if not (is_whole and span.stop <= steps.counted[0]):
                # of text added since nothing is known
                inside = min(steps.between(span.start, span.stop), inside)
            known += inside * span.tokens / max(1, span.estimate)
            text -= inside
        return known, max(0, text)

    # ---- after a report ----

    def with_request(
        self, tokens: int, estimates: Regions, steps: Steps, *, later_tokens: int = 0
    ) -> Sizes:
        """Return the sizes after a whole request was reported: what is unexplained of it is the offset.

        Args:
            tokens: its reported size.
            estimates: our estimates of it.
            steps: its history.
            later_tokens: our estimate of what of these followed it.
        """
        known, text = self.explained(estimates, steps)
        text -= later_tokens
        return replace(
            self,
            offset=tokens - known - self.ratio * text,
            offset_text=text,
            is_reported=True,
            doubted=None,
        )

    def with_refusal(self, tokens: int, estimates: Regions, steps: Steps) -> Sizes:
        """Return the sizes after a provider stated the size of a request that it refused.

        What can be made smaller is blamed first, as far as a tokenizer can be off: only that leads to a request that
        fits, and the next answer tells whether it was right.
        """
        known, text = self.explained(estimates, steps)
        ratio = (tokens - known - self.offset) / text if text else self.ratio
        ratio = min(max(ratio, 1 / PLAUSIBLE_RATIO), PLAUSIBLE_RATIO)
        return replace(self, ratio=ratio).with_request(tokens, estimates, steps)

    def with_growth(
        self, before: ReportedSize, report: ReportedSize, last: Position
    ) -> Sizes:
        """Return the sizes with the text between two reports as counted; the ratio learns from it.

        What is no size of that text changes nothing.
        """
        tokens = report.tokens - before.tokens
        estimate = report.estimate - before.estimate
        if not is_plausible(tokens, estimate):
            return self
        weight = PRIOR_TOKENS + self.learned
        return replace(
            self,
            ratio=(self.ratio * weight + tokens) / (weight + estimate),
            learned=min(self.learned + estimate, MAX_LEARNED_TOKENS),
            spans=(*self.spans, Span(before.at, report.at, estimate, tokens))[
                -MAX_SPANS:
            ],
            last=last,
        )

    def valid_for(
        self, tools: str, messages: Sequence[AnyMessage], doubt: Doubt
    ) -> Sizes:
        """Return what of these holds for a request: for other tools only that of texts.

        Spans hold where they still lie where they were counted.
        """
        sizes = self
        if tools != sizes.tools:
            sizes = replace(
                sizes, offset=0.0, offset_text=0.0, is_reported=False, tools=tools
            )
        last = sizes.last
        if last and not (
            last.index < len(messages) and message_id(messages, last.index) == last.id
        ):
            sizes = replace(sizes, spans=(), last=None)
        return replace(sizes, doubt=doubt)

    # ---- stored ----

    def to_json(self) -> dict[str, Any]:
        """Return plain values, rounded: they go into every checkpoint."""
        numbers = {name: float(f"{getattr(self, name):.6g}") for name in NUMBERS}
        return {
            **numbers,
            "is_reported": self.is_reported,
            "tools": self.tools,
            "model": self.model,
            "spans": [list(span) for span in self.spans],
            "last": asdict(self.last) if self.last else None,
            "doubted": list(self.doubted) if self.doubted else None,
        }

    # ---- bounds ----

    def _scaled(
        self, estimates: Regions, known: float = 0.0, text: float = 0.0
    ) -> Regions:
        """The regions with the ratio of text, of which prompt and tools have none."""
        summary, pinned = estimates.summary_tokens, estimates.pinned_tokens
        known -= estimates.system_tokens + estimates.tool_tokens
        rest = text - summary - pinned
        return replace(
            estimates,
            summary_tokens=round(self.ratio * summary),
            pinned_tokens=round(self.ratio * pinned),
            history_tokens=round(known + self.ratio * rest),
        )

    def _first_spread(self, estimates: Regions) -> float:
        """Standard deviation of prompt and tools before any report."""
        tools = estimates.tool_tokens
        tool_sd = TOOLS_SD_SHARE * tools + TOOLS_SD_TOKENS if tools else 0.0
        return hypot(self.doubt.ratio_sd * estimates.system_tokens, tool_sd)

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


def is_plausible(tokens: int, estimate: int) -> bool:
    """True when a reported difference can be the size of a text with this estimate."""
    if tokens <= 0 or estimate <= 0:
        return False
    largest = PLAUSIBLE_RATIO * estimate + PLAUSIBLE_TOKENS
    return estimate / PLAUSIBLE_RATIO - PLAUSIBLE_TOKENS <= tokens <= largest


# ---- which reports are believed -------------------------------------------------------------------------------------

MAX_TOKENS = 100_000_000
"""Above this no count has ever been: nothing that a provider reports is believed."""

LEAST_SHARE = 0.5
"""Share of our count below which a size is not that of this request: rules of thumb count twice too much at most."""

LARGEST_JUMP = 1.25
"""Times the planned size that a report may have to be believed at once. With more, sums over a session that grows
evenly would be believed one after the other."""

LARGEST_FIRST_JUMP, HIDDEN_TOKENS = 2.0, 700
"""The same of a first report, or a prompt that nobody sees beside our count, such as what introduces tools."""

LEAST_SHARE_AFTER_FALL = 0.8
"""Part of its planned size, and of our count, that a request has at least when it has less than the one that it
extends: of what servers cut more is gone, of the thinking that templates drop mostly less."""

NEAR_SHARE = 0.1
"""Of a planned size: how near one without what was cached has to be to be taken for the size that has it twice."""

ROUNDING_TOKENS, MOST_GROWTH = 9, 1.5
"""By how much the growth of two reports that agree may differ from what was added: a constant and a factor."""

SAME_MULTIPLE, LARGEST_MULTIPLE = 1.1, 4.5
"""A tokenizer that needs more tokens than ours does so by the same multiple each time: up to about 2.5, and up to 4.5
for Chinese and rules of thumb. A counter of the session grows by more than a tenth from call to call until then."""

_VERSION = re.compile(r"|[-@:_](?:\d{3,}+|\d\d-\d\d|v?\d++$|latest|preview|exp|beta).*")
"""What may follow the name of a model without making it another one."""


def sent_tokens(reply: AIMessage) -> Any:
    """Return the size of the request behind an answer as its provider states it; None when it does not.

    A provider that compacted the conversation before it answered states the size of what it made of it.
    """
    if not reply.usage_metadata or compaction_in(reply):
        return None
    usage: Mapping[str, Any] = reply.usage_metadata
    tokens = usage.get("input_tokens")
    return tokens + cleared_tokens(reply) if isinstance(tokens, int) else tokens


def cleared_tokens(reply: AIMessage) -> int:
    """Return what the provider left out of the prompt by its own edits, Anthropic's `context_management`, in tokens.

    It was sent all the same, and counts again in the next request.
    """
    managed = reply.response_metadata.get("context_management")
    edits = managed.get("applied_edits") if isinstance(managed, Mapping) else None
    return sum(edit.get("cleared_input_tokens") or 0 for edit in edits or ())


def counted_once(reply: AIMessage, tokens: int, planned: int) -> int:
    """Return the reported size of a request without what was read from the cache, where a gateway added that twice.

    That is seen once the sizes of earlier requests say what this one is planned to have.

    Examples:
        >>> usage = {"input_tokens": 190, "output_tokens": 1, "total_tokens": 191}
        >>> usage["input_token_details"] = {"cache_read": 90}
        >>> counted_once(AIMessage("", usage_metadata=usage), 190, planned=101)
        100
    """
    usage: Mapping[str, Any] = reply.usage_metadata or {}
    cached = (usage.get("input_token_details") or {}).get("cache_read")
    once = tokens - (cached if is_count(cached) else 0)
    is_near = abs(once - planned) <= NEAR_SHARE * planned
    return once if is_near and tokens > LARGEST_JUMP * planned else tokens


def is_count(tokens: object) -> TypeGuard[int]:
    """True for a whole number of tokens that can be."""
    return (
        isinstance(tokens, int)
        and not isinstance(tokens, bool)
        and 0 <= tokens <= MAX_TOKENS
    )


def far_off(tokens: object, planned: int) -> str:
    """Return the sentence about a size that is not believed."""
    reported = f"{tokens:,}" if is_count(tokens) else repr(tokens)
    return f"the provider reported {reported} input tokens, far from our count of {planned:,}"


def is_believed(
    report: ReportedSize,
    sizes: Sizes,
    planned: int,
    *,
    tool_tokens: int,
    limit_tokens: int | None,
    extended_tokens: int = 0,
) -> bool:
    """True when a report is near what is planned, or bears out the one before it, which was doubted.

    Args:
        report: the reported size, and our own count of the request.
        sizes: what was reported before.
        planned: the size by the reports before it.
        tool_tokens: our count of its tools, which some servers leave out.
        limit_tokens: what the model takes: a request that it answered cannot be larger.
        extended_tokens: the reported size of a request that this one extends.
    """
    tokens, estimate = report.tokens, report.estimate
    largest = LARGEST_JUMP * max(planned, estimate)
    if not sizes.is_reported:
        largest = max(LARGEST_FIRST_JUMP * estimate, estimate + HIDDEN_TOKENS)
    least = LEAST_SHARE * min(planned, estimate - tool_tokens)
    if tokens < extended_tokens:
        least = LEAST_SHARE_AFTER_FALL * min(planned, estimate)
    is_over = limit_tokens is not None and tokens > limit_tokens
    return (least <= tokens <= largest and not is_over) or _agrees(report, sizes)


def _agrees(report: ReportedSize, sizes: Sizes) -> bool:
    """True when two reports in a row that are too large bear each other out.

    They do when they differ by what was added, scaled by the ratio, or are the same multiple of our counts, while
    nothing else was reported. Sums over calls are neither.
    """
    before = sizes.doubted
    if before is None or report.tokens < report.estimate:
        return False
    grown = report.tokens - before.tokens
    added = sizes.ratio * (report.estimate - before.estimate)
    least, most = sorted((added / MOST_GROWTH, added * MOST_GROWTH))
    if least - ROUNDING_TOKENS <= grown <= most + ROUNDING_TOKENS:
        return True
    smaller, larger = sorted(
        one.tokens / max(1, one.estimate) for one in (before, report)
    )
    is_same = smaller > 1 and larger <= min(LARGEST_MULTIPLE, SAME_MULTIPLE * smaller)
    return not sizes.is_reported and is_same


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    names = map(reply.response_metadata.get, ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), "")


def may_be(model: str, answering_model: str) -> bool:
    """True unless both names are known and are those of different models: providers add makers, dates and versions."""
    one, other = sorted(
        (name.rpartition("/")[2].lower() for name in (model, answering_model)), key=len
    )
    return not one or (
        other.startswith(one) and bool(_VERSION.fullmatch(other[len(one) :]))
    )
