"""Is a provider asked for counts rarely, for a short time, and without ever failing the caller?"""

import asyncio
import contextvars
import sys
import threading
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, TokenEstimator
from langchain_ctxwin.counting import AnthropicCounter, GeminiCounter
from langchain_ctxwin.counting.remote import MINUTE_SECONDS, RemoteCounter, request_digest
from langchain_ctxwin.protocols import RequestCounter
from langchain_ctxwin.util.failures import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, BackOff
from support.fakes import ScriptedChatModel, script

HI = [HumanMessage("hi")]
QUOTED = "the launch code is 0000"
ESTIMATOR = TokenEstimator("gemini")
CALLER = contextvars.ContextVar("CALLER", default="nobody")
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
CALL = {"name": "look", "args": {"name": "door"}, "id": "1", "type": "tool_call"}


class Provider(RemoteCounter):
    """Answers with a number, raises an exception, or does what a function says; remembers what it was asked."""

    provider = "test"
    chat_model = ("support.fakes", "ScriptedChatModel")

    def __init__(self, answer=42, **options):
        self.answer, self.asked, self.now, self.saw = answer, [], 1_000.0, []
        settings = {"estimator": ESTIMATOR, "clock": lambda: self.now} | options
        super().__init__(ScriptedChatModel(policy=script("hi")), **settings)

    def ask(self, messages, tools):
        self.asked.append((messages, tools))
        self.saw.append((CALLER.get(), threading.current_thread().daemon))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


@pytest.fixture(params=["sync", "async"])
def count(request):
    """Count in both ways: `count(counter, messages, tools=None)`."""
    if request.param == "sync":
        return lambda counter, messages, tools=None: counter.count_request(messages, tools=tools)
    return lambda counter, messages, tools=None: asyncio.run(counter.acount_request(messages, tools=tools))


def questions(number):
    return [[HumanMessage(f"question {n}")] for n in range(number)]


def test_the_whole_request_is_asked_once(count):
    """Messages and tools go out together; the same request is remembered under other ids, and one that grew is not."""
    provider = Provider()
    first = [SystemMessage("s"), HumanMessage("hi", id="a")]
    requests = [first, [SystemMessage("s"), HumanMessage("hi", id="b")], [*first, AIMessage("ho")]]
    assert [count(provider, request, [TOOL]) for request in requests] == [42] * 3
    assert provider.asked == [(first, [TOOL]), (requests[2], [TOOL])]


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
    ([AIMessage("", tool_calls=[CALL], additional_kwargs={"signature": "a"})], []),
    ([AIMessage("", tool_calls=[CALL], additional_kwargs={"signature": "b"})], []),
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
    block = {"type": "weird", "data": b"x"}  # no JSON
    block["self"] = block
    cyclic = [HumanMessage.model_construct(content=[block])]
    assert request_digest(cyclic, []) == request_digest(cyclic, [])


@pytest.mark.parametrize("messages", [[], [SystemMessage("s")]])
def test_a_request_that_asks_nothing_is_not_sent(count, messages):
    """Providers refuse it, and that would be no sign of trouble."""
    provider = Provider()
    with capture_logs() as logs:
        assert count(provider, messages, [TOOL]) is None
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
        (42.0, "UnusableCountError: the count is a float"),
        (0, "UnusableCountError: the count is 0"),
    ],
)
def test_a_failure_is_logged_once_and_the_estimate_stands(count, answer, reason):
    """No count, one warning that quotes no message, and the estimator's figure for who calls it as a counter."""
    provider, request = Provider(answer), [HumanMessage(QUOTED)]
    with capture_logs() as logs:
        assert count(provider, request) is None
        assert provider(request) == ESTIMATOR(request)
    assert logs == [{"event": "count.failed", "log_level": "warning", "provider": "test", "reason": reason}]
    assert len(provider.asked) == 1


def test_a_dead_endpoint_is_asked_once_per_pause(count):
    """Other requests do not pay for it, what is known is told meanwhile, and when it is back, it is asked again."""
    provider = Provider()
    count(provider, HI)
    provider.answer = ConnectionError()
    assert [count(provider, request) for request in [*questions(20), HI]] == [None] * 20 + [42]
    assert len(provider.asked) == 2
    provider.now += FIRST_PAUSE_SECONDS
    provider.answer = 7
    assert [count(provider, request) for request in questions(20)] == [7] * 20


