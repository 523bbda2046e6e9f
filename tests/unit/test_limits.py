"""Model limits and facts: what is refused, the two rules, and what is read off real chat models."""

import pickle
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextEngine,
    ContextOverflow,
    ModelInfo,
    ModelLimits,
    TokenBudget,
    UnknownModelError,
)
from langchain_ctxwin.core.measuring import from_answer
from langchain_ctxwin.models.sources import LearnedSource
from support.agents import ask
from support.fakes import (
    exact_count,
    usage,
)
from support.graphs import chat_on

TOKENS = st.integers(1, 2_000_000)


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


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        (
            lambda: ModelLimits(4096).input_limit(4096),
            ConfigError,
            "output reserve 4,096 leaves no input in .* lower",
        ),
        (
            lambda: ModelLimits(8_192, max_images=0),
            ConfigError,
            "max_images=0: give a whole number, at least 1",
        ),
        (
            lambda: ModelLimits(None, None, 9).input_limit(0),
            UnknownModelError,
            r"pass limits=ModelLimits\(context_win",
        ),
        (lambda: ModelLimits().guessed(), UnknownModelError, "cannot be guessed"),
        (
            lambda: ModelLimits(8_192).input_limit(-5),
            ConfigError,
            "reserve=-5: give a whole number, at least 0",
        ),
        (
            lambda: TokenBudget(8_192, 0, 0, 0, -1, 0),
            ConfigError,
            "pinned_tokens=-1: give a whole number, at least 0",
        ),
    ],
)
def test_limits_that_cannot_be_say_which_value_and_what_to_change(read, error, message):
    with pytest.raises(error, match=message):
        read()


@given(
    window=st.none() | TOKENS,
    largest_input=st.none() | TOKENS,
    reserve=st.integers(0, 2_000_000),
)
@example(400, 272, 64)
def test_the_input_limit_is_the_smallest_that_is_known(window, largest_input, reserve):
    """A declared input limit binds beside the window less the reserve, whichever is smaller."""
    known = [
        tokens
        for tokens in (largest_input, window and window - reserve)
        if tokens is not None
    ]
    if known and min(known) > 0:
        assert ModelLimits(window, largest_input).input_limit(reserve) == min(known)
        return
    with pytest.raises((ConfigError, UnknownModelError)):
        ModelLimits(window, largest_input).input_limit(reserve)


@pytest.mark.parametrize(
    ("limits", "configured", "reserve"),
    [
        (ModelLimits(8192, None, 4096, 1000), 512, 512),
        (ModelLimits(8192, None, 4096, 1000), 0, 0),
        (ModelLimits(8192, None, 4096, 1000), None, 1000),
        (ModelLimits(8192, None, 4096), None, 2048),
        (ModelLimits(8192, None, 4096, 8192), None, 2048),
        (ModelLimits(128_000, None, 4096), None, 4096),
        (ModelLimits(8192), None, 2048),
        (ModelLimits(max_output_tokens=4096), None, 4096),
        (ModelLimits(max_input_tokens=8192), None, 0),
        (ModelLimits(), None, 0),
    ],
)
def test_the_output_reserve_takes_the_first_rule_that_applies(
    limits, configured, reserve
):
    assert limits.output_reserve(configured) == reserve


def test_a_guess_is_flagged_and_made_only_where_the_window_is_unknown():
    assert ModelLimits(max_output_tokens=2048).guessed() == ModelLimits(
        8192, None, 2048, source="guess"
    )
    assert ModelLimits(4096, None, 2048).guessed() == ModelLimits(4096, None, 2048)


def gemini(**settings):
    return ChatGoogleGenerativeAI(
        google_api_key="x", model="gemini-2.5-flash", **settings
    )


def openai(name="gpt-4o", **settings):
    return ChatOpenAI(api_key="x", model=name, **settings)


class Facts:
    """No model, but something that holds limits: its output limit is no request."""

    limits = ModelLimits(4096, None, 1024)
    max_output_tokens = 1024


