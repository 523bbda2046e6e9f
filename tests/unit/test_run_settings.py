"""Settings of one run, by the context that the run is given: the same in both adapters."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from typing_extensions import TypedDict

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelLimits,
    create_context_agent,
)
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens

LIMITS = ModelLimits(context_window=8_192, max_output_tokens=512)
LONG = {
    "messages": [
        message
        for number in range(12)
        for message in (("user", f"Q{number} " + "word " * 150), ("assistant", "ok"))
    ]
    + [("user", "And now?")]
}
SMALL = {"max_history_tokens": 800}


@dataclass
class Settings:
    """A context of somebody's own, with a place for ours."""

    name: str = "Ida"
    ctxwin: dict[str, Any] = field(default_factory=dict)


class Keys(TypedDict, total=False):
    """The same as a mapping."""

    ctxwin: dict[str, Any]


def nodes(model, schema):
    return create_context_agent(model, [], limits=LIMITS, context_schema=schema)


def middleware(model, schema):
    own = ContextWindowMiddleware(limits=LIMITS)
    return create_agent(model, [], middleware=[own], context_schema=schema)


def sent_tokens(model):
    return count_tokens(model.requests[-1].messages)


@pytest.mark.parametrize("make", [nodes, middleware])
@pytest.mark.parametrize("context", [Settings(ctxwin=SMALL), Keys(ctxwin=SMALL)])
def test_a_run_changes_settings_for_itself(make, context):
    model = ScriptedChatModel()
    agent = make(model, type(context) if isinstance(context, Settings) else Keys)
    agent.invoke(LONG)
    whole = sent_tokens(model)
    agent.invoke(LONG, context=context)
    small = sent_tokens(model)
    agent.invoke(LONG)
    assert small < 1_200 < whole == sent_tokens(model)


@pytest.mark.parametrize("make", [nodes, middleware])
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"triger": 0.8}, r"unknown setting triger \(did you mean trigger\?\)"),
        ({"trigger": 0.3, "keep": 0.5}, r"keep=0.5 is not below trigger=0.3"),
        ("lean", r"ctxwin='lean': pass settings of ContextConfig by their names"),
    ],
)
def test_a_wrong_setting_of_a_run_is_an_error_before_the_model_is_called(
    make, given, error
):
    model = ScriptedChatModel()
    with pytest.raises(ConfigError, match=error):
        make(model, Settings).invoke(LONG, context=Settings(ctxwin=given))
    assert model.requests == []


def test_an_engine_with_other_settings_is_made_once_and_keeps_the_rest():
    """A prompt of its own reaches the summarizer; without one the summarizer is the same."""
    engine = ContextEngine(
        LIMITS, summarizer=lambda _: "So far.", config=ContextConfig(keep=0.3)
    )
    other = engine.with_settings({"trigger": 0.8})
    assert (other.config.trigger, other.config.keep, engine.config.trigger) == (
        *(0.8, 0.3),
        None,
    )
    assert other is engine.with_settings({"trigger": 0.8})
    assert (other.summarizer, other.writer) == (engine.summarizer, engine.writer)
    own = engine.with_settings({"summary_sections": ["Decisions"]})
    assert own.writer != engine.writer
    assert "Decisions" in own.summarizer.sections


def test_a_reserve_that_leaves_no_input_is_refused():
    with pytest.raises(ConfigError, match="8,192"):
        ContextEngine(LIMITS).with_settings({"output_reserve": 9_000})
