"""Is an argument that cannot work refused where it is given, and can a caller set messages and nothing else?"""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from pydantic import SecretStr

import langchain_ctxwin as ctx
from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelLimits,
    RoutedChatModel,
    ToolSelector,
    create_context_agent,
)
from langchain_ctxwin.errors import brief
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import Alerts
from support.agents import ADAPTERS, agent_on
from support.desk import CONFIG, TOOLS, state_of
from support.fakes import ScriptedChatModel, script
from support.routing import router, scripted


def test_a_long_value_is_shown_in_short():
    assert (brief("x" * 100), len(brief(SecretStr("key")))) == (
        f"'{'x' * 79}...",
        len("SecretStr('**********')"),
    )


LARGE = ModelLimits(8192)
TRACE = "forged by a caller"
FORGED = {
    "context_summary": TRACE,
    "context_view": {"start": {"id": TRACE, "index": 0}, "cleared": [TRACE]},
    "context_pending": {"due": True, "reason": TRACE},
    "context_counts": {"first": TRACE},
    "context_tools": [TRACE],
    "context_model": {"model": TRACE},
    "context_guard": {"compactions": 7, "reason": TRACE},
    "context_report": {"over_by": 0, "stopped": TRACE},
    "llm_input_messages": [SystemMessage(TRACE)],
}


def by_middleware(model):
    """LangChain's agent with the middleware alone."""
    middleware = [ContextWindowMiddleware(ContextEngine(LARGE))]
    return create_agent(model, middleware=middleware, checkpointer=InMemorySaver())


GRAPHS = [
    by_middleware,
    *(partial(agent_on, adapter, limits=LARGE) for adapter in ADAPTERS),
]


def model_of(*answers):
    return ScriptedChatModel(policy=script(*answers or ("done",)), strict=False)


def ask(text="hi"):
    return {"messages": [HumanMessage(text)]}


@pytest.mark.parametrize("graph_of", GRAPHS)
def test_a_caller_sets_messages_only(graph_of):
    model = model_of()
    graph = graph_of(model)
    assert [*graph.invoke({**ask(), **FORGED}, CONFIG)] == ["messages"]
    assert set(graph.get_input_jsonschema()["properties"]) == {"messages"}
    assert TRACE not in str([request.messages for request in model.requests])
    assert TRACE not in str(state_of(graph))


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
ODD = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
    ),
)
NAMES = st.sampled_from(
    [
        "over_by",
        "stopped",
        "input_limit",
        "total_tokens",
        "model",
        "reason",
        "key",
        "due",
        "start",
    ]
)
STORED = st.dictionaries(
    st.sampled_from(sorted(FORGED)), ODD | st.dictionaries(NAMES, ODD)
).filter(lambda stored: not isinstance(stored.get("context_summary"), str))
"""Any text under that key is a summary."""


@settings(max_examples=12)
@given(STORED)
def test_no_stored_value_stops_a_conversation(stored):
    """Of any key, also where tools and models are chosen; the request is the one without it."""
    model = scripted("model-of-the-test", 8_000, policy=script("done"))
    agent = create_context_agent(
        RoutedChatModel(router(model)),
        [],
        tool_selector=ToolSelector(TOOLS, 500),
        checkpointer=InMemorySaver(),
    )
    agent.invoke(ask("one"), CONFIG)
    agent.update_state(CONFIG, stored, as_node="agent")
    agent.invoke(ask("two"), CONFIG)
    assert [message.content for message in model.requests[-1].messages] == [
        "one",
        "done",
        "two",
    ]


# Does a usual mistake of a newcomer end in an error that says what to pass instead?


@tool
def weather(city: str) -> str:
    """Say what the weather is like."""
    return f"sunny in {city}"


MODEL = ScriptedChatModel(policy=script("Sunny."))
FAKE = FakeListChatModel(responses=["Hi"])
ENGINE = ctx.ContextEngine(LARGE)
ASKED = [HumanMessage("What is the weather like?")]


