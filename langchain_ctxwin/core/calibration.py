"""Calibration: how far off estimates are for one model and tool set, learned from the sizes that a provider reports.

A reported size is `fixed + offset + ratio * text`: what is in every request but not in our sums (the rendering of
tools, hidden preambles) is a constant, what a tokenizer sees differently is a ratio. A report of a whole request sets
the offset. The difference of two reports is the size of the text between them: it teaches the ratio, and the text keeps
its counted size as a span.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, floor, hypot, sqrt
from typing import Any, NamedTuple, TypeGuard

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.native import compaction_in
from langchain_ctxwin.core.turns import Shown
from langchain_ctxwin.core.view import Position, message_id

# Standard deviations between the median and the 95 % quantile of a Gaussian: the quantile that routing uses.
QUANTILE_SD = 1.645
# Uncertainty of the price of tool definitions: a share for how a provider renders them, a constant for what it says
# about tools at all. Fitted to provider-reported sizes of 293 recorded requests, rounded up: models differ.
TOOLS_SD_SHARE, TOOLS_SD_TOKENS = 0.1, 200.0
FIXED_SD_TOKENS = 40.0  # uncertainty of the constants around a request without tools, fitted to the same requests
MAX_NUMBER = 1e15  # numbers of a stored correction are below this; it also keeps their squares finite
MAX_SPANS = 48  # spans kept per model, about 1 KB in a checkpoint; of more, the two smallest neighbours become one
MAX_MEASURED = 2  # models whose spans are kept: one, and the one it takes turns with
# A reported difference is that of the text between when it is within this factor and this constant of its estimate.
PLAUSIBLE_RATIO, PLAUSIBLE_TOKENS = 4.0, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """How far a counter may be off before any report: learned when it was fitted, or stated by the counter.

    By default for one that states nothing: the rules of thumb see a quarter of a Chinese text.
    """

    ratio_sd: float = 1.0  # standard deviation of true over estimated size of all texts of a conversation
    noise_share: float = 0.2  # standard deviation of that of one text around all: different texts, different errors
    lower_share: float = 1.0  # distance of the lower bound from the median, as a share of that of the upper one
    has_margin: bool = True  # False for a counter that is taken as it is: upper and lower bound are then its count


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What reports said of one model and tool set: a request has `estimate + offset + (ratio - 1) * text` tokens."""

    offset: float = 0.0
    """Tokens of each request that are not in our sums, such as how a provider renders tools, or a hidden preamble."""

    ratio: float = 1.0
    """Counted over estimated tokens of a text: what the tokenizer sees differently."""

    learned_tokens: float = 0.0
    """Estimated tokens of the texts behind the ratio, at most `MAX_LEARNED_TOKENS`."""

    offset_text_tokens: float = 0.0
    """Estimated tokens of the text in the request that the offset was taken from, as far as no span has them."""

    reports: int = 0
    """Reported sizes behind it."""

    def to_json(self) -> list[float]:
        """Return the five numbers, rounded: they go into every checkpoint."""
        numbers = (self.offset, self.ratio, self.learned_tokens, self.offset_text_tokens)
        return [*map(float, map("{:.6g}".format, numbers)), self.reports]

    @classmethod
    def from_json(cls, value: object) -> Correction | None:
        """Read `to_json`; None for anything else."""
        if not isinstance(value, list | tuple) or len(value) != len(cls.__dataclass_fields__):
            return None
        if [number for number in value if not isinstance(number, int | float) or not abs(number) < MAX_NUMBER]:
            return None
        if min(value[1:]) < 0:
            return None
        return cls(**dict(zip(cls.__dataclass_fields__, [*value[:-1], int(value[-1])], strict=True)))

    def of_other_tools(self) -> Correction:
        """Return what is known of another tool set of the model: the ratio is the tokenizer's and stays."""
        return replace(self, offset=0.0, offset_text_tokens=0.0, reports=0)


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
            inside, inside_squares = steps.between(span.start, span.stop)
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


