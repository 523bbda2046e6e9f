"""The size of a request in the provider's counts: estimates, corrected by calibration and by counted spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, hypot, sqrt

from langchain_ctxwin.core.calibration import FIXED_NOISE_SHARE, QUANTILE_SD, Belief, Doubt, Measured, deviation
from langchain_ctxwin.core.turns import Step


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
        return self.system_tokens + self.tool_tokens + self.summary_tokens + self.pinned_tokens

    @property
    def total_tokens(self) -> int:
        """The whole input of the request."""
        return self.fixed_tokens + self.history_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size in the provider's counts and how sure it is. The regions add up to the median."""

    regions: Regions
    upper_tokens: int
    """Quantile that decides whether a request may be sent."""

    lower_tokens: int
    """Quantile that the size is most probably not below."""

    def known(self, total_tokens: int) -> Size:
        """Return a size without doubt: the difference to this one is in the history first."""
        regions = _scaled(self.regions, total_tokens)
        return Size(regions=regions, upper_tokens=total_tokens, lower_tokens=total_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Turns the estimates of one conversation's requests into sizes."""

    belief: Belief
    plain: Belief
    """What was believed before any report."""

    doubt: Doubt = field(default_factory=Doubt)
    measured: Measured = field(default_factory=Measured)

    def size(self, estimates: Regions, steps: Sequence[Step]) -> Size:
        """Return the size of a request with these estimates, whose history consists of `steps`."""
        belief = self.belief
        counted, rest = self.measured.price(steps)
        stretch = max(0.0, 1 + belief.slope)
        system, tools = _with_offset(estimates, belief.offset)
        regions = Regions(
            system_tokens=round(system),
            tool_tokens=round(tools),
            summary_tokens=round(stretch * estimates.summary_tokens),
            pinned_tokens=round(stretch * estimates.pinned_tokens),
            history_tokens=round(counted + stretch * sum(rest)),
        )
        texts = (estimates.summary_tokens, estimates.pinned_tokens, *rest)
        if belief == self.plain:
            return self._bounded(regions, belief, 1, texts)
        return self._bounded(regions, belief, 1, texts, FIXED_NOISE_SHARE * (system + tools + counted))

    def least(self, size: Size, estimates: Regions, steps: Sequence[Step]) -> int:
        """Return the lower bound that decides a refusal, in tokens.

        A refusal has to be sure: what reports made us believe may be wrong, so the plain count must not fit either.
        """
        if self.belief == self.plain:
            return size.lower_tokens
        texts = (estimates.summary_tokens, estimates.pinned_tokens, *(step.tokens for step in steps))
        return min(size.lower_tokens, self._bounded(estimates, self.plain, 1, texts).lower_tokens)

    def extended(self, size: Size, reported_tokens: int, added: Sequence[int]) -> Size:
        """Return the size of a request that extends one of `reported_tokens` by texts of `added` estimated tokens."""
        total = reported_tokens + round(max(0.0, 1 + self.belief.slope) * sum(added))
        return self._bounded(_scaled(size.regions, total), self.belief, 0, added)

    def noise(self, texts: Iterable[int]) -> float:
        """Standard deviation of texts around their common slope, in tokens: the errors of many texts cancel out."""
        return self.doubt.noise_share * sqrt(sum(tokens * tokens for tokens in texts))

    def _bounded(
        self, regions: Regions, belief: Belief, constant: int, texts: Sequence[int], known_noise: float = 0.0
    ) -> Size:
        total = regions.total_tokens
        if not self.doubt.has_margin:
            return Size(regions=regions, upper_tokens=total, lower_tokens=total)
        noise = hypot(self.noise(texts), known_noise)
        above = deviation(belief, constant=constant, text_tokens=sum(texts), noise_tokens=noise)
        # The skew is that of plain estimates of text; after the first report errors go both ways alike.
        offset = constant * belief.offset_variance
        share = 1.0 if belief.reports else self.doubt.lower_share
        below = sqrt(offset + share**2 * max(0.0, above**2 - offset))
        lower, upper = floor(total - QUANTILE_SD * below), ceil(total + QUANTILE_SD * above)
        return Size(regions=regions, upper_tokens=upper, lower_tokens=max(0, lower))


def _with_offset(estimates: Regions, offset: float) -> tuple[float, float]:
    """Add the offset to the tools, whose rendering it mostly is, else to the system prompt; neither gets negative."""
    if estimates.tool_tokens:
        tools = estimates.tool_tokens + offset
        return max(0.0, estimates.system_tokens + min(0.0, tools)), max(0.0, tools)
    return max(0.0, estimates.system_tokens + offset), 0.0


def _scaled(regions: Regions, total_tokens: int) -> Regions:
    """Return the regions adding up to `total_tokens`: the history takes the difference, unless it would be negative."""
    history = total_tokens - regions.fixed_tokens
    if history >= 0:
        return replace(regions, history_tokens=history)
    fixed = regions.fixed_tokens
    system, tools, summary = (
        tokens * total_tokens // fixed
        for tokens in (regions.system_tokens, regions.tool_tokens, regions.summary_tokens)
    )
    pinned = regions.pinned_tokens * total_tokens // fixed
    return Regions(
        system_tokens=system,
        tool_tokens=tools,
        summary_tokens=summary,
        pinned_tokens=pinned,
        history_tokens=total_tokens - system - tools - summary - pinned,
    )
