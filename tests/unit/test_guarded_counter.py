"""Is every count had or estimated, whatever a counter does?"""

import sys

import pytest
from langchain_core.messages import HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.pricing import GuardedCounter, Pricing

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


def cyclic_tool():
    schema = {"type": "object", "properties": {}}
    schema["properties"]["self"] = schema
    return {"name": "walk", "description": "Walk a tree.", "input_schema": schema}


def deep_tool():
    """Return a definition whose schema is nested deeper than Python recurses."""
    schema = {"type": "string"}
    for _ in range(20_000):
        schema = {"type": "array", "items": schema}
    return {"name": "nest", "description": "Nest lists.", "input_schema": schema}


@pytest.mark.parametrize("make", [cyclic_tool, deep_tool])
@pytest.mark.parametrize(
    "counter", [TokenEstimator(), lambda messages: sum(len(m.text) for m in messages)]
)
def test_tool_schemas_without_an_end_have_a_price_and_a_digest(make, counter):
    tools, others = [make()], [make()]
    found, again = (Pricing(counter, family="generic") for _ in range(2))
    assert found.tools(tools) > 0
    assert (found.tools(tools), found.tools_digest(tools)) == (
        again.tools(others),
        again.tools_digest(others),
    )
    assert found.tools_digest(tools) != found.tools_digest(
        [{"name": "f", "input_schema": {}}]
    )
