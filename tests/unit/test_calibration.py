"""Does what we believe about offset and slope follow the reports, and nothing but the reports?"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import hypot, inf, nan, sqrt

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_ctxwin.core.calibration import (
    FIXED_NOISE_SHARE,
    FIXED_NOISE_TOKENS,
    FIXED_SD_TOKENS,
    SURPRISE_SLOPE_SD,
    TEXT_NOISE_TOKENS,
    TOOLS_SD_SHARE,
    TOOLS_SD_TOKENS,
    Belief,
    Doubt,
    after_request,
    after_text,
    deviation,
    other_tools,
    prior,
)

FITTED = Doubt(slope_sd=0.07, noise_share=0.09)
"""Close to what the estimators of known families state."""

TEXTS = st.floats(1, 1e6)


@st.composite
def beliefs(draw):
    """Draw any valid belief: means, deviations, and how the two hang together."""
    offset_sd, slope_sd = draw(st.floats(1, 1e4)), draw(st.floats(0.001, 1))
    return Belief(
        offset=draw(st.floats(-5e3, 5e4)),
        slope=draw(st.floats(-0.5, 2)),
        offset_variance=offset_sd**2,
        covariance=draw(st.floats(-0.95, 0.95)) * offset_sd * slope_sd,
        slope_variance=slope_sd**2,
        reports=draw(st.integers(0, 99)),
    )


def posterior(belief, row, surplus, noise):
    """Combine a belief and an observation by adding up precisions: Bayes' rule for Gaussians, in the other form."""
    a, b, c = belief.offset_variance, belief.covariance, belief.slope_variance
    det = a * c - b * b
    p, q, r = c / det + row[0] ** 2 / noise, -b / det + row[0] * row[1] / noise, a / det + row[1] ** 2 / noise
    x = (c * belief.offset - b * belief.slope) / det + row[0] * surplus / noise
    y = (a * belief.slope - b * belief.offset) / det + row[1] * surplus / noise
    det = p * r - q * q
    return [(r * x - q * y) / det, (p * y - q * x) / det, r / det, -q / det, p / det]


def numbers(belief):
    return [belief.offset, belief.slope, belief.offset_variance, belief.covariance, belief.slope_variance]


def expected(belief, constant, text):
    return constant * belief.offset + text * belief.slope


def true_size(rng, text, constant, slope, *, noise_share=0.05):
    """Return the size that a provider with these numbers reports for a text."""
    return constant + (1 + slope + rng.gauss(0, noise_share)) * text


@given(belief=beliefs(), text=st.floats(1, 1e5), surprise=st.floats(-1, 1), fixed=st.floats(0, 1e5))
def test_a_report_of_a_request_is_bayes_rule(belief, text, surprise, fixed):
    """The same posterior as by precision matrices, for every report within two deviations."""
    noise = (0.1 * text) ** 2 + (FIXED_NOISE_SHARE * fixed + FIXED_NOISE_TOKENS) ** 2
    surplus = expected(belief, 1, text) + 2 * surprise * sqrt(belief.variance(1, text) + noise)
    after = after_request(belief, surplus_tokens=surplus, text_tokens=text, fixed_tokens=fixed, noise_tokens=0.1 * text)
    assert numbers(after) == pytest.approx(posterior(belief, (1, text), surplus, noise), rel=1e-4, abs=1e-4)
    assert after.reports == belief.reports + 1


@given(belief=beliefs(), text=st.floats(1, 1e5), surprise=st.floats(-1, 1))
def test_a_report_of_a_text_is_bayes_rule(belief, text, surprise):
    """The offset only moves as far as it hangs together with the slope."""
    noise = (0.1 * text) ** 2 + TEXT_NOISE_TOKENS**2
    surplus = expected(belief, 0, text) + 2 * surprise * sqrt(belief.variance(0, text) + noise)
    after = after_text(belief, surplus_tokens=surplus, text_tokens=text, noise_tokens=0.1 * text)
    assert numbers(after) == pytest.approx(posterior(belief, (0, text), surplus, noise), rel=1e-4, abs=1e-4)


