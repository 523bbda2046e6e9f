"""Is an argument that cannot work refused where it is given, with the value and what to give instead?"""

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from pydantic import SecretStr

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelLimits,
    TokenEstimator,
    create_context_agent,
    create_recall_tool,
    pin,
    search_messages,
)
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe.validation import Validator
from langchain_ctxwin.summarize import SummaryJobs
from support.fakes import ScriptedChatModel

LIMITS = ModelLimits(context_window=1_000)
WRONG = {
    "config": {"prepare": 0.5},
    "counter": 3,
    "learned": "limits.json",
    "jobs": 3,
}
TOLD = {
    "config": "config={'prepare': 0.5}: pass a ContextConfig, for example ContextConfig(keep=0.4)",
    "counter": "counter=3: pass a callable that counts the tokens of messages, for example TokenEstimator(), or None",
    "learned": (
        "learned='limits.json': pass a memory with methods recall and learn, for example LearnedSource(path), or None"
    ),
    "jobs": "jobs=3: pass a SummaryJobs, or None for those that the process shares",
}
MAKERS = {
    "engine": lambda **options: ContextEngine(LIMITS, **options),
    "middleware": ContextWindowMiddleware,
    "agent": lambda **options: create_context_agent(ScriptedChatModel(), [], limits=LIMITS, **options),
}


def refusal(make, *arguments, **options):
    """Return what a refusal says."""
    with pytest.raises(ConfigError) as raised:
        make(*arguments, **options)
    return str(raised.value)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", WRONG)
def test_collaborators_are_checked_when_they_are_given(maker, name):
    """By the engine, the middleware and the agent alike."""
    assert refusal(MAKERS[maker], **{name: WRONG[name]}) == TOLD[name]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("counter", TokenEstimator), ("jobs", SummaryJobs), ("config", ContextConfig), ("config", {}), ("jobs", 0)],
)
def test_neither_a_class_nor_an_empty_value_passes(maker, name, value):
    """A class is callable, and an empty value is as false as None."""
    assert refusal(MAKERS[maker], **{name: value}).startswith(f"{name}={value!r}: pass a")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("summarizer", ["a-model", FakeListChatModel, 3])
def test_a_summarizer_is_checked_when_it_is_given(maker, summarizer):
    """Not at the first call, which may be hours later."""
    assert refusal(MAKERS[maker], summarizer=summarizer).startswith(f"summarizer={summarizer!r} cannot summarize: pass")


@pytest.mark.parametrize("maker", MAKERS)
def test_what_works_passes(maker):
    """Also a model without limits as a summarizer."""
    summarizer = FakeListChatModel(responses=["text"])
    assert MAKERS[maker](
        counter=TokenEstimator(), jobs=SummaryJobs(), config=ContextConfig(), summarizer=summarizer, pin_when=bool
    )


@pytest.mark.parametrize(
    ("engine", "instead"),
    [
        (LIMITS, "pass ContextWindowMiddleware(limits=...)"),
        (ContextConfig(), "pass ContextWindowMiddleware(config=...)"),
        (
            ScriptedChatModel(),
            (
                "leave it out to take the limits of each request's model, or pass ContextWindowMiddleware("
                "ContextEngine(limits=model)); a model that writes summaries is passed as summarizer=model"
            ),
        ),
    ],
)
def test_what_is_no_engine_is_refused_with_what_to_pass(engine, instead):
    """The first argument without a name is the engine."""
    told = refusal(ContextWindowMiddleware, engine)
    assert told == f"engine={brief(engine)} is no ContextEngine: {instead}"


def test_other_arguments_of_the_middleware_are_checked_too():
    """They would fail at the first call."""
    assert refusal(ContextWindowMiddleware, validator="x") == "validator='x': pass a Validator, or None"
    assert refusal(ContextWindowMiddleware, validator=Validator).endswith("pass a Validator, or None")
    assert refusal(ContextWindowMiddleware, pin_when="x").startswith("pin_when='x': pass a plain function")


def test_an_agents_jobs_write_its_summaries():
    """The bounds of the process are for those that get none."""
    jobs = SummaryJobs(max_running=1)
    started = []
    jobs.start = lambda key, write, **options: started.append(key)
    model = ScriptedChatModel(profile={"max_input_tokens": 1_000, "max_output_tokens": 200})
    agent = create_context_agent(model, [], summarizer=lambda messages: "text", jobs=jobs)
    chat = [("user" if n % 2 == 0 else "ai", f"{n} {'why ' * 60}") for n in range(11)]
    agent.invoke({"messages": chat})
    assert started


def test_what_is_no_message_cannot_be_pinned():
    """Nor searched by what counts nothing."""
    assert refusal(pin, "x") == "pin('x'): pass a message, for example pin(HumanMessage(...))"
    history = [HumanMessage("tea")]
    assert refusal(search_messages, history, "tea", counter=TokenEstimator).startswith("counter=<class")


@pytest.mark.parametrize("description", [None, " "])
def test_a_recall_tool_needs_a_description(description):
    """A model calls no tool that it knows nothing of."""
    told = f"description={description!r}: give the text that tells the model what the tool does"
    assert refusal(create_recall_tool, description=description) == told


@pytest.mark.parametrize("name", ["prepare", "trigger", "keep", "summary_timeout_seconds"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_endless_settings_are_refused(name, value):
    """None of them means anything without an end."""
    assert refusal(ContextConfig, **{name: value}).startswith(f"invalid ContextConfig: {name}={value!r}: ")


def test_one_message_is_no_bound():
    """A summary and the current message are two."""
    assert refusal(ContextConfig, trigger_messages=1) == "invalid ContextConfig: trigger_messages=1: give at least 2"


def test_a_long_value_is_shown_in_short():
    """A whole chat model is no help."""
    assert (brief("x" * 100), len(brief(SecretStr("key")))) == (f"'{'x' * 79}...", len("SecretStr('**********')"))
