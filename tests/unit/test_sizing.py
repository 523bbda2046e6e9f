"""Do corrections of sizes follow the reports alone, do sizes add up, and do they hold what is then reported?"""

from __future__ import annotations

import json
import random
from dataclasses import astuple, replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin.core import Correction, Doubt, Position
from langchain_ctxwin.core.calibration import (
    MAX_LEARNED_TOKENS,
    MAX_SPANS,
    PLAUSIBLE_RATIO,
    PLAUSIBLE_TOKENS,
    QUANTILE_SD,
    TEXT_NOISE_TOKENS,
    Measured,
    Regions,
    Sizing,
    Span,
    is_plausible,
)
from langchain_ctxwin.core.turns import Shown, Step
from langchain_ctxwin.pricing import Pricing

FITTED = Doubt(ratio_sd=0.07, noise_share=0.09)
"""Close to what the estimators of known families state."""
TEXTS = st.floats(1, 1e6)


def sizing_of(**correction):
    return Sizing(correction=Correction(**correction), doubt=FITTED)


def after(sizing, *reports):
    """Report texts as (counted, estimated) tokens, or whole requests as (counted, fixed, text)."""
    for report in reports:
        if len(report) == 2:
            learned = sizing.after_text(report[0], text=report[1], squares=report[1] ** 2)
        else:
            learned = sizing.after_request(report[0] - report[1] - report[2], text=report[2])
        sizing = replace(sizing, correction=learned)
    return sizing.correction


@given(fixed=st.integers(0, 50_000), text=TEXTS, hidden=st.floats(-5_000, 90_000), ratio=st.floats(0.3, 3))
def test_what_a_request_does_not_explain_is_its_offset(fixed, text, hidden, ratio):
    """The ratio stays: one request cannot tell the two apart."""
    known = after(sizing_of(ratio=ratio), (fixed + ratio * text + hidden, fixed, text))
    assert known.offset == pytest.approx(hidden, abs=1e-3)
    assert (known.ratio, known.offset_text_tokens, known.reports) == (ratio, text, 1)


def test_texts_that_keep_surprising_are_believed_in_the_end():
    """After forty texts as predicted, the tokenizer seems to change: sixty more, and we follow."""
    known = after(sizing_of(), *[(500, 500)] * 40, *[(700, 500)] * 60)
    assert known.ratio == pytest.approx(1.4, abs=0.1)


@given(reports=st.lists(st.tuples(st.booleans(), TEXTS, st.floats(-10, 10)), max_size=30), tools=st.integers(0, 30_000))
def test_a_correction_stays_valid_and_survives_a_checkpoint(reports, tools):
    known = Correction()
    for is_whole, text, factor in reports:
        sizing = Sizing(correction=known, doubt=FITTED)
        known = after(sizing, (factor * text, tools, text) if is_whole else (factor * text, text))
        assert known.ratio >= 0
        assert known.learned_tokens <= MAX_LEARNED_TOKENS
        found = Correction.from_json(json.loads(json.dumps(known.to_json())))
        assert (found.to_json(), found.reports) == (known.to_json(), known.reports)
        assert astuple(found) == pytest.approx(astuple(known), rel=1e-5)


@given(constant=st.floats(-2000, 5000), slope=st.floats(-0.3, 1.5), seed=st.integers(0, 999))
def test_a_provider_is_learned(constant, slope, seed):
    """One whole request, thirty additions and a request after a compaction tell its constant and its tokenizer."""
    rng, sizing = random.Random(seed), Sizing()  # noqa: S311  # repeatable
    first, texts = (constant + 3500 + 600 * (1 + slope), 3500, 600), [rng.randint(50, 2000) for _ in range(30)]
    added = [(text * (1 + slope + rng.gauss(0, 0.05)), text) for text in texts]
    known = after(sizing, first, *added, (constant + 3500 + 900 * (1 + slope), 3500, 900))
    assert known.ratio == pytest.approx(1 + slope, abs=0.06)
    assert known.offset == pytest.approx(constant, abs=130)


@pytest.mark.parametrize("ratio", [0.1, 4.0, 51.0])
def test_an_outlier_barely_moves_the_ratio(ratio):
    """A picture, or a thought that was dropped: what no text differs by does not count."""
    before = [(420, 400)] * 5
    known, surprised = after(sizing_of(), *before), after(sizing_of(), *before, (ratio * 400, 400))
    assert surprised.ratio == pytest.approx(known.ratio, abs=0.06)


