"""Does a wrong first argument, or a usual mistake of a newcomer, end in an error that says what to pass instead?"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import StateGraph

import langchain_ctxwin as ctx
from langchain_ctxwin import counting, observe, replay
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.models import sources
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
WRONG: dict[str, Any] = {
    "None": None, "number": 5, "text": "x y", "dict": {"a": 1}, "list": [1], "object": object(), "class": dict,
}  # fmt: skip


FIRST: dict[str, tuple[Callable[[Any], Any], str]] = {
    "BudgetedCompressor": (
        lambda wrong: ctx.BudgetedCompressor(max_context_tokens=wrong),
        "number",
    ),
    "BudgetedRetriever": (lambda wrong: ctx.BudgetedRetriever(base=wrong), ""),
    "CharRatioCounter": (ctx.CharRatioCounter, "number"),
    "ContextConfig": (lambda wrong: ctx.ContextConfig(trigger=wrong), "None"),
    "ContextEngine": (ctx.ContextEngine, "number"),
    "ContextEngine.measure": (ENGINE.measure, "text"),
    "ContextEngine.plan": (ENGINE.plan, ""),
    "ContextEngine.emergency": (ENGINE.emergency, ""),
    "ContextEngine.apply": (
        lambda wrong: ENGINE.apply(wrong, ENGINE.measure(ASKED)),
        "None",
    ),
    "ContextEngine.build": (ENGINE.build, ""),
    "ContextNodes": (ctx.ContextNodes, ""),
    "ContextWindowMiddleware": (ContextWindowMiddleware, "None"),
    "CursorSigner": (ctx.CursorSigner, "text"),
    "ExtractiveSummarizer": (
        lambda wrong: ctx.ExtractiveSummarizer(counter=wrong),
        "None",
    ),
    "FileConfig": (lambda wrong: ctx.FileConfig(tool_results=wrong), ""),
    "ContextConfig.from_file": (ctx.ContextConfig.from_file, ""),
    "ModelInfo": (lambda wrong: ctx.ModelInfo(name=wrong), "text"),
    "ModelLimits": (ctx.ModelLimits, "None number"),
    "ModelLimits.of": (ctx.ModelLimits.of, "None number text dict list object class"),
    "ModelRegistry": (ctx.ModelRegistry, "None"),
    "ModelRegistry.lookup": (ctx.ModelRegistry([]).lookup, ""),
    "ModelRouter": (ctx.ModelRouter, "dict"),
    "ModelSummarizer": (ctx.ModelSummarizer, ""),
    "RetrievalConfig": (
        lambda wrong: ctx.RetrievalConfig(max_context_tokens=wrong),
        "number",
    ),
    "RoutedChatModel": (ctx.RoutedChatModel, ""),
    "RoutingConfig": (lambda wrong: ctx.RoutingConfig(complexity=wrong), "None"),
    "SummaryJobs": (lambda wrong: ctx.SummaryJobs(max_running=wrong), "number"),
    "TokenEstimator": (ctx.TokenEstimator, ""),
    "ToolResultConfig": (
        lambda wrong: ctx.ToolResultConfig(max_tokens=wrong),
        "number",
    ),
    "ToolResultGuard": (ctx.ToolResultGuard, "None"),
    "ToolResultGuard.wrap": (ctx.ToolResultGuard().wrap, "None"),
    "ToolSelector": (
        lambda wrong: ctx.ToolSelector(wrong, max_tool_tokens=900),
        "None dict list",
    ),
    "ToolSelector.select": (
        ctx.ToolSelector([weather], max_tool_tokens=900).select,
        "text",
    ),
    "add_context_nodes": (
        lambda wrong: ctx.add_context_nodes(
            wrong, ctx.ContextNodes(ENGINE), model=MODEL
        ),
        "",
    ),
    "add_context_nodes nodes": (
        lambda wrong: ctx.add_context_nodes(BUILDER, wrong, model=MODEL),
        "",
    ),
    "classify_overflow": (
        ctx.classify_overflow,
        "None number text dict list object class",
    ),
    "create_context_agent": (
        lambda wrong: ctx.create_context_agent(wrong, [weather]),
        "",
    ),
    "create_map_reduce_graph": (
        lambda wrong: ctx.create_map_reduce_graph(wrong, limits=LIMITS),
        "",
    ),
    "create_recall_tool": (lambda wrong: ctx.create_recall_tool(max_tokens=wrong), ""),
    "pin": (ctx.pin, ""),
    "render_record": (ctx.render_record, "None"),
    "search_messages": (lambda wrong: ctx.search_messages(wrong, "weather"), "text"),
    "AnthropicSource": (sources.AnthropicSource, "None"),
    "CatalogSource": (sources.CatalogSource, "text"),
    "ExplicitSource": (sources.ExplicitSource, "dict"),
    "GeminiSource": (sources.GeminiSource, "None"),
    "LearnedSource": (sources.LearnedSource, "None text"),
    "OllamaSource": (sources.OllamaSource, ""),
    "OpenAICompatibleSource": (sources.OpenAICompatibleSource, ""),
    "ProfileSource": (sources.ProfileSource, "list"),
    "Alerts": (observe.Alerts, "None"),
    "AlertConfig": (lambda wrong: observe.AlertConfig(utilization=wrong), "None"),
    "History": (observe.History, "text"),
    "HistorySink": (observe.HistorySink, "text"),
    "MemorySink": (observe.MemorySink, "number"),
    "OpenTelemetrySink": (observe.OpenTelemetrySink, "None"),
    "quality_report": (observe.quality_report, ""),
    "report": (observe.report, ""),
    "compare": (lambda wrong: replay.compare(wrong, [POLICY], 8_192), ""),
    "replay": (lambda wrong: replay.replay(wrong, POLICY, 8_192), ""),
    "read_conversations": (replay.read_conversations, ""),
    "ConfigFile": (ConfigFile, ""),
    "TokenizerFileCounter": (counting.TokenizerFileCounter, ""),
    "AnthropicCounter": (counting.AnthropicCounter, ""),
    "GeminiCounter": (counting.GeminiCounter, ""),
    "VocabularyCounter": (counting.VocabularyCounter, ""),
}


def called(call: Callable[[Any], Any], value: Any) -> Any:
    returned = call(value)
    if inspect.isawaitable(returned):
        return asyncio.run(returned)
    return list(returned) if inspect.isgenerator(returned) else returned


def said_by(error: BaseException, value: Any) -> bool:
    """Say whether an error names the value, its type or what it holds, and what to do."""
    inside = next(iter(value)) if isinstance(value, dict | list | str) else value
    names = (
        str(value),
        repr(value),
        type(value).__name__,
        repr(inside),
        f" {inside}:",
        type(inside).__name__,
    )
    is_nothing = value is None or isinstance(error, ctx.UnknownModelError)
    return ": " in str(error) and (
        is_nothing or any(name in str(error) for name in names)
    )


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", FIRST)
def test_a_wrong_first_argument_is_named_with_what_to_pass(
    name: str, kind: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (call, accepted), value = FIRST[name], WRONG[kind]
    if kind in accepted.split():
        called(call, value)
        return
    with pytest.raises(ctx.ContextWindowError) as caught:
        called(call, value)
    assert said_by(caught.value, value), caught.value


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
    "messages in the place of a measure": (lambda: ENGINE.plan(ASKED), "engine.measure"),
    "messages to be built": (lambda: ENGINE.build(ASKED), "engine.measure"),
    "an update in the place of a compaction": (lambda: ENGINE.apply({}, ENGINE.measure(ASKED)), "plan or emergency"),
    "a settings file that is not there": (lambda: ConfigFile("settings.toml"), "settings.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_the_mistakes_of_newcomers_say_what_to_write_instead(name: str) -> None:
    call, wanted = USUAL[name]
    with pytest.raises(ctx.ContextWindowError) as caught:
        call()
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    "call", [ctx.ContextEngine, ENGINE.measure, ENGINE.plan, ctx.ContextNodes]
)
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
