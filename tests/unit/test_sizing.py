"""Do corrections of sizes follow the reports alone, do sizes add up, and do they hold what is then reported?"""

import json
import random
from dataclasses import astuple, replace
from math import nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langchain_ctxwin.core.session import read_key
from langchain_ctxwin.core.sizing import (
    FIXED_REGIONS,
    MAX_SPANS,
    STORED_SIZES,
    Doubt,
    Regions,
    ReportedSize,
    Sizes,
    Span,
)
from langchain_ctxwin.core.turns import Step, Steps

FITTED = Doubt(ratio_sd=0.07, noise_share=0.09)
"""Close to what the estimators of known families state."""
TEXTS = st.integers(1, 10**6)


def after(sizes, *texts):
    """Report texts as (counted, estimated) tokens."""
    end = ReportedSize(0, 0, 0)
    for tokens, estimate in texts:
        start = end
        end = ReportedSize(
            start.tokens + tokens, start.estimate + estimate, start.at + 1
        )
        sizes = sizes.after(end, end.tokens, start)
    return sizes


@given(fixed=st.integers(0, 50_000), text=TEXTS, hidden=st.integers(-5_000, 90_000))
def test_what_a_request_does_not_explain_is_its_offset(fixed, text, hidden):
    """The ratio stays: one request cannot tell the two apart."""
    estimates, steps = regions_of(system=fixed, history=text), steps_of([text])
    known = Sizes().with_request(fixed + text + hidden, estimates, steps)
    assert (known.offset, known.ratio, known.is_reported) == (hidden, 1.0, True)


@given(slope=st.floats(-0.3, 1.5), seed=st.integers(0, 999))
def test_a_tokenizer_is_learned(slope, seed):
    rng = random.Random(seed)  # noqa: S311  # repeatable
    texts = [rng.randint(50, 2000) for _ in range(30)]
    known = after(
        Sizes(),
        *[(round(text * (1 + slope + rng.gauss(0, 0.05))), text) for text in texts],
    )
    assert known.ratio == pytest.approx(1 + slope, abs=0.11)


@given(slope=st.floats(0.3, 3.9), text=st.integers(100, 50_000))
def test_a_refusal_that_states_the_size_blames_what_can_leave(slope, text):
    """So a request that was cut to a part is believed to have that part of it."""
    estimates, steps = regions_of(system=1000), steps_of([text, text])
    known = Sizes().with_refusal(round(1000 + slope * 2 * text), estimates, steps)
    half = known.size(estimates, Steps(steps[1:]))
    assert half.regions.total_tokens == pytest.approx(1000 + slope * text, abs=2)


GOOD = STORED_SIZES.dump_python(
    Sizes(spans=(Span(0, 2, 10, 12),), doubted=ReportedSize(5, 9)), mode="json"
)


@pytest.mark.parametrize(
    "change",
    [{"offset": nan}, {"is_reported": 1}, {"doubted": [1]}, {"spans": [[0, 2, 10]]}],
)
def test_what_are_no_sizes_is_not_read(change):
    assert read_key("context_counts", {"sizes": {"m": GOOD}})[1] == ()
    assert read_key("context_counts", {"sizes": {"m": {**GOOD, **change}}})[1]


# ---- counted spans price what they cover, while it lies where it was counted ---------------------------------------


def step_of(index, tokens, *, size=1):
    return Step(
        index=index, size=size, messages=(HumanMessage(""),), price=lambda _: tokens
    )


@st.composite
def histories(draw):
    """Draw steps of one to three messages, and spans over runs of them, with gaps."""
    steps, spans, index = [], [], 0
    for _ in range(draw(st.integers(0, 30))):
        size = draw(st.integers(1, 3))
        steps.append(step_of(index, draw(st.integers(1, 5000)), size=size))
        index += size
    at = draw(st.integers(0, 3))
    while at < len(steps):
        run = steps[at : at + draw(st.integers(1, 4))]
        estimate = sum(step.tokens for step in run)
        tokens = draw(st.integers(0, 4 * estimate))
        spans.append(
            Span(
                start=run[0].index, stop=run[-1].stop, estimate=estimate, tokens=tokens
            )
        )
        at += len(run) + draw(st.integers(0, 3))
    return steps, tuple(spans)


