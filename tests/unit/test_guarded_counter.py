"""Is every count had or estimated, whatever a counter does?"""

import sys
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, SystemMessage
from structlog.testing import capture_logs

from langchain_ctxwin import TokenEstimator
from langchain_ctxwin.core import Doubt
from langchain_ctxwin.guarded import GuardedCounter
from langchain_ctxwin.pricing import EXACT_NOISE_SHARE, Pricing, Pricings

ESTIMATE = 77
TEXT = HumanMessage("How many tokens is this, for which family of models?")
GEMINI = SimpleNamespace(tokenizer_family="gemini")
EXACT = Doubt(ratio_sd=0.0, noise_share=EXACT_NOISE_SHARE, has_margin=False)


def estimate(_messages, *, tools=None):
    return ESTIMATE


class Counter:
    """An exact counter that answers with the number of messages, unless `fault` makes it do something else."""

    exact = True

    def __init__(self, fault=None):
        self.fault = fault
        self.asked = 0

    def __call__(self, messages):
        self.asked += 1
        if self.fault is not None:
            self.fault()
        return len(messages)


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


@settings(max_examples=50, deadline=None)
@given(
    st.one_of(
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.booleans(),
        st.none(),
        st.complex_numbers(),
    )
)
def test_every_value_becomes_a_whole_number_that_is_not_negative(value):
    with capture_logs():
        count = GuardedCounter(lambda _: value, estimate)([TEXT])
    is_fraction = isinstance(value, float) and 0 <= value < 1e15
    assert type(count) is int
    assert count == ceil(value) if is_fraction else count >= 0


def test_an_exception_concerns_one_request_and_an_exit_is_heard():
    answers = iter([fail, lambda: 5, lambda: sys.exit(3)])
    counter = GuardedCounter(lambda _: next(answers)(), estimate)
    with capture_logs() as logs:
        assert [counter([TEXT]), counter([TEXT])] == [ESTIMATE, 5]
    assert reasons(logs) == ["KeyError"]
    with pytest.raises(SystemExit):
        counter([TEXT])


def test_conversations_at_the_same_time_get_their_own_counts():
    guard = GuardedCounter(len, estimate)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda size: guard([TEXT] * (size % 8)), range(800))) == [
            n % 8 for n in range(800)
        ]
    assert not guard.has_failed


def test_a_failed_count_is_the_estimate_of_the_models_family_and_so_is_the_doubt():
    counter, estimator = Counter(), TokenEstimator("gemini")
    pricing = Pricings(counter, family="gemini").of(None)
    assert (pricing.price(HumanMessage("one")), pricing.exact, pricing.doubt) == (
        1,
        True,
        EXACT,
    )
    counter.fault = fail
    with capture_logs():
        assert pricing.price(TEXT) == estimator([TEXT]) - estimator([])
    assert pricing.price(TEXT) != TokenEstimator()([TEXT]) - TokenEstimator()([])
    assert (pricing.exact, pricing.doubt) == (
        False,
        Pricing(estimator, family="gemini").doubt,
    )


def test_a_counter_says_its_base_at_first_use_and_is_not_exact_without():
    def needs_messages(messages):
        return len(messages) + 3 if messages else fail()

    needs_messages.exact = True
    with capture_logs() as logs:
        pricing = Pricing(needs_messages, family="generic")
        assert logs == []
        found = (pricing.price(TEXT), pricing.base_tokens, pricing.exact, pricing.doubt)
    assert (found, reasons(logs)) == ((4, 0, False, EXACT), ["KeyError"])


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


def test_a_counter_of_messages_prices_a_tool_by_its_json():
    tool = {
        "name": "f",
        "description": "d",
        "input_schema": {"type": "object", "properties": {}},
    }
    shown = '{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}},"description":"d"}}'  # noqa: E501
    seen = []

    def counter(messages):
        seen.extend(messages)
        return len(messages)

    assert Pricing(counter, family="generic").tools([tool]) == 1
    assert seen == [SystemMessage(shown)]
