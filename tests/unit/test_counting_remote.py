"""Is a provider asked for counts rarely, for a short time, and without ever failing the caller?"""

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, TokenEstimator
from langchain_ctxwin.counting import AnthropicCounter, GeminiCounter
from langchain_ctxwin.counting.remote import (
    MINUTE_SECONDS,
    Gate,
    RemoteCounter,
    request_digest,
)
from langchain_ctxwin.protocols import RequestCounter
from langchain_ctxwin.util.failures import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS

HI = [HumanMessage("hi")]
QUOTED = "the launch code is 0000"
ESTIMATOR = TokenEstimator("gemini")
CALLER = contextvars.ContextVar("CALLER", default="nobody")
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
CALL = {"name": "look", "args": {"name": "door"}, "id": "1", "type": "tool_call"}


class Provider:
    """Answers with a number, raises an exception, or does what a function says; remembers what it was asked."""

    def __init__(self, answer=42):
        self.answer = answer
        self.asked = []
        self.now = 1_000.0
        self.saw = []

    def ask(self, messages, tools):
        self.asked.append((messages, tools))
        self.saw.append((CALLER.get(), threading.current_thread().daemon))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer

    async def aask(self, messages, tools):
        answer = self.ask(messages, tools)
        return await answer if asyncio.iscoroutine(answer) else answer

    def counter(self, **options):
        settings = {"estimator": ESTIMATOR, "clock": lambda: self.now}
        return RemoteCounter("test", self.ask, self.aask, **settings | options)


@pytest.fixture(params=["sync", "async"])
def count(request):
    """Count in both ways: `count(counter, messages, tools=None)`."""
    if request.param == "sync":
        return lambda counter, messages, tools=None: counter.count_request(messages, tools=tools)
    return lambda counter, messages, tools=None: asyncio.run(counter.acount_request(messages, tools=tools))


def test_the_whole_request_is_asked_once(count):
    """Messages and tools go out together; the same request later is remembered, under other message ids too."""
    provider = Provider()
    counter = provider.counter()
    first = count(counter, [SystemMessage("s"), HumanMessage("hi", id="a")], [TOOL])
    again = count(counter, [SystemMessage("s"), HumanMessage("hi", id="b")], [TOOL])
    assert (first, again) == (42, 42)
    assert provider.asked == [([SystemMessage("s"), HumanMessage("hi", id="a")], [TOOL])]


def test_sync_and_async_share_what_they_know():
    """What one way of asking found out, the other need not ask."""
    provider = Provider()
    counter = provider.counter()
    assert (counter.count_request(HI), asyncio.run(counter.acount_request(HI)), len(provider.asked)) == (42, 42, 1)


def signed(signature):
    """Build a call with a signature, which travels beside the content."""
    return AIMessage("", tool_calls=[CALL], additional_kwargs={"signature": signature})


DIFFERENT_REQUESTS = [
    ([HumanMessage("hi")], []),
    ([HumanMessage("ho")], []),
    ([HumanMessage("hi", name="ann")], []),
    ([SystemMessage("hi"), HumanMessage("")], []),
    ([HumanMessage("hi"), HumanMessage("")], []),
    ([AIMessage("hi")], []),
    ([HumanMessage([{"type": "text", "text": "hi"}])], []),
    ([HumanMessage("hi\ud800")], []),
    ([HumanMessage("h"), HumanMessage("i")], []),
    ([AIMessage("", tool_calls=[CALL])], []),
    ([AIMessage("", tool_calls=[{**CALL, "args": {}}])], []),
    ([signed("a")], []),
    ([signed("b")], []),
    ([ToolMessage("x", tool_call_id="1")], []),
    ([ToolMessage("x", tool_call_id="2")], []),
    ([ToolMessage("x", tool_call_id="2", status="error")], []),
    ([HumanMessage("hi")], [TOOL]),
    ([HumanMessage("hi")], [{**TOOL, "description": "See."}]),
    ([HumanMessage("hi")], [TOOL, TOOL]),
]


def test_whatever_is_sent_makes_another_request():
    """No two requests that differ in something a provider counts have the same digest; a copy has its original's."""
    digests = [request_digest(messages, tools) for messages, tools in DIFFERENT_REQUESTS]
    assert len(set(digests)) == len(DIFFERENT_REQUESTS)
    assert [request_digest(*deepcopy(request)) for request in DIFFERENT_REQUESTS] == digests


