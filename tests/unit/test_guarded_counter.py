"""Is every count had or estimated, whatever a counter does, and what is left behind of it?"""

import gc
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, SystemMessage
from structlog.testing import capture_logs

from langchain_ctxwin import guarded
from langchain_ctxwin.core.calibration import Doubt
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.guarded import MAX_PAUSES, PAUSE_SECONDS, GuardedCounter
from langchain_ctxwin.measurer import EXACT_NOISE_SHARE, Pricing, Pricings

ESTIMATE = 77
HANG_SECONDS = 0.05  # the time-out of tests in which a counter hangs
TEXT = HumanMessage("How many tokens is this, for which family of models?")
GEMINI = SimpleNamespace(tokenizer_family="gemini")
EXACT = Doubt(slope_sd=0.0, noise_share=EXACT_NOISE_SHARE, has_margin=False)


def estimate(_messages, *, tools=None):
    """Stand in for any count."""
    return ESTIMATE


class Time:
    """A clock that moves when a test or a counter says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        """Return the time."""
        return self.now


class Counter:
    """An exact counter that answers with the number of messages, unless `fault` makes it do something else."""

    exact = True

    def __init__(self, fault=None):
        self.fault = fault
        self.asked = 0

    def __call__(self, messages):
        """Return the number of messages."""
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
    """Raise, as a counter with a defect does."""
    raise KeyError("no such token")


def reasons(logs):
    """Return the reasons of the failed counts in a log."""
    return [log["reason"] for log in logs if log["event"] == "count.failed"]


def threads():
    """Return the threads that count."""
    return [thread for thread in threading.enumerate() if thread.name == "ctxwin-count"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "returned a number that is not finite"),
        (float("inf"), "returned a number that is not finite"),
        (10**400, "returned a number that is not finite"),
        (-1, "returned a negative number"),
        ("12", "returned str"),
        (True, "returned bool"),
        (None, "returned NoneType"),
    ],
)
def test_what_is_no_count_is_estimated_and_said_once(value, reason):
    """Three bad counts are three estimates and one event."""
    counter = GuardedCounter(lambda _: value, estimate)
    with capture_logs() as logs:
        counts = [counter([TEXT]) for _ in range(3)]
    assert (counts, reasons(logs), counter.has_failed) == ([ESTIMATE] * 3, [reason], True)


def test_a_counter_that_raises_is_asked_again():
    """An exception concerns one request: the next one is counted."""
    asked = []

    def raises_once(messages):
        asked.append(len(messages))
        return len(messages) if len(asked) > 1 else fail()

    counter = GuardedCounter(raises_once, estimate)
    with capture_logs() as logs:
        assert [counter([TEXT]), counter([TEXT])] == [ESTIMATE, 1]
    assert reasons(logs) == ["KeyError"]


def test_a_fraction_is_rounded_up():
    """A counter that divides characters is a counter."""
    counter = GuardedCounter(lambda _: 2.1, estimate)
    assert (counter([TEXT]), counter.has_failed) == (3, False)


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.none(), st.complex_numbers()))
def test_every_value_becomes_a_whole_number_that_is_not_negative(value):
    """Whatever a counter returns, its price can be added up."""
    with capture_logs():
        count = GuardedCounter(lambda _: value, estimate, idle_seconds=0.001)([TEXT])
    assert type(count) is int
    assert count >= 0


def test_a_counter_that_exits_is_heard():
    """What is no `Exception` is not for us to answer."""
    counter = GuardedCounter(lambda _: sys.exit(3), estimate)
    with pytest.raises(SystemExit):
        counter([TEXT])


def test_a_counter_that_hangs_is_left_alone_for_a_while(hang):
    """During the pause nobody waits; after it the counter is asked again, by another thread."""
    clock, counter = Time(), Counter(hang)
    guard = GuardedCounter(counter, estimate, timeout_seconds=HANG_SECONDS, clock=clock)
    with capture_logs() as logs:
        during = [guard([TEXT]), guard([TEXT])]
    counter.fault = None
    guard._timeout_seconds = guarded.COUNT_TIMEOUT_SECONDS
    clock.now += PAUSE_SECONDS
    assert (during, guard([TEXT]), counter.asked) == ([ESTIMATE, ESTIMATE], 1, 2)
    assert reasons(logs) == ["no answer within 0.05 seconds"]


def test_a_counter_that_hung_too_often_is_never_asked_again(hang):
    """It leaves at most `MAX_PAUSES` threads behind, however long the process lives."""
    before = set(threads())
    clock, counter = Time(), Counter(hang)
    guard = GuardedCounter(counter, estimate, timeout_seconds=HANG_SECONDS, clock=clock)
    with capture_logs():
        for _ in range(3 * MAX_PAUSES):
            assert guard([TEXT]) == ESTIMATE
            clock.now += PAUSE_SECONDS
    assert (counter.asked, len(set(threads()) - before)) == (MAX_PAUSES, MAX_PAUSES)


def test_slow_counts_together_take_no_longer_than_one_may():
    """A counter just below the time-out does not cost a thousand messages a thousand times that."""
    clock = Time()

    def slow():
        clock.now += 1.9

    counter = Counter(slow)
    with capture_logs() as logs:
        guard = GuardedCounter(counter, estimate, clock=clock)
        counts = [guard([TEXT]) for _ in range(1000)]
    assert counts == [1, 1] + [ESTIMATE] * 998
    assert reasons(logs) == ["slow counts took more than 2 seconds"]


@pytest.mark.parametrize(("seconds", "apart_seconds"), [(0.04, 0), (1.9, 10)], ids=["quick", "seldom"])
def test_counts_that_are_quick_or_seldom_slow_go_on(seconds, apart_seconds):
    """Neither a thousand quick counts nor a slow one now and then is a reason for a pause."""
    clock = Time()

    def take():
        clock.now += seconds

    guard = GuardedCounter(Counter(take), estimate, clock=clock)
    counts = []
    for _ in range(1000):
        counts.append(guard([TEXT]))
        clock.now += apart_seconds
    assert counts == [1] * 1000


def test_nobody_waits_longer_than_the_time_out_for_a_turn():
    """While another conversation is counted, the estimate does; the counter itself did not fail."""
    counter = Counter()
    guard = GuardedCounter(counter, estimate, timeout_seconds=HANG_SECONDS)
    with capture_logs() as logs, guard._here().turn:
        busy = guard([TEXT])
    assert (busy, counter.asked, reasons(logs)) == (ESTIMATE, 0, ["busy for 0.05 seconds"])


def test_conversations_at_the_same_time_get_their_own_counts():
    """Counts are handed to who asked for them."""
    guard = GuardedCounter(len, estimate)
    found = {}

    def ask(size):
        found[size] = [guard([TEXT] * size) for _ in range(50)]

    asking = [threading.Thread(target=ask, args=(size,)) for size in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert found == {size: [size] * 50 for size in range(8)}


def test_threads_end_when_their_counters_are_gone():
    """Fifty engines of the past are no fifty threads."""
    before = set(threads())
    for _ in range(50):
        assert GuardedCounter(len, estimate, idle_seconds=0.01)([TEXT]) == 1
    gc.collect()
    for thread in set(threads()) - before:
        thread.join(timeout=10)
    assert set(threads()) - before == set()


def test_the_next_count_after_an_idle_time_has_a_new_thread():
    """A counter outlives its thread."""
    guard = GuardedCounter(len, estimate, idle_seconds=0.01)
    assert guard([TEXT]) == 1
    first = guard._worker._thread
    if first is not None:
        first.join(timeout=10)
    assert (guard([TEXT] * 2), guard.has_failed) == (2, False)


def test_no_count_is_lost_between_two_threads():
    """A job that comes when the thread is about to end is done by it or by the next one."""
    guard = GuardedCounter(len, estimate, idle_seconds=0)
    counts = [guard([TEXT] * (number % 5)) for number in range(2000)]
    assert (counts, guard.has_failed) == ([number % 5 for number in range(2000)], False)


COUNTING = """
import sys
import langchain_ctxwin
print([name for name in sys.modules if name.startswith("langchain_ctxwin.counting")])
"""


def test_the_package_does_not_load_the_counters_that_nobody_asked_for():
    """They import nothing optional by themselves, but take time."""
    assert subprocess.run([sys.executable, "-c", COUNTING], check=True, capture_output=True, text=True).stdout == "[]\n"


FORK = """
import os
from structlog.testing import capture_logs
from langchain_ctxwin.guarded import GuardedCounter

