"""Model limits: what is refused, the two rules, and what is read off real chat models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.errors import ConfigError, UnknownModelError

TOKENS = st.integers(1, 2_000_000)
FIELDS = ("context_window", "max_input_tokens", "max_output_tokens", "requested_output_tokens")


class Configured(GenericFakeChatModel):
    """A chat model with the attributes that integrations configure output tokens with."""

    max_tokens: object = None
    num_predict: object = None
    limits: object = None
    model: str = "small"


def model(profile=None, **attributes):
    """A model whose profile is what a messy table says: assigned, because the constructor validates it."""
    configured = Configured(messages=iter(()), **attributes)
    configured.profile = profile
    return configured


def profile(window, output=None):
    return {"max_input_tokens": window, "max_output_tokens": output}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0, -1, True, 8192.5, 8192.0, "8192", float("nan")])
def test_a_limit_that_is_no_positive_whole_number_is_refused(name, value):
    """The error names the field and the value."""
    with pytest.raises(ConfigError, match=f"{name}={value!r}: give a whole number of tokens, at least 1"):
        ModelLimits(**{name: value})


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"context_window": 100, "max_input_tokens": 101}, "max_input_tokens=101 is more than context_window=100"),
        ({"context_window": 100, "max_output_tokens": 101}, "max_output_tokens=101 is more than context_window=100"),
        (
            {"max_output_tokens": 4096, "requested_output_tokens": 6000},
            "requested_output_tokens=6,000 is more than max_output_tokens=4,096",
        ),
        ({"context_window": 4096, "requested_output_tokens": 4096}, "leaves no input in context_window=4,096"),
    ],
)
def test_contradictory_limits_are_refused(limits, message):
    """Each contradiction names both values."""
    with pytest.raises(ConfigError, match=message):
        ModelLimits(**limits)


def test_the_input_limit_is_the_smallest_that_is_known():
    """A declared input limit binds beside the window less the reserve, whichever is smaller."""
    assert ModelLimits(400, 272).input_limit(64) == 272
    assert ModelLimits(400, 272).input_limit(200) == 200
    assert ModelLimits(400).input_limit(100) == 300
    assert ModelLimits(max_input_tokens=272).input_limit(1000) == 272


def test_a_reserve_that_leaves_no_input_is_refused_with_the_numbers():
    """The error names the reserve, the window and what to change."""
    with pytest.raises(ConfigError, match=r"output reserve 4,096 leaves no input in context_window=4,096: lower"):
        ModelLimits(4096).input_limit(4096)


@pytest.mark.parametrize("reserve", [-1, 1.5, None, True])
def test_a_reserve_that_is_no_whole_number_is_refused(reserve):
    """Negative reserves would enlarge the input limit."""
    with pytest.raises(ConfigError, match="reserve="):
        ModelLimits(4096).input_limit(reserve)


def test_unknown_limits_say_how_to_give_one():
    """Without window and input limit there is nothing to calculate from."""
    limits = ModelLimits(max_output_tokens=4096)
    assert not limits.known
    with pytest.raises(UnknownModelError, match=r"pass limits=ModelLimits\(context_window=\.\.\.\)"):
        limits.input_limit(0)


@pytest.mark.parametrize(
    ("limits", "configured", "reserve"),
    [
        (ModelLimits(8192, None, 4096, 1000), 512, 512),
        (ModelLimits(8192, None, 4096, 1000), 0, 0),
        (ModelLimits(8192, None, 4096, 1000), None, 1000),
        (ModelLimits(8192, None, 4096), None, 2048),
        (ModelLimits(128_000, None, 4096), None, 4096),
        (ModelLimits(8192), None, 2048),
        (ModelLimits(max_output_tokens=4096), None, 4096),
        (ModelLimits(max_input_tokens=8192), None, 0),
        (ModelLimits(), None, 0),
    ],
)
def test_the_output_reserve_takes_the_first_rule_that_applies(limits, configured, reserve):
    """Configured, then requested, then the smaller of the output limit and a quarter of the window."""
    assert limits.output_reserve(configured) == reserve


def test_a_negative_configured_reserve_is_refused():
    """The error names the setting."""
    with pytest.raises(ConfigError, match="output_reserve=-1"):
        ModelLimits(8192).output_reserve(-1)


def test_a_guess_is_flagged_and_made_only_where_the_window_is_unknown():
    """Four times the output limit is a last resort."""
    assert ModelLimits(max_output_tokens=2048).guessed() == ModelLimits(8192, None, 2048, source="guess")
    assert ModelLimits(4096, None, 2048).guessed() == ModelLimits(4096, None, 2048)
    with pytest.raises(UnknownModelError, match="cannot be guessed"):
        ModelLimits().guessed()


@given(window=st.none() | TOKENS, largest_input=st.none() | TOKENS, reserve=st.integers(0, 2_000_000))
def test_the_input_limit_never_exceeds_a_known_limit(window, largest_input, reserve):
    """Whatever is known, the input limit is positive and within it; otherwise a typed error says why."""
    try:
        limits = ModelLimits(window, largest_input)
        tokens = limits.input_limit(reserve)
    except (ConfigError, UnknownModelError):
        return
    assert tokens > 0
    assert tokens <= (largest_input or tokens)
    assert tokens + reserve <= (window or tokens + reserve)


@given(limits=st.builds(dict, **{name: st.none() | TOKENS for name in FIELDS}))
def test_the_default_reserve_always_leaves_room_for_input(limits):
    """Any limits that can be constructed with a window give an input limit under their own default reserve."""
    try:
        known = ModelLimits(**limits)
    except ConfigError:
        return
    if known.known:
        assert known.input_limit(known.output_reserve()) > 0


def test_limits_are_read_from_the_real_gemini_client():
    """The profile's input limit is read as the joint window; nothing is requested unless configured."""
    gemini = ChatGoogleGenerativeAI(google_api_key="x", model="gemini-2.5-flash")
    limits = ModelLimits.of(gemini)
    assert limits == ModelLimits(1_048_576, None, 65_536, None, source="profile")
    assert limits.input_limit(limits.output_reserve()) == 1_048_576 - 65_536
    capped = ChatGoogleGenerativeAI(google_api_key="x", model="gemini-2.5-flash", max_output_tokens=1024)
    assert ModelLimits.of(capped) == ModelLimits(1_048_576, None, 65_536, 1024, source="profile")


