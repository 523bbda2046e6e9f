"""Do counts that go wrong show, and never at the cost of a turn or of a word of it?"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError
from langchain_ctxwin.observe import Validator
from langchain_ctxwin.observe.validation import MIN_SAMPLES, WINDOW

SECRET = "xyzzy"  # noqa: S105  # a word to look for


def check(validator, expected, reported=None, *, model="m", messages=()):
    validator.check(
        model=model,
        messages=messages,
        tools=(),
        expected_tokens=expected,
        reported_tokens=reported,
    )


def logged(logs, event):
    return [log for log in logs if log["event"] == f"validation.{event}"]


sizes = st.sampled_from([79, 80, 100, 119, 120, 121, 200]) | st.integers(60, 290)


@settings(deadline=None)
@given(st.lists(st.tuples(sizes, sizes), max_size=150))
def test_accuracy_is_that_of_the_latest_comparisons(pairs):
    """Share and resets are those of a recomputation with whole numbers; after a reset nothing is remembered."""
    validator, since, resets = Validator(), [], 0
    for expected, reported in pairs:
        check(validator, expected, reported)
        since = [*since, 5 * abs(expected - reported) <= reported][-WINDOW:]
        if len(since) >= MIN_SAMPLES and 100 * sum(since) < 85 * len(since):
            since, resets = [], resets + 1
    assert validator.resets("m") == resets
    assert validator.accuracy("m") == (sum(since) / len(since) if since else None)


@pytest.mark.parametrize("reported", [None, 0, True, 10**12])
def test_what_is_no_size_is_not_compared(reported):
    validator = Validator()
    check(validator, 100, reported)
    assert validator.accuracy("m") is None


def test_discrepancies_and_a_drop_are_logged_once_and_never_a_text():
    """The first of each row, with both counts; models are told apart."""
    validator = Validator(lambda messages, *, tools: 200, share=1)
    with capture_logs() as logs:
        for _ in range(MIN_SAMPLES // 2):  # each is compared twice
            check(validator, 131, 131, messages=[HumanMessage(SECRET)])
            assert validator.flush()
        check(validator, 100, 100, model="other")
    (discrepancy,), (drop,) = (
        logged(logs, "discrepancy"),
        logged(logs, "accuracy_dropped"),
    )
    sizes = {
        "expected_tokens": 131,
        "counted_tokens": 200,
        "counted_by": "exact",
        "error": -0.345,
    }
    assert {name: discrepancy[name] for name in sizes} == sizes
    resets = validator.resets("m"), validator.resets("other")
    assert (drop["model"], resets) == ("m", (1, 0))
    assert SECRET not in json.dumps(logs)


@pytest.mark.parametrize("answer", [None, -3, True, ValueError(SECRET)])
def test_a_counter_that_fails_loses_samples_only(answer):
    """It is told once, without a word of what failed, and the next samples are tried."""
    asked = []

    def count(messages, *, tools):
        asked.append(messages)
        if isinstance(answer, Exception):
            raise answer
        return answer

    validator = Validator(count, share=1)
    with capture_logs() as logs:
        for _ in range(3):
            check(validator, 100, 100)
            assert validator.flush()
    assert (len(asked), len(logged(logs, "count_failed")), validator.accuracy("m")) == (
        3,
        1,
        1.0,
    )
    assert SECRET not in json.dumps(logs)


@pytest.mark.parametrize(
    "options",
    [{"share": -0.01}, {"share": 1.01}, {"share": float("nan")}, {"counter": "some"}],
)
def test_what_cannot_work_is_refused(options):
    with pytest.raises(
        ConfigError, match=r"share=.*is not from 0 to 1|counter='some': pass a callable"
    ):
        Validator(**options)
