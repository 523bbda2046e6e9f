"""When may a provider be asked?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin import ConfigError
from langchain_ctxwin.counting.remote import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, MINUTE_SECONDS, Gate


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
