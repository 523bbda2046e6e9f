"""Can a sink ever harm a turn, and what does a call cost?"""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin import (
    ConfigError,
    create_context_agent,
)
from langchain_ctxwin.core.events import Event
from langchain_ctxwin.core.model_info import Usage
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import MemorySink, StepEvent
from langchain_ctxwin.reporting import Prices, Reporter
from support import agents
from support.agents import PRICED, agent_on, ask, on_both
from support.conversations import CharCounter

LIMIT = 1_000
COUNT = CharCounter()


def model_of(**options):
    return agents.model_of(LIMIT, counter=COUNT, **options)


class Broken:
    """A sink that raises while it is broken."""

    def __init__(self):
        self.is_broken = True

    def emit(self, event):
        if self.is_broken:
            raise RuntimeError("a secret")


@on_both
def test_a_sink_that_raises_costs_no_turn(adapter):
    """The others hear everything; it is told once, and again when it comes back."""
    broken, sink = Broken(), MemorySink()
    agent = agent_on(adapter, model_of(), sinks=[broken, sink])
    with capture_logs() as logs:
        for is_broken in (True, True, False, True):
            broken.is_broken = is_broken
            assert ask(agent, "hello")["messages"][-1].text
    assert len(sink.of(StepEvent)) == 4
    failed = [log for log in logs if log["event"] == "metrics.sink_failed"]
    assert [(log["sink"], log["reason"]) for log in failed] == [
        ("Broken", "RuntimeError")
    ] * 2


def test_a_memory_sink_forgets_the_oldest_events():
    sink = MemorySink(max_events=2)
    for n in range(5):
        sink.emit(Event(thread=str(n)))
    assert [event.thread for event in sink.events] == ["3", "4"]


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (
            lambda: Reporter([print]),
            "sinks[0]=<built-in function print>: pass a list of sinks, objects with a method emit",
        ),
        (
            lambda: ContextWindowMiddleware(sinks="log"),
            "sinks='log': pass a list of sinks",
        ),
        (
            lambda: create_context_agent(model_of(), [], prices=3),
            "prices=3: pass a ModelInfo, a ModelRegistry",
        ),
    ],
)
def test_what_is_no_sink_is_refused(make, fault):
    """Before any money is spent, with what to pass instead."""
    with pytest.raises(ConfigError) as raised:
        make()
    assert fault in str(raised.value)


COUNTS = st.none() | st.integers(-5, 2_000) | st.booleans() | st.just("7")
PARTS = st.sampled_from(
    (
        "cache_read",
        "cache_creation",
        "ephemeral_5m_input_tokens",
        "ephemeral_1h_input_tokens",
    )
)


@given(
    st.fixed_dictionaries(
        {"input_tokens": COUNTS, "output_tokens": COUNTS},
        optional={"input_token_details": st.dictionaries(PARTS, COUNTS) | st.none()},
    )
)
def test_the_parts_of_a_usage_never_exceed_it(stated):
    """Whatever a provider reports: a cost is never negative, and caching never makes input free of a price."""
    usage = Usage.of(stated)
    assert (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0) <= (
        usage.input_tokens or 0
    )
    assert 0 <= usage.hour_write_tokens <= (usage.cache_write_tokens or 0)
    cost = usage.cost(PRICED)
    assert (cost is None) == (usage.input_tokens is None or usage.output_tokens is None)
    assert cost is None or cost >= 0


def test_writing_to_a_cache_costs_by_how_long_it_is_kept():
    """The hour has a price of its own."""
    info = replace(
        PRICED, cache_write_price=Decimal(2), cache_write_hour_price=Decimal(4)
    )
    details = {
        "cache_read": 100,
        "cache_creation": 300,
        "ephemeral_1h_input_tokens": 200,
    }
    usage = Usage.of(
        {"input_tokens": 1_000, "output_tokens": 0, "input_token_details": details}
    )
    assert (
        usage.cost(info) * 1_000_000
        == 600 * 1 + 100 * Decimal("0.1") + 100 * 2 + 200 * 4
    )
    only = Usage.of(
        {
            "input_tokens": 9,
            "output_tokens": 0,
            "input_token_details": {"ephemeral_5m_input_tokens": 4},
        }
    )
    assert only.cache_write_tokens == 4


def test_prices_are_those_of_now_and_unknown_where_a_source_fails():
    dearer = replace(PRICED, input_price=Decimal(2))
    answers = [OSError("down"), PRICED, {"input_price": 1}, dearer]

    def lookup(name):
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    prices = Prices(lookup)
    told = [info and info.input_price for info in map(prices.of, "mmmm")]
    assert (told, prices.of("")) == ([None, Decimal(1), None, Decimal(2)], None)
    assert Prices(PRICED).of("other", replace(PRICED, name="stated")).name == "stated"
