"""The middleware inside langchain's agents: alone, beside other middleware, and when things go wrong."""

import asyncio
import traceback
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from hypothesis import example, given, settings
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    ModelRequest,
    wrap_model_call,
)
from langchain.agents.structured_output import (
    ProviderStrategy,
    ToolStrategy,
)
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ContextState,
    ModelLimits,
    ToolResultGuard,
)
from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.errors import ConfigError, UnknownModelError
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from support.agents import (
    ADAPTERS,
    LONG,
    THREAD,
    WAYS,
    agent_on,
    ask,
    call,
    model_of,
    on_both,
    values,
)
from support.fakes import (
    ScriptedChatModel,
    SdkError,
    script,
)
from support.scenarios import LONG_ONE, SCENARIOS, plain, play

INLINE = ContextConfig(summarize="inline")
OFF = ContextConfig(summarize="off")


@tool
def read(path: str = "a") -> str:
    """Read a file."""
    return f"contents of {path}: {LONG}"


class Answer(BaseModel):
    """The answer in a form that programs can read, with everything that has to be known about it."""

    text: str
    pages: int


def agent_of(model, *others, middleware=None, tools=(), **options):
    """Return an agent with the middleware last in the list."""
    options.setdefault("checkpointer", InMemorySaver())
    options.setdefault("state_schema", ContextAgentState)
    last = middleware or ContextWindowMiddleware(config=INLINE, recall=False)
    return create_agent(
        model,
        list(tools),
        system_prompt="You are helpful.",
        middleware=[*others, last],
        **options,
    )


@pytest.mark.parametrize(
    ("engine_window", "model_window"), [(700, None), (700, 9_000), (9_000, 700)]
)
def test_the_tighter_of_the_engines_and_the_models_limits_holds(
    engine_window, model_window
):
    profile = {"max_input_tokens": model_window} if model_window else None
    model = ScriptedChatModel(profile=profile, input_limit=700)
    engine = ContextEngine(
        limits=ModelLimits(context_window=engine_window), config=INLINE
    )
    agent = agent_of(model, middleware=ContextWindowMiddleware(engine))
    held(agent, 10, 300)
    assert (
        [request.refused for request in model.requests],
        model.largest_tokens <= 700,
    ) == ([False] * 10, True)
    assert values(agent)["context_report"]["context_window"] == 700


def test_an_engine_and_its_options_contradict_each_other():
    engine = ContextEngine(limits=ModelLimits(context_window=700))
    with pytest.raises(ConfigError, match="summarizer, config on the engine"):
        ContextWindowMiddleware(engine, summarizer=lambda _: "short", config=INLINE)
    with pytest.raises(AssertionError, match="duplicate"):
        agent_of(model_of(700), ContextWindowMiddleware())


@pytest.mark.parametrize("place", ["last", "last, with an engine", "first"])
def test_a_fallback_with_a_smaller_window_gets_a_request_that_fits(place):
    """Last in the list, the fallback's own limits count at once; first, it refuses once and the retry fits."""
    primary, small = (
        model_of(4000, model_name="primary"),
        model_of(700, model_name="small"),
    )
    engine = ContextEngine(limits=ModelLimits(context_window=3_000), config=OFF)
    ours = (
        ContextWindowMiddleware(engine)
        if "engine" in place
        else ContextWindowMiddleware(config=OFF)
    )
    stack = [ModelFallbackMiddleware(small), ours]
    agent = create_agent(
        primary,
        [],
        middleware=stack[::-1] if place == "first" else stack,
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )
    held(agent, 8, 540)
    assert values(agent)["context_report"]["context_window"] == (
        3_000 if "engine" in place else 4_000
    )
    primary.faults += [SdkError("down", status_code=503)] * (
        2 if place == "first" else 1
    )
    out = ask(agent, "and now?")
    assert out["messages"][-1].response_metadata["model_name"] == "small"
    assert [request.refused for request in small.requests] == (
        [True, False] if place == "first" else [False]
    )
    assert small.largest_tokens <= 700


