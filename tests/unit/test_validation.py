"""Do counts that go wrong show, model by model, and once?"""

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin.observe import StepEvent, Validator
from langchain_ctxwin.observe.validation import MIN_SAMPLES, WINDOW


def check(validator, expected, reported, model="m"):
    validator.emit(
        StepEvent(model=model, estimated_tokens=expected, reported_tokens=reported)
    )


sizes = st.sampled_from([79, 80, 100, 119, 120, 121, 200]) | st.integers(60, 290)


@settings(deadline=None)
@given(st.lists(st.tuples(sizes, sizes), max_size=150))
def test_accuracy_is_that_of_the_latest_comparisons(pairs):
    """The share is that of a recomputation with whole numbers; after a warning nothing is remembered."""
    validator, since = Validator(), []
    for expected, reported in pairs:
        check(validator, expected, reported)
        since = [*since, 5 * abs(expected - reported) <= reported][-WINDOW:]
        if len(since) >= MIN_SAMPLES and 100 * sum(since) < 85 * len(since):
            since = []
    assert validator.accuracy("m") == (sum(since) / len(since) if since else None)


def test_discrepancies_and_a_drop_are_logged_once():
    """The first of each row, with both counts; models are told apart."""
    validator = Validator()
    with capture_logs() as logs:
        for _ in range(MIN_SAMPLES):
            check(validator, 131, 200)
        check(validator, 100, 100, "other")
    discrepancy, drop = logs
    counts = {"expected_tokens": 131, "reported_tokens": 200, "error": -0.345}
    assert counts.items() <= discrepancy.items()
    assert (drop["event"], drop["model"]) == ("validation.accuracy_dropped", "m")