def test_content_that_is_no_json_has_a_digest():
    """Bytes, and a block that contains itself."""
    block = {"type": "weird", "data": b"x"}
    block["self"] = block
    messages = [HumanMessage.model_construct(content=[block])]
    assert request_digest(messages, []) == request_digest(messages, [])


def test_another_request_is_asked_again(count):
    """A request that grew is a question of its own."""
    provider = Provider()
    counter = provider.counter()
    count(counter, HI)
    count(counter, [*HI, AIMessage("ho")])
    assert len(provider.asked) == 2


@pytest.mark.parametrize("messages", [[], [SystemMessage("s")]])
def test_a_request_that_asks_nothing_is_not_sent(count, messages):
    """Providers refuse it, and that would be no sign of trouble."""
    provider = Provider()
    with capture_logs() as logs:
        assert count(provider.counter(), messages, [TOOL]) is None
    assert (provider.asked, logs) == ([], [])


class StatedError(Exception):
    """An error with a status, as SDKs raise them, that quotes the request."""

    def __init__(self, **facts):
        super().__init__(f"cannot count {QUOTED!r}")
        vars(self).update(facts)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (StatedError(), "StatedError"),
        (StatedError(code=429, status="RESOURCE_EXHAUSTED"), "StatedError: 429 RESOURCE_EXHAUSTED"),
        (StatedError(status_code=500, code=None, status=QUOTED.upper() * 9), "StatedError: 500"),
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError"),
        (TimeoutError(), "TimeoutError: no answer within 5 seconds"),
        (None, "UnusableCountError: the count is a NoneType"),
        (True, "UnusableCountError: the count is a bool"),
        ("42", "UnusableCountError: the count is a str"),
        (float("nan"), "UnusableCountError: the count is a float"),
        (42.0, "UnusableCountError: the count is a float"),
        (0, "UnusableCountError: the count is 0"),
        (-3, "UnusableCountError: the count is -3"),
    ],
)
def test_a_failure_is_logged_once_and_the_estimate_stands(count, answer, reason):
    """No count, one warning that quotes no message, and the estimator's figure for who calls it as a counter."""
    provider = Provider(answer)
    counter = provider.counter()
    request = [HumanMessage(QUOTED)]
    with capture_logs() as logs:
        assert count(counter, request) is None
        assert counter(request) == ESTIMATOR(request)
    assert logs == [{"event": "count.failed", "log_level": "warning", "provider": "test", "reason": reason}]
    assert len(provider.asked) == 1


def test_a_dead_endpoint_is_asked_once_per_pause(count):
    """Other requests do not pay for it either; when it is back, it is asked again."""
    provider = Provider(ConnectionError())
    counter = provider.counter()
    requests = [[HumanMessage(f"question {n}")] for n in range(20)]
    assert [count(counter, request) for request in requests] == [None] * 20
    assert len(provider.asked) == 1
    provider.now += FIRST_PAUSE_SECONDS
    provider.answer = 7
    assert [count(counter, request) for request in requests] == [7] * 20


def test_what_is_known_is_told_during_a_pause(count):
    """Remembered counts need no endpoint."""
    provider = Provider()
    counter = provider.counter()
    count(counter, HI)
    provider.answer = ConnectionError()
    assert [count(counter, [HumanMessage("ho")]), count(counter, HI)] == [None, 42]


def test_the_rate_limit_is_silent_and_does_not_wait(count):
    """Beyond the limit of the minute there is no count and no warning; a minute later there is."""
    provider = Provider()
    counter = provider.counter(requests_per_minute=2)
    with capture_logs() as logs:
        counted = [count(counter, [HumanMessage(f"question {n}")]) for n in range(4)]
    provider.now += 60
    assert (counted, count(counter, HI), logs) == ([42, 42, None, None], 42, [])


def test_a_slow_endpoint_is_left_alone():
    """The caller goes on after the time-out."""
    answered = threading.Event()
    provider = Provider(answered.wait)
    counter = provider.counter(timeout_seconds=0.01)
    with capture_logs() as logs:
        assert counter.count_request(HI) is None
    answered.set()
    assert [log["reason"] for log in logs] == ["TimeoutError: no answer within 0.01 seconds"]