def test_pauses_double_up_to_a_cap_and_a_success_ends_them():
    """Calls that fail together are one failure, and a clock that is set back ends a pause."""
    now, pauses = 0.0, []
    pause = BackOff(lambda: now)
    for _ in range(8):
        began = now
        pause.failed()
        pause.failed()
        while pause.is_on:
            now += 1
        pauses.append(now - began)
    assert (pauses[:3], pauses[-1]) == ([FIRST_PAUSE_SECONDS * 2**n for n in range(3)], LONGEST_PAUSE_SECONDS)
    pause.succeeded()
    pause.failed()
    assert pause.is_on
    now -= 1
    assert not pause.is_on


@given(st.lists(st.floats(0, 90), max_size=60), st.integers(1, 5))
def test_no_minute_has_more_questions_than_allowed(waits, per_minute):
    """Beyond them there is no count and no warning; who comes when there is room is served."""
    provider, entered = Provider(requests_per_minute=per_minute), []
    provider.ask = lambda messages, tools: entered.append(provider.now) or 42
    with capture_logs() as logs:
        for wait, request in zip(waits, questions(60), strict=False):
            provider.now += wait
            recent = sum(0 <= provider.now - at < MINUTE_SECONDS for at in entered)
            assert provider.count_request(request) == (42 if recent < per_minute else None)
    assert logs == []


def test_a_slow_endpoint_is_left_alone(count):
    """The caller goes on after the time-out."""
    answered = threading.Event()
    with capture_logs() as logs:
        assert count(Provider(answered.wait, timeout_seconds=0.01), HI) is None
    answered.set()
    assert [log["reason"] for log in logs] == ["TimeoutError: no answer within 0.01 seconds"]


def test_asking_holds_up_no_exit_and_knows_no_caller(count):
    """The thread that asks is a daemon, and callbacks and streams of the run that counts see nothing of it."""
    provider = Provider()
    token = CALLER.set("a run")
    count(provider, HI)
    CALLER.reset(token)
    assert provider.saw == [("nobody", True)]


async def test_a_caller_may_give_up():
    """What it asked for is known when somebody asks again."""
    entered, release = threading.Event(), threading.Event()
    provider = Provider(lambda: entered.set() or (release.wait() and 42))
    asking = asyncio.create_task(provider.acount_request(HI))
    await asyncio.to_thread(entered.wait)
    asking.cancel()
    await asyncio.wait([asking])
    release.set()
    assert (asking.cancelled(), await provider.acount_request(HI)) == (True, 42)


def test_as_a_plain_counter_it_counts_message_likes():
    """Tuples count as the messages they stand for; what cannot be asked is estimated."""
    provider = Provider()
    assert provider([("user", "hi")], tools=[TOOL]) == 42
    assert provider.asked == [(HI, [TOOL])]
    assert provider([]) == ESTIMATOR([])


def test_it_claims_no_more_than_it_can_keep():
    """It counts requests; as it may fall back to an estimate it is not exact, and its bounds are the estimator's."""
    counter, plain = Provider(), Provider(estimator=lambda messages, *, tools=None: 5)
    bounds = (ESTIMATOR.upper(1_000), ESTIMATOR.lower(1_000))
    assert (counter.exact, counter.upper(1_000), counter.lower(1_000)) == (False, *bounds)
    assert (plain.upper(1_000), plain.lower(1_000)) == (1_000, 1_000)
    assert isinstance(counter, RequestCounter)
    assert not isinstance(ESTIMATOR, RequestCounter)


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_seconds", value) for value in (0, -1, float("nan"), float("inf"))]
    + [("requests_per_minute", value) for value in (0, -1, True, 1.5)],
)
def test_a_setting_that_cannot_work_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"{name}={value!r}: give a"):
        Provider(**{name: value})


def test_a_model_of_another_class_is_refused(monkeypatch):
    """A counter that would count with the wrong tokenizer is not made; without the package, the error names it."""
    with pytest.raises(ConfigError, match="GeminiCounter cannot count with a Provider: give it the ChatGoogleGen"):
        GeminiCounter(Provider())
    monkeypatch.setitem(sys.modules, "langchain_anthropic", None)
    with pytest.raises(ConfigError, match="AnthropicCounter needs ChatAnthropic: pip install langchain-anthropic"):
        AnthropicCounter(Provider())