@given(history=histories(), data=st.data())
def test_every_step_of_a_view_is_counted_or_estimated_once(history, data):
    """What is left of a span that was cut keeps the span's ratio of counted to estimated tokens."""
    steps, spans = history
    shown = steps[data.draw(st.integers(0, len(steps))) :]
    estimates = regions_of(system=0)
    sizes = Sizes(spans=spans)
    scaled, rest = sizes.scaled(estimates, Steps(shown))
    counted = scaled.history_tokens - sizes.ratio * rest
    share = {
        s: sum(x.tokens for x in shown if s.start <= x.index < s.stop) / s.estimate
        for s in spans
    }
    assert counted == pytest.approx(sum(share[s] * s.tokens for s in spans), abs=1)
    assert rest == sum(
        x.tokens for x in shown if not any(s.start <= x.index < s.stop for s in spans)
    )


def test_of_more_spans_than_are_kept_the_oldest_leave():
    spans = [Span(at, at + 1, 10, 12) for at in range(MAX_SPANS + 2)]
    assert after(Sizes(), *((12, 10) for _ in spans)).spans == tuple(spans[2:])


@given(history=histories())
def test_sizes_survive_a_checkpoint(history):
    known = Sizes(offset=-7, is_reported=True, tools="x", spans=history[1])
    for sizes in (known, Sizes()):
        stored = json.loads(json.dumps(STORED_SIZES.dump_python(sizes, mode="json")))
        assert STORED_SIZES.validate_python(stored) == sizes


# ---- sizes of regions -----------------------------------------------------------------------------------------------

TOKENS = st.integers(0, 50_000)
STEPS = st.lists(st.integers(0, 5000), max_size=12)
WHOLE = (Span(start=0, stop=3, estimate=900, tokens=1200),)


@st.composite
def known_sizes(draw):
    """Draw what reports could have made of sizes."""
    return Sizes(
        offset=draw(st.integers(-60_000, 60_000)),
        is_reported=draw(st.booleans()),
        spans=draw(st.sampled_from((WHOLE, ()))),
    )


@st.composite
def estimates(draw, history):
    return regions_of(
        history=history,
        **{name: draw(TOKENS) for name in ("system", "tool", "summary", "pinned")},
    )


@st.composite
def requests(draw):
    """Draw sizes, and the estimates and steps of one request."""
    tokens = draw(STEPS)
    return draw(known_sizes()), draw(estimates(sum(tokens))), steps_of(tokens)


def steps_of(tokens):
    return Steps(step_of(index, n) for index, n in enumerate(tokens))


def regions_of(*, system=1000, history=0, **regions):
    sizes = {
        f"{name}_tokens": regions.get(name, 0) for name in ("tool", "summary", "pinned")
    }
    return Regions(system_tokens=system, history_tokens=history, **sizes)


@given(request=requests(), added=STEPS, doubt=st.sampled_from((FITTED, None)))
def test_regions_add_up_within_their_bounds(request, added, doubt):
    """Of a request, and of one that extends what was counted; a plain callable is taken as it is."""
    sizing, regions, steps = request
    first = sizing.size(regions, steps, doubt=doubt)
    later = sizing.size(regions, steps, added, doubt)
    for size in (first, later):
        regions = astuple(size.regions)
        assert all(isinstance(tokens, int) and tokens >= 0 for tokens in regions)
        assert 0 <= size.lower_tokens <= size.regions.total_tokens <= size.upper_tokens
        assert doubt or size.lower_tokens == size.upper_tokens


@given(request=requests(), more=st.integers(1, 5000))
def test_more_history_is_never_smaller(request, more):
    sizing, regions, steps = request
    longer = replace(regions, history_tokens=regions.history_tokens + more)
    one = sizing.size(regions, steps, doubt=FITTED)
    assume(one.regions.history_tokens > len(FIXED_REGIONS))
    other = sizing.size(
        longer,
        Steps([*steps, step_of(len(steps), more)]),
        doubt=FITTED,
    )
    assert other.regions.total_tokens >= one.regions.total_tokens
    assert other.upper_tokens >= one.upper_tokens - 1
