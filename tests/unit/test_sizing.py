"""Do sizes add up, keep their order, and hold what a provider then reports?"""

from __future__ import annotations

import random
from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.core.calibration import Belief, Doubt, Measured, Span, after_request, after_text, prior
from langchain_ctxwin.core.outcome import REFUSED_SLOPE_SD
from langchain_ctxwin.core.sizing import Regions, Sizing
from langchain_ctxwin.core.turns import Shown, Step
from langchain_ctxwin.core.view import Position

FITTED = Doubt(slope_sd=0.07, noise_share=0.09, lower_share=0.7)
"""Close to what the estimators of known families state."""

TAKEN = Doubt(has_margin=False)
"""A plain callable."""

TOKENS = st.integers(0, 50_000)
STEPS = st.lists(st.integers(0, 5000), max_size=12)
WHOLE = Measured(last=Position(id="a2", index=2), spans=(Span(start=0, stop=3, estimate=900, tokens=1200),))
NONE = Measured()


@st.composite
def beliefs(draw):
    """Draw what reports could have made of a belief: surer than before any, and anywhere."""
    offset_sd, slope_sd = draw(st.floats(0, 2000)), draw(st.floats(0, 0.3))
    return Belief(
        offset=draw(st.floats(-60_000, 60_000)),
        slope=draw(st.floats(-0.4, 1.5)),
        offset_variance=offset_sd**2,
        covariance=draw(st.floats(-1, 1)) * offset_sd * slope_sd,
        slope_variance=slope_sd**2,
        reports=draw(st.integers(0, 9)),
    )


@st.composite
def estimates(draw, history):
    regions = {f"{name}_tokens": draw(TOKENS) for name in ("system", "tool", "summary", "pinned")}
    return Regions(**regions, history_tokens=history)


@st.composite
def requests(draw):
    """Draw a sizing, and the estimates and steps of one request."""
    tokens = draw(STEPS)
    plain = prior(FITTED, tool_tokens=2000, system_tokens=300)
    sizing = Sizing(
        belief=draw(beliefs()),
        plain=plain,
        doubt=draw(st.sampled_from((FITTED, TAKEN))),
        measured=draw(st.sampled_from((WHOLE, NONE))),
    )
    return sizing, draw(estimates(sum(tokens))), steps_of(tokens)


def steps_of(tokens):
    return Shown.of(Step(index=index, size=1, messages=(), tokens=n) for index, n in enumerate(tokens))


def squares(texts):
    return sum(tokens**2 for tokens in texts)


def values(regions):
    return [
        regions.system_tokens,
        regions.tool_tokens,
        regions.summary_tokens,
        regions.pinned_tokens,
        regions.history_tokens,
    ]


def regions_of(*, system=1000, tool=0, summary=0, pinned=0, history=0):
    return Regions(
        system_tokens=system, tool_tokens=tool, summary_tokens=summary, pinned_tokens=pinned, history_tokens=history
    )


@given(request=requests())
def test_regions_add_up_within_their_bounds(request):
    """Whatever is believed: no region is negative, none has half a token, and the median is between the bounds."""
    sizing, regions, steps = request
    size = sizing.size(regions, steps)
    assert all(isinstance(tokens, int) and tokens >= 0 for tokens in values(size.regions))
    assert size.regions.total_tokens == sum(values(size.regions))
    assert 0 <= size.lower_tokens <= size.regions.total_tokens <= size.upper_tokens


@given(request=requests(), reported=st.integers(1, 300_000), added=STEPS)
def test_a_request_that_extends_a_counted_one_adds_up_too(request, reported, added):
    """The counted size and what was added, exactly, in regions of which none is negative."""
    sizing, regions, steps = request
    size = sizing.extended(sizing.size(regions, steps), reported, added)
    assert size.regions.total_tokens == reported + round(max(0, 1 + sizing.belief.slope) * sum(added))
    assert all(tokens >= 0 for tokens in values(size.regions))
    assert 0 <= size.lower_tokens <= size.regions.total_tokens <= size.upper_tokens