SERVED = ModelLimits(4096, None, 1024, source="server")
CHAIN = (
    ChatPromptTemplate.from_messages([("user", "{q}")])
    | model(profile(8192, 1024))
    .bind(stop=["x"], max_tokens=256)
    .with_config(tags=["a"])
    | StrOutputParser()
)
FALLBACKS = model(profile(128_000, 4096), max_tokens=100).with_fallbacks(
    [model(profile(8192, 8000), max_tokens=200), RunnableLambda(str)]
)
FIELD = model(profile(8192), max_tokens=64).configurable_fields(
    max_tokens=ConfigurableField(id="n")
)
MIXED = model(limits=ModelLimits(None, 100_000, source="server")).with_fallbacks(
    [model(profile(8192))]
)


STATED = {
    "gemini": (gemini(), (1_048_576, None, 65_536), "profile"),
    "a binding wins": (
        openai(max_tokens=500).bind_tools([]).bind(max_tokens=700),
        (128_000, None, 16_384, 700),
        "profile",
    ),
    "limits before profile": (
        model(profile(999), limits=SERVED),
        (4096, None, 1024),
        "server",
    ),
    "limits of no model": (Facts(), (4096, None, 1024), "explicit"),
    "prompt, binding, configuration and parser": (
        CHAIN,
        (8192, None, 1024, 256),
        "profile",
    ),
    "the smallest of fallbacks, field by field": (
        FALLBACKS,
        (8192, None, 4096, 200),
        "profile",
    ),
    "a configurable field": (FIELD, (8192, None, None, 64), "profile"),
    "a window and an input limit": (MIXED, (8192, 100_000), "server+profile"),
    "nothing": (None, (), "unknown"),
    "a name": ("gpt-4o", (), "unknown"),
    "a number": (8192, (8192,), "explicit"),
    "a profile": (profile(8192, 1024), (8192, None, 1024), "profile"),
}


@pytest.mark.parametrize(("source", "stated", "name"), STATED.values(), ids=STATED)
def test_limits_are_read_from_what_states_them(source, stated, name):
    assert ModelLimits.of(source) == ModelLimits(*stated, source=name)


# ---- facts about one model -------------------------------------------------------------------------------------


FULL = ModelInfo(
    name="small",
    context_window=8192,
    max_input_tokens=7000,
    max_output_tokens=1024,
    input_price=Decimal("0.10"),
    capabilities=frozenset({"tools"}),
    retires_on=date(2027, 1, 31),
    provenance={"context_window": "catalog"},
    conflicts={"context_window": {"profile": 16_384}},
)


def test_a_model_info_states_limits_with_the_source_that_stated_them():
    stated = ModelLimits(8192, 7000, 1024, source="catalog")
    assert FULL.limits == ModelLimits.of(FULL) == stated
    info = ModelInfo(
        name="m", max_input_tokens=10, provenance={"max_input_tokens": "api"}
    )
    assert info.limits == ModelLimits(max_input_tokens=10, source="api")
    assert ModelInfo(name="m", context_window=10).limits == ModelLimits(10)
    assert not ModelInfo(name="m").limits.known
    assert len({FULL, pickle.loads(pickle.dumps(FULL))}) == 1  # noqa: S301  # our own bytes


class Listing:
    """A registry of one model, whose window somebody changes; `learned` is what providers stated."""

    def __init__(self, window):
        self.window, self.learned = window, {}

    def lookup(self, named):
        if getattr(named, "name", None) == "other" or not self.window:
            raise UnknownModelError("no such model")
        return ModelInfo(
            name="small", context_window=self.window, max_output_tokens=100
        )

    def recall(self, name):
        return self.learned.get(name, {})

    def learn(self, name, limits):
        self.learned[name] = limits


def test_a_window_that_a_registry_finds_later_holds_for_the_next_request():
    """And the larger one that it finds after that; of a model that it no longer lists the model's own."""
    registry = Listing(16_000)
    engine, windows = ContextEngine(registry), []
    for registry.window in (16_000, 5_000, 9_000, 0):
        window = engine.measure([HumanMessage("hi")], model=model_of(5_000))
        windows.append(window.report["context_window"])
    assert windows == [16_000, 5_000, 9_000, 5_000]


def test_a_model_that_neither_a_registry_nor_itself_knows_is_refused():
    engine = ContextEngine(Listing(0))
    with pytest.raises(UnknownModelError):
        engine.measure([HumanMessage("hi")], model=model())
    with pytest.raises(UnknownModelError):
        engine.measure([HumanMessage("hi")])