@given(belief=beliefs(), text=TEXTS, surplus=st.floats(-1e7, 1e7))
def test_a_text_makes_us_less_sure_only_by_what_a_surprise_leaves(belief, text, surplus):
    """However odd its size: an outlier counts as noise, and leaves a little doubt for the next one."""
    after = after_text(belief, surplus_tokens=surplus, text_tokens=text, noise_tokens=0.1 * text)
    assert 0 <= after.offset_variance <= belief.offset_variance
    assert 0 <= after.slope_variance <= belief.slope_variance + SURPRISE_SLOPE_SD**2


def test_texts_that_keep_surprising_are_believed_in_the_end():
    """After forty texts as expected, the tokenizer seems to change: twelve more, and we follow."""
    belief = prior(FITTED, tool_tokens=0, system_tokens=0)
    for _ in range(40):
        belief = after_text(belief, surplus_tokens=0, text_tokens=500, noise_tokens=40)
    for _ in range(12):
        belief = after_text(belief, surplus_tokens=200, text_tokens=500, noise_tokens=40)
    assert belief.slope == pytest.approx(0.4, abs=0.1)


@given(belief=beliefs(), text=TEXTS)
def test_an_expected_report_makes_us_surer_and_changes_no_mean(belief, text):
    """What was predicted is no news."""
    surplus = expected(belief, 1, text)
    after = after_request(belief, surplus_tokens=surplus, text_tokens=text, fixed_tokens=0, noise_tokens=0.1 * text)
    assert (after.offset, after.slope) == pytest.approx((belief.offset, belief.slope), abs=1e-6, rel=1e-9)
    assert 0 <= after.offset_variance <= belief.offset_variance
    assert 0 <= after.slope_variance <= belief.slope_variance


@given(text=TEXTS, surplus=st.floats(0, 1e6), tools=st.integers(0, 20_000))
def test_too_much_and_too_little_teach_the_same(text, surplus, tools):
    """From a belief of no error, mirrored reports give mirrored beliefs."""
    start = prior(FITTED, tool_tokens=tools, system_tokens=500)
    more, less = (
        after_request(start, surplus_tokens=sign * surplus, text_tokens=text, fixed_tokens=tools, noise_tokens=text)
        for sign in (1, -1)
    )
    assert less == replace(more, offset=-more.offset, slope=-more.slope)


@given(reports=st.lists(st.tuples(st.booleans(), TEXTS, st.floats(-10, 10)), max_size=30), tools=st.integers(0, 30_000))
def test_a_belief_stays_valid_and_survives_a_checkpoint(reports, tools):
    """After any reports, absurd ones included, variances are no less than 0 and JSON gives the belief back."""
    belief = prior(FITTED, tool_tokens=tools, system_tokens=1000)
    for whole, text, factor in reports:
        if whole:
            belief = after_request(
                belief, surplus_tokens=factor * text, text_tokens=text, fixed_tokens=tools, noise_tokens=0.1 * text
            )
        else:
            belief = after_text(belief, surplus_tokens=factor * text, text_tokens=text, noise_tokens=0.1 * text)
        stored = json.loads(json.dumps(belief.to_json()))
        found = Belief.from_json(stored)
        assert found is not None
        assert found.to_json() == stored
        assert found.reports == belief.reports
        assert numbers(found) == pytest.approx(numbers(belief), rel=1e-5)
        assert deviation(found, constant=1, text_tokens=text, noise_tokens=0) >= 0


@given(constant=st.floats(-2000, 5000), slope=st.floats(-0.3, 1.5), seed=st.integers(0, 999))
def test_a_provider_is_learned(constant, slope, seed):
    """One whole request, thirty additions and a request after a compaction tell its constant and its tokenizer."""
    belief = prior(Doubt(), tool_tokens=3000, system_tokens=500)
    rng = random.Random(seed)  # noqa: S311  # repeatable
    for text in (600, *[rng.randint(50, 2000) for _ in range(30)], 900):
        noise, whole = 0.05 * text, text in {600, 900}
        surplus = true_size(rng, text, constant if whole else 0, slope) - text
        if whole:
            belief = after_request(
                belief, surplus_tokens=surplus, text_tokens=text, fixed_tokens=3500, noise_tokens=noise
            )
        else:
            belief = after_text(belief, surplus_tokens=surplus, text_tokens=text, noise_tokens=noise)
    assert belief.slope == pytest.approx(slope, abs=0.06)
    assert belief.offset == pytest.approx(constant, abs=130)


