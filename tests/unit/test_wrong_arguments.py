"""Does a usual mistake of a newcomer end in an error that says what to pass instead?"""

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import StateGraph

import langchain_ctxwin as ctx
from langchain_ctxwin.middleware import ContextWindowMiddleware
from support.fakes import ScriptedChatModel, script


@tool
def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"sunny in {city}"


MODEL = ScriptedChatModel(policy=script("Sunny."))
FAKE = FakeListChatModel(responses=["Hi"])
LIMITS = ctx.ModelLimits(8_192)
ENGINE = ctx.ContextEngine(LIMITS)
ASKED = [HumanMessage("What is the weather like?")]


def told(city):
    """Say what the weather is like."""
    return f"sunny in {city}"


USUAL = {
    "a model in the place of an engine": (lambda: ctx.ContextNodes(MODEL), "ContextNodes(ContextEngine(limits=model))"),
    "a name in the place of limits": (lambda: ctx.ContextEngine("a-model"), "ModelRegistry"),
    "a config as a dict": (lambda: ctx.ContextEngine(LIMITS, config={"keep": 0.4}), "ContextConfig(keep=0.4)"),
    "a number among the tools of nodes": (lambda: ctx.ContextNodes(ENGINE, tools=[5]), "tools[0]=5: pass a function"),
    "a function as the tools of nodes": (lambda: ctx.ContextNodes(ENGINE, tools=told), "a list of tools, or a"),
    "a setting in the place of a config": (lambda: ContextWindowMiddleware(trigger=0.8), "config=ContextConfig(...)"),
    "the prompt of another agent": (lambda: ctx.create_context_agent(MODEL, [], prompt="Hi"), "mean system_prompt?"),
    "a class in the place of a guard": (
        lambda: ctx.create_context_agent(MODEL, [], guard=ctx.ToolResultGuard), "pass a ToolResultGuard",
    ),
    "the name of a counter": (lambda: ctx.ContextEngine(LIMITS, counter="tiktoken"), "for example TokenEstimator()"),
    "the class of a counter": (
        lambda: ctx.ContextEngine(LIMITS, counter=ctx.TokenEstimator), "for example TokenEstimator()",
    ),
    "tools in the place of a selector": (
        lambda: ContextWindowMiddleware(tool_selector=[weather]), "pass a ToolSelector",
    ),
    "an engine in the place of nodes": (
        lambda: ctx.add_context_nodes(StateGraph(ctx.ContextState), ENGINE, model=MODEL), "pass ContextNodes(engine)",
    ),
    "nodes in the place of a graph": (
        lambda: ctx.add_context_nodes(ctx.ContextNodes(ENGINE), ENGINE, model=MODEL), "pass the StateGraph",
    ),
    "per cent as a text": (lambda: ctx.ContextConfig(trigger="80%"), "unable to parse string as a number"),
    "one model as candidates": (lambda: ctx.ModelRouter(MODEL), "a list of chat models"),
    "a model that states no window": (lambda: ctx.ContextEngine(FAKE), "FakeListChatModel: the model's"),
    "names as tools": (lambda: ctx.create_context_agent(MODEL, ["weather"], limits=LIMITS), "tools[0]='weather'"),
    "a name as session": (lambda: ENGINE.measure(ASKED, session="thread-1"), "session='thread-1': pass the state"),
    "a path as the memory of limits": (
        lambda: ctx.ContextEngine(LIMITS, learned="limits.json"), "learned='limits.json': pass LearnedSource(",
    ),
    "messages to plan": (lambda: ENGINE.plan(ASKED), "pass what engine.measure(messages) returned"),
    "messages to compact": (lambda: ENGINE.emergency(ASKED), "window=[HumanMessage("),
    "messages to build": (lambda: ENGINE.build(ASKED), "window=[HumanMessage("),
    "a request in the place of a compaction": (
        lambda: ENGINE.apply(ENGINE.measure(ASKED), ENGINE.measure(ASKED)), "pass what engine.plan(window)",
    ),
    "one message": (lambda: ENGINE.measure(ASKED[0]), "a list of messages"),
    "a state in the place of its messages": (lambda: ENGINE.measure({"messages": ASKED}), "a list of messages"),
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_the_mistakes_of_newcomers_say_what_to_write_instead(name):
    call, wanted = USUAL[name]
    with pytest.raises(ctx.ContextWindowError) as caught:
        call()
    assert wanted in str(caught.value)


def test_what_can_only_mean_one_thing_works():
    """A number is the window, a tool is a list of one, dicts and texts are messages as they are for LangChain."""
    assert ctx.ContextEngine(8_192).limits == LIMITS
    agent = ctx.create_context_agent(MODEL, weather, limits=8_192)
    assert (
        agent.invoke({"messages": [{"role": "user", "content": "Hi"}]})["messages"][
            -1
        ].text
        == "Sunny."
    )
    assert ctx.ContextNodes(ENGINE, tools=weather)
    assert ctx.ContextConfig(constraints="Be brief.").constraints == ("Be brief.",)
    assert ctx.ContextConfig(clear_tools="search").clear_tools == ("search",)
    assert ctx.ToolSelector(weather, max_tool_tokens=900).tools == [weather]
    assert ctx.ToolResultGuard().wrap(weather)[0].name == "weather"
