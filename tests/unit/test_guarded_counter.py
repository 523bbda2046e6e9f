"""Is every count had or estimated, whatever a counter does, and what is left behind of it?"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from structlog.testing import capture_logs

from langchain_ctxwin import TokenEstimator, guarded
from langchain_ctxwin.core import Doubt
from langchain_ctxwin.guarded import MAX_PAUSES, GuardedCounter
from langchain_ctxwin.pricing import EXACT_NOISE_SHARE, Pricing, Pricings
from langchain_ctxwin.util.failures import LONGEST_PAUSE_SECONDS
from support.forking import forked

ESTIMATE = 77
HANG_SECONDS = 0.05  # the time-out of tests in which a counter hangs
TEXT = HumanMessage("How many tokens is this, for which family of models?")
GEMINI = SimpleNamespace(tokenizer_family="gemini")
EXACT = Doubt(slope_sd=0.0, noise_share=EXACT_NOISE_SHARE, has_margin=False)


def estimate(_messages, *, tools=None):
    return ESTIMATE


class Time:
    """A clock that moves when a test or a counter says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


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


@pytest.fixture
def hang():
    """Return a fault that waits until the test is over."""
    over = threading.Event()
    yield over.wait
    over.set()


def fail():
    raise KeyError("no such token")


def reasons(logs):
    return [log["reason"] for log in logs if log["event"] == "count.failed"]


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "ctxwin-count"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "returned a number that is not finite"),
        (10**400, "returned a number that is not finite"),
        (-1, "returned a negative number"),
        ("12", "returned str"),
        (True, "returned bool"),
        (None, "returned NoneType"),
    ],
)
def test_what_is_no_count_is_estimated_and_said_once(value, reason):
    counter = GuardedCounter(lambda _: value, estimate)
    with capture_logs() as logs:
        counts = [counter([TEXT]) for _ in range(3)]
    assert (counts, reasons(logs), counter.has_failed) == ([ESTIMATE] * 3, [reason], True)


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.none(), st.complex_numbers()))
def test_every_value_becomes_a_whole_number_that_is_not_negative(value):
    with capture_logs():
        count = GuardedCounter(lambda _: value, estimate, idle_seconds=0.001)([TEXT])
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


def test_a_counter_that_hangs_is_left_alone_for_longer_and_longer(hang):
    """Nobody waits meanwhile, another thread asks later, and at most `MAX_PAUSES` threads are left behind for good."""
    before = set(threads())
    clock, counter = Time(), Counter(hang)
    guard = GuardedCounter(counter, estimate, timeout_seconds=HANG_SECONDS, clock=clock)
    with capture_logs() as logs:
        assert [guard([TEXT]), guard([TEXT]), counter.asked] == [ESTIMATE, ESTIMATE, 1]
        for _ in range(3 * MAX_PAUSES):
            clock.now += LONGEST_PAUSE_SECONDS
            assert guard([TEXT]) == ESTIMATE
    assert (counter.asked, len(set(threads()) - before)) == (MAX_PAUSES, MAX_PAUSES)
    assert reasons(logs) == ["no answer within 0.05 seconds"]


HUGE = HumanMessage("=" * 1_000_000)
CALLING = AIMessage("", tool_calls=[{"name": "f", "args": {"text": "=" * 1_000_000}, "id": "1"}])


@pytest.mark.parametrize("large", [HUGE, HumanMessage([{"type": "text", "text": HUGE.content}]), CALLING])
def test_a_text_that_a_counter_hangs_over_pauses_it_for_texts_of_that_size_alone(hang, large):
    """One user's megabyte costs the others no exact count, however often it comes."""
    clock = Time()

    def counter(messages):
        return hang() if messages == [large] else 5

    guard = GuardedCounter(counter, estimate, timeout_seconds=4 * HANG_SECONDS, clock=clock)
    with capture_logs():
        for _ in range(2 * MAX_PAUSES):
            assert (guard([large]), guard([TEXT])) == (ESTIMATE, 5)
            clock.now += LONGEST_PAUSE_SECONDS


