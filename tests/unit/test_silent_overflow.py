"""Which replies show that the server cut the request or the answer at its window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.silent import silent_overflow

BOTH = "input_plus_output"


def answered(input_tokens, output_tokens=100, *, details=None, **metadata):
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        **({"input_token_details": details} if details else {}),
    }
    return AIMessage("an answer", usage_metadata=usage, response_metadata=metadata)


def found(reply, **known):
    facts = {
        "input_limit": 8_000,
        "context_window": None,
        "requested_output_tokens": None,
        "least_input_tokens": 1,
    }
    return silent_overflow(reply, **{**facts, **known})


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "length"},
        {"finish_reason": "MAX_TOKENS"},
        {"finish_reason": "FinishReason.MAX_TOKENS"},
        {"finish_reason": "model_length"},
        {"stop_reason": "max_tokens"},
        {"done_reason": "length"},
        {"stopReason": "max_tokens"},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"stop_reason": "model_context_window_exceeded"},
    ],
    ids=str,
)
def test_an_answer_that_ends_before_its_own_limit_was_ended_by_the_window(metadata):
    """Each integration keeps the reason in its own place."""
    overflow = found(answered(3_900, 196, **metadata), requested_output_tokens=1_000)
    assert overflow == ContextOverflow(4_096, 3_900, BOTH, 1_000)


@pytest.mark.parametrize(
    ("output_tokens", "requested"),
    [(1_000, 1_000), (1_001, 1_000), (990, 1_000), (0, 0)],
)
def test_an_answer_that_reached_its_own_limit_is_no_overflow(output_tokens, requested):
    """A few tokens less are the server's own way to count."""
    assert found(answered(3_000, output_tokens, finish_reason="length"), requested_output_tokens=requested) is None


@pytest.mark.parametrize("metadata", [{}, {"finish_reason": "stop"}, {"stop_reason": "tool_use"}, {"finish_reason": 1}])
def test_a_short_answer_that_ended_by_itself_is_no_overflow(metadata):
    """Fewer tokens than requested are the usual case."""
    assert found(answered(3_900, 196, **metadata), requested_output_tokens=1_000, context_window=4_096) is None


@pytest.mark.parametrize(("output_tokens", "reached"), [(92, True), (56, True), (54, False), (10, False)])
def test_without_a_requested_size_the_answer_must_end_at_the_window(output_tokens, reached):
    """The server's default limit might have ended it elsewhere: only the last 1 % of the window counts."""
    overflow = found(answered(4_000, output_tokens, done_reason="length"), context_window=4_096)
    assert overflow == (ContextOverflow(4_000 + output_tokens, 4_000, BOTH) if reached else None)
    assert found(answered(4_000, output_tokens, done_reason="length")) is None


def test_a_reason_that_names_the_window_needs_no_sizes():
    """It is decisive by itself."""
    reply = AIMessage("cut", response_metadata={"stop_reason": "model_context_window_exceeded"})
    assert found(reply, requested_output_tokens=500) == ContextOverflow(None, None, BOTH, 500)
    assert found(AIMessage("cut", response_metadata={"stop_reason": "max_tokens"}), requested_output_tokens=500) is None


@pytest.mark.parametrize(
    ("reported", "previous", "pinned"),
    [
        (4_096, (4_096, 900), True),
        (3_000, (4_096, 900), True),
        (4_097, (4_096, 900), False),  # it grew
        (4_096, (4_096, 63), False),  # too little was added
        (4_096, (4_096, 200), False),  # less than 5 %
        (4_096, (4_096, 205), True),
        (4_096, (0, 900), False),
    ],
)
def test_a_request_that_grew_while_the_report_did_not_was_truncated(reported, previous, pinned):
    """The server dropped a part of the prompt to make it fit."""
    overflow = found(answered(reported), previous=previous, least_input_tokens=5_000)
    assert overflow == (ContextOverflow(reported, None, "input") if pinned else None)