def test_a_counter_that_states_no_bounds_is_corrected_at_once():
    """The rules of thumb see a quarter of a Chinese text."""
    assert after(Sizing(), (1_000, 250)).ratio > 3


def test_another_tool_set_keeps_the_ratio_only():
    known = Correction(offset=70, ratio=1.2, learned_tokens=900, offset_text_tokens=400, reports=8)
    assert known.of_other_tools() == Correction(ratio=1.2, learned_tokens=900)


@pytest.mark.parametrize(("fixed", "text", "stated"), [(2_000, 3_000, 6_200), (2_000, 0, 2_500), (500, 100, 9_000)])
def test_the_stated_size_of_a_refused_request_is_met(fixed, text, stated):
    """By the text as far as a tokenizer can be off, by the offset beyond that."""
    sizing = sizing_of(offset=100, reports=1)
    known = sizing.after_refusal(stated - fixed - text, text=text)
    assert fixed + known.offset + known.ratio * text == pytest.approx(stated)
    assert known.ratio == pytest.approx(min((stated - fixed - 100) / text, PLAUSIBLE_RATIO) if text else 1)


@pytest.mark.parametrize(
    "value",
    [
        None, 7, "01234", [], {}, [0, 1, 1, 0], [0, 1, 1, 0, 1, 1], {"offset": 1}, dict.fromkeys("abcde", 1),
        [0, "1", 0, 1, 1], [0, None, 0, 1, 1], [nan, 1, 0, 1, 1], [0, inf, 0, 1, 1], [-inf, 1, 0, 1, 1],
        [0, -1, 0, 1, 1], [0, 1, -1, 0, 1], [0, 1, 0, -1, 1], [0, 1, 0, 1, -1], [[0], 1, 0, 1, 1],
        [0, 10**400, 0, 1, 1],
    ],
)  # fmt: skip
def test_what_is_no_correction_is_not_read(value):
    assert Correction.from_json(value) is None


# ---- counted spans price what they cover, while it lies where it was counted ---------------------------------------

LAST = Position(id="a5", index=5)


@st.composite
def histories(draw):
    """Draw steps of one to three messages, and spans over runs of them, with gaps."""
    steps, spans, index = [], [], 0
    for _ in range(draw(st.integers(0, 30))):
        size = draw(st.integers(1, 3))
        steps.append(Step(index=index, size=size, messages=(), tokens=draw(st.integers(1, 5000))))
        index += size
    at = draw(st.integers(0, 3))
    while at < len(steps):
        run = steps[at : at + draw(st.integers(1, 4))]
        estimate = sum(step.tokens for step in run)
        tokens = draw(st.integers(0, 4 * estimate))
        spans.append(Span(start=run[0].index, stop=run[-1].stop, estimate=estimate, tokens=tokens))
        at += len(run) + draw(st.integers(0, 3))
    return steps, tuple(spans)


def span_of(start, stop, estimate, tokens):
    return Span(start=start, stop=stop, estimate=estimate, tokens=tokens)


def totals(texts):
    """The tokens of texts, and the sum of their squares."""
    texts = list(texts)
    return [sum(texts), sum(tokens**2 for tokens in texts)]


@given(history=histories(), data=st.data())
def test_every_step_of_a_view_is_counted_or_estimated_once(history, data):
    """What is left of a span that was cut keeps the span's ratio of counted to estimated tokens."""
    steps, spans = history
    shown = steps[data.draw(st.integers(0, len(steps))) :]
    counted, *rest = Measured(spans=spans).price(Shown(shown))
    share = {s: sum(x.tokens for x in shown if s.start <= x.index < s.stop) / s.estimate for s in spans}
    assert counted == pytest.approx(sum(share[s] * s.tokens for s in spans))
    assert rest == totals(x.tokens for x in shown if not any(s.start <= x.index < s.stop for s in spans))


@pytest.mark.parametrize(("estimate", "tokens"), [(13, 263), (1200, 5)])
def test_a_step_that_grew_is_no_worse_than_its_estimate(estimate, tokens):
    priced = Measured(spans=(span_of(1, 2, estimate, tokens),)).price(steps_of([0, 5000]))
    assert priced == (tokens, *totals([5000 - estimate]))