def test_a_counter_is_asked_again_when_what_hung_returned():
    """A count that took long and ended holds no thread any more."""
    over, clock, counter = threading.Event(), Time(), Counter()
    counter.fault = over.wait
    guard = GuardedCounter(counter, estimate, timeout_seconds=HANG_SECONDS, clock=clock)
    with capture_logs():
        for _ in range(MAX_PAUSES + 1):
            guard([HUGE])
            clock.now += LONGEST_PAUSE_SECONDS
    over.set()
    guard._timeout_seconds = guarded.COUNT_TIMEOUT_SECONDS
    while not guard.attempt([HUGE]):  # until the threads took notice
        time.sleep(0.001)
    assert counter.asked == MAX_PAUSES + 1


@pytest.mark.parametrize(
    ("seconds", "apart_seconds", "counted"),
    [(1.9, 0, 2), (0.04, 0, 1000), (1.9, 10, 1000)],
    ids=["slow", "quick", "seldom slow"],
)
def test_slow_counts_together_take_no_longer_than_one_may(seconds, apart_seconds, counted):
    clock = Time()

    def take():
        clock.now += seconds

    guard, counts = GuardedCounter(Counter(take), estimate, clock=clock), []
    with capture_logs() as logs:
        for _ in range(1000):
            counts.append(guard([TEXT]))
            clock.now += apart_seconds
    assert counts == [1] * counted + [ESTIMATE] * (1000 - counted)
    assert reasons(logs) == (["slow counts took more than 2 seconds"] if counted < 1000 else [])


def test_nobody_waits_longer_than_the_time_out_for_a_turn():
    counter = Counter()
    guard = GuardedCounter(counter, estimate, timeout_seconds=HANG_SECONDS)
    with capture_logs() as logs, guard._turn.held:
        busy = guard([TEXT])
    assert (busy, counter.asked, reasons(logs)) == (ESTIMATE, 0, ["busy for 0.05 seconds"])


@pytest.mark.parametrize("idle_seconds", [0, guarded.IDLE_SECONDS])
def test_conversations_at_the_same_time_get_their_own_counts(idle_seconds):
    guard = GuardedCounter(len, estimate, idle_seconds=idle_seconds, timeout_seconds=60)  # a machine may be busy
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda size: guard([TEXT] * (size % 8)), range(800))) == [n % 8 for n in range(800)]
    assert not guard.has_failed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_counts_by_itself():
    guard = GuardedCounter(len, estimate)
    assert guard([TEXT]) == 1
    with guard._turn.held, forked() as is_child:  # as when another thread counts during the fork
        if is_child:
            with capture_logs() as logs:
                assert (guard([TEXT] * 2), guard.has_failed, logs) == (2, False, [])


def test_a_process_that_can_start_no_thread_estimates(monkeypatch):
    def refuse(_self):
        raise RuntimeError("can't start new thread")

    guard = GuardedCounter(len, estimate)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(threading.Thread, "start", refuse)
        without = guard([TEXT])
    assert (without, guard([TEXT]), reasons(logs)) == (ESTIMATE, 1, ["RuntimeError"])


def test_a_failed_count_is_the_estimate_of_the_models_family_and_so_is_the_doubt():
    counter, estimator = Counter(), TokenEstimator("gemini")
    pricing = Pricings(counter, family="gemini").of(None)
    assert (pricing.price(HumanMessage("one")), pricing.exact, pricing.doubt) == (1, True, EXACT)
    counter.fault = fail
    with capture_logs():
        assert pricing.price(TEXT) == estimator([TEXT]) - estimator([])
    assert pricing.price(TEXT) != TokenEstimator()([TEXT]) - TokenEstimator()([])
    assert (pricing.exact, pricing.doubt) == (False, Pricing(estimator, family="gemini").doubt)


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
@pytest.mark.parametrize("counter", [TokenEstimator(), lambda messages: sum(len(m.text) for m in messages)])
def test_tool_schemas_without_an_end_have_a_price_and_a_digest(make, counter):
    tools, others = [make()], [make()]
    found, again = (Pricing(counter, family="generic") for _ in range(2))
    assert found.tools(tools) > 0
    assert (found.tools(tools), found.tools_digest(tools)) == (again.tools(others), again.tools_digest(others))
    assert found.tools_digest(tools) != found.tools_digest([{"name": "f", "input_schema": {}}])


def test_a_counter_of_messages_prices_a_tool_by_its_json():
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
    shown = (
        '{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}},"description":"d"}}'
    )
    seen = []

    def counter(messages):
        seen.extend(messages)
        return len(messages)

    assert Pricing(counter, family="generic").tools([tool]) == 1
    assert seen == [SystemMessage(shown)]
