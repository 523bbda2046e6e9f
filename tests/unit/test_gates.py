"""Is the quality of many requests measured as the events say, and judged as the bounds say?"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.observe import OverflowEvent, StepEvent, quality_report
from langchain_ctxwin.observe.reports import DEFAULT_GATES, MEASURES
from langchain_ctxwin.routing import chat_model
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
    STEP, route={"model": "large", "fallbacks": [f"small: {chat_model.TOO_SMALL}"]}
)


def measured(name, *events):
    """The value of a measure, and how many requests do not state it."""
    (row,) = [row for row in quality_report(events) if row["measure"] == name]
    return row["value"], row["unknown"]


@pytest.mark.parametrize(
    ("name", "events", "expected"),
    [
        (
            "limit_compliance",
            [RECOVERED, AGAIN, REFUSED, NOT_SENT, SMALL, UNSIZED],
            (0, 1),
        ),
        (
            "fallback_success",
            [STEP, RECOVERED, AGAIN, DOWN, REFUSED, NOT_SENT],
            (0.5, 0),
        ),
        (
            "utilization",
            [STEP, replace(STEP, reported_tokens=None, estimated_tokens=300), UNSIZED],
            (0.35, 1),
        ),
        # Half of the definitions are of a tool that the conversation never called, later calls included.
        ("token_efficiency", [STEP, UNSIZED], (0.9, 1)),
        (
            "token_efficiency",
            [replace(STEP, tools_called=()), replace(STEP, tools_called=("write",))],
            (0.9, 0),
        ),
        (
            "accuracy",
            [
                replace(STEP, estimated_tokens=300),
                replace(STEP, estimated_tokens=400),
                STEP,
            ],
            (0.875, 1),
        ),
        ("reserve_waste", [STEP, UNSIZED], (0.5, 1)),
        (
            "tools_needed",
            [STEP, replace(STEP, tools_called=("made up", "read", "read")), UNSIZED],
            (0.5, 0),
        ),
        (
            "quality",
            [replace(STEP, quality=0.5), replace(STEP, quality=1.0), STEP],
            (0.75, 0),
        ),
    ],
)
def test_each_measure_is_a_ratio_over_the_requests_that_state_it(
    name, events, expected
):
    """What a request does not say is unknown, and what does not concern it is not counted."""
    assert measured(name, *events) == expected


@given(st.integers(0, 1_000), st.floats(0, 1), st.floats(0, 1))
def test_a_gate_is_judged_by_what_is_known(reported, least, most):
    steps = [StepEvent(input_limit=1_000, reported_tokens=reported), UNSIZED]
    rows = quality_report(steps, gates={"utilization": (least, most)})
    verdicts = {row["measure"]: row["verdict"] for row in rows}
    is_good = least <= reported / 1_000 <= most
    assert verdicts["utilization"] == ("passed" if is_good else "failed")
    assert verdicts["quality"] == ""


def test_the_report_judges_its_gates():
    """One request was refused by its provider and repeated, and another one got no answer."""
    gates = {**DEFAULT_GATES, "utilization": (0.5, 0.7), "quality": (0.9, None)}
    rows = quality_report([*EVENTS], gates=gates)
    assert {row["measure"] for row in rows} == set(MEASURES)
    assert {row["measure"]: row["verdict"] for row in rows if row["verdict"]} == {
        "limit_compliance": "failed",
        "fallback_success": "failed",
        "utilization": "passed",
        "quality": "failed",
    }
    unknown = {row["verdict"] for row in quality_report([])}
    assert unknown == {"unknown", ""}
