"""Is the quality of many requests measured as the events say, and judged as the bounds say?"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import ConfigError
from langchain_ctxwin.observe import OverflowEvent, StepEvent, quality_report
from langchain_ctxwin.observe.reports import DEFAULT_GATES, MEASURES, Measure
from langchain_ctxwin.routing import fallbacks
from support.told import EVENTS

STEP = StepEvent(
    thread="a",
    regions={"tools": 100},
    input_limit=1_000,
    reserved_tokens=200,
    reported_tokens=400,
    output_tokens=100,
    tools_offered=("read", "write"),
    tools_called=("read",),
)
AGAIN = replace(STEP, calls=2)
UNSIZED = StepEvent()
RECOVERED = OverflowEvent(attempt=1)
REFUSED = OverflowEvent(reason="BadRequestError")
NOT_SENT = OverflowEvent(reason="BudgetExceededError")
DOWN = replace(STEP, route={"model": "large", "fallbacks": ["small: TimeoutError"]})
SMALL = replace(
    STEP, route={"model": "large", "fallbacks": [f"small: {fallbacks.TOO_SMALL}"]}
)


def measured(name, *events):
    found = quality_report(events).measures[name]
    return found.part, found.whole, found.unknown


@pytest.mark.parametrize(
    ("name", "events", "expected"),
    [
        (
            "limit_compliance",
            [RECOVERED, AGAIN, REFUSED, NOT_SENT, SMALL, UNSIZED],
            (0, 3, 1),
        ),
        (
            "fallback_success",
            [STEP, RECOVERED, AGAIN, DOWN, REFUSED, NOT_SENT],
            (2, 4, 0),
        ),
        (
            "utilization",
            [STEP, replace(STEP, reported_tokens=None, estimated_tokens=300), UNSIZED],
            (700, 2_000, 1),
        ),
        # Half of the definitions are of a tool that the conversation never called, later calls included.
        ("token_efficiency", [STEP, UNSIZED], (450, 500, 1)),
        (
            "token_efficiency",
            [replace(STEP, tools_called=()), replace(STEP, tools_called=("write",))],
            (900, 1_000, 0),
        ),
        ("reserve_waste", [STEP, UNSIZED], (100, 200, 1)),
        (
            "tools_needed",
            [STEP, replace(STEP, tools_called=("made up", "read", "read")), UNSIZED],
            (2, 4, 0),
        ),
        (
            "quality",
            [replace(STEP, quality=0.5), replace(STEP, quality=1.0), STEP],
            (1.5, 2, 0),
        ),
    ],
)
def test_each_measure_is_a_ratio_over_the_requests_that_state_it(
    name, events, expected
):
    """What a request does not say is unknown, and what does not concern it is not counted."""
    assert measured(name, *events) == expected


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0, 1), st.floats(0, 1))
def test_a_gate_is_judged_by_what_is_known(good, bad, least, most):
    known = good + bad
    expected = least <= good / known <= most if known else None
    measure = Measure(part=good, whole=known, unknown=3)
    assert measure.passes((least, most)) is expected


def test_the_report_judges_its_gates():
    """One request was refused by its provider and repeated, and another one got no answer."""
    found = quality_report(
        EVENTS,
        gates={
            **DEFAULT_GATES,
            "utilization": (0.5, 0.7),
            "reserve_waste": (None, 0.9),
        },
    )
    assert (found.requests, found.failed) == (
        4,
        ("limit_compliance", "fallback_success"),
    )
    assert set(found.measures) == set(MEASURES)
    assert (
        "utilization       60.00%        1  >= 50.0% <= 70.0%  passed" in found.table()
    )


def test_a_gate_without_a_measure_is_refused():
    with pytest.raises(
        ConfigError,
        match="gates for speed: no such measure, use limit_compliance, fallback_success",
    ):
        quality_report([], gates={"speed": (0.5, None)})
