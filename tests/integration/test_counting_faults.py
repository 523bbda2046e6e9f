"""Whatever a counting endpoint does, the real clients' counters have no count, log it once, and ask no more."""

import asyncio
import socket
import time

import pytest
from langchain_core.messages import HumanMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from structlog.testing import capture_logs

from langchain_ctxwin.counting import AnthropicCounter, GeminiCounter
from support.counting_replies import Replies

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

QUESTIONS = [[HumanMessage(f"question {n}")] for n in range(3)]
PATIENCE_SECONDS = 30.0  # until a server on a busy machine has read what was sent
TIMEOUT_SECONDS = 0.2  # a loopback server that answers does so in a hundredth of it


def gemini(url, **options):
    """Count with the real Gemini client."""
    return GeminiCounter(
        ChatGoogleGenerativeAI(model="gemini-test", google_api_key="x", base_url=url, max_retries=3), **options
    )


def anthropic(url, **options):
    """Count with the real Anthropic client."""
    langchain_anthropic = pytest.importorskip("langchain_anthropic", reason="the integration is not installed")
    model = langchain_anthropic.ChatAnthropic(model="tiny", api_key="x", base_url=url, max_retries=0)
    return AnthropicCounter(model, **options)


@pytest.fixture(params=[gemini, anthropic])
def make_counter(request):
    """Make a counter of either provider for the endpoint at a URL."""
    return request.param


@pytest.fixture(params=["sync", "async"])
def count(request):
    """Count some questions one after the other, in both ways."""
    if request.param == "sync":
        return lambda counter, questions: [counter.count_request(question) for question in questions]

    async def counted(counter, questions):
        found = [await counter.acount_request(question) for question in questions]
        if isinstance(counter, GeminiCounter):
            await counter.model.aclose()
        return found

    return lambda counter, questions: asyncio.run(counted(counter, questions))


def reasons(logs):
    """Return the reasons of the failures, and nothing else may have been logged."""
    assert {log["event"] for log in logs} <= {"count.failed"}
    return [log["reason"] for log in logs]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"code": 429, "message": "question 0", "status": "RESOURCE_EXHAUSTED"}}, 429),
        ({"error": {"code": 503, "message": "question 0", "status": "UNAVAILABLE"}}, 503),
        (b"<html>no JSON", 200),
        (b"", 200),
        ({}, 200),
        ([], 200),
        ({"totalTokens": "many", "input_tokens": "many"}, 200),
        ({"totalTokens": -1, "input_tokens": -1}, 200),
        ({"totalTokens": 0, "input_tokens": 0}, 200),
        ({"totalTokens": None, "input_tokens": None}, 200),
    ],
)
def test_a_useless_reply_is_asked_for_once(body, status, make_counter, count):
    """The first request finds out; those that follow go on with the estimate at once."""
    with Replies(body, status=status) as server, capture_logs() as logs:
        assert count(make_counter(server.url), QUESTIONS) == [None] * 3
    (reason,) = reasons(logs)
    assert len(server.asked) == 1
    assert "question" not in reason
    assert status == 200 or str(status) in reason


def test_a_server_that_is_down_is_tried_once(make_counter, count):
    """A refused connection is a failure like any other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with capture_logs() as logs:
        assert count(make_counter(url), QUESTIONS) == [None] * 3
    assert len(reasons(logs)) == 1


def test_a_server_that_hangs_costs_one_time_out(make_counter, count):
    """The caller goes on; the endpoint is left alone."""
    with Replies({}, held=True) as server, capture_logs() as logs:
        assert count(make_counter(server.url, timeout_seconds=TIMEOUT_SECONDS), QUESTIONS) == [None] * 3
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not server.asked and time.monotonic() < deadline:
            time.sleep(TIMEOUT_SECONDS / 10)
        assert len(server.asked) == 1
    assert len(reasons(logs)) == 1


def test_a_good_reply_is_asked_for_once_per_request(make_counter, count):
    """What is known is not asked again."""
    with Replies({"totalTokens": 7, "input_tokens": 7}) as server, capture_logs() as logs:
        counter = make_counter(server.url)
        assert count(counter, [*QUESTIONS, *QUESTIONS]) == [7] * 6
    assert (len(server.asked), logs) == (3, [])