@given(sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 900), st.integers(0, 900)), max_size=120))
def test_merging_keeps_what_was_counted_and_stays_bounded(sizes):
    measured, stop = Measured(), 0
    for size, estimate, tokens in sizes:
        last = Position(id=f"a{stop + size}", index=stop + size)
        measured = measured.with_span(span_of(stop, stop + size, estimate, tokens), last)
        stop += size
        assert measured.last == last
    kept = measured.spans
    assert len(kept) == min(len(sizes), MAX_SPANS)
    assert sum(s.estimate for s in kept) == sum(estimate for _, estimate, _ in sizes)
    assert sum(s.tokens for s in kept) == sum(tokens for _, _, tokens in sizes)
    assert [s.start for s in kept] == [0, *(s.stop for s in kept[:-1])][: len(kept)]


@pytest.mark.parametrize(("gap", "kept"), [(1, []), (0, [(0, 2, 201, 400)])])
def test_of_too_many_spans_the_smallest_neighbours_become_one_or_the_oldest_leaves(gap, kept):
    spans = [span_of(at * (1 + gap), at * (1 + gap) + 1, 100 + at, 200) for at in range(MAX_SPANS + 1)]
    measured = Measured()
    for one in spans:
        measured = measured.with_span(one, LAST)
    assert measured.spans == (*kept, *spans[1 + len(kept) :])


def test_spans_that_left_the_view_are_forgotten():
    measured = Measured(last=LAST, spans=(span_of(0, 2, 10, 11), span_of(2, 5, 20, 21), span_of(5, 6, 30, 31)))
    assert measured.since(4) == replace(measured, spans=measured.spans[1:])
    assert measured.since(0) == measured
    assert measured.since(6).spans == ()


def history_of(*ids):
    return [AIMessage("x", id=key) if key and key.startswith("a") else HumanMessage("x", id=key) for key in ids]


MESSAGE_IDS = ("h0", "a1", "h2", "a3", "h4", "a5")


@pytest.mark.parametrize(
    ("ids", "holds"),
    [
        (MESSAGE_IDS, True),
        ((*MESSAGE_IDS, "h6", "a7"), True),
        (MESSAGE_IDS[:5], False),
        (MESSAGE_IDS[1:], False),
        (("new", *MESSAGE_IDS), False),
        ((*MESSAGE_IDS[:5], "other answer"), False),
        ((), False),
        ((None,) * 6, False),
    ],
)
def test_spans_hold_for_the_history_they_were_counted_in(ids, holds):
    measured = Measured(last=LAST, spans=(span_of(1, 5, 10, 12),))
    assert measured.holds_for(history_of(*ids)) is holds
    assert not Measured().holds_for(history_of(*ids))


@given(history=histories())
def test_spans_survive_a_checkpoint(history):
    measured = Measured(last=LAST, spans=history[1])
    assert Measured.from_json(json.loads(json.dumps(measured.to_json()))) == measured
    assert Measured.from_json(Measured().to_json()) == Measured()


GOOD = {"last": {"id": "a5", "index": 5}, "spans": [[0, 2, 10, 12]]}


@pytest.mark.parametrize(
    "change",
    [
        {"spans": [[0, 2, 10]]}, {"spans": [[0, 2, 10, 12, 1]]}, {"spans": [7]}, {"spans": 7}, {"spans": "spans"},
        {"spans": [[0, 2, 0, 12]]}, {"spans": [[0, 2, -10, 12]]}, {"spans": [[0, 2, 10, -1]]},
        {"spans": [[2, 2, 10, 12]]}, {"spans": [[3, 2, 10, 12]]}, {"spans": [[-1, 2, 10, 12]]},
        {"spans": [[0, 2, nan, 12]]}, {"spans": [[0, 2, 10, nan]]},
        {"spans": [["a", "b", "c", "d"]]}, {"spans": [[0, 2, None, 12]]}, {"spans": [[0, 2, 10, inf]]},
        {"spans": [[3, 5, 10, 12], [0, 4, 10, 12]]}, {"last": {"id": "a5", "index": inf}},
        {"last": {"id": "a5", "index": -1}}, {"last": "a5"}, {"last": 5}, {"last": {"id": "a5"}},
        {"last": {"id": "a5", "index": "x"}},
    ],
)  # fmt: skip
def test_what_are_no_spans_is_not_read(change):
    assert [Measured.from_json(odd) for odd in ({**GOOD, **change}, [1, 2], "text")] == [Measured()] * 3