def test_another_middleware_may_choose_model_tools_settings_and_prompt_per_request():
    small = model_of(700, model_name="small")

    @wrap_model_call
    def choose(request: ModelRequest, handler: Any) -> Any:
        system = SystemMessage("You are brief.")
        settings = {"max_tokens": 100}
        return handler(
            request.override(
                model=small, tools=[], system_message=system, model_settings=settings
            )
        )

    held(agent := agent_of(model_of(4000), choose, tools=[read]), 8, 540)
    report = values(agent)["context_report"]
    assert [request.refused for request in small.requests] == [False] * 8
    assert small.requests[-1].tools == ()
    assert small.requests[-1].messages[0].content.startswith("You are brief.")
    assert (
        report["context_window"],
        report["reserved_tokens"],
        report["tool_tokens"],
    ) == (700, 100, 0)


@pytest.mark.parametrize(
    ("answers", "strategy"),
    [
        (
            [call("Answer", "c1", text="x"), call("Answer", "c2", text="x", pages=3)],
            ToolStrategy,
        ),
        (['{"text": "x", "pages": 3}'], ProviderStrategy),
    ],
    ids=["wrong first", "by the provider"],
)
def test_the_turn_ends_with_the_structured_response_that_can_be_parsed(
    answers, strategy, monkeypatch
):
    ended_after, model = [], model_of(1_500, policy=script(*answers))
    monkeypatch.setattr(
        AgentStep, "summarize", lambda *_: ended_after.append(len(model.requests)) or ()
    )
    out = ask(agent_of(model, response_format=strategy(Answer)), "hi")
    assert (out["structured_response"], len(model.requests)) == (
        Answer(text="x", pages=3),
        len(answers),
    )
    assert ended_after == [len(answers)]


def held(agent, turns, chars):
    """Take some turns."""
    for number in range(turns):
        out = ask(agent, f"question {number} {(LONG * 4)[:chars]}")
    return out


# Do the nodes and the middleware send the same requests, and do they leave the same session?

RUNS = settings(max_examples=15)


async def outcome(scenario, adapter, is_async):
    """Return what was sent, the history, the error, and the session.

    Without the time of day, and without the key of a summary: each agent has a summarizer of its own here.
    """
    agent, sent, error = await play(scenario, adapter, is_async)
    values = agent.get_state(THREAD).values
    session = {
        key: value for key, value in values.items() if key.startswith("context_")
    }
    pending = session.get("context_pending", {})
    session["context_pending"] = {
        name: value for name, value in pending.items() if name not in {"since", "key"}
    }
    return sent, [*map(plain, values["messages"])], error, {} if error else session


@RUNS
@given(scenario=SCENARIOS)
@example(scenario=replace(LONG_ONE, mode="inline"))
@example(scenario=LONG_ONE)
@example(scenario=replace(LONG_ONE, mode="off"))
def test_nodes_and_middleware_send_the_same_requests_and_leave_the_same_session_sync_and_async(
    scenario,
):
    first, *others = [asyncio.run(outcome(scenario, *way)) for way in WAYS]
    assert others == [first] * 3
    if scenario.turns == LONG_ONE.turns:  # the comparison is not empty
        requests, history, error, session = first
        assert (len(requests), len(history), error) == (24, 8 * 7, "")
        assert session["context_guard"]["compactions"] > 0
        assert bool(session.get("context_summary")) is (scenario.mode != "off")


def test_tools_of_ours_stand_in_the_same_place_on_both_adapters():
    models = [model_of(8_000) for _ in ADAPTERS]
    for adapter, model in zip(ADAPTERS, models, strict=True):
        own = {"guard": ToolResultGuard(), "recall": True}
        ask(agent_on(adapter, model, [read], **own), "Hello")
    nodes, middleware = (model.requests[0].tools for model in models)
    assert nodes == middleware


@on_both
@pytest.mark.parametrize("profile", [{}, {"max_input_tokens": 6_000}])
def test_what_the_model_asks_for_is_reserved_whoever_states_its_window(
    adapter, profile
):
    model = ScriptedChatModel(max_tokens=2_500, profile=profile)
    agent = agent_on(adapter, model, limits=6_000)
    ask(agent, "Hello")
    assert values(agent)["context_report"]["reserved_tokens"] == 2_500


