"""Whose results stay whole when room is needed? Those of `spare_tools`, until nothing else can be made smaller."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError, ContextConfig, ContextEngine, ModelLimits, create_context_agent
from langchain_ctxwin.core.edits import text_of
from langchain_ctxwin.core.record import render_record
from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel, exact_count, script

WORD = "fox "


def engine_of(window, **config):
    return ContextEngine(
        ModelLimits(context_window=window), counter=CharCounter(), config=ContextConfig(output_reserve=0, **config)
    )


def step(number, **texts):
    """One call of each tool, in parallel, with their results."""
    calls = [{"name": name, "args": {}, "id": f"{name}{number}"} for name in texts]
    results = [
        ToolMessage(text, tool_call_id=f"{name}{number}", id=f"{name}-{number}", name=name)
        for name, text in texts.items()
    ]
    return [AIMessage("", tool_calls=calls, id=f"a{number}"), *results]


def fitted(engine, history):
    """The request after what has to leave left, by message id, and the state."""
    window = engine.measure(history)
    state = engine.apply(engine.emergency(window), window)
    after = engine.measure(history, session=state)
    assert after.over_by == 0
    return {message.id: text_of(message.content) for message in engine.build(after)}, state


HISTORY = [HumanMessage("Compare them.", id="q"), *step(1, plan=WORD * 300, log=WORD * 900)]


def test_results_of_a_spared_tool_stay_whole_while_others_can_be_shortened():
    """Both are in the newest step, and only together too large."""
    shown, _ = fitted(engine_of(900, spare_tools=("plan",)), HISTORY)
    assert shown["plan-1"] == WORD * 300
    assert len(shown["log-1"]) < len(WORD * 900)


def test_without_it_the_same_result_is_shortened():
    """The setting is what spares it."""
    shown, _ = fitted(engine_of(700, record_share=0.8), [HISTORY[0], *step(1, plan=WORD * 900, log=WORD * 900)])
    assert len(shown["plan-1"]) < len(WORD * 900)


def test_a_spared_result_is_shortened_when_nothing_else_makes_the_request_fit():
    """The question stays whole even then."""
    shown, _ = fitted(engine_of(500, spare_tools=("plan", "log")), HISTORY)
    assert shown["q"] == "Compare them."
    assert len(shown["plan-1"]) + len(shown["log-1"]) < 500 * 4


def test_a_spared_tool_is_found_by_its_call_when_the_result_does_not_name_it():
    """As results of hand-written loops do."""
    nameless = [m.model_copy(update={"name": None}) if isinstance(m, ToolMessage) else m for m in HISTORY]
    shown, _ = fitted(engine_of(900, spare_tools=("plan",)), nameless)
    assert shown["plan-1"] == WORD * 300


def test_what_a_spared_result_brought_goes_to_the_record_when_its_turn_leaves():
    """To be spared is to be shown whole, not to stay for ever."""
    first = [
        HumanMessage("What is planned?", id="q0"),
        *step(0, plan="ticket TK-4711 " + WORD * 60),
        AIMessage("Done."),
    ]
    later = [HumanMessage("And now?", id="q1"), *step(1, log=WORD * 200)]
    shown, state = fitted(engine_of(300, spare_tools=("plan",)), [*first, *later])
    assert "plan-0" not in shown
    assert "TK-4711" in render_record(state["context_record"])


def test_old_results_of_cleared_tools_go_first_and_those_of_others_stay():
    """In place, before anything is dropped."""
    history = [HumanMessage("Compare.", id="q"), *step(1, log=WORD * 500, plan=WORD * 100), *step(2, plan="short")]
    shown, _ = fitted(engine_of(600, clear_tools=("log",), keep=0.9), history)
    assert shown["log-1"].startswith("[Tool result cleared")
    assert shown["plan-1"] == WORD * 100


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"clear_tools": ("a", "b"), "spare_tools": ("b",)},
            "clear_tools and spare_tools both name b: leave each in one",
        ),
        ({"spare_tools": ("",)}, "a tool has no name: give the names of tools as the model calls them"),
        ({"clear_tools": "search"}, "clear_tools='search'"),
    ],
)
def test_settings_that_cannot_hold_are_refused(settings, told):
    """With the value and what to do."""
    with pytest.raises(ConfigError) as raised:
        ContextConfig(**settings)
    assert told in str(raised.value)


@tool
def plan() -> str:
    """Read the plan."""
    return WORD * 250


@tool
def log() -> str:
    """Read the log."""
    return WORD * 700


def agent_of(kind, model, config):
    if kind == "nodes":
        return create_context_agent(model, [plan, log], config=config, counter=exact_count)
    return create_agent(model, [plan, log], middleware=[ContextWindowMiddleware(config=config, counter=exact_count)])


@pytest.mark.parametrize("kind", ["nodes", "middleware"])
def test_agents_spare_the_results_of_a_tool(kind):
    """Nodes and middleware alike."""
    calls = [{"name": name, "args": {}, "id": f"c-{name}"} for name in ("plan", "log")]
    model = ScriptedChatModel(
        policy=script(AIMessage("", tool_calls=calls), "done"), input_limit=700, profile={"max_input_tokens": 700}
    )
    config = ContextConfig(spare_tools=("plan",), output_reserve=0)
    agent_of(kind, model, config).invoke({"messages": [HumanMessage("Compare.")]})
    shown = {m.name: m.content for m in model.requests[-1].messages if isinstance(m, ToolMessage)}
    assert shown["plan"] == WORD * 250
    assert len(shown["log"]) < len(WORD * 700)


@pytest.mark.parametrize("setting", ["clear_tools", "spare_tools"])
def test_a_tool_that_the_agent_does_not_have_is_refused(setting):
    """When the agent is made, with the tools that there are."""
    with pytest.raises(ConfigError) as raised:
        create_context_agent(
            ScriptedChatModel(profile={"max_input_tokens": 700}),
            [plan, log],
            config=ContextConfig(**{setting: ["plam"]}),
        )
    assert str(raised.value) == (
        f"{setting}=('plam',): the agent has no tool of that name, it has log, plan: correct the name or leave it out"
    )


def test_the_middleware_warns_once_of_a_tool_that_no_request_shows():
    """It cannot refuse: other middleware may have left the tool out of this request."""
    model = ScriptedChatModel(profile={"max_input_tokens": 700})
    agent = agent_of("middleware", model, ContextConfig(spare_tools=("plam",)))
    with capture_logs() as logs:
        agent.invoke({"messages": [HumanMessage("One.")]})
        agent.invoke({"messages": [HumanMessage("Two.")]})
    assert [entry["event"] for entry in logs] == ["config.tools_unknown"]
    assert "spare_tools=('plam',)" in logs[0]["reason"]