def model_of(window):
    return model(profile(window))


# Which stated limits are believed, by whom, and how is a wrong one forgotten?

WINDOW = 8192
MODEL = "scripted"
LONG = "alpha beta gamma delta " * 100
SMALL = 1000


def engine_of(window=WINDOW, **options):
    return ContextEngine(
        ModelInfo(name=MODEL, context_window=window),
        exact_count,
        config=ContextConfig(output_reserve=0),
        **options,
    )


# How a wrong one heals


def test_a_limit_holds_until_its_own_model_takes_more():
    engine, models = (
        engine_of(),
        [ModelInfo(name=name, context_window=WINDOW) for name in "ab"],
    )
    session = {}
    for model, limit in zip(models, (SMALL, 2 * SMALL), strict=True):
        window = engine.measure(
            [HumanMessage(LONG, id="1")], session=session, model=model
        )
        refusal = ContextOverflow(limit, None, "input")
        session = engine.learn(window, refusal).session.to_json()
    large, _ = (engine.measure([], session=session, model=one) for one in models)
    assert large.input_limit == SMALL
    window = engine.measure(
        [HumanMessage("hello", id="1")],
        system_prompt=LONG * 6,
        session=session,
        model=models[0],
    )
    answer = AIMessage("", usage_metadata=usage(window.total_tokens, 0))
    counts, _ = from_answer(window, answer)
    assert counts["limits"] == {"b": 2 * SMALL}


# State from outside


@pytest.mark.parametrize(
    ("stored", "text", "prompt", "limit"),
    [
        (1, LONG, "", WINDOW),
        (300, "hello", LONG, None),
        (SMALL, "hello", "", 1000),
    ],
)
def test_a_stored_limit_ends_no_conversation_and_is_kept_to_where_it_can_be(
    stored, text, prompt, limit
):
    engine = engine_of()
    session = {"context_counts": {"limits": {MODEL: stored}}}
    window = engine.measure(
        [HumanMessage(text, id="1")], system_prompt=prompt, session=session
    )
    assert engine.emergency(window) is None
    assert window.budget.input_limit == (limit or window.budget.input_limit)


# Limits that nobody states


REAL_TOKENS = 8_000
QUESTION = "alpha beta gamma delta " * 200


class TooLargeError(Exception):
    """What some hosts send: a code, no figures."""

    code = "context_length_exceeded"
    status_code = 400


class Host:
    """Counts four characters a token and refuses silently."""

    def __init__(self):
        self.refused = 0

    def __call__(self, messages):
        if sum(len(message.text) for message in messages) // 4 > REAL_TOKENS:
            self.refused += 1
            raise TooLargeError("Your input exceeds the context window of this model.")
        return AIMessage("ok")


@pytest.mark.parametrize("factor", [2, 4, 16])
def test_few_refusals_teach_a_limit_that_nobody_states(factor):
    limits, host = ModelLimits(factor * REAL_TOKENS, max_output_tokens=1000), Host()
    agent, refusals = chat_on(ContextEngine(limits), host), []
    for _ in range(60):
        ask(agent, QUESTION)
        refusals.append(host.refused)
    assert refusals[-1] <= 4
    assert refusals[30] == refusals[-1]


@pytest.mark.parametrize(("is_stated", "limit"), [(True, 8_000), (False, 32_000)])
def test_only_what_a_provider_stated_is_told_to_other_conversations(is_stated, limit):
    limits, config = (
        ModelInfo(name="m", context_window=32_000),
        ContextConfig(output_reserve=0),
    )
    engine = ContextEngine(limits, config=config, learned=LearnedSource())
    history = [
        message
        for n in range(40)
        for message in (HumanMessage(QUESTION, id=f"q{n}"), AIMessage("ok", id=f"a{n}"))
    ]
    window = engine.measure([*history, HumanMessage("next", id="n")])
    overflow = ContextOverflow(limit=8_000, actual=None, kind="input")
    learned = engine.learn(window, overflow, is_stated=is_stated)
    state = learned.session.to_json()
    assert engine.measure(history, session=state).budget.input_limit == 8_000
    assert engine.measure([HumanMessage("hi", id="x")]).budget.input_limit == limit
