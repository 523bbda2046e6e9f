"""The size of a request in the provider's counts: estimates, corrected by calibration and by counted spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, hypot, sqrt

from langchain_ctxwin.core.calibration import FIXED_NOISE_SHARE, QUANTILE_SD, Belief, Doubt, Measured, deviation
from langchain_ctxwin.core.turns import Shown


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

    def size(self, estimates: Regions, steps: Shown) -> Size:
        """Return the size of a request with these estimates, whose history consists of `steps`."""
        belief = self.belief
        counted, rest, squares = self.measured.price(steps)
        stretch = max(0.0, 1 + belief.slope)
        system, tools = _with_offset(estimates, belief.offset)
        regions = Regions(
            system_tokens=round(system),
            tool_tokens=round(tools),
            summary_tokens=round(stretch * estimates.summary_tokens),
            pinned_tokens=round(stretch * estimates.pinned_tokens),
            history_tokens=round(counted + stretch * rest),
        )
        texts = _with_fixed(estimates, rest, squares)
        if belief == self.plain:
            return self._bounded(regions, belief, 1, texts)
        return self._bounded(regions, belief, 1, texts, FIXED_NOISE_SHARE * (system + tools + counted))

    def least(self, size: Size, estimates: Regions, steps: Shown) -> int:
        """Return the lower bound that decides a refusal, in tokens.

        A refusal has to be sure: what reports made us believe may be wrong, so the plain count must not fit either.
        """
        if self.belief == self.plain:
            return size.lower_tokens
        texts = _with_fixed(estimates, steps.total_tokens, steps.squares[-1])
        return min(size.lower_tokens, self._bounded(estimates, self.plain, 1, texts).lower_tokens)

    def extended(self, size: Size, reported_tokens: int, added: Sequence[int]) -> Size:
        """Return the size of a request that extends one of `reported_tokens` by texts of `added` estimated tokens."""
        total = reported_tokens + round(max(0.0, 1 + self.belief.slope) * sum(added))
        squares = sum(tokens * tokens for tokens in added)
        return self._bounded(_scaled(size.regions, total), self.belief, 0, (sum(added), squares))

    def noise(self, squares: int) -> float:
        """Standard deviation of texts around their common slope, in tokens: the errors of many texts cancel out.

        Args:
            squares: the sum of the squares of their estimates.
        """
        return self.doubt.noise_share * sqrt(squares)

    def _bounded(
        self, regions: Regions, belief: Belief, constant: int, texts: tuple[int, int], known_noise: float = 0.0
    ) -> Size:
        """The size and its bounds; `texts` are the tokens of what is estimated, and the sum of their squares."""
        total = regions.total_tokens
        if not self.doubt.has_margin:
            return Size(regions=regions, upper_tokens=total, lower_tokens=total)
        noise = hypot(self.noise(texts[1]), known_noise)
        above = deviation(belief, constant=constant, text_tokens=texts[0], noise_tokens=noise)
        # The skew is that of plain estimates of text, the prompt too; after the first report errors go both ways alike.
        share = 1.0 if belief.reports else self.doubt.lower_share
        prompt = 0.0 if belief.reports else (self.doubt.slope_sd * regions.system_tokens) ** 2
        offset = constant * max(0.0, belief.offset_variance - prompt)
        below = sqrt(offset + share**2 * max(0.0, above**2 - offset))
        lower, upper = floor(total - QUANTILE_SD * below), ceil(total + QUANTILE_SD * above)
        return Size(regions=regions, upper_tokens=upper, lower_tokens=max(0, lower))


def _with_fixed(estimates: Regions, tokens: int, squares: int) -> tuple[int, int]:
    """The tokens of a history together with those of summary and pins, and the sum of their squares."""
    summary, pinned = estimates.summary_tokens, estimates.pinned_tokens
    return tokens + summary + pinned, squares + summary**2 + pinned**2


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