USUAL = {
    "a model in the place of an engine": (lambda: ctx.ContextNodes(MODEL), "ContextNodes(ContextEngine(limits=model))"),
    "a name in the place of limits": (lambda: ctx.ContextEngine("a-model"), "'a-model': the model's"),
    "the class of a registry": (lambda: ctx.ContextEngine(ctx.ModelRegistry), "ModelRegistry'>: the model's"),
    "a model that nobody lists, to be guessed": (
        lambda: ContextEngine(ctx.ModelRegistry(), config=ContextConfig(allow_guess=True)).measure("Hi", model="me"),
        "'me': the model's context window is unknown and cannot be guessed",
    ),
    "a config as a dict": (lambda: ctx.ContextEngine(LARGE, config={"keep": 0.4}), "ContextConfig(keep=0.4)"),
    "an empty config": (lambda: ContextWindowMiddleware(config={}), "config={}: pass a ContextConfig"),
    "the name of a counter": (lambda: ctx.ContextEngine(LARGE, counter="tiktoken"), "for example TokenEstimator()"),
    "the class of a counter": (lambda: ctx.ContextEngine(LARGE, counter=ctx.TokenEstimator), "TokenEstimator()"),
    "a path as the memory of limits": (
        lambda: ctx.ContextEngine(LARGE, learned="limits.json"), "learned='limits.json': pass LearnedSource(",
    ),
    "a list as the session": (lambda: ENGINE.measure(ASKED, session=[{}]), "session=[{}]: pass the session that"),
    "a number as the prompt": (lambda: ENGINE.measure(ASKED, system_prompt=5), "pass a text or a SystemMessage"),
    "settings of a guard": (lambda: ctx.ContextEngine(LARGE, config=ctx.ToolResultConfig()), "pass a ContextConfig"),
    "a number as jobs": (lambda: ctx.ContextEngine(LARGE, jobs=5), "jobs=5: pass SummaryJobs()"),
    "a text as settings of a run": (lambda: ENGINE.with_settings("keep"), "settings='keep': pass settings of"),
    "no path of settings": (lambda: ctx.ContextConfig.from_file(None), "path=None: pass the path of"),
    "half a pattern as rules": (
        lambda: ctx.ContextConfig(rules="("), "rules='(': give a regular expression, or a function of a sentence",
    ),
    "the class of a config": (
        lambda: ctx.create_context_agent(MODEL, [], limits=LARGE, config=ContextConfig), "ContextConfig'>: pass a Cont",
    ),
    "no model as summarizer": (lambda: ctx.ContextEngine(LARGE, summarizer="a-model"), "summarizer='a-model'"),
    "the class of a summarizer": (
        lambda: ContextWindowMiddleware(summarizer=FakeListChatModel), "summarizer=<class",
    ),
    "a number among the tools of nodes": (lambda: ctx.ContextNodes(ENGINE, tools=[5]), "tools[0]=5: pass a function"),
    "a function as the tools of nodes": (lambda: ctx.ContextNodes(ENGINE, tools=weather.func), "a list of tools, or a"),
    "a class in the place of a guard": (
        lambda: ctx.create_context_agent(MODEL, [], guard=ctx.ToolResultGuard), "pass a ToolResultGuard",
    ),
    "tools in the place of a selector": (
        lambda: ContextWindowMiddleware(tool_selector=[weather]), "pass a ToolSelector",
    ),
    "tools in the place of a selector of nodes": (
        lambda: ctx.ContextNodes(ENGINE, tool_selector=[weather]), "pass a ToolSelector",
    ),
    "an engine in the place of nodes": (
        lambda: ctx.add_context_nodes(StateGraph(ctx.ContextState), ENGINE, model=MODEL), "pass ContextNodes(engine)",
    ),
    "nodes in the place of a graph": (
        lambda: ctx.add_context_nodes(ctx.ContextNodes(ENGINE), ENGINE, model=MODEL), "pass the StateGraph",
    ),
    "per cent as a text": (lambda: ctx.ContextConfig(trigger="80%"), "unable to parse string as a number"),
    "a number as names of tools": (lambda: ctx.ContextConfig(clear_tools=3), "clear_tools=3"),
    "one model as candidates": (lambda: ctx.ModelRouter(MODEL), "a list of chat models"),
    "a model that states no window": (lambda: ctx.ContextEngine(FAKE), "FakeListChatModel("),
    "names as tools": (lambda: ctx.create_context_agent(MODEL, ["weather"], limits=LARGE), "tools[0]='weather'"),
    "a number among the tools of a selector": (lambda: ctx.ToolSelector([5], 500), "tools[0]=5: pass a function"),
    "a number as thresholds": (lambda: Alerts(5), "config=5: pass AlertConfig(...)"),
    "a number as catalogs": (lambda: ctx.ModelRegistry(catalogs=5), "catalogs=5: give"),
    "a search without an answer": (lambda: ctx.BudgetedRetriever(base=lambda _: None).invoke("q"), "found None"),
    "a retriever of nothing": (ctx.BudgetedRetriever, "BudgetedRetriever: base (dict): Field required"),
    "one message": (lambda: ENGINE.measure(ASKED[0]), "a list of messages"),
    "a number as what is looked for": (lambda: ctx.search_messages(ASKED, 5), "query=5: pass what to look for"),
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
    assert ctx.ContextEngine(8_192, summarizer=FAKE).limits == LARGE
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