guard = GuardedCounter(len, lambda messages, tools=None: 77)
first = guard([1])
held = guard._here().turn.acquire(timeout=5)  # as when another thread counts during the fork
child = os.fork()
if child == 0:
    with capture_logs() as logs:
        print(first, held, guard([1, 2]), guard.has_failed, logs, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_counts_by_itself():
    """Neither the thread that is gone nor a lock that nobody will release makes the child wait for its time-out."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert output == "1 True 2 False []\n"


def test_a_process_that_can_start_no_thread_estimates(monkeypatch):
    """At the limit of threads, and when the interpreter ends, a count is no reason to fail."""

    def refuse(_self):
        raise RuntimeError("can't start new thread")

    guard = GuardedCounter(len, estimate)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(threading.Thread, "start", refuse)
        without = guard([TEXT])
    assert (without, guard([TEXT]), reasons(logs)) == (ESTIMATE, 1, ["RuntimeError"])


def test_a_failed_count_is_the_estimate_of_the_models_family():
    """Not that of a generic tokenizer, and without what the estimator adds once to a request."""
    estimator = TokenEstimator("gemini")
    pricing = Pricings(Counter(fail), family="gemini").of(None)
    with capture_logs():
        assert pricing.price(TEXT) == estimator([TEXT]) - estimator([])
    assert pricing.price(TEXT) != TokenEstimator()([TEXT]) - TokenEstimator()([])


def test_the_doubt_is_the_estimators_once_it_stood_in():
    """Estimates need a margin, also where the counter that failed needs none."""
    counter = Counter()
    pricing = Pricing(counter, family="gemini")
    pricing.price(TEXT)
    before = (pricing.exact, pricing.doubt)
    counter.fault = fail
    with capture_logs():
        pricing.price(HumanMessage("another"))
    assert before == (True, EXACT)
    assert (pricing.exact, pricing.doubt) == (False, Pricing(TokenEstimator("gemini"), family="gemini").doubt)


def test_a_counter_is_asked_for_its_base_at_first_use():
    """To build an engine does not wait for a counter."""
    counter = Counter()
    pricing = Pricing(counter, family="generic")
    at_first = counter.asked
    assert (at_first, pricing.base_tokens, pricing.base_tokens, counter.asked) == (0, 0, 0, 1)


def test_a_counter_that_cannot_say_its_base_is_not_exact():
    """Its counts stand with a base of 0; each may hold what belongs to the request."""

    def needs_messages(messages):
        return len(messages) + 3 if messages else fail()

    needs_messages.exact = True
    pricing = Pricing(needs_messages, family="generic")
    with capture_logs():
        found = (pricing.price(TEXT), pricing.base_tokens, pricing.exact, pricing.doubt)
    assert found == (4, 0, False, EXACT)


def cyclic_tool():
    """Return a definition whose schema holds itself."""
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
    """The same in every process: an equal definition has an equal digest."""
    tools, others = [make()], [make()]
    found, again = (Pricing(counter, family="generic") for _ in range(2))
    assert found.tools(tools) > 0
    assert (found.tools(tools), found.tools_digest(tools)) == (again.tools(others), again.tools_digest(others))
    assert found.tools_digest(tools) != found.tools_digest([{"name": "f", "input_schema": {}}])


def test_a_counter_of_messages_prices_a_tool_by_its_json():
    """As OpenAI's form shows it, without spaces."""
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
