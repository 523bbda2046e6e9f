"""Does every invariant hold while summaries come early, late, wrong, twice or never, and people rewrite the past?"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_ctxwin.errors import BudgetExceededError
from support.unruly import TEXTS, Conversation

WINDOWS = (400, 800, 1600)
SIZES_CHARS = (8, 60, 200, 400, 800)
GIANT_CHARS = 9000
GOOD_SHARE = 3  # so many good summaries for one of each other kind
EXAMPLES = 40

RUNS = settings(
    deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
KINDS = (*TEXTS, *TEXTS[:1] * GOOD_SHARE)
NUMBERS, CHARS = st.integers(0, 30), st.sampled_from(SIZES_CHARS)
PARALLEL, ORDERS = st.lists(CHARS, min_size=1, max_size=3), st.sampled_from((1, -1))
GROWTH = st.one_of(
    st.tuples(st.just("ask"), CHARS, st.just("")),
    st.tuples(st.just("ask"), st.sampled_from((*SIZES_CHARS, GIANT_CHARS)), st.sampled_from(("", "pin", "image"))),
    st.tuples(st.just("step"), PARALLEL, ORDERS),
    st.tuples(st.just("step"), PARALLEL, ORDERS),
    st.tuples(st.just("answer"), CHARS),
    st.tuples(st.just("answer"), CHARS),
)
JOBS = st.tuples(st.sampled_from(("finish", "finish", "lose")), st.sampled_from(KINDS))
PAST = st.one_of(
    st.tuples(st.just("edit"), NUMBERS, CHARS),
    st.tuples(st.sampled_from(("remove", "fork")), NUMBERS),
    st.tuples(st.just("abandon"), CHARS),
)
CALM = st.lists(st.one_of(GROWTH, GROWTH, GROWTH, JOBS), min_size=15, max_size=60)
WILD = st.lists(st.one_of(GROWTH, GROWTH, GROWTH, JOBS, PAST), min_size=15, max_size=60)
SETUPS = st.fixed_dictionaries(
    {
        "window": st.sampled_from(WINDOWS),
        "is_async": st.booleans(),
        "has_store": st.booleans(),
        "pin_first_user": st.booleans(),
        "trigger_messages": st.sampled_from((None, None, 8)),
    }
)


@RUNS
@given(events=CALM, setup=SETUPS)
def test_a_growing_conversation_keeps_every_invariant(events, setup):
    """Summaries that arrive at any time, of any quality, or never."""
    play(events, setup)


@RUNS
@given(events=WILD, setup=SETUPS)
def test_a_conversation_whose_past_is_rewritten_keeps_every_invariant(events, setup):
    """Edits, removals, forks and abandoned calls at any time."""
    play(events, setup)


def play(events, setup):
    conversation = Conversation(**setup)
    try:
        for event in events:
            conversation.act(event)
    except BudgetExceededError:
        return