def test_asking_does_not_hold_up_the_exit():
    """The thread that asks is a daemon."""
    provider = Provider()
    provider.counter().count_request(HI)
    assert provider.saw == [("nobody", True)]


async def test_a_slow_endpoint_is_cancelled_in_async_code():
    """The same for who awaits."""
    provider = Provider(lambda: asyncio.Event().wait())
    with capture_logs() as logs:
        assert await provider.counter(timeout_seconds=0.01).acount_request(HI) is None
    assert [log["reason"] for log in logs] == ["TimeoutError: no answer within 0.01 seconds"]


def test_callers_context_does_not_reach_the_endpoint(count):
    """Callbacks and streams of the run that counts see nothing of it."""
    provider = Provider()
    token = CALLER.set("a run")
    count(provider.counter(), HI)
    CALLER.reset(token)
    assert [caller for caller, _ in provider.saw] == ["nobody"]


def test_threads_that_ask_the_same_ask_once():
    """Whoever comes while the question is on its way waits for the same answer."""
    provider = Provider()
    barrier = threading.Barrier(8)
    counter = provider.counter()

    def ask(_):
        barrier.wait()
        return counter.count_request(HI)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [42] * 8
    assert len(provider.asked) == 1


async def test_tasks_that_ask_the_same_ask_once():
    """The same within one event loop; one that fails is one failure for all."""
    provider = Provider(lambda: asyncio.sleep(0, 42))
    counter = provider.counter()
    assert await asyncio.gather(*(counter.acount_request(HI) for _ in range(8))) == [42] * 8
    provider.answer = ConnectionError()
    with capture_logs() as logs:
        assert await asyncio.gather(*(counter.acount_request([HumanMessage("ho")]) for _ in range(8))) == [None] * 8
    assert (len(provider.asked), len(logs)) == (2, 1)


def held_back():
    """Return a provider that answers when its event is set, and the event."""
    release = asyncio.Event()

    async def answer():
        await release.wait()
        return 42

    return Provider(answer), release


async def start(provider, counter, callers):
    """Start callers of one request, the first of which asks, and let them come as far as they can."""
    tasks = [asyncio.create_task(counter.acount_request(HI)) for _ in range(callers)]
    for _ in range(callers):
        await asyncio.sleep(0)
    return tasks


async def test_a_waiting_caller_may_give_up():
    """It does not take the answer from the one that asks, nor from the others."""
    provider, release = held_back()
    leader, follower, other = await start(provider, provider.counter(), 3)
    follower.cancel()
    await asyncio.wait([follower])
    release.set()
    assert (await leader, follower.cancelled(), await other) == (42, True, 42)


async def test_when_the_asking_caller_gives_up_the_others_go_on_with_the_estimate():
    """Nobody is left waiting, and the next one asks again."""
    provider, release = held_back()
    counter = provider.counter()
    leader, follower = await start(provider, counter, 2)
    leader.cancel()
    assert (await follower, leader.cancelled()) == (None, True)
    release.set()
    assert (await counter.acount_request(HI), len(provider.asked)) == (42, 2)


def test_as_a_plain_counter_it_counts_message_likes():
    """Tuples count as the messages they stand for; what cannot be asked is estimated."""
    provider = Provider()
    counter = provider.counter()
    assert counter([("user", "hi")], tools=[TOOL]) == 42
    assert provider.asked == [(HI, [TOOL])]
    assert counter([]) == ESTIMATOR([])


def test_it_claims_no_more_than_it_can_keep():
    """It may fall back to an estimate, so it is not exact, and its bounds are the estimator's."""
    counter = Provider().counter()
    assert (counter.exact, counter.upper(1_000), counter.lower(1_000)) == (
        False,
        ESTIMATOR.upper(1_000),
        ESTIMATOR.lower(1_000),
    )
    plain = Provider().counter(estimator=lambda messages, *, tools=None: 5)
    assert (plain.upper(1_000), plain.lower(1_000)) == (1_000, 1_000)


def test_it_is_a_request_counter_and_an_estimator_is_not():
    """The engine tells them apart."""
    assert isinstance(Provider().counter(), RequestCounter)
    assert not isinstance(ESTIMATOR, RequestCounter)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_box_has_an_end(seconds):
    """A time-out is a positive number."""
    with pytest.raises(ConfigError, match="timeout_seconds"):
        Provider().counter(timeout_seconds=seconds)