@pytest.mark.parametrize(
    ("tokens", "estimate", "plausible"),
    [(0, 5, False), (-8, 5, False), (5, 0, False), (PLAUSIBLE_TOKENS, 1, True), (305, 1, False), (4300, 1000, True),
     (round(1000 / PLAUSIBLE_RATIO), 1000, True), (4301, 1000, False), (700, 4000, True), (699, 4000, False)],
)  # fmt: skip
def test_a_difference_far_from_its_estimate_is_something_else(tokens, estimate, plausible):
    assert is_plausible(tokens, estimate) is plausible


# ---- sizes of regions -----------------------------------------------------------------------------------------------

SKEWED = Doubt(ratio_sd=0.07, noise_share=0.09, lower_share=0.7)
"""Close to what the estimators of known families state."""
TAKEN = Doubt(has_margin=False)
"""A plain callable."""
TOKENS = st.integers(0, 50_000)
STEPS = st.lists(st.integers(0, 5000), max_size=12)
WHOLE = Measured(last=Position(id="a2", index=2), spans=(Span(start=0, stop=3, estimate=900, tokens=1200),))
NONE = Measured()


@st.composite
def corrections(draw):
    """Draw what reports could have made of a correction."""
    return Correction(
        offset=draw(st.floats(-60_000, 60_000)),
        ratio=draw(st.floats(0.6, 2.5)),
        learned_tokens=draw(st.floats(0, MAX_LEARNED_TOKENS)),
        offset_text_tokens=draw(st.floats(0, 100_000)),
        reports=draw(st.integers(0, 9)),
    )


@st.composite
def estimates(draw, history):
    return regions_of(history=history, **{name: draw(TOKENS) for name in ("system", "tool", "summary", "pinned")})


@st.composite
def requests(draw):
    """Draw a sizing, and the estimates and steps of one request."""
    tokens = draw(STEPS)
    sizing = Sizing(
        correction=draw(corrections()),
        doubt=draw(st.sampled_from((SKEWED, TAKEN))),
        measured=draw(st.sampled_from((WHOLE, NONE))),
    )
    return sizing, draw(estimates(sum(tokens))), steps_of(tokens)


def steps_of(tokens):
    return Shown(Step(index=index, size=1, messages=(), tokens=n) for index, n in enumerate(tokens))


def regions_of(*, system=1000, history=0, **regions):
    sizes = {f"{name}_tokens": regions.get(name, 0) for name in ("tool", "summary", "pinned")}
    return Regions(system_tokens=system, history_tokens=history, **sizes)


@given(request=requests(), reported=st.integers(1, 300_000), added=STEPS)
def test_regions_add_up_within_their_bounds(request, reported, added):
    """Of a request, and of one that extends what was counted; a plain callable is taken as it is."""
    sizing, regions, steps = request
    first = sizing.size(regions, steps)
    later = sizing.extended(first, reported, added)
    for size in (first, later):
        *regions, fixed, total = astuple(size.regions)
        assert all(isinstance(tokens, int) and tokens >= 0 for tokens in regions)
        assert (sum(regions), sum(regions[:-1])) == (total, fixed)
        assert 0 <= size.lower_tokens <= size.regions.total_tokens <= size.upper_tokens
        assert sizing.doubt.has_margin or size.lower_tokens == size.upper_tokens
    assert later.regions.total_tokens == reported + round(sizing.correction.ratio * sum(added))


@given(request=requests(), reported=st.integers(4, 100_000))
def test_no_region_that_is_there_reads_nothing(request, reported):
    """As estimated, and scaled to any size that was reported."""
    sizing, regions, steps = request
    size = sizing.size(regions, steps)
    for shown in (size.regions, size.regions.scaled(reported)):
        assert shown.system_tokens > 0 or not regions.system_tokens
        assert (shown.tool_tokens > 0) == (regions.tool_tokens > 0)
    assert size.regions.scaled(reported).total_tokens == reported


@given(request=requests(), more=st.integers(1, 5000))
def test_more_history_is_never_smaller(request, more):
    sizing, regions, steps = request
    longer = replace(regions, history_tokens=regions.history_tokens + more)
    one = sizing.size(regions, steps)
    other = sizing.size(longer, Shown([*steps, Step(index=len(steps), size=1, messages=(), tokens=more)]))
    assert other.regions.total_tokens >= one.regions.total_tokens
    assert other.upper_tokens >= one.upper_tokens - 1


