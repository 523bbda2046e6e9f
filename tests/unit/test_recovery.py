"""Which replies show that the server cut the request or the answer, and when asking for less output helps."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin import ContextOverflow
from langchain_ctxwin.core.recovery import (
    fitting_output,
    least_output,
    output_argument,
    silent_overflow,
    smaller_output,
)

BOTH = "input_plus_output"


def answered(input_tokens, output_tokens=100, *, details=None, **metadata):
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    usage |= {"input_token_details": details} if details else {}
    return AIMessage("an answer", usage_metadata=usage, response_metadata=metadata)


def found(reply, **known):
    facts = {
        "input_limit": 8_000,
        "context_window": None,
        "requested_output_tokens": None,
        "least_input_tokens": 1,
    }
    return silent_overflow(reply, **{**facts, **known})


FULL = ("length", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "model_length")
ENDED = (
    {},
    {"finish_reason": "stop"},
    {"stop_reason": "tool_use"},
    {"finish_reason": 1},
)


@pytest.mark.parametrize(
    ("metadata", "is_cut"),
    [
        *(({"finish_reason": reason}, True) for reason in FULL),
        *(
            ({"stop_reason": reason}, True)
            for reason in ("max_tokens", "model_context_window_exceeded")
        ),
        *(({"done_reason": "length"}, True), ({"stopReason": "max_tokens"}, True)),
        (
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
            },
            True,
        ),
        *((ended, False) for ended in ENDED),
    ],
    ids=str,
)
def test_an_answer_that_ends_before_its_own_limit_was_ended_by_the_window(
    metadata, is_cut
):
    overflow = found(answered(3_900, 196, **metadata), requested_output_tokens=1_000)
    assert overflow == (ContextOverflow(4_096, 3_900, BOTH, 1_000) if is_cut else None)


def test_a_reason_that_names_the_window_needs_no_sizes():
    """The reason stays decisive when the usage leaves a part of the input out, and then states no limit."""
    named = {"stop_reason": "model_context_window_exceeded"}
    reply = AIMessage("cut", response_metadata=named)
    assert found(reply, requested_output_tokens=500) == ContextOverflow(
        None, None, BOTH, 500
    )
    assert found(
        answered(1_240, 808, **named), least_input_tokens=1_500
    ) == ContextOverflow(2_048, 1_240, BOTH)
    assert found(
        answered(1_240, 808, **named), least_input_tokens=9_000
    ) == ContextOverflow(None, None, BOTH)
    assert (
        found(
            AIMessage("cut", response_metadata={"stop_reason": "max_tokens"}),
            requested_output_tokens=500,
        )
        is None
    )


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens", "known", "is_cut"),
    [
        (1_240, 808, {}, True),  # twice the step
        (1_240, 807, {}, True),  # the last token is not counted
        (
            1_240,
            808,
            {"context_window": 131_072},
            True,
        ),  # the server runs with less than the model has
        (2_044, 4, {}, True),  # a few tokens are no output limit
        (900, 600, {"context_window": 1_500}, True),
        (900, 588, {"context_window": 1_500}, True),  # within 1 % of it
        (
            1_000,
            1_048,
            {"least_input_tokens": 1_200},
            True,
        ),  # our lower bound may be that wrong
        (
            4_000,
            56,
            {"context_window": 4_096, "requested_output_tokens": None},
            True,
        ),  # nobody asked for a length
        # a cap of the server, of a proxy or of a run ends an answer with the same reason
        *(
            (3_000, made, {"requested_output_tokens": 1_000}, False)
            for made in (1_000, 1_001, 990)
        ),
        (3_000, 0, {"requested_output_tokens": 0}, False),
        (4_000, 54, {"requested_output_tokens": None, "context_window": 4_096}, False),
        (1_024, 8_192, {}, False),  # output limit of the server, sum at a multiple
        (1_030, 8_186, {}, False),  # output limit less a few tokens
        (1_216, 8_000, {}, False),  # decimal output limit, sum at a multiple
        (1_240, 805, {}, False),  # sum three tokens off a multiple
        (300, 212, {}, False),  # no window is that small
        *(
            (900, made, {"context_window": 1_500}, False) for made in (580, 620)
        ),  # more than 1 % off the window
        (
            1_240,
            808,
            {"least_input_tokens": 9_000},
            False,
        ),  # usage without the cached input
        (
            1_240,
            808,
            {"requested_output_tokens": None},
            False,
        ),  # output limit of the server unknown
    ],
)
def test_an_answer_that_the_window_ended_states_the_window(
    input_tokens, output_tokens, known, is_cut
):
    """Any window that is known, else one that a server may have."""
    asked = {"requested_output_tokens": 16_384, **known}
    stated = ContextOverflow(
        input_tokens + output_tokens,
        input_tokens,
        BOTH,
        asked["requested_output_tokens"],
    )
    reply = answered(input_tokens, output_tokens, finish_reason="length")
    if not is_cut:
        asked = {"input_limit": 100_000, **asked}
    assert found(reply, **asked) == (stated if is_cut else None)


@pytest.mark.parametrize(
    ("previous", "reported", "known", "limit"),
    [
        # the report of a request that grew stands at a window
        *(((n, 500), n, {}, n) for n in (4_096, 4_090, 1_020, 7_950, 9_950)),
        *(((n, 500), m, {}, 4_096) for n, m in ((4_095, 4_096), (4_096, 4_095))),
        # something else made it small: old reasoning stripped, cached input left out, a constant report
        *(((12_000, 900), n, {}, None) for n in (8_000, 8_192)),
        *(((3_000, 400), n, {}, None) for n in (700, 1_024)),
        *(((500, 400), 500, known, None) for known in ({}, {"input_limit": 500})),
        ((3_000, 400), 3_000, {}, None),
        ((4_096, 400), 4_105, {}, None),  # the report grew
        ((4_096, 63), 4_096, {}, None),  # too little was added
        ((4_096, 4_000), 4_096, {}, None),  # what was added, without what a cache held
        ((4_096, 400), 4_096, {"least_input_tokens": 4_096}, None),  # all that was sent
        ((0, 4_096), 4_096, {}, None),  # nothing was reported before
        # far fewer tokens than were sent, at the input limit, the window, or a window as local servers have it
        *((None, n, {}, n) for n in (7_950, 8_070, 9_980, 4_096)),
        *((None, n, {}, None) for n in (7_800, 4_100, 4_095)),
        (None, 900, {"input_limit": 900}, None),  # no window is that small
        (
            None,
            4_096,
            {"least_input_tokens": 5_000},
            None,
        ),  # our lower bound may be that wrong
    ],
)
def test_a_report_that_is_too_small_and_stands_at_a_window_is_of_a_truncated_prompt(
    previous, reported, known, limit
):
    least = sum(previous) if previous else 14_000
    facts = {
        "context_window": 10_000,
        "previous": previous,
        "least_input_tokens": least,
        **known,
    }
    assert found(answered(reported), **facts) == (
        limit and ContextOverflow(limit, None, "input")
    )


@pytest.mark.parametrize(
    ("small", "taken", "reported", "limit"),
    [
        # (reported before, our count of that request, added since), the largest that was taken whole, the report
        ((4_098, 8_700, 690), 8_100, 4_098, 8_192),
        ((2_050, 9_000, 3_000), 0, 2_050, 4_096),
        ((4_098, 8_700, 690), 8_300, 4_098, 8_300),  # more than twice of it was taken
        ((5_002, 10_500, 690), 9_800, 5_002, 9_800),  # no window of a local server
        ((5_002, 10_500, 690), 0, 5_002, 5_002),
        # others report what no cache held: what was added, and up to a block of the cache
        ((4_098, 8_700, 690), 8_100, 4_780, None),
        ((1_500, 8_700, 690), 8_100, 1_500, None),
        ((1_024, 8_700, 1_020), 8_100, 1_024, None),
        ((4_098, 8_700, 60), 8_100, 4_098, None),  # too little was added
    ],
)
def test_the_same_few_tokens_again_are_what_a_server_keeps_of_a_prompt(
    small, taken, reported, limit
):
    """The limit is between what was taken whole and what was cut first."""
    least = small[1] + small[2]
    facts = {"input_limit": 100_000, "least_input_tokens": least, "small": small}
    previous = (taken, least - taken) if taken else None
    assert found(answered(reported), **facts, previous=previous) == (
        limit and ContextOverflow(limit, None, "input")
    )


@given(
    window=st.integers(2, 64).map(lambda steps: steps * 1_024),
    over=st.floats(1.01, 3),
    share=st.floats(0.06, 0.35) | st.floats(0.65, 3),
    off=st.integers(-4, 4),
)
def test_a_prompt_of_which_half_a_window_is_kept_is_found_the_second_time(
    window, over, share, off
):
    kept, cut, added = (
        window // 2 + off,
        round(window * over),
        max(64, round(window * share)),
    )
    facts = {
        "input_limit": 2_000_000,
        "least_input_tokens": cut + added,
        "small": (kept, cut, added),
    }
    assert found(answered(kept), **facts) == ContextOverflow(window, None, "input")


def test_a_report_that_cannot_be_the_size_of_the_request_says_nothing():
    apart = answered(4_096, details={"cache_read": 9_000})
    for reply in (AIMessage("no usage"), answered(0), answered(-4_096), apart):
        assert found(reply, least_input_tokens=20_000) is None
        assert found(reply, least_input_tokens=20_000, previous=(4_096, 9_000)) is None
    cached = answered(9_000, details={"cache_read": 8_900})
    assert (
        found(
            cached, input_limit=100_000, least_input_tokens=8_500, previous=(8_000, 900)
        )
        is None
    )


REASONS = st.sampled_from([*FULL, "stop", "end_turn", ""])
METADATA = st.dictionaries(
    st.sampled_from(
        ["finish_reason", "stop_reason", "done_reason", "incomplete_details", "other"]
    ),
    st.recursive(
        REASONS | st.none() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.just("reason"), inner),
    ),
    max_size=3,
)


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
    assume(abs(total - limit) > limit * 0.01 and 2 < total % 1_024 < 1_022)
    facts = {
        "input_limit": limit,
        "context_window": window,
        "requested_output_tokens": output + unused,
    }
    previous = (before, added) if extends else None
    reply = answered(reported, output, finish_reason=reason)
    assert (
        silent_overflow(
            reply, **facts, least_input_tokens=before + added, previous=previous
        )
        is None
    )


@given(
    prompt=st.integers(1, 100_000),
    step=st.sampled_from([256, 500]),
    steps=st.integers(1, 128),
    off=st.integers(-8, 8),
    window=st.none() | st.integers(300_000, 2_000_000),
)
def test_a_round_output_far_from_a_known_window_is_never_an_overflow(
    prompt, step, steps, off, window
):
    """It is the server's own output limit, also where the sum happens to be a window's size."""
    reply = answered(prompt, step * steps + off, finish_reason="length")
    assert (
        found(
            reply,
            requested_output_tokens=100_000,
            context_window=window,
            least_input_tokens=prompt,
        )
        is None
    )


@pytest.mark.parametrize(
    ("limit", "actual", "kind", "requested"),
    [
        (10_000, 8_000, "input", None),
        (10_000, None, BOTH, 4_000),
        (None, 8_000, BOTH, 4_000),
        (10_000, 9_800, BOTH, 1_000),  # too little left
        (10_000, 8_000, BOTH, 64_000),  # a small part of it
        (10_000, 20_000, BOTH, 4_000),
    ],
)
def test_less_output_is_asked_for_only_where_that_helps(limit, actual, kind, requested):
    assert (
        smaller_output(
            gpt(max_tokens=4000), ContextOverflow(limit, actual, kind, requested)
        )
        == {}
    )
    for room in (4_000, 9_000, 255, 0, -5):
        assert (
            fitting_output(
                gpt(max_tokens=4000), requested_tokens=4_000, room_tokens=room
            )
            == {}
        )


@given(
    window=st.integers(1, 128).map(lambda steps: steps * 1_024),
    slack=st.integers(0, 8),
    share=st.floats(0.01, 0.6),
)
def test_a_prompt_that_is_cut_at_a_window_again_is_always_found(window, slack, share):
    before, added = window - slack, max(64, round(window * share) + 1)
    known = {
        "input_limit": 2_000_000,
        "previous": (before, added),
        "least_input_tokens": before + added,
    }
    assert found(answered(window), **known) == ContextOverflow(window, None, "input")


@given(
    metadata=METADATA,
    sizes=st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)) | st.none(),
    window=st.none() | st.integers(0, 10**7),
    requested=st.none() | st.integers(0, 10**7),
    least=st.integers(0, 10**7),
    previous=st.none() | st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)),
)
def test_any_reply_gives_a_verdict(metadata, sizes, window, requested, least, previous):
    reply = (
        AIMessage("x", response_metadata=metadata)
        if sizes is None
        else answered(*sizes, **metadata)
    )
    known = {
        "context_window": window,
        "requested_output_tokens": requested,
        "least_input_tokens": least,
    }
    overflow = silent_overflow(reply, input_limit=8_000, **known, previous=previous)
    assert (
        overflow is None
        or overflow.limit is None
        or overflow.limit >= (overflow.actual or 1)
    )


# ---- less output ------------------------------------------------------------------------------------------------


def gpt(**settings):
    return ChatOpenAI(model="m", api_key="x", **settings)


def gemini(**settings):
    return ChatGoogleGenerativeAI(model="m", google_api_key="x", **settings)


TOO_MUCH = ContextOverflow(
    limit=10_000, actual=8_000, kind="input_plus_output", requested_output=4_000
)


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
        (
            gpt(max_tokens=4000).configurable_fields(max_tokens=ConfigurableField("m")),
            "",
        ),
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
        "configurable",
        "sequence",
    ],
)
def test_the_argument_is_known_where_every_call_goes_to_one_model(call, name):
    assert output_argument(call) == name
    assert smaller_output(call, TOO_MUCH) == ({name: 1_984} if name else {})


def test_thinking_needs_room_beside_the_answer():
    """A budget for thinking that exceeds the output is refused by its provider."""
    thinking = gpt(max_tokens=16_000).bind(
        thinking={"type": "enabled", "budget_tokens": 10_000}
    )
    assert (least_output(gpt(max_tokens=16_000)), least_output(thinking)) == (
        256,
        10_256,
    )
    assert fitting_output(thinking, requested_tokens=16_000, room_tokens=6_000) == {}
    assert fitting_output(thinking, requested_tokens=16_000, room_tokens=12_000) == {
        "max_tokens": 12_000
    }
