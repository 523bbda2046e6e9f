"""Is every count had or estimated, whatever a counter does?"""

import sys

import pytest
from langchain_core.messages import HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin.pricing import GuardedCounter

ESTIMATE = 77
TEXT = HumanMessage("How many tokens is this, for which family of models?")


def estimate(_messages, *, tools=None):
    return ESTIMATE


def fail():
    raise KeyError("no such token")


def reasons(logs):
    return [log["reason"] for log in logs if log["event"] == "count.failed"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "returned a negative or endless number"),
        (10**400, "returned a negative or endless number"),
        (-1, "returned a negative or endless number"),
        ("12", "returned no count, but str"),
        (True, "returned no count, but bool"),
        (None, "returned no count, but NoneType"),
    ],
)
def test_what_is_no_count_is_estimated_and_said_once(value, reason):
    counter = GuardedCounter(lambda _: value, estimate)
    with capture_logs() as logs:
        counts = [counter([TEXT]) for _ in range(3)]
    assert (counts, reasons(logs), counter.has_failed) == (
        [ESTIMATE] * 3,
        [reason],
        True,
    )


def test_a_counter_of_texts_counts_no_messages_and_that_is_said():
    """Of a list of one message it would count nothing, and every request would fit."""
    counter = GuardedCounter(lambda text: len(text) // 4, estimate)
    with capture_logs() as logs:
        assert counter([HumanMessage("word " * 100)]) == ESTIMATE
    assert "a list of messages, not a text" in reasons(logs)[0]
    assert counter([HumanMessage("Hi.")]) == 0


def test_an_exception_concerns_one_request_and_an_exit_is_heard():
    answers = iter([fail, lambda: 5, lambda: sys.exit(3)])
    counter = GuardedCounter(lambda _: next(answers)(), estimate)
    with capture_logs() as logs:
        assert [counter([TEXT]), counter([TEXT])] == [ESTIMATE, 5]
    assert reasons(logs) == ["KeyError"]
    with pytest.raises(SystemExit):
        counter([TEXT])