def test_less_history_is_smaller_after_a_refusal_too():
    sizing = Sizing(doubt=SKEWED)
    sizing = replace(sizing, correction=sizing.after_refusal(900, text=3000))
    uppers = [
        sizing.size(regions_of(tool=40_000, history=100 * n), steps_of([100] * n)).upper_tokens for n in range(31)
    ]
    assert uppers == sorted(uppers)


def test_before_any_report_sizes_are_estimates():
    regions = regions_of(tool=400, summary=30, pinned=20, history=600)
    size = Sizing(doubt=SKEWED).size(regions, steps_of([200, 400]))
    assert size.regions == regions
    assert (size.lower_tokens, size.upper_tokens) == (1635, 2479)


def test_offset_and_ratio_go_where_they_belong():
    sizing = Sizing(correction=Correction(offset=150, ratio=1.5, reports=3), doubt=TAKEN, measured=WHOLE)
    regions = regions_of(tool=400, summary=30, pinned=20, history=1500)
    size = sizing.size(regions, steps_of([300, 300, 300, 600]))
    assert size.regions == regions_of(tool=550, summary=45, pinned=30, history=1200 + 900)


@pytest.mark.parametrize(
    ("tool", "offset", "system_and_tool"),
    [(400, -100, (1000, 300)), (400, -900, (460, 40)), (400, -9000, (100, 40)), (0, -100, (900, 0)),
     (0, -9000, (100, 0)), (0, 70, (1070, 0)), (400, 70, (1000, 470))],
)  # fmt: skip
def test_a_negative_offset_leaves_something_of_prompt_and_tools(tool, offset, system_and_tool):
    sizing = Sizing(correction=Correction(offset=offset, reports=1), doubt=TAKEN)
    size = sizing.size(regions_of(tool=tool, history=600), steps_of([600]))
    assert (size.regions.system_tokens, size.regions.tool_tokens) == system_and_tool
    assert size.regions.total_tokens == 600 + max(0, 1000 + tool + offset)


@given(request=requests())
def test_a_request_is_refused_only_if_its_plain_count_is_too_large(request):
    sizing, regions, steps = request
    plain = Sizing(doubt=sizing.doubt)
    least = sizing.least(sizing.size(regions, steps), regions, steps)
    assert least <= plain.size(regions, steps).lower_tokens


def test_a_counted_request_without_additions_is_known():
    """The history takes the difference; where it would be negative, all regions shrink."""
    sizing = Sizing(doubt=SKEWED)
    size = sizing.extended(sizing.size(regions_of(history=600), steps_of([600])), 1750, ())
    assert (size.lower_tokens, size.regions, size.upper_tokens) == (1750, regions_of(history=750), 1750)
    size = sizing.extended(sizing.size(regions_of(tool=500, summary=300, pinned=200), Shown(())), 999, ())
    assert size.regions == regions_of(system=499, tool=249, summary=149, pinned=99, history=3)


@given(texts=st.lists(st.integers(50, 5000), min_size=1, max_size=30))
def test_the_errors_of_many_texts_cancel_out(texts):
    """Four times the text is off by twice as much, beside what a step is off by however long it is."""
    sizing = Sizing(doubt=replace(SKEWED, ratio_sd=0.0))
    known = sizing.size(regions_of(), Shown(()))
    one, four = (sizing.extended(known, 1000, many) for many in (texts, texts * 4))
    spread = [size.upper_tokens - size.regions.total_tokens for size in (one, four)]
    assert spread[1] == pytest.approx(2 * spread[0], abs=2 * QUANTILE_SD * TEXT_NOISE_TOKENS)


class Sure:
    """A counter that states bounds without any doubt."""

    def __call__(self, messages, *, tools=None):
        return sum(len(message.text.split()) for message in messages)

    def upper(self, tokens):
        return tokens

    lower = upper


def test_a_counter_that_states_no_doubt_learns_little_from_one_small_text():
    """Providers frame messages in their own way all the same, and a text of nothing has a size, too."""
    sizing = Sizing(doubt=Pricing(Sure(), family="generic").doubt)
    assert sizing.after_text(40, text=10, squares=100).ratio == pytest.approx(1, abs=0.01)
    assert sizing.after_text(5, text=0, squares=0).ratio == pytest.approx(1, abs=0.01)