def test_limits_are_read_from_the_real_openai_client():
    """`max_tokens` may be set on the model or bound to it, and a binding wins."""
    assert ModelLimits.of(ChatOpenAI(api_key="x", model="gpt-4o")) == ModelLimits(
        128_000, None, 16_384, source="profile"
    )
    openai = ChatOpenAI(api_key="x", model="gpt-4o", max_tokens=500)
    assert ModelLimits.of(openai).requested_output_tokens == 500
    assert ModelLimits.of(openai.bind_tools([]).bind(max_tokens=700)).requested_output_tokens == 700
    assert ModelLimits.of(openai.bind(max_completion_tokens=600).with_retry()).requested_output_tokens == 600


def test_a_real_model_without_a_profile_states_nothing():
    """A local model behind an OpenAI-compatible server is unknown, not an error."""
    local = ChatOpenAI(api_key="x", model="my-local-model", base_url="http://127.0.0.1:1/v1")
    assert ModelLimits.of(local) == ModelLimits(source="unknown")


def test_limits_come_back_as_they_are_and_from_a_limits_attribute():
    """An own `.limits` wins over the profile; what is configured beside it is added."""
    limits = ModelLimits(4096, None, 1024, source="server")
    assert ModelLimits.of(limits) is limits
    assert ModelLimits.of(model(profile(999), limits=limits)) == limits
    assert ModelLimits.of(model(limits=limits).bind(max_tokens=100)) == ModelLimits(
        4096, None, 1024, 100, source="server"
    )


def test_a_limits_holder_that_is_no_model_requests_nothing():
    """`max_output_tokens` beside `.limits` is the limit again, not a request."""

    class Facts:
        limits = ModelLimits(4096, None, 1024)
        max_output_tokens = 1024

    assert ModelLimits.of(Facts()) == ModelLimits(4096, None, 1024)


@pytest.mark.parametrize("value", [None, -1, -2, 0, True, "many"])
def test_an_unset_output_length_is_not_a_request(value):
    """Clients spell "as much as fits" as None, 0, -1 or -2."""
    assert ModelLimits.of(model(profile(8192), num_predict=value)).requested_output_tokens is None