# What remains unexplained of what a step adds beside a share of it, and of a whole request beside its text, when offset
# and ratio are known. By the tokens 2 % of the next requests of recorded agents are above their upper bound.
TEXT_NOISE_TOKENS, FIXED_NOISE_SHARE = 10.0, 0.01
MAX_SURPRISE_SD = 3.0  # deviations beyond which the size of a text is that of something else
TYPICAL_TEXT_TOKENS = 500  # of one message or result of an agent: how fast the ratio is learned
MAX_LEARNED_TOKENS = 10_000  # texts that the ratio remembers, so that it follows a conversation that changes
LEAST_RATIO_SD = 0.001  # of an exact counter, whose ratio is hardly learned

# Part of its estimate that a prompt or tool definitions have whatever was reported of a whole request: it is there.
LEAST_FIXED_SHARE = 0.1
FIXED_REGIONS = ("system_tokens", "tool_tokens", "summary_tokens", "pinned_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """The parts of one request, in tokens, and their sums: they are asked for more often than regions are made."""

    system_tokens: int
    tool_tokens: int
    summary_tokens: int
    pinned_tokens: int
    history_tokens: int
    fixed_tokens: int = field(init=False, repr=False, compare=False)  # everything but the history
    total_tokens: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fixed = self.system_tokens + self.tool_tokens + self.summary_tokens + self.pinned_tokens
        object.__setattr__(self, "fixed_tokens", fixed)
        object.__setattr__(self, "total_tokens", fixed + self.history_tokens)

    def texts(self, tokens: int, squares: int) -> tuple[int, int]:
        """Return the tokens of a history with those of summary and pins, and the sum of the squares of all texts."""
        summary, pinned = self.summary_tokens, self.pinned_tokens
        return tokens + summary + pinned, squares + summary**2 + pinned**2

    def scaled(self, total_tokens: int) -> Regions:
        """Return regions that add up to `total_tokens`: the history takes the difference, then all in proportion."""
        if total_tokens >= self.fixed_tokens:
            return replace(self, history_tokens=total_tokens - self.fixed_tokens)
        sizes = {name: getattr(self, name) for name in FIXED_REGIONS}
        least = 1 if total_tokens >= len(sizes) else 0  # what is there is not shown as nothing
        fixed = {name: max(min(size, least), size * total_tokens // self.fixed_tokens) for name, size in sizes.items()}
        largest = max(fixed, key=lambda name: fixed[name])
        fixed[largest] -= max(0, sum(fixed.values()) - total_tokens)
        return Regions(**fixed, history_tokens=total_tokens - sum(fixed.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEstimate:
    """A size in the provider's counts and how sure it is. The regions add up to the median."""

    regions: Regions
    upper_tokens: int  # quantile that decides whether a request may be sent
    lower_tokens: int  # quantile that the size is most probably not below

    def known(self, total_tokens: int) -> SizeEstimate:
        """Return a size without doubt: the difference to this one is in the history first."""
        return SizeEstimate(
            regions=self.regions.scaled(total_tokens), upper_tokens=total_tokens, lower_tokens=total_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Turns the estimates of one conversation's requests into sizes."""

    correction: Correction = field(default_factory=Correction)
    doubt: Doubt = field(default_factory=Doubt)
    measured: Measured = field(default_factory=Measured)

    def size(self, estimates: Regions, steps: Shown) -> SizeEstimate:
        """Return the size of a request with these estimates, whose history consists of `steps`."""
        offset, ratio = self.correction.offset, self.correction.ratio
        counted, uncounted, squares = self.measured.price(steps)
        # The offset is mostly the rendering of tools: theirs where there are any.
        tools = _shifted(estimates.tool_tokens, offset) if estimates.tool_tokens else 0
        rest = offset - (tools - estimates.tool_tokens)
        system = _shifted(estimates.system_tokens, rest) if rest < 0 or not tools else estimates.system_tokens
        kept = system + tools - max(0, round(estimates.system_tokens + estimates.tool_tokens + offset))
        regions = Regions(
            system_tokens=system,
            tool_tokens=tools,
            summary_tokens=round(ratio * estimates.summary_tokens),
            pinned_tokens=round(ratio * estimates.pinned_tokens),
            history_tokens=max(0, round(counted + ratio * uncounted) - kept),
        )
        text, squares = estimates.texts(uncounted, squares)
        if not self.correction.reports:
            return self._estimated(regions, text, squares)
        # The offset holds for the text that it was taken from: the ratio is in doubt for what is more or less of it.
        apart = abs(text - self.correction.offset_text_tokens)
        known = FIXED_NOISE_SHARE * (system + tools + counted)
        return self._bounded(regions, hypot(self._ratio_sd * apart, known, self._noise(squares)))

    def least(self, size: SizeEstimate, estimates: Regions, steps: Shown) -> int:
        """Return the lower bound that decides a refusal, in tokens.

        A refusal has to be sure: what reports made us think may be wrong, so the plain count must not fit either.
        """
        if self.correction == Correction():
            return size.lower_tokens
        plain = replace(self, correction=Correction(), measured=Measured())
        return min(size.lower_tokens, plain.size(estimates, steps).lower_tokens)

    def extended(self, size: SizeEstimate, reported_tokens: int, added: Sequence[int]) -> SizeEstimate:
        """Return the size of a request that extends one of `reported_tokens` by texts of `added` estimated tokens."""
        text, squares = sum(added), sum([tokens * tokens for tokens in added])
        regions = size.regions.scaled(reported_tokens + round(self.correction.ratio * text))
        return self._bounded(regions, hypot(self._ratio_sd * text, self._noise(squares)) if text else 0.0)

    def after_request(self, surplus: float, *, text: float) -> Correction:
        """Return the correction after the reported size of a whole request: all that is unexplained is its offset.

        Args:
            surplus: reported size minus our plain estimate, in tokens.
            text: the part of that estimate that the ratio scales.
        """
        known = self.correction
        offset = surplus - (known.ratio - 1) * text
        return replace(known, offset=offset, offset_text_tokens=text, reports=known.reports + 1)

    def after_refusal(self, surplus: float, *, text: float) -> Correction:
        """Return the correction after the size that a provider states for a request that it refused.

        What can be made smaller is blamed first, as far as a tokenizer can be off: only that leads to a request that
        fits, and the next answer tells whether it was right. The arguments are those of `after_request`.
        """
        known = self.correction
        ratio = 1 + (surplus - known.offset) / text if text else known.ratio
        blamed = replace(known, ratio=min(max(ratio, 1 / PLAUSIBLE_RATIO), PLAUSIBLE_RATIO))
        return replace(self, correction=blamed).after_request(surplus, text=text)

    def after_text(self, tokens: float, *, text: float, squares: float) -> Correction:
        """Return the correction after the counted size of some text, seen as the difference of two requests.

        Of a size that no text has (a picture, a thought that was dropped) only what a text could differ by counts.
        """
        known, weight = self.correction, self._weight
        most = MAX_SURPRISE_SD * hypot(self._noise(squares), self._ratio_sd * text)
        expected = known.ratio * text
        tokens = min(max(tokens, expected - most), expected + most)
        ratio = (known.ratio * weight + tokens) / (weight + text)
        learned = min(known.learned_tokens + text, MAX_LEARNED_TOKENS)
        return replace(known, ratio=max(0.0, ratio), learned_tokens=learned, reports=known.reports + 1)

    @property
    def _weight(self) -> float:
        """Tokens of text behind the ratio: as many as the estimator is sure of, and those it was learned from."""
        ratio_sd = max(self.doubt.ratio_sd, LEAST_RATIO_SD)
        return TYPICAL_TEXT_TOKENS * (self.doubt.noise_share / ratio_sd) ** 2 + self.correction.learned_tokens

    @property
    def _ratio_sd(self) -> float:
        """Standard deviation of the ratio."""
        plain = self._weight - self.correction.learned_tokens
        return self.doubt.ratio_sd * sqrt(plain / self._weight) if self._weight else 0.0

    def _noise(self, squares: float) -> float:
        """Standard deviation of texts whose ratio is known: the errors of many texts cancel out."""
        return hypot(self.doubt.noise_share * sqrt(squares), TEXT_NOISE_TOKENS)

    def _estimated(self, regions: Regions, text: float, squares: float) -> SizeEstimate:
        """A size with its bounds before any report of a whole request.

        The skew is that of plain estimates of text, the prompt too; after the first report errors go both ways alike.
        """
        tools = TOOLS_SD_SHARE * regions.tool_tokens + TOOLS_SD_TOKENS if regions.tool_tokens else 0.0
        fixed = hypot(tools, FIXED_SD_TOKENS)
        texts = hypot(self._ratio_sd * text, self.doubt.ratio_sd * regions.system_tokens, self._noise(squares))
        return self._bounded(regions, hypot(fixed, texts), hypot(fixed, self.doubt.lower_share * texts))

    def _bounded(self, regions: Regions, above: float, below: float | None = None) -> SizeEstimate:
        """A size with its bounds, by the standard deviations above and below it."""
        total = regions.total_tokens
        if not self.doubt.has_margin:
            return SizeEstimate(regions=regions, upper_tokens=total, lower_tokens=total)
        lower = floor(total - QUANTILE_SD * (above if below is None else below))
        return SizeEstimate(regions=regions, upper_tokens=ceil(total + QUANTILE_SD * above), lower_tokens=max(0, lower))


def _shifted(estimate: int, offset: float) -> int:
    """Return a region with an offset, as far as that leaves something of it."""
    return max(round(estimate + offset), ceil(LEAST_FIXED_SHARE * estimate))


# Share of our count below which a reported size is not that of this request: a server has cut it, or it is that of
# something else. The rules of thumb count at most twice too much.
MIN_REPORTED_SHARE = 0.5
# Multiple of our count, and hidden prompt beside it, above which a reported size is not that of this request.
MAX_REPORTED_RATIO = 10.0
UNSEEN_TOKENS = 50_000
# Times the planned size of a request that a report may have, and the first one. What is larger is that of several calls
# (a loop, the chunks of a stream, a session), or has a hidden prompt. With more, the sums over a session that
# grows evenly would be believed one after the other.
LARGEST_JUMP, LARGEST_FIRST_JUMP = 1.25, 2.0
# Part of its planned size that a request has at least when it has less than the one that it extends: of what servers
# cut more is gone, of the thinking that templates drop mostly less.
LEAST_SHARE_AFTER_FALL = 0.8
# Part of the limit up to which a first report that is larger than that is used until the next one disproves it.
ROOMY_SHARE = 0.5
# Votes after which reports that contradict our counts are believed: each that follows the one before is one more, each
# that does not is one less. What is hidden is a constant, so that the second one agrees. A size that is too small has
# to be told once more: it leads to requests that are too large, and servers leave out of it what a cache held.
AGREEING_REPORTS, AGREEING_SMALL_REPORTS = 2, 3
ROUNDING_TOKENS = 9  # by which two reports may differ beside the text between them
MOST_GROWTH = 1.5  # times its estimate that a text may have between two reports that agree
# A tokenizer that needs more tokens than ours does so by the same multiple each time: up to about 2.5 where it has only
# bytes for a script. A counter of the session grows by more than a tenth from call to call until then.
SAME_MULTIPLE, LARGEST_MULTIPLE = 1.1, 3.0
FEWEST_VOTES = -6  # so that reports which come to agree are believed after some more
MAX_REPORTED_TOKENS = 100_000_000  # above this no request has ever been: no row of reports makes it believed
# What may follow the name of a model without making it another one.
_VERSION = re.compile(r"|[-@:_](?:\d{3,}+|\d\d-\d\d|v?\d++$|latest|preview|exp|beta).*")


def reported_tokens(reply: AIMessage, expected: Sequence[int]) -> tuple[int | None, str]:
    """Return the prompt size that came with an answer, or None and what is wrong with it (nothing, if none came).

    The size has to be near one of our own counts of the request, `expected`.
    """
    if not reply.usage_metadata or compaction_in(reply):  # the size of what the provider made of the request
        return None, ""
    tokens = sent_tokens(reply)
    fault = fault_of(tokens, expected)
    return (None, fault) if fault else (tokens, "")


def sent_tokens(reply: AIMessage) -> Any:
    """Return the size of the request behind an answer as its provider states it, in tokens; None when it does not."""
    usage: Mapping[str, Any] = reply.usage_metadata or {}
    tokens = usage.get("input_tokens")
    return tokens + cleared_tokens(reply) if isinstance(tokens, int) else tokens


def cleared_tokens(reply: AIMessage) -> int:
    """Return what the provider left out of the prompt by its own edits, Anthropic's `context_management`, in tokens.

    It was sent all the same, and counts again in the next request.
    """
    managed = reply.response_metadata.get("context_management")
    edits = managed.get("applied_edits") if isinstance(managed, Mapping) else None
    listed = edits if isinstance(edits, list) else []
    found = [edit.get("cleared_input_tokens") for edit in listed if isinstance(edit, Mapping)]
    return sum(size for size in found if isinstance(size, int) and size > 0)


def fault_of(tokens: object, expected: Sequence[int]) -> str:
    """Return what is wrong with a reported size; empty when it can be that of a request that we count like this."""
    if not is_count(tokens) or not tokens:
        return f"the provider reported {tokens!r} input tokens, our count is {_either(expected)}"
    if any(MIN_REPORTED_SHARE * count <= tokens and not is_absurd(tokens, count) for count in expected):
        return ""
    return far_off(tokens, expected)


def far_off(tokens: int, expected: Sequence[int]) -> str:
    """Return the sentence about a reported size that is not believed."""
    return f"the provider reported {tokens:,} input tokens, far from our count of {_either(expected)}"


def _either(counts: Sequence[int]) -> str:
    return " or ".join(f"{count:,}" for count in dict.fromkeys(counts))


def contradicts(tokens: int, planned: int, *, limit_tokens: int | None, is_first: bool) -> bool:
    """Return whether a reported size is too large to be believed before the next one agrees.

    Args:
        tokens: the reported size.
        planned: the size by the reports before it, or by our own count where that is larger.
        limit_tokens: what the model takes: the size of a request that it answered cannot be above.
        is_first: nothing was reported before.
    """
    largest = (LARGEST_FIRST_JUMP if is_first else LARGEST_JUMP) * planned
    return tokens > largest or (limit_tokens is not None and tokens > limit_tokens)


def is_roomy(tokens: int, limit_tokens: int | None) -> bool:
    """True for a size because of which nothing leaves."""
    return limit_tokens is None or tokens <= ROOMY_SHARE * limit_tokens


def votes(
    before: Mapping[str, Any] | None, report: Mapping[str, Any], *, stretch: float = 1.0
) -> dict[str, Any] | None:
    """Return a report that contradicts our counts with the votes for it; None when it can be no size.

    `before` is the contradicting report before it. The two agree when they differ by what the conversation grew by,
    scaled by `stretch`, or are the same multiple of our counts. Those of a server that cuts requests or leaves cached
    tokens out, and sums over calls, do not.
    """
    if not is_count(report["tokens"]) or not 0 < report["tokens"] <= MAX_REPORTED_TOKENS:
        return None
    if not before or before["model"] != report["model"]:
        return {**report, "reports": 1}
    grown, added = report["tokens"] - before["tokens"], stretch * (report["estimate"] - before["estimate"])
    least, most = sorted((added / MOST_GROWTH, added * MOST_GROWTH))
    agrees = least - ROUNDING_TOKENS <= grown <= most + ROUNDING_TOKENS or _same_multiple(before, report)
    return {**report, "reports": max(FEWEST_VOTES, before["reports"] + (1 if agrees else -1))}


def _same_multiple(before: Mapping[str, Any], report: Mapping[str, Any]) -> bool:
    """True for two reports of a tokenizer that needs more tokens than ours."""
    multiples: list[float] = sorted(one["tokens"] / max(1, one["estimate"]) for one in (before, report))
    return multiples[0] > 1.0 and multiples[1] <= min(LARGEST_MULTIPLE, SAME_MULTIPLE * multiples[0])


def outvoted(before: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what remains of a row of `votes` when a report was believed: nothing where that was this row's own."""
    if before["reports"] >= AGREEING_REPORTS:
        return None
    return {**before, "reports": max(FEWEST_VOTES, before["reports"] - 1)}


def is_absurd(tokens: int, count: int) -> bool:
    """True for a size that no hidden prompt explains."""
    return tokens > MAX_REPORTED_RATIO * count + UNSEEN_TOKENS


def is_count(tokens: object) -> TypeGuard[int]:
    """True for a whole number that is not negative."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    for key in ("model_name", "model"):
        name = reply.response_metadata.get(key)
        if isinstance(name, str) and name:
            return name
    return ""


def may_be(model: str, answering_model: str) -> bool:
    """True unless both names are known and are those of different models: providers add makers, dates and versions."""
    one, other = sorted((name.rpartition("/")[2].lower() for name in (model, answering_model)), key=len)
    return not one or (other.startswith(one) and bool(_VERSION.fullmatch(other[len(one) :])))