@pytest.mark.parametrize(
    ("reported", "known", "pinned"),
    [
        (7_950, {}, True),  # at the input limit
        (8_070, {}, True),
        (7_800, {}, False),
        (9_980, {"context_window": 10_000}, True),
        (4_096, {}, True),  # a window as local servers have it
        (4_100, {}, False),
        (4_096, {"least_input_tokens": 5_000}, False),  # our lower bound may be that wrong
    ],
)
def test_far_fewer_tokens_than_were_sent_at_a_limit_are_a_truncated_prompt(reported, known, pinned):
    """Both are needed: a report that is too small, and one that stands at a window."""
    overflow = found(answered(reported), **{"least_input_tokens": 14_000, **known})
    assert overflow == (ContextOverflow(reported, None, "input") if pinned else None)


@pytest.mark.parametrize(
    "reply",
    [
        AIMessage("no usage"),
        answered(0),
        answered(-4_096),
        answered(4_096, details={"cache_read": 9_000}),  # a client that reports cached input beside the input
    ],
    ids=["missing", "zero", "negative", "cached apart"],
)
def test_a_report_that_cannot_be_the_size_of_the_request_says_nothing(reply):
    """Neither form of truncation is read from it."""
    assert found(reply, least_input_tokens=20_000) is None
    assert found(reply, least_input_tokens=20_000, previous=(4_096, 9_000)) is None


def test_a_cached_prompt_counts_as_input():
    """The report includes what came from the cache, so it is compared as it is."""
    reply = answered(9_000, details={"cache_read": 8_900})
    assert found(reply, input_limit=100_000, least_input_tokens=8_500, previous=(8_000, 900)) is None


REASONS = st.sampled_from(["length", "max_tokens", "MAX_TOKENS", "model_length", "stop", "end_turn", ""])
METADATA = st.dictionaries(
    st.sampled_from(["finish_reason", "stop_reason", "done_reason", "incomplete_details", "other"]),
    REASONS | st.none() | st.integers() | st.dictionaries(st.just("reason"), REASONS | st.none(), max_size=1),
    max_size=3,
)
ODD_METADATA = st.dictionaries(
    st.sampled_from(["finish_reason", "stop_reason", "incomplete_details"]),
    st.recursive(st.none() | st.booleans() | st.floats() | REASONS, st.lists, max_leaves=3),
    max_size=3,
)
SIZES = st.integers(1, 2_000_000)


@given(
    metadata=METADATA,
    before=SIZES,
    added=st.integers(0, 100_000),
    requested=SIZES,
    more=st.integers(0, 100),
    window=st.none() | SIZES,
    limit=SIZES,
)
def test_a_full_answer_to_a_request_whose_usage_grows_is_never_an_overflow(
    metadata, before, added, requested, more, window, limit
):
    """Whatever else the reply says."""
    reply = answered(before + max(1, added), requested + more, **metadata)
    facts = {"input_limit": limit, "context_window": window, "requested_output_tokens": requested}
    assert silent_overflow(reply, **facts, least_input_tokens=before + added, previous=(before, added)) is None


@given(
    metadata=METADATA | ODD_METADATA,
    sizes=st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)) | st.none(),
    window=st.none() | st.integers(0, 10**7),
    requested=st.none() | st.integers(0, 10**7),
    least=st.integers(0, 10**7),
    previous=st.none() | st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)),
)
def test_any_reply_gives_a_verdict(metadata, sizes, window, requested, least, previous):
    """It never raises, and a stated limit is positive and not below the stated input."""
    reply = AIMessage("x", response_metadata=metadata) if sizes is None else answered(*sizes, **metadata)
    known = {"context_window": window, "requested_output_tokens": requested, "least_input_tokens": least}
    overflow = silent_overflow(reply, input_limit=8_000, **known, previous=previous)
    assert overflow is None or overflow.limit is None or overflow.limit >= (overflow.actual or 1)