@given(request=requests(), more=st.integers(1, 5000))
def test_more_history_is_never_smaller(request, more):
    """Median and upper bound grow with every step, so a cut can be found by bisection."""
    sizing, regions, steps = request
    longer = replace(regions, history_tokens=regions.history_tokens + more)
    one = sizing.size(regions, steps)
    other = sizing.size(longer, Shown.of([*steps, Step(index=len(steps), size=1, messages=(), tokens=more)]))
    assert other.regions.total_tokens >= one.regions.total_tokens
    assert other.upper_tokens >= one.upper_tokens - 1


def test_less_history_is_smaller_after_a_refusal_too():
    """Many tools, little history, and a doubt about the slope as a refusal leaves it: still monotone."""
    doubtful = replace(prior(FITTED, tool_tokens=40_000, system_tokens=1000), slope_variance=REFUSED_SLOPE_SD**2)
    belief = after_request(doubtful, surplus_tokens=900, text_tokens=3000, fixed_tokens=41_000, noise_tokens=60)
    sizing = Sizing(belief=belief, plain=doubtful, doubt=FITTED)
    uppers = [
        sizing.size(regions_of(tool=40_000, history=100 * n), steps_of([100] * n)).upper_tokens for n in range(31)
    ]
    assert uppers == sorted(uppers)


@given(request=requests(), reported=st.integers(1, 300_000), added=STEPS)
def test_a_plain_callable_is_taken_as_it_is(request, reported, added):
    """It states no bounds, so the upper bound is the count."""
    sizing, regions, steps = request
    size = replace(sizing, doubt=TAKEN).size(regions, steps)
    later = replace(sizing, doubt=TAKEN).extended(size, reported, added)
    assert size.upper_tokens == size.regions.total_tokens
    assert (later.lower_tokens, later.upper_tokens) == (later.regions.total_tokens,) * 2


def test_before_any_report_sizes_are_estimates():
    """The regions are the counter's; only the bounds say how sure they are."""
    fresh = Belief(offset_variance=74_100, slope_variance=FITTED.slope_sd**2)
    regions = regions_of(tool=400, summary=30, pinned=20, history=600)
    size = Sizing(belief=fresh, plain=fresh, doubt=FITTED).size(regions, steps_of([200, 400]))
    assert size.regions == regions
    assert (size.lower_tokens, size.upper_tokens) == (1604, 2509)


def test_offset_and_slope_go_where_they_belong():
    """The offset to the tools, the slope to all text, and what was counted to itself."""
    belief = Belief(offset=150, slope=0.5, offset_variance=0, slope_variance=0, reports=3)
    sizing = Sizing(belief=belief, plain=belief, doubt=TAKEN, measured=WHOLE)
    regions = regions_of(tool=400, summary=30, pinned=20, history=1500)
    size = sizing.size(regions, steps_of([300, 300, 300, 600]))
    assert size.regions == regions_of(tool=550, summary=45, pinned=30, history=1200 + 900)


@pytest.mark.parametrize(
    ("tool", "offset", "system_and_tool"),
    [(400, -100, (1000, 300)), (400, -900, (500, 0)), (400, -9000, (0, 0)), (0, -100, (900, 0)), (0, -9000, (0, 0)),
     (0, 70, (1070, 0))],
)  # fmt: skip
def test_a_negative_offset_stops_at_nothing(tool, offset, system_and_tool):
    """Tools pay first, then the system prompt; without tools the system prompt alone."""
    belief = Belief(offset=offset, offset_variance=0, slope_variance=0, reports=1)
    size = Sizing(belief=belief, plain=belief, doubt=TAKEN).size(regions_of(tool=tool, history=600), steps_of([600]))
    assert (size.regions.system_tokens, size.regions.tool_tokens) == system_and_tool
    assert size.regions.history_tokens == 600


@given(request=requests())
def test_a_request_is_refused_only_if_its_plain_count_is_too_large(request):
    """What reports made us believe lowers the lower bound, it never raises it."""
    sizing, regions, steps = request
    believed = replace(sizing, belief=replace(sizing.belief, reports=1))
    plain = Sizing(belief=sizing.plain, plain=sizing.plain, doubt=sizing.doubt)
    least = believed.least(believed.size(regions, steps), regions, steps)
    assert least <= plain.size(regions, steps).lower_tokens


