"""Asking for less output: for which models, under which name, and when it is not worth it."""

import pytest
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.recovery import fitting_output, least_output, output_argument, smaller_output


def gpt(**settings):
    return ChatOpenAI(model="m", api_key="x", **settings)


def gemini(**settings):
    return ChatGoogleGenerativeAI(model="m", google_api_key="x", **settings)


BOTH = ContextOverflow(limit=10_000, actual=8_000, kind="input_plus_output", requested_output=4_000)


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
        (gpt(max_tokens=4000).configurable_fields(max_tokens=ConfigurableField("m")), ""),
        (RunnableLambda(lambda messages: messages) | gpt(max_tokens=4000), ""),
    ],
    ids=["set", "bound", "with tools", "gemini", "not set", "callable", "fallbacks", "configurable", "sequence"],
)
def test_the_argument_is_known_where_every_call_goes_to_one_model(call, name):
    """Elsewhere an argument might reach a model that does not take it."""
    assert output_argument(call) == name
    assert smaller_output(call, BOTH) == ({name: 1_984} if name else {})


@pytest.mark.parametrize(
    "overflow",
    [
        ContextOverflow(limit=10_000, actual=8_000, kind="input"),
        ContextOverflow(limit=10_000, actual=None, kind="input_plus_output", requested_output=4_000),
        ContextOverflow(limit=None, actual=8_000, kind="input_plus_output", requested_output=4_000),
        ContextOverflow(limit=10_000, actual=9_800, kind="input_plus_output", requested_output=1_000),
        ContextOverflow(limit=10_000, actual=8_000, kind="input_plus_output", requested_output=64_000),
        ContextOverflow(limit=10_000, actual=20_000, kind="input_plus_output", requested_output=4_000),
    ],
    ids=["input alone", "no size", "no limit", "too little left", "a small part of it", "input too large"],
)
def test_a_smaller_request_follows_where_less_output_does_not_help(overflow):
    """Nothing is asked of the same request then."""
    assert smaller_output(gpt(max_tokens=4000), overflow) == {}


def test_thinking_needs_room_beside_the_answer():
    """A budget for thinking that exceeds the output is refused by its provider."""
    thinking = gpt(max_tokens=16_000).bind(thinking={"type": "enabled", "budget_tokens": 10_000})
    assert (least_output(gpt(max_tokens=16_000)), least_output(thinking)) == (256, 10_256)
    assert fitting_output(thinking, requested_tokens=16_000, room_tokens=6_000) == {}
    assert fitting_output(thinking, requested_tokens=16_000, room_tokens=12_000) == {"max_tokens": 12_000}


@pytest.mark.parametrize("room", [4_000, 9_000, 255, 0, -5])
def test_what_fits_or_is_hopeless_is_left_as_it_was_set(room):
    """The setting stays unless a useful part of it is left."""
    assert fitting_output(gpt(max_tokens=4000), requested_tokens=4_000, room_tokens=room) == {}
