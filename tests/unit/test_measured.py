"""Do counted spans price what they cover, and only while it lies where it was counted?"""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin.core.calibration import MAX_SPANS, PLAUSIBLE_RATIO, PLAUSIBLE_TOKENS, Measured, Span, is_plausible
from langchain_ctxwin.core.turns import Shown, Step
from langchain_ctxwin.core.view import Position

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


def step(index, tokens, size=1):
    return Step(index=index, size=size, messages=(), tokens=tokens)


def span(start, stop, estimate, tokens):
    return Span(start=start, stop=stop, estimate=estimate, tokens=tokens)


def totals(texts):
    """The tokens of texts, and the sum of their squares."""
    texts = list(texts)
    return [sum(texts), sum(tokens**2 for tokens in texts)]


def covered(steps, spans):
    return [any(s.start <= step.index < s.stop for s in spans) for step in steps]


@given(history=histories())
def test_every_step_is_counted_or_estimated_once(history):
    """Whole spans cost what the provider said; the estimates of all other steps come back as they are."""
    steps, spans = history
    counted, *rest = Measured(spans=spans).price(Shown.of(steps))
    inside = covered(steps, spans)
    assert counted == pytest.approx(sum(span.tokens for span in spans))
    assert rest == totals(step.tokens for step, is_in in zip(steps, inside, strict=True) if not is_in)


@given(history=histories(), data=st.data())
def test_a_view_that_starts_later_pays_its_share(history, data):
    """What is left of a span that was cut keeps the span's ratio of counted to estimated."""
    steps, spans = history
    shown = steps[data.draw(st.integers(0, len(steps))) :]
    counted, rest, _ = Measured(spans=spans).price(Shown.of(shown))
    share = {s: sum(x.tokens for x in shown if s.start <= x.index < s.stop) / s.estimate for s in spans}
    assert counted == pytest.approx(sum(share[s] * s.tokens for s in spans))
    assert rest == sum(x.tokens for x, is_in in zip(shown, covered(shown, spans), strict=True) if not is_in)


def test_a_step_that_was_cleared_costs_its_share():
    """The estimate shrank from 400 to 100, so of 500 counted tokens 125 are left."""
    measured = Measured(spans=(span(1, 3, 400, 500),))
    assert measured.price(Shown.of([step(0, 50), step(1, 20), step(2, 80), step(3, 70)])) == (125.0, *totals([50, 70]))


@pytest.mark.parametrize(("estimate", "tokens"), [(13, 263), (1200, 5)])
def test_a_step_that_grew_is_no_worse_than_its_estimate(estimate, tokens):
    """A ratio from few tokens says nothing about the thousands that an edit put there."""
    priced = Measured(spans=(span(1, 2, estimate, tokens),)).price(Shown.of([step(1, 5000)]))
    assert priced == (tokens, *totals([5000 - estimate]))


@given(steps=st.lists(st.integers(1, 500), max_size=20))
def test_nothing_counted_means_all_estimated(steps):
    """A fresh conversation rests on its estimates."""
    history = [step(index, tokens) for index, tokens in enumerate(steps)]
    assert Measured().price(Shown.of(history)) == (0, *totals(steps))


@given(sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 900), st.integers(0, 900)), max_size=120))
def test_merging_keeps_what_was_counted_and_stays_bounded(sizes):
    """Totals and ends stay exact, and the spans adjoin, however many answers came."""
    measured, stop = Measured(), 0
    for size, estimate, tokens in sizes:
        last = Position(id=f"a{stop + size}", index=stop + size)
        measured = measured.with_span(span(stop, stop + size, estimate, tokens), last)
        stop += size
        assert measured.last == last
    kept = measured.spans
    assert len(kept) == min(len(sizes), MAX_SPANS)
    assert sum(s.estimate for s in kept) == sum(estimate for _, estimate, _ in sizes)
    assert sum(s.tokens for s in kept) == sum(tokens for _, _, tokens in sizes)
    assert [s.start for s in kept] == [0, *(s.stop for s in kept[:-1])][: len(kept)]


def test_spans_with_gaps_between_are_not_merged():
    """What was not counted must not get a counted ratio: the oldest span leaves instead."""
    measured = Measured()
    spans = [span(2 * index, 2 * index + 1, 10, 12) for index in range(MAX_SPANS + 5)]
    for one in spans:
        measured = measured.with_span(one, LAST)
    assert measured.spans == tuple(spans[5:])


