"""Sizes in a provider's tokens: our estimates, corrected by what the provider reported.

A request has `fixed + offset + counted + ratio * text` tokens. Texts between two reports keep the size that the
provider counted, as spans. The offset is what the last report has beyond all that is known: the rendering of tools,
hidden preambles, what a tokenizer sees differently in the texts that no span has. The ratio of the spans scales new
text.

Servers report other sizes, too: sums over the calls of a turn, the chunks of a stream or a whole session, what is left
of a request that they cut, only what was not cached. A size that contradicts the planned one is not believed before the
next report agrees with it; one that is too small never is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, hypot, inf, sqrt
from typing import Annotated, NamedTuple

from langchain_core.messages import AIMessage
from pydantic import Field, TypeAdapter

from langchain_ctxwin.core.model_info import Usage
from langchain_ctxwin.core.provider_blocks import compaction_in
from langchain_ctxwin.core.record import Count
from langchain_ctxwin.core.turns import Steps

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
"""Tokens of text that the estimate counts for beside the spans."""

MAX_LEARNED_TOKENS = 10_000
"""Tokens of counted text that make the ratio surer; more may be of another kind than what comes."""

PLAUSIBLE_RATIO, PLAUSIBLE_TOKENS = 4.0, 300
"""A reported difference is that of the text between when it is within this factor and this constant of its estimate."""

MAX_SPANS = 48
"""Spans kept, about 1 KB in a checkpoint; of more, the oldest leaves."""

MAX_NUMBER = 1e15
"""Stored numbers are below this."""

Number = Annotated[float, Field(strict=True, gt=-MAX_NUMBER, lt=MAX_NUMBER)]

LEAST_FIXED_SHARE = 0.1
"""Part of its estimate that a prompt or tool definitions have, whatever was reported: they are there."""

FIXED_REGIONS = ("system_tokens", "tool_tokens", "summary_tokens", "pinned_tokens")


class Doubt(NamedTuple):
    """How far a counter may be off before any report: learned when it was fitted, or stated by the counter."""

    ratio_sd: float = 1.0
    """Standard deviation of true over estimated size of all texts of a conversation."""

    noise_share: float = 0.2
    """Standard deviation of that of one text around all: different texts, different errors."""

    lower_share: float = 1.0
    """Distance of the lower bound from the median, as a share of that of the upper one, before any report."""


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

    def with_offset(self, offset: int) -> Regions:
        """Return the regions of a request that has so much more: the history takes what the others cannot.

        The offset is mostly the rendering of tools, the prompt's where there are none. What is there is not shown as
        nothing.
        """
        fixed = {name: getattr(self, name) for name in FIXED_REGIONS}
        total = max(
            self.total_tokens + offset, ceil(LEAST_FIXED_SHARE * self.fixed_tokens)
        )
        name = "tool_tokens" if self.tool_tokens else "system_tokens"
        fixed[name] = max(fixed[name] + offset, ceil(LEAST_FIXED_SHARE * fixed[name]))
        share = min(1.0, total / max(1, sum(fixed.values())))
        fixed = {name: ceil(share * size) for name, size in fixed.items()}
        return Regions(**fixed, history_tokens=max(0, total - sum(fixed.values())))


class SizeEstimate(NamedTuple):
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

    offset: Annotated[int, Field(strict=True)] = 0
    """Tokens of each request that are in no region and no text, by the last report."""

    offset_text: Count = 0
    """Estimated tokens of the text in the request that the offset was taken from, as far as no span has them."""

    is_reported: Annotated[bool, Field(strict=True)] = False
    """Whether the size of a request with these tools was reported."""

    tools: str = ""
    """Fingerprint of the tool definitions that the offset belongs to."""

    model: str = ""
    """Name under which the model answered; empty while it stated none."""

    spans: tuple[Span, ...] = ()
    doubted: ReportedSize | None = None
    """The last report, when it was not believed."""

    @property
    def ratio(self) -> float:
        """Counted over estimated tokens of new text."""
        counted = sum(span.tokens for span in self.spans)
        return (PRIOR_TOKENS + counted) / (PRIOR_TOKENS + self.learned_tokens)

    @property
    def learned_tokens(self) -> int:
        """Estimated tokens of the texts behind the ratio."""
        return sum(span.estimate for span in self.spans)

    def size(
        self,
        estimates: Regions,
        steps: Steps,
        added: Sequence[int] | None = None,
        doubt: Doubt | None = None,
    ) -> SizeEstimate:
        """Return the size of a request with these estimates, whose history consists of `steps`.

        Where it extends the one that was reported last, `added` has our estimates of the texts that follow that.
        Without `doubt` the counter is taken as it is: upper and lower bound are then its count.
        """
        plain, text = self.scaled(estimates, steps)
        regions = plain.with_offset(self.offset)
        total = regions.total_tokens
        if doubt is None:
            return SizeEstimate(regions, total, total)
        learned = min(self.learned_tokens, MAX_LEARNED_TOKENS)
        ratio_sd = doubt.ratio_sd * sqrt(PRIOR_TOKENS / (PRIOR_TOKENS + learned))
        ratio_spread, squares = ratio_sd * text, TYPICAL_TEXT_TOKENS * text
        others, lower_share = 0.0, 1.0
        if added is not None:
            squares = sum(tokens * tokens for tokens in added)
            ratio_spread = ratio_sd * sum(added)
        elif self.is_reported:
            # The offset holds for the text that it was taken from: the ratio is in doubt for what is more or less.
            # Where most of that is gone, what is left is in doubt as if nothing was reported, and so is the offset.
            changed = ratio_sd * abs(text - self.offset_text)
            ratio_spread = min(changed, hypot(ratio_spread, self.offset))
            others = FIXED_NOISE_SHARE * (plain.total_tokens - text)
        else:
            tools, lower_share = estimates.tool_tokens, doubt.lower_share
            tools_sd = TOOLS_SD_SHARE * tools + TOOLS_SD_TOKENS if tools else 0.0
            others = hypot(doubt.ratio_sd * estimates.system_tokens, tools_sd)
        noise = doubt.noise_share * sqrt(squares)
        margin = QUANTILE_SD * hypot(ratio_spread, noise, others, TEXT_NOISE_TOKENS)
        lower = max(0, floor(total - lower_share * margin))
        return SizeEstimate(regions, ceil(total + margin), lower)

    def scaled(self, estimates: Regions, steps: Steps) -> tuple[Regions, int]:
        """Return the regions as counted in spans or scaled by the ratio, without the offset; and what no span has.

        Prompt and tools are no text of that ratio.
        """
        ratio, counted, rest = self.ratio, 0.0, steps.total_tokens
        for span in self.spans:
            inside = span.estimate
            is_whole = steps and steps[0].index <= span.start
            if not (is_whole and span.stop <= steps.counted[0]):
                # of text added since nothing is known
                inside = min(steps.between(span.start, span.stop), inside)
            counted += inside * span.tokens / max(1, span.estimate)
            rest -= inside
        summary, pinned = estimates.summary_tokens, estimates.pinned_tokens
        regions = replace(
            estimates,
            summary_tokens=round(ratio * summary),
            pinned_tokens=round(ratio * pinned),
            history_tokens=round(counted + ratio * max(0, rest)),
        )
        return regions, max(0, rest + summary + pinned)

    # ---- after a report ----

    def with_request(self, tokens: int, estimates: Regions, steps: Steps) -> Sizes:
        """Return the sizes after a whole request was reported: what is unexplained of it is the offset."""
        plain, text = self.scaled(estimates, steps)
        return replace(
            self,
            offset=tokens - plain.total_tokens,
            offset_text=text,
            is_reported=True,
            doubted=None,
        )

    def with_refusal(self, tokens: int, estimates: Regions, steps: Steps) -> Sizes:
        """Return the sizes after a provider stated the size of a request that it refused.

        What can be made smaller is blamed first, as far as a tokenizer can be off: only that leads to a request that
        fits, and the next answer tells whether it was right.
        """
        estimate, sizes = steps.total_tokens, replace(self, spans=())
        if estimate:
            counted = tokens - self.offset - estimates.fixed_tokens
            least, most = estimate / PLAUSIBLE_RATIO, estimate * PLAUSIBLE_RATIO
            counted = round(min(max(counted, least), most))
            span = Span(steps[0].index, steps.stop, estimate, counted)
            sizes = replace(self, spans=(span,))
        return sizes.with_request(tokens, estimates, steps)

    def after(
        self,
        report: ReportedSize,
        planned: int,
        extended: ReportedSize | None,
        limit_tokens: float = inf,
        tool_tokens: int = 0,
    ) -> Sizes:
        """Return the sizes after a report: with the text since the one that it extends as counted, or in doubt of it.

        It is believed when it is near what is planned, or bears out the one before it, which was doubted.

        Args:
            report: the reported size, and our own count of the request.
            planned: the size by the reports before it.
            extended: the report about a request that this one extends, if there is one.
            limit_tokens: what the model takes: a request that it answered cannot be larger.
            tool_tokens: our count of its tools, which is the least sure, and which some servers leave out.
        """
        tokens, estimate, _ = report
        largest = LARGEST_JUMP * max(planned, estimate)
        if not self.is_reported:
            largest = max(LARGEST_FIRST_JUMP * estimate, estimate + HIDDEN_TOKENS)
        largest = min(largest, limit_tokens)
        least = LEAST_SHARE * min(planned, estimate - tool_tokens)
        if extended and tokens < extended.tokens:
            least = LEAST_SHARE_AFTER_FALL * min(planned, estimate)
        if not least <= tokens <= largest and not self._agrees(report):
            return replace(self, doubted=report)
        spans = self.spans
        if extended and extended.at >= (spans[-1].stop if spans else 0):
            grown, added = tokens - extended.tokens, estimate - extended.estimate
            most = PLAUSIBLE_RATIO * added + PLAUSIBLE_TOKENS
            fewest = added / PLAUSIBLE_RATIO - PLAUSIBLE_TOKENS
            if added > 0 and max(1, fewest) <= grown <= most:
                span = Span(extended.at, report.at, added, grown)
                spans = (*spans, span)[-MAX_SPANS:]
        return replace(self, doubted=None, is_reported=True, spans=spans)

    def _agrees(self, report: ReportedSize) -> bool:
        """True when two reports in a row that are too large bear each other out.

        They do when they differ by what was added, scaled by the ratio, or are the same multiple of our counts, while
        nothing else was reported. Sums over calls are neither.
        """
        before = self.doubted
        if before is None or report.tokens < report.estimate:
            return False
        grown = report.tokens - before.tokens
        added = self.ratio * (report.estimate - before.estimate)
        least, most = sorted((added / MOST_GROWTH, added * MOST_GROWTH))
        if least - ROUNDING_TOKENS <= grown <= most + ROUNDING_TOKENS:
            return True
        smaller, larger = sorted(
            one.tokens / max(1, one.estimate) for one in (before, report)
        )
        is_same = larger <= min(LARGEST_MULTIPLE, SAME_MULTIPLE * smaller)
        return not self.is_reported and is_same


STORED_SIZES = TypeAdapter(Sizes)


# ---- which reports are believed -------------------------------------------------------------------------------------

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


def sent_tokens(reply: AIMessage) -> int | None:
    """Return the size of the request behind an answer as its provider states it; None when it does not.

    What the provider cleared itself (Anthropic's `context_management`) was sent all the same, and counts again in the
    next request. One that compacted the conversation before it answered states the size of what it made of it.
    """
    tokens = Usage.of(reply.usage_metadata).input_tokens
    if not tokens or compaction_in(reply):
        return None
    managed = reply.response_metadata.get("context_management") or {}
    edits = managed.get("applied_edits") or ()
    return tokens + sum(edit.get("cleared_input_tokens") or 0 for edit in edits)


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    metadata = reply.response_metadata
    return str(metadata.get("model_name") or metadata.get("model") or "")


def may_be(model: str, answering_model: str) -> bool:
    """True unless both names are known and are those of different models: providers add makers, dates and versions."""
    one, other = sorted(
        (name.rpartition("/")[2].lower() for name in (model, answering_model)), key=len
    )
    return not one or (
        other.startswith(one) and bool(_VERSION.fullmatch(other[len(one) :]))
    )
