"""The size of a request in the provider's counts: estimates, corrected by calibration and by counted spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, hypot, sqrt

from langchain_ctxwin.core.calibration import QUANTILE_SD, Belief, Doubt, Measured
from langchain_ctxwin.core.turns import Shown

# What remains unexplained of any text beside a share of it, and of a whole request beside its text, when offset and
# slope are known.
TEXT_NOISE_TOKENS, FIXED_NOISE_SHARE, FIXED_NOISE_TOKENS = 3.0, 0.01, 5.0
# Deviations above which a report is not explained by what we believed: something else is in there.
MAX_SURPRISE_SD = 3.0
# Doubt that one surprising text adds to the slope: five in a row make it as uncertain as a family's text weights.
SURPRISE_SLOPE_SD = 0.03


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
        names = ("system_tokens", "tool_tokens", "summary_tokens", "pinned_tokens")
        fixed = {name: getattr(self, name) * total_tokens // self.fixed_tokens for name in names}
        return Regions(**fixed, history_tokens=total_tokens - sum(fixed.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size in the provider's counts and how sure it is. The regions add up to the median."""

    regions: Regions
    upper_tokens: int  # quantile that decides whether a request may be sent
    lower_tokens: int  # quantile that the size is most probably not below

    def known(self, total_tokens: int) -> Size:
        """Return a size without doubt: the difference to this one is in the history first."""
        return Size(regions=self.regions.scaled(total_tokens), upper_tokens=total_tokens, lower_tokens=total_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Turns the estimates of one conversation's requests into sizes."""

    belief: Belief
    plain: Belief  # what was believed before any report
    doubt: Doubt = field(default_factory=Doubt)
    measured: Measured = field(default_factory=Measured)

    def size(self, estimates: Regions, steps: Shown) -> Size:
        """Return the size of a request with these estimates, whose history consists of `steps`."""
        belief = self.belief
        counted, rest, squares = self.measured.price(steps)
        stretch = max(0.0, 1 + belief.slope)
        # The offset is mostly the rendering of tools: theirs where there are any. Neither gets negative.
        tools = estimates.tool_tokens + belief.offset if estimates.tool_tokens else 0.0
        system = estimates.system_tokens + (min(0.0, tools) if estimates.tool_tokens else belief.offset)
        system, tools = max(0.0, system), max(0.0, tools)
        regions = Regions(
            system_tokens=round(system),
            tool_tokens=round(tools),
            summary_tokens=round(stretch * estimates.summary_tokens),
            pinned_tokens=round(stretch * estimates.pinned_tokens),
            history_tokens=round(counted + stretch * rest),
        )
        known_noise = 0.0 if belief == self.plain else FIXED_NOISE_SHARE * (system + tools + counted)
        return self._bounded(regions, belief, 1, estimates.texts(rest, squares), known_noise)

    def least(self, size: Size, estimates: Regions, steps: Shown) -> int:
        """Return the lower bound that decides a refusal, in tokens.

        A refusal has to be sure: what reports made us believe may be wrong, so the plain count must not fit either.
        """
        if self.belief == self.plain:
            return size.lower_tokens
        texts = estimates.texts(steps.total_tokens, steps.squares[-1])
        return min(size.lower_tokens, self._bounded(estimates, self.plain, 1, texts).lower_tokens)

    def extended(self, size: Size, reported_tokens: int, added: Sequence[int]) -> Size:
        """Return the size of a request that extends one of `reported_tokens` by texts of `added` estimated tokens."""
        total = reported_tokens + round(max(0.0, 1 + self.belief.slope) * sum(added))
        squares = sum([tokens * tokens for tokens in added])
        return self._bounded(size.regions.scaled(total), self.belief, 0, (sum(added), squares))

    def after_request(self, surplus: float, *, text: float, squares: float, fixed: float) -> Belief:
        """Return the belief after the reported size of a whole request.

        A size that the belief cannot explain means a constant that we do not see (tools bound elsewhere, a hidden
        prompt), not an absurd slope: the offset takes the surprise.

        Args:
            surplus: reported size minus our plain estimate, in tokens.
            text: the part of that estimate that the slope scales.
            squares: the sum of the squares of the texts in it.
            fixed: the rest of the estimate.
        """
        belief = self.belief
        noise = (self.doubt.noise_share * sqrt(squares)) ** 2 + (FIXED_NOISE_SHARE * fixed + FIXED_NOISE_TOKENS) ** 2
        surprise = surplus - belief.offset - belief.slope * text
        if surprise**2 / MAX_SURPRISE_SD**2 - belief.variance(1, text) - noise > 0:
            belief = replace(belief, offset_variance=belief.offset_variance + surprise**2)
        return belief.updated(1, text, surplus, noise)

    def after_text(self, surplus: float, *, text: float, squares: float) -> Belief:
        """Return the belief after the reported size of some text, seen as the difference of two requests.

        One that the belief cannot explain counts as noise: a picture, a thought that was dropped. It leaves some doubt
        about the slope, so that many of them in a row are believed.
        """
        belief = self.belief
        noise = (self.doubt.noise_share * sqrt(squares)) ** 2 + TEXT_NOISE_TOKENS**2
        surprise = surplus - belief.slope * text
        tolerated = surprise**2 / MAX_SURPRISE_SD**2 - belief.variance(0, text)
        after = belief.updated(0, text, surplus, max(noise, tolerated))
        if tolerated <= noise:
            return after
        return replace(after, slope_variance=after.slope_variance + SURPRISE_SLOPE_SD**2)

    def _bounded(
        self, regions: Regions, belief: Belief, constant: int, texts: tuple[int, int], known_noise: float = 0.0
    ) -> Size:
        """The size and its bounds; `texts` are the tokens of what is estimated, and the sum of their squares."""
        total = regions.total_tokens
        if not self.doubt.has_margin:
            return Size(regions=regions, upper_tokens=total, lower_tokens=total)
        # The errors of many texts cancel out.
        noise = hypot(self.doubt.noise_share * sqrt(texts[1]), known_noise)
        least = TEXT_NOISE_TOKENS if texts[0] else 0.0
        above = sqrt(belief.variance(constant, texts[0]) + noise**2 + least**2)
        # The skew is that of plain estimates of text, the prompt too; after the first report errors go both ways alike.
        share = 1.0 if belief.reports else self.doubt.lower_share
        prompt = 0.0 if belief.reports else (self.doubt.slope_sd * regions.system_tokens) ** 2
        offset = constant * max(0.0, belief.offset_variance - prompt)
        below = sqrt(offset + share**2 * max(0.0, above**2 - offset))
        lower, upper = floor(total - QUANTILE_SD * below), ceil(total + QUANTILE_SD * above)
        return Size(regions=regions, upper_tokens=upper, lower_tokens=max(0, lower))