def test_the_smallest_neighbours_become_one():
    """Large spans keep their own ratio for longest."""
    measured = Measured()
    for index in range(MAX_SPANS):
        measured = measured.with_span(span(index, index + 1, 100 + index, 200), LAST)
    measured = measured.with_span(span(MAX_SPANS, MAX_SPANS + 1, 900, 990), LAST)
    assert measured.spans[0] == span(0, 2, 201, 400)
    assert measured.spans[-1] == span(MAX_SPANS, MAX_SPANS + 1, 900, 990)


def test_spans_that_left_the_view_are_forgotten():
    """One that reaches into the view stays whole: its ratio is that of all of it."""
    measured = Measured(last=LAST, spans=(span(0, 2, 10, 11), span(2, 5, 20, 21), span(5, 6, 30, 31)))
    assert measured.since(4) == replace(measured, spans=measured.spans[1:])
    assert measured.since(0) == measured
    assert measured.since(6).spans == ()


def history_of(*ids):
    return [AIMessage("x", id=key) if key and key.startswith("a") else HumanMessage("x", id=key) for key in ids]


WHOLE = ("h0", "a1", "h2", "a3", "h4", "a5")


@pytest.mark.parametrize(
    ("ids", "holds"),
    [
        (WHOLE, True),
        ((*WHOLE, "h6", "a7"), True),
        (WHOLE[:5], False),
        (WHOLE[1:], False),
        (("new", *WHOLE), False),
        ((*WHOLE[:5], "other answer"), False),
        ((), False),
        ((None,) * 6, False),
    ],
)
def test_spans_hold_for_the_history_they_were_counted_in(ids, holds):
    """It may grow; shifted, shortened or regenerated they are void."""
    measured = Measured(last=LAST, spans=(span(1, 5, 10, 12),))
    assert measured.holds_for(history_of(*ids)) is holds


def test_nothing_measured_holds_for_nothing():
    """A conversation without spans is not taken for a counted one."""
    assert not Measured().holds_for(history_of(*WHOLE))


@given(history=histories())
def test_spans_survive_a_checkpoint(history):
    """JSON gives them back."""
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
        {"last": "a5"}, {"last": 5}, {"last": {"id": "a5"}}, {"last": {"id": "a5", "index": "x"}},
    ],
)  # fmt: skip
def test_what_are_no_spans_is_not_read(change):
    """State comes from outside: of damaged spans nothing is measured."""
    assert Measured.from_json({**GOOD, **change}) == Measured()


@pytest.mark.parametrize(
    "value",
    [
        {**GOOD, "spans": [["a", "b", "c", "d"]]}, {**GOOD, "spans": [[0, 2, None, 12]]},
        {**GOOD, "spans": [[0, 2, 10, inf]]}, {**GOOD, "last": {"id": "a5", "index": inf}},
        {**GOOD, "last": {"id": "a5", "index": -1}}, {**GOOD, "spans": [[3, 5, 10, 12], [0, 4, 10, 12]]},
        [1, 2], "text",
    ],
)  # fmt: skip
def test_what_is_no_measure_is_not_read(value):
    """Neither texts, infinite sizes, positions from the end, nor spans that overlap."""
    assert Measured.from_json(value) == Measured()


@given(estimate=st.integers(1, 10**6), share=st.floats(0, 1))
def test_a_difference_near_its_estimate_is_plausible(estimate, share):
    """Anything between a quarter and four times of it."""
    tokens = round(estimate / PLAUSIBLE_RATIO + share * (PLAUSIBLE_RATIO - 1 / PLAUSIBLE_RATIO) * estimate)
    assert is_plausible(max(1, tokens), estimate)


@pytest.mark.parametrize(
    ("tokens", "estimate", "plausible"),
    [(0, 5, False), (-8, 5, False), (5, 0, False), (1, 1, True), (PLAUSIBLE_TOKENS, 1, True), (305, 1, False),
     (50_000, 1000, False), (4300, 1000, True), (4301, 1000, False), (700, 4000, True), (699, 4000, False)],
)  # fmt: skip
def test_a_difference_far_from_its_estimate_is_something_else(tokens, estimate, plausible):
    """A picture, a cache, a thought that was dropped: not the size of this text."""
    assert is_plausible(tokens, estimate) is plausible