def test_a_model_of_another_class_is_refused():
    """A counter that would count with the wrong tokenizer is not made."""
    with pytest.raises(ConfigError, match="GeminiCounter cannot count with a Provider: give it the ChatGoogleGen"):
        GeminiCounter(Provider())
    pytest.importorskip("langchain_anthropic", reason="the Anthropic integration is not installed")
    with pytest.raises(ConfigError, match="AnthropicCounter cannot count with a Provider: give it the ChatAnthropic"):
        AnthropicCounter(Provider())


def test_a_missing_integration_is_named(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "langchain_anthropic", None)
    with pytest.raises(ConfigError, match="pip install langchain-anthropic"):
        AnthropicCounter(Provider())


class FakeClock:
    """Stands still until told."""

    def __init__(self, now=1_000.0):
        self.now = now

    def __call__(self):
        return self.now


def gate_at(clock, per_minute=1_000):
    """Build a gate that a rate does not close."""
    return Gate(requests_per_minute=per_minute, clock=clock)


def pause_of(gate, clock):
    """Fail once and return how long the gate stays closed, in steps of a second."""
    gate.failed(gate.enter())
    for seconds in range(1_000):
        ticket = gate.enter()
        if ticket is not None:
            return seconds, ticket
        clock.now += 1
    return None


@given(st.lists(st.floats(0, 90), max_size=60), st.integers(1, 5))
def test_no_minute_has_more_questions_than_allowed(waits, per_minute):
    """Whenever the questions come, any minute holds at most so many."""
    clock, entered = FakeClock(), []
    gate = gate_at(clock, per_minute)
    for wait in waits:
        clock.now += wait
        if gate.enter() is not None:
            entered.append(clock.now)
    for first in entered:
        assert sum(0 <= at - first < MINUTE_SECONDS for at in entered) <= per_minute


def test_a_minute_later_there_is_room_again():
    """Questions are admitted as old ones leave the minute."""
    clock = FakeClock()
    gate = gate_at(clock, per_minute=2)
    admitted = []
    for second in (0, 30, 59, 60, 61, 90):
        clock.now = second
        admitted.append(gate.enter() is not None)
    assert admitted == [True, True, False, True, False, True]


def test_pauses_double_up_to_a_cap_and_a_success_ends_them():
    """Each failure in a row waits twice as long, and none longer than the cap."""
    clock = FakeClock()
    gate = gate_at(clock)
    pauses = []
    for _ in range(8):
        seconds, ticket = pause_of(gate, clock)
        pauses.append(seconds)
        gate.failed(ticket)
        clock.now += LONGEST_PAUSE_SECONDS
    assert pauses[:2] == [FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]  # one more failure lies between
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE_SECONDS
    gate.succeeded()
    assert pause_of(gate, clock)[0] == FIRST_PAUSE_SECONDS


def test_after_a_pause_one_question_finds_out_for_all():
    """The others stay out until the first one is back."""
    clock = FakeClock()
    gate = gate_at(clock)
    gate.failed(gate.enter())
    clock.now += FIRST_PAUSE_SECONDS
    assert [gate.enter() is not None for _ in range(3)] == [True, False, False]
    gate.succeeded()
    assert gate.enter() is not None


def test_questions_that_fail_together_count_once():
    """Eight callers that time out at the same moment are one failure."""
    clock = FakeClock()
    gate = gate_at(clock)
    for ticket in [gate.enter() for _ in range(8)]:
        gate.failed(ticket)
    clock.now += FIRST_PAUSE_SECONDS
    assert gate.enter() is not None


def test_a_clock_that_is_set_back_does_not_close_the_gate():
    """Neither a pause nor a full minute outlasts a clock that jumps back."""
    clock = FakeClock()
    paused, full = gate_at(clock), gate_at(clock, per_minute=1)
    paused.failed(paused.enter())
    full.enter()
    clock.now -= 3_600
    assert None not in (paused.enter(), full.enter())


@pytest.mark.parametrize("rate", [0, -1, True, float("nan")])
def test_a_rate_below_one_is_refused(rate):
    """A counter that may never ask is a mistake."""
    with pytest.raises(ConfigError, match="requests_per_minute"):
        Gate(requests_per_minute=rate, clock=FakeClock())