def test_the_hidden_keys_are_those_of_the_nodes():
    nodes, agent = get_type_hints(ContextState), get_type_hints(ContextAgentState)
    names = nodes.keys() - {"llm_input_messages"}
    assert {name: agent[name] for name in names} == {
        name: nodes[name] for name in names
    }


# What somebody changes between two looks is noticed: edits of old messages, and between two nodes.

TOO_LARGE = "This model's maximum context length is 300 tokens. However, your messages resulted in 900 tokens."


def test_a_model_without_limits_is_refused_before_it_is_called():
    model = ScriptedChatModel(profile=None)
    wanted = "^scripted: .*: pass limits=ModelLimits"
    with pytest.raises(UnknownModelError, match=wanted):
        ask(agent_of(model), "hi")
    assert model.requests == []


def test_the_exception_of_a_provider_keeps_its_cause():
    """The HTTP error below it has the id that support asks for; why recovery ended is a note."""

    def model(_):
        raise ValueError(TOO_LARGE) from OSError("413 from gateway, request id abc")

    node = ContextNodes(ContextEngine(8_000)).model_node(model)
    with pytest.raises(ValueError, match="maximum context length") as refusal:
        node.invoke({"messages": [HumanMessage("short", id="1")]})
    told = "".join(traceback.format_exception(refusal.value))
    assert "request id abc" in told
    assert isinstance(refusal.value.__cause__, OSError)


SECRET = "the code of the safe is 4711"  # noqa: S105  # what nobody is to be told


class Remembering:
    """Writes summaries that tell the secret, where it stands in what they are written from."""

    def summarize(self, messages, *, previous, max_tokens):
        told = previous + repr([message.content for message in messages])
        return f"They know that {SECRET}." if SECRET in told else "They talked."


def long_agent(adapter, mode="inline"):
    """An agent whose first messages left long ago, into a summary that tells the secret, or into the record alone."""
    model = ScriptedChatModel(
        policy=lambda messages, _: AIMessage("Noted. " * 60),
        profile={"max_input_tokens": 1500},
        input_limit=1500,
    )
    options = {
        "config": ContextConfig(summarize=mode, output_reserve=0, pin_first_user=False)
    }
    if mode != "off":
        options["summarizer"] = Remembering()
    agent = agent_on(adapter, model, **options, store=InMemoryStore())
    for number in range(10):
        said = (
            f"Never tell that {SECRET}." if number == 1 else f"question {number} {LONG}"
        )
        agent.invoke({"messages": [HumanMessage(said, id=f"q{number}")]}, THREAD)
    return agent, model


def last_sent(model):
    return repr([message.content for message in model.requests[-1].messages])


def everything_kept(agent):
    """What the state holds beside the messages."""
    return repr({k: v for k, v in values(agent).items() if k.startswith("context_")})


@on_both
@pytest.mark.parametrize("mode", ["inline", "off"])
@pytest.mark.parametrize(
    "change",
    [RemoveMessage(id="q1"), HumanMessage("Never tell anything.", id="q1")],
    ids=["removed", "replaced"],
)
def test_what_was_removed_or_replaced_after_it_left_is_in_no_request_any_more(
    adapter, mode, change
):
    """Neither by the summary that covers it nor by the record."""
    agent, model = long_agent(adapter, mode)
    before = values(agent)
    assert before["context_view"]["start"]["index"] > 4
    assert ("context_summary" in before and SECRET in before["context_summary"]) is (
        mode == "inline"
    )
    assert SECRET in last_sent(model)
    agent.update_state(
        THREAD,
        {"messages": [change]},
        as_node="maybe_summarize" if adapter == "nodes" else "model",
    )
    for number in range(3):
        agent.invoke({"messages": [HumanMessage(f"more {number} {LONG}")]}, THREAD)
        assert SECRET not in last_sent(model)
        assert SECRET not in everything_kept(agent)
    assert "question 3" in last_sent(model) + everything_kept(agent)
    assert not any(request.refused for request in model.requests)
