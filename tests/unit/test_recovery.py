"""Which replies show that the server cut the request or the answer, and when asking for less output helps."""

from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin import ContextOverflow, ModelLimits
from langchain_ctxwin.core.limits import fitting_output
from langchain_ctxwin.core.measuring import silent_overflow
from langchain_ctxwin.core.sizing import ReportedSize, Sizes
from support.fakes import usage

BOTH = "input_plus_output"


def answered(input_tokens, output_tokens=100, **metadata):
    return AIMessage(
        "an answer",
        usage_metadata=usage(input_tokens, output_tokens),
        response_metadata=metadata,
    )


def found(
    reply, *, context_window=None, requested=None, least=1, previous=None, accepted=0
):
    """Ask of a request with this lower bound, and of what was reported before and added since."""
    before, added = previous or (0, 0)
    estimate = before + 1_000
    window = SimpleNamespace(
        limits=ModelLimits(context_window),
        lower_tokens=least,
        sizing=Sizes(doubted=ReportedSize(before, estimate) if previous else None),
        last_report=ReportedSize(accepted, accepted) if accepted else None,
        estimates=SimpleNamespace(total_tokens=estimate + added),
    )
    return silent_overflow(window, reply, requested)


FULL = ("length", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "model_length")


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens", "known", "is_cut"),
    [
        (900, 600, {}, True),
        (900, 588, {}, True),  # within 1 % of it
        (900, 600, {"least": 1_080}, True),  # our bound may be that wrong
        (900, 600, {"requested": None}, True),  # nobody asked for one
        (900, 580, {}, False),  # more than 1 % off the window
        (900, 620, {}, False),
        (900, 600, {"context_window": None}, False),
        # a cap of the server, of a proxy or of a run ends an answer with the same reason
        (900, 600, {"requested": 600}, False),
    ],
)
def test_an_answer_that_the_window_ended_states_the_window(
    input_tokens, output_tokens, known, is_cut
):
    asked = {"requested": 16_384, "context_window": 1_500, **known}
    stated = ContextOverflow(
        input_tokens + output_tokens,
        input_tokens,
        BOTH,
        asked["requested"],
    )
    reply = answered(input_tokens, output_tokens, finish_reason="length")
    assert found(reply, **asked) == (stated if is_cut else None)


@pytest.mark.parametrize(
    ("previous", "accepted", "reported", "limit"),
    [
        # (reported before, added since), the largest that was read whole, the report, our lower bound of 9,400
        ((8_192, 900), 8_192, 8_190, 8_192),
        ((4_096, 690), 8_100, 4_096, 8_192),
        ((2_048, 3_000), 0, 2_048, 4_096),
        ((4_096, 690), 8_300, 4_096, 8_300),  # more than twice of it was read whole
        ((5_002, 690), 0, 5_002, 5_002),  # twice of it is more than was sent
        # others report what no cache held: what was added, and up to a block of the cache
        ((4_096, 690), 8_100, 4_780, None),
        ((1_500, 690), 8_100, 1_500, None),
        ((1_024, 1_020), 8_100, 1_024, None),
        ((4_096, 60), 8_100, 4_096, None),  # too little was added
        ((9_400, 900), 9_400, 9_400, None),  # all that was sent
        (None, 0, 4_096, None),  # nothing was reported before
    ],
)
def test_the_same_size_again_is_what_a_server_keeps_of_a_prompt(
    previous, accepted, reported, limit
):
    """The limit is between what was read whole and what was cut."""
    facts = {"least": 9_400, "previous": previous}
    assert found(answered(reported), **facts, accepted=accepted) == (
        limit and ContextOverflow(limit, None, "input")
    )


def test_a_count_without_the_cached_tokens_that_it_states_tells_of_no_cut():
    reply = answered(4)
    reply.usage_metadata["input_token_details"] = {"cache_read": 9_000}
    assert found(reply, least=9_400, previous=(4, 690)) is None


REASONS = st.sampled_from([*FULL, "stop", "end_turn", ""])


@given(
    before=st.integers(1, 500_000),
    added=st.integers(1, 100_000),
    error=st.floats(0.9, 1.1),
    output=st.integers(0, 20_000),
    unused=st.integers(0, 20_000),
    window=st.none() | st.integers(1_024, 1_000_000),
    extends=st.booleans(),
    reason=REASONS,
)
def test_honest_reports_are_never_an_overflow(
    before, added, error, output, unused, window, extends, reason
):
    reported, limit = before + round(added * error), window or 2_000_000
    total = reported + output
    assume(abs(total - limit) > limit * 0.01)
    facts = {
        "context_window": window,
        "requested": output + unused,
    }
    previous = (before, added) if extends else None
    reply = answered(reported, output, finish_reason=reason)
    assert found(reply, **facts, least=before + added, previous=previous) is None


def test_less_output_is_asked_for_only_where_that_helps():
    for room in (4_000, 9_000, 255, 0, -5):
        assert (
            fitting_output(
                gpt(max_tokens=4000), requested_tokens=4_000, room_tokens=room
            )
            == {}
        )


# ---- less output ------------------------------------------------------------------------------------------------


def gpt(**settings):
    return ChatOpenAI(model="m", api_key="x", **settings)


def gemini(**settings):
    return ChatGoogleGenerativeAI(model="m", google_api_key="x", **settings)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (gpt(max_tokens=4000), "max_tokens"),
        (gpt().bind(max_tokens=4000), "max_tokens"),
        (gpt(max_tokens=4000).bind_tools([]), "max_tokens"),
        (gemini(max_output_tokens=4000), "max_output_tokens"),
        (gpt(), ""),
        (RunnableLambda(lambda messages: messages), ""),
        (gpt(max_tokens=4000).with_fallbacks([gpt(max_tokens=4000)]), ""),
        (RunnableLambda(lambda messages: messages) | gpt(max_tokens=4000), ""),
    ],
    ids=[
        "set",
        "bound",
        "with tools",
        "gemini",
        "not set",
        "callable",
        "fallbacks",
        "sequence",
    ],
)
def test_the_argument_is_known_where_every_call_goes_to_one_model(call, name):
    less = fitting_output(call, requested_tokens=4_000, room_tokens=1_984)
    assert less == ({name: 1_984} if name else {})