def test_a_counted_request_without_additions_is_known():
    """Its size is what the provider reported, without a margin."""
    belief = prior(FITTED, tool_tokens=400, system_tokens=1000)
    sizing = Sizing(belief=belief, plain=belief, doubt=FITTED)
    size = sizing.extended(sizing.size(regions_of(history=600), steps_of([600])), 1750, ())
    assert (size.lower_tokens, size.regions, size.upper_tokens) == (1750, regions_of(history=750), 1750)


def test_a_report_below_the_fixed_regions_shrinks_them_all():
    """Regions keep their proportions; what rounding leaves is history."""
    belief = prior(TAKEN, tool_tokens=400, system_tokens=1000)
    sizing = Sizing(belief=belief, plain=belief, doubt=TAKEN)
    size = sizing.extended(sizing.size(regions_of(tool=500, summary=300, pinned=200), Shown.of(())), 999, ())
    assert size.regions == regions_of(system=499, tool=249, summary=149, pinned=99, history=3)


@given(texts=st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_the_errors_of_many_texts_cancel_out(texts):
    """Noise grows with the root of the number of texts, and never above its share of all."""
    nothing = Belief(offset_variance=0, slope_variance=0)
    sizing = Sizing(belief=nothing, plain=nothing, doubt=FITTED)
    assert sizing.noise(squares(texts)) <= FITTED.noise_share * sum(texts) * (1 + 1e-9)
    assert sizing.noise(squares(texts * 4)) == pytest.approx(2 * sizing.noise(squares(texts)))


def width(size):
    return (size.upper_tokens - size.lower_tokens) / size.regions.total_tokens


def conversation(seed):
    """Yield `(size, true size)` of 20 requests of a provider that is as far off as the doubt says, reported each time.

    The last one is a compacted request: it extends nothing, and no span of it was counted.
    """
    rng = random.Random(seed)  # noqa: S311  # repeatable
    belief = plain = prior(FITTED, tool_tokens=2000, system_tokens=0)
    offset, slope = rng.gauss(0, sqrt(plain.offset_variance)), rng.gauss(0, FITTED.slope_sd)
    fixed, tokens, true = regions_of(tool=2000), [], []
    reported = None
    for _ in range(20):
        new = [rng.randint(20, 600), rng.randint(20, 600)]
        tokens, true = [*tokens, *new], [*true, *(n * (1 + slope + rng.gauss(0, FITTED.noise_share)) for n in new)]
        sizing = Sizing(belief=belief, plain=plain, doubt=FITTED)
        size = sizing.size(replace(fixed, history_tokens=sum(tokens)), steps_of(tokens))
        if reported is not None:
            size = sizing.extended(size, reported, new)
        total = round(fixed.total_tokens + offset + sum(true))
        yield size, total
        noise, text, surplus = sizing.noise(squares(new)), sum(new), total - fixed.total_tokens - sum(tokens)
        if reported is None:
            belief = after_request(
                belief, surplus_tokens=surplus, text_tokens=text, fixed_tokens=3000, noise_tokens=noise
            )
        else:
            belief = after_text(belief, surplus_tokens=total - reported - text, text_tokens=text, noise_tokens=noise)
        reported = total
    sizing = Sizing(belief=belief, plain=plain, doubt=FITTED)
    size = sizing.size(replace(fixed, history_tokens=sum(tokens[-9:])), steps_of(tokens[-9:]))
    yield size, round(fixed.total_tokens + offset + sum(true[-9:]))


def test_the_upper_bound_holds_nineteen_of_twenty_requests():
    """Over all requests, the first and those after a compaction, of providers that are as far off as we think."""
    runs = [list(conversation(seed)) for seed in range(200)]
    for part in (slice(0, 21), slice(0, 1), slice(20, 21)):
        held = [size.upper_tokens >= true for run in runs for size, true in run[part]]
        assert sum(held) / len(held) >= 0.93


def test_the_interval_narrows_with_evidence():
    """From over a quarter of the request before any report to under a fiftieth after ten; half after a compaction."""
    runs = [[width(size) for size, _ in conversation(seed)] for seed in range(20)]
    first, tenth, compacted = (sum(run[at] for run in runs) / len(runs) for at in (0, 10, 20))
    assert first > 0.25
    assert tenth < 0.02
    assert compacted < first / 2