def test_runnables_around_a_model_are_looked_through():
    """A prompt, a binding, a configuration and a parser around the model change nothing."""
    chain = (
        ChatPromptTemplate.from_messages([("user", "{q}")])
        | model(profile(8192, 1024)).bind(stop=["x"], max_tokens=256).with_config(tags=["a"])
        | StrOutputParser()
    )
    assert ModelLimits.of(chain) == ModelLimits(8192, None, 1024, 256, source="profile")


def test_fallbacks_give_the_smallest_limits_field_by_field():
    """A request must fit each of them; the reserve covers the longest answer."""
    first = model(profile(128_000, 4096), max_tokens=100)
    chain = first.with_fallbacks([model(profile(8192, 8000), max_tokens=200), RunnableLambda(str)])
    assert ModelLimits.of(chain) == ModelLimits(8192, None, 4096, 200, source="profile")
    assert ModelLimits.of(chain.bind(max_tokens=300)) == ModelLimits(8192, None, 4096, 300, source="profile")


def test_configurable_models_count_with_their_alternatives():
    """Any alternative may be chosen at run time; factories are not called."""

    def build():
        pytest.fail("a factory was called")

    chosen = ConfigurableField(id="model")
    alternatives = model(profile(8192)).configurable_alternatives(chosen, small=model(profile(2048)), late=build)
    assert ModelLimits.of(alternatives) == ModelLimits(2048, source="profile")
    fields = model(profile(8192), max_tokens=64).configurable_fields(max_tokens=ConfigurableField(id="n"))
    assert ModelLimits.of(fields) == ModelLimits(8192, None, None, 64, source="profile")


def test_a_bound_model_name_makes_the_profile_another_models():
    """The window of the model that is not called says nothing; the same name with a prefix does."""
    assert not ModelLimits.of(model(profile(8192)).bind(model="large")).known
    assert ModelLimits.of(model(profile(8192)).bind(model="models/small")).known


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, (None, None, None, None)),
        (profile(0, -5), (None, None, None, None)),
        (profile("8192", None), (None, None, None, None)),
        (profile(8192.0, 1024.0), (8192, None, 1024, None)),
        (profile(8192, 65_536), (8192, None, None, None)),
        (profile(None, 1024), (None, None, 1024, None)),
    ],
)
def test_messy_profiles_lose_what_contradicts_the_window(stated, expected):
    """Reading never raises, and what remains is the stricter part."""
    limits = ModelLimits.of(model(stated))
    assert (limits.context_window, *(getattr(limits, name) for name in FIELDS[1:])) == expected


def test_a_configured_output_wins_over_a_stale_table_but_not_over_the_window():
    """The setting was made on purpose; a window that it fills cannot take any input."""
    assert ModelLimits.of(model(profile(8192, 1024), max_tokens=2000)) == ModelLimits(
        8192, None, None, 2000, source="profile"
    )
    assert ModelLimits.of(model(profile(8192, 1024), max_tokens=9000)) == ModelLimits(
        8192, None, 1024, None, source="profile"
    )


def test_smallest_limits_of_mixed_sources_never_contradict_each_other():
    """A separate input limit larger than another model's window is implied by that window."""
    separate = model(limits=ModelLimits(None, 100_000, source="server"))
    chain = separate.with_fallbacks([model(profile(8192))])
    assert ModelLimits.of(chain) == ModelLimits(8192, source="server+profile")


@given(
    window=st.none() | st.integers(-10, 10**7) | st.floats() | st.text(max_size=3),
    output=st.none() | st.integers(-10, 10**7) | st.booleans(),
    requested=st.none() | st.integers(-10, 10**7),
)
def test_reading_a_profile_never_raises(window, output, requested):
    """Whatever a table holds, limits come back and never allow more than it stated."""
    limits = ModelLimits.of(model(profile(window, output), max_tokens=requested))
    assert limits.context_window in (None, window)
    assert limits.max_output_tokens in (None, output)


@pytest.mark.parametrize("thing", [None, "gpt-4o", 8192, object(), {}, str])
def test_whatever_states_nothing_is_unknown(thing):
    """The error comes when a limit is needed, with advice."""
    assert ModelLimits.of(thing) == ModelLimits(source="unknown")