@pytest.mark.parametrize("hidden", [3000, 20_000, -900])
def test_a_hidden_constant_goes_to_the_offset(hidden):
    """A prompt that we cannot see is no property of the tokenizer, even if the first report is all we have."""
    start = prior(FITTED, tool_tokens=0, system_tokens=300)
    after = after_request(start, surplus_tokens=hidden, text_tokens=800, fixed_tokens=300, noise_tokens=70)
    assert after.offset == pytest.approx(hidden, rel=0.02)
    assert abs(after.slope) < 0.02


@pytest.mark.parametrize("ratio", [-0.9, 3.0, 50.0])
def test_an_outlier_barely_moves_the_slope(ratio):
    """A picture among the texts does not change what is known of texts."""
    belief = prior(FITTED, tool_tokens=500, system_tokens=300)
    for _ in range(5):
        belief = after_text(belief, surplus_tokens=20, text_tokens=400, noise_tokens=36)
    after = after_text(belief, surplus_tokens=ratio * 400, text_tokens=400, noise_tokens=36)
    assert after.slope == pytest.approx(belief.slope, abs=0.02)


def test_another_tool_set_keeps_the_tokenizer_only():
    """The rendering of tools is unknown again, and so is whether a report backs this request."""
    fresh = prior(FITTED, tool_tokens=900, system_tokens=300)
    known = Belief(offset=70, slope=0.2, offset_variance=9, covariance=-0.1, slope_variance=0.004, reports=8)
    assert other_tools(known, fresh) == replace(fresh, slope=0.2, slope_variance=0.004)


def test_more_tools_more_doubt():
    """Without tools only the request's own frame is open."""
    found = [prior(FITTED, tool_tokens=tools, system_tokens=0) for tools in (0, 1, 1000, 10_000)]
    tools_sds = [0, *(TOOLS_SD_TOKENS + TOOLS_SD_SHARE * tools for tools in (1, 1000, 10_000))]
    assert [sqrt(belief.offset_variance) for belief in found] == pytest.approx(
        [hypot(FIXED_SD_TOKENS, tools_sd) for tools_sd in tools_sds]
    )
    assert {belief.slope_variance for belief in found} == {FITTED.slope_sd**2}


@given(belief=beliefs(), text=TEXTS, more=TEXTS)
def test_text_that_extends_a_counted_request_is_doubted_by_its_size(belief, text, more):
    """Without the constant, more text means a wider interval; none means none."""
    assume(more > 1e-6 * text)
    widths = [deviation(belief, constant=0, text_tokens=tokens, noise_tokens=0) for tokens in (0, text, text + more)]
    assert widths == sorted(widths)
    assert widths[0] == 0


@pytest.mark.parametrize(
    "value",
    [
        None, 7, "012345", [], {}, [0, 0, 1, 0, 1], [0, 0, 1, 0, 1, 1, 1], {"offset": 1}, dict.fromkeys("abcdef", 1),
        [0, 0, "1", 0, 1, 1], [0, None, 1, 0, 1, 1], [nan, 0, 1, 0, 1, 1], [0, 0, inf, 0, 1, 1], [0, -inf, 1, 0, 1, 1],
        [0, 0, -1, 0, 1, 1], [0, 0, 1, 0, -1, 1], [0, 0, 1, 0, 1, -1], [0, 0, 1, 2, 1, 1], [[0], 0, 1, 0, 1, 1],
    ],
)  # fmt: skip
def test_what_is_no_belief_is_not_read(value):
    """State comes from outside: a damaged belief is as good as none."""
    assert Belief.from_json(value) is None


@pytest.mark.parametrize("value", [[0, 0, 1e300, 1e200, 1e300, 1], [0, 0, 10**400, 0, 1, 1]])
def test_what_no_update_can_write_is_not_read(value):
    """Valid JSON, and six numbers, but not ours."""
    assert Belief.from_json(value) is None
