"""Does a usual mistake of a newcomer end in an error that says what to pass instead?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import StateGraph

import langchain_ctxwin as ctx
from langchain_ctxwin import replay
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.reload import ConfigFile
from support.fakes import ScriptedChatModel, script


@tool
def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"sunny in {city}"


MODEL = ScriptedChatModel(policy=script("Sunny."))
FAKE = FakeListChatModel(responses=["Hi"])
LIMITS = ctx.ModelLimits(8_192)
ENGINE = ctx.ContextEngine(LIMITS)
ROUTER = ctx.ModelRouter([ctx.ModelInfo(name="small", context_window=8_192)])
ASKED = [HumanMessage("What is the weather like?")]
POLICY = replay.Policy.named("drop-to-half")
BUILDER = StateGraph(ctx.ContextState)


def told(city: str) -> str:
    """Say what the weather is like."""
    return f"sunny in {city}"


async def later() -> Any:
    """Stand for what somebody forgot to await."""


USUAL: dict[str, tuple[Callable[[], Any], str]] = {
    "a model in the place of an engine": (lambda: ctx.ContextNodes(MODEL), "ContextNodes(ContextEngine(limits=model))"),
    "a config in the place of an engine": (
        lambda: ContextWindowMiddleware(ctx.ContextConfig()), "or limits=, config= and summarizer= by their names",
    ),
    "a name in the place of limits": (lambda: ctx.ContextEngine("a-model"), "ModelRegistry"),
    "a class in the place of a model": (lambda: ctx.ContextEngine(ScriptedChatModel), "a chat model"),
    "a name of no provider": (lambda: ctx.create_context_agent("a-model", []), "model='a-model'"),
    "a name in the place of a model": (lambda: ctx.create_map_reduce_graph("a-model"), "model='a-model'"),
    "a config as a dict": (lambda: ctx.ContextEngine(LIMITS, config={"keep": 0.4}), "ContextConfig(keep=0.4)"),
    "guard settings as a dict": (lambda: ctx.ToolResultGuard({"max_tokens": 900}), "ToolResultConfig"),
    "a number as the tools of an agent": (lambda: ctx.create_context_agent(MODEL, 5, limits=LIMITS), "a list of tools"),
    "a number as tools": (lambda: ctx.ContextNodes(ENGINE, tools=5), "a list of tools"),
    "a number among the tools of nodes": (lambda: ctx.ContextNodes(ENGINE, tools=[5]), "tools[0]=5: pass a function"),
    "a number as system prompt of nodes": (lambda: ctx.ContextNodes(ENGINE, system_prompt=3), "system_prompt=3: pass"),
    "a function as the tools of nodes": (lambda: ctx.ContextNodes(ENGINE, tools=told), "a list of tools, or a"),
    "a function of nothing as system prompt": (
        lambda: ctx.ContextNodes(ENGINE, system_prompt=lambda: "Hi"), "a function of state and runtime",
    ),
    "per cent as a text": (lambda: ctx.ContextConfig(trigger="80%"), "such as 0.8 for 80 %"),
    "a switch as guard": (lambda: ctx.create_context_agent(MODEL, [], guard=True, limits=LIMITS), "a ToolResultGuard"),
    "one model as candidates": (lambda: ctx.ModelRouter(MODEL), "a list of chat models"),
    "a model that states no window": (lambda: ctx.ContextEngine(FAKE), "FakeListChatModel: the model's"),
    "a price with its sign": (lambda: ctx.ModelInfo(name="small", input_price="$3"), "input_price='$3': give USD"),
    "a name of no summarizer": (lambda: ctx.ContextEngine(LIMITS, summarizer="a-model"), "summarizer='a-model'"),
    "names as tools": (lambda: ctx.create_context_agent(MODEL, ["weather"], limits=LIMITS), "tools[0]='weather'"),
    "a text as the tools of a request": (lambda: ENGINE.measure(ASKED, tools="weather"), "a list of tools"),
    "a number as the tools of a route": (lambda: ROUTER.route(ASKED, 5), "a list of tools"),
    "a part of a token as limits": (lambda: ctx.ContextEngine(8_192.0), "limits=8192.0: pass ModelLimits"),
    "a switch as limits": (lambda: ctx.ContextEngine(True), "limits=True: pass ModelLimits"),
    "a number as system prompt": (lambda: ENGINE.measure(ASKED, system_prompt=3), "system_prompt=3: pass a text"),
    "a name as session": (lambda: ENGINE.measure(ASKED, session="thread-1"), "session='thread-1': pass the state"),
    "one message": (lambda: ENGINE.measure(ASKED[0]), "a list of messages"),
    "one message as a dict": (lambda: ENGINE.measure({"role": "user", "content": "Hi"}), "a list of messages"),
    "a state in the place of its messages": (lambda: ENGINE.measure({"messages": ASKED}), "a list of messages"),
    "a settings file that is not there": (lambda: ConfigFile("settings.toml"), "settings.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_the_mistakes_of_newcomers_say_what_to_write_instead(name: str) -> None:
    call, wanted = USUAL[name]
    with pytest.raises(ctx.ContextWindowError) as caught:
        call()
    assert wanted in str(caught.value)


@pytest.mark.parametrize("call", [ctx.ContextEngine, ENGINE.measure, ctx.ContextNodes])
def test_what_was_not_awaited_is_named_as_that(call: Callable[[Any], Any]) -> None:
    coroutine = later()
    with pytest.raises(ctx.ConfigError, match="awaited"):
        call(coroutine)
    coroutine.close()


def test_what_can_only_mean_one_thing_works() -> None:
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
    one, several = (
        ENGINE.measure(ASKED, tools=given).report["tool_tokens"]
        for given in (weather, [weather])
    )
    assert one == several > 0
    assert ctx.ToolSelector(weather, max_tool_tokens=900).tools == [weather]
    assert ctx.ToolResultGuard().wrap(weather)[0].name == "weather"
    assert len(
        ENGINE.build(
            ENGINE.measure([("user", "Hi"), {"role": "user", "content": "Hi"}, "Hi"])
        )
    ) == len("Hi?")
