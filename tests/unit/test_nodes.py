"""The nodes inside real LangGraph graphs."""

import asyncio
import warnings
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ContextState,
    ModelInfo,
    ModelLimits,
    RoutedChatModel,
    TokenEstimator,
    ToolSelector,
    add_context_nodes,
)
from langchain_ctxwin.core import plan as planning
from langchain_ctxwin.errors import BudgetExceededError, ContextWindowError
from support.agents import (
    THREAD,
    agent_on,
    engine_of,
    on_both,
    talk,
)
from support.desk import TOOLS, agent_of
from support.fakes import (
    ScriptedChatModel,
    core_overflow,
    openai_overflow,
    tool_loop,
)
from support.graphs import chat_on
from support.oracle import exact_count
from support.routing import router, scripted

PROMPT = "You are helpful."
EDGES = """
__start__ budget_check
agent tools sometimes
agent maybe_summarize sometimes
budget_check build_messages sometimes
budget_check force_compress sometimes
budget_check maybe_summarize sometimes
build_messages agent
force_compress build_messages
maybe_summarize __end__ sometimes
maybe_summarize build_messages sometimes
maybe_summarize force_compress sometimes
tools budget_check
"""


def test_the_drawing_shows_the_nodes_and_edges():
    drawn = agent_of(ScriptedChatModel(), 1000, tools=TOOLS).get_graph()
    edges = {
        f"{edge.source} {edge.target}{' sometimes' if edge.conditional else ''}"
        for edge in drawn.edges
    }
    assert edges == {*EDGES.strip().splitlines()}


@pytest.mark.parametrize(
    ("state", "destination"),
    [
        (
            {"context_pending": {"due": True}, "context_report": {"over_by": 9}},
            "maybe_summarize",
        ),
        ({"context_pending": {}, "context_report": {"over_by": 9}}, "force_compress"),
        ({"context_report": {"over_by": 0}}, "build_messages"),
        ({}, "build_messages"),
    ],
)
def test_the_route_follows_the_budget(state, destination):
    assert ContextNodes(engine_of(500)).route_on_budget(state) == destination


def test_retry_on_never_resends_an_oversized_request():
    final = [
        core_overflow(10, 5),
        openai_overflow(10, 5),
        BudgetExceededError("no"),
        ValueError("no"),
    ]
    assert [
        ContextNodes.retry_on(error) for error in (*final, ConnectionError("again"))
    ] == [False] * 4 + [True]


def test_model_input_rebuilds_what_is_missing_or_stale():
    nodes = ContextNodes(engine_of(1000), system_prompt=PROMPT)
    state = {"messages": [HumanMessage("one", id="1")]}
    built = nodes.build_messages.invoke(state)["llm_input_messages"]
    assert (
        nodes.model_input(state)
        == nodes.model_input(state | {"llm_input_messages": built})
        == built
    )
    later = [
        *state["messages"],
        AIMessage("two", id="2"),
        HumanMessage("three", id="3"),
    ]
    for messages in (later, [HumanMessage("uno", id="1")]):
        shown = nodes.model_input({"messages": messages, "llm_input_messages": built})
        assert [m.content for m in shown] == [PROMPT, *(m.content for m in messages)]


@pytest.mark.parametrize("messages", [[], [SystemMessage("Be brief.")]])
def test_nothing_to_send_is_a_typed_error(messages):
    graph = chat_on(engine_of(1000), model := ScriptedChatModel())
    with pytest.raises(ContextWindowError, match="nothing to send"):
        graph.invoke({"messages": messages}, THREAD)
    assert model.requests == []


# The nodes in graphs as people build them: their own states, wrong edges, agents that bring their own loop.

WINDOW = 1000


class ModelState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []
    customer: str = "Ida"


@dataclass
class DataState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    customer: str = "Ida"


class Extended(ContextState):
    customer: str


@tool
def read(path: str) -> str:
    """Read a file."""
    return f"{path}: " + "The quick brown fox jumps over the lazy dog. " * 12


def nodes_of(**options):
    engine = ContextEngine(
        limits=ModelLimits(context_window=WINDOW, max_output_tokens=100),
        counter=exact_count,
    )
    return ContextNodes(
        engine, **{"system_prompt": "You are helpful.", "tools": [read], **options}
    )


def builder_of(state, nodes, model):
    builder = StateGraph(state)
    add_context_nodes(builder, nodes, model=model.bind_tools([read]))
    builder.add_node("tools", ToolNode([read]))
    builder.add_edge(START, "budget_check")
    ends = {"tools": "tools", END: "maybe_summarize"}
    builder.add_conditional_edges("agent", tools_condition, ends)
    builder.add_edge("tools", "budget_check")
    return builder


def played(graph, **more):
    """Ask so often that not everything fits."""
    for number in range(8):
        answer = graph.invoke(
            {"messages": [("user", f"Read file {number}.")], **more}, THREAD
        )
    return answer


@pytest.mark.parametrize("state", [MessagesState, ModelState, DataState, Extended])
def test_any_state_with_messages_works_and_hides_our_keys(state):
    """The nodes bring their keys along: the view is remembered from step to step, callers see what is theirs."""
    model = ScriptedChatModel(policy=tool_loop(steps=1, args={"path": "a"}))
    graph = builder_of(state, nodes_of(), model).compile(checkpointer=InMemorySaver())
    answer = played(graph)
    assert {*answer} - {"customer"} == {"messages"}
    assert {"context_summary", "context_view"}.isdisjoint(
        graph.get_input_jsonschema()["properties"]
    )
    stored = graph.get_state(THREAD).values
    assert stored["context_guard"]["compactions"] > 0
    assert stored["context_report"]["total_tokens"] <= WINDOW


def test_no_summary_is_paid_for_where_the_state_does_not_keep_it():
    """Without their keys nodes that are added by hand would start over in every step."""
    nodes, builder = nodes_of(), StateGraph(MessagesState)
    for name in ("budget_check", "maybe_summarize"):
        builder.add_node(name, getattr(nodes, name))
    builder.add_edge(START, "budget_check")
    builder.add_edge("budget_check", "maybe_summarize")
    with pytest.raises(ConfigError, match=r"class State\(ContextState\)"):
        builder.compile().invoke({"messages": "Hi"})


def test_a_request_that_passed_no_check_fits():
    """Whoever draws the edges by hand may leave `budget_check` out."""
    state = nodes_of().build_messages.invoke({"messages": talk(40)})
    assert exact_count(state["llm_input_messages"]) <= WINDOW


@pytest.mark.parametrize("hint", [list[AnyMessage], None])
def test_a_history_that_would_be_lost_is_refused(hint):
    state = TypedDict("TheirState", {"messages": hint} if hint else {"chat": list[str]})
    with pytest.raises(ConfigError, match=r"TheirState.*add_messages"):
        add_context_nodes(StateGraph(state), nodes_of(), model=ScriptedChatModel())


def test_the_hook_manages_the_window_of_an_agent_with_a_loop_of_its_own():
    """`create_react_agent` with our hook and its own state: requests fit, the history stays whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import (
            create_react_agent,  # deprecated by its makers, used by supervisors
        )

        model = ScriptedChatModel(policy=tool_loop(steps=1, args={"path": "a"}))
        agent = create_react_agent(
            model,
            [read],
            pre_model_hook=nodes_of().pre_model_hook,
            checkpointer=InMemorySaver(),
        )
    assert len(played(agent)["messages"]) == 8 * 4
    assert (
        max(exact_count(request.messages, tools=[read]) for request in model.requests)
        <= WINDOW
    )
    assert agent.get_state(THREAD).values["context_guard"]["compactions"] > 0


@pytest.mark.parametrize(
    ("written", "means"),
    [
        (("tokens", 2000), 2000),
        (("fraction", 0.8), 0.8),
        (["fraction", 1], 1),
        (0.4, 0.4),
    ],
)
@pytest.mark.parametrize("setting", ["trigger", "keep", "prepare"])
def test_sizes_are_understood_as_langchain_writes_them(setting, written, means):
    """Settings that are copied from another middleware mean the same."""
    assert getattr(ContextConfig(**{setting: written}), setting) == means


@pytest.mark.parametrize("is_async", [False, True])
def test_a_model_gets_the_config_of_its_node(is_async):
    tags = []

    def answer(messages, config: RunnableConfig):
        tags.extend(config["tags"])
        return AIMessage("Yes.")

    nodes, state = ContextNodes(engine_of(4_000)), {"messages": [HumanMessage("?")]}
    node = nodes.model_node(RunnableLambda(answer)).with_config(tags=["nostream"])
    asyncio.run(node.ainvoke(state)) if is_async else node.invoke(state)
    assert tags == ["nostream"]


def test_tools_that_are_bound_to_the_model_are_the_tools_of_the_nodes():
    nodes = ContextNodes(ContextEngine(limits=8192))
    nodes.model_node(ScriptedChatModel().bind_tools([read]))
    tools = nodes.budget_check.step({"messages": [HumanMessage("hi")]}).window.tools
    assert [tool["function"]["name"] for tool in tools] == ["read"]


def test_each_model_node_goes_by_its_own_model():
    """Also behind the other nodes, which go by the one that was made last."""
    models = [RoutedChatModel(router(scripted(name, 8_000))) for name in "ab"]
    nodes, state = ContextNodes(engine_of()), {"messages": [HumanMessage("hi")]}
    made = [nodes.model_node(model) for model in models]
    state |= nodes.budget_check.invoke(state)
    assert [node.step(state).window.model for node in made] == ["a", "b"]


@pytest.mark.parametrize(
    ("limits", "family"),
    [
        (ModelInfo(name="a", context_window=8_192, tokenizer_family="qwen"), "qwen"),
        (8_192, "generic"),
    ],
)
def test_a_callable_as_the_model_is_counted_for_as_the_engine_says(limits, family):
    nodes, history = ContextNodes(ContextEngine(limits)), talk(3)
    nodes.model_node(lambda _: AIMessage("Yes."))
    step = nodes.budget_check.step({"messages": history})
    expected = TokenEstimator(family)([history[0]]) - TokenEstimator(family)([])
    assert step.window.price(history[0]) == expected


# Is each request measured once per node, and is what is too large asked for less output until it fits?


@pytest.mark.parametrize("kind", ["nodes", "middleware", "router and selector"])
def test_a_model_call_takes_two_measures_where_nothing_compacts(kind, monkeypatch):
    """One before the call, which every node up to the answer goes by; one after the answer that ends the turn."""
    small, large = (
        scripted(name, window, policy=tool_loop(steps=1, args={"path": "a"}))
        for name, window in (("small", 8_000), ("large", 16_000))
    )
    if kind == "router and selector":
        chosen = ToolSelector([read], max_tool_tokens=500)
        agent = agent_on(
            "nodes", RoutedChatModel(router(small, large)), tool_selector=chosen
        )
    else:
        agent = agent_on(kind, small, [read])
    agent.invoke({"messages": [HumanMessage("hello")]}, THREAD)
    measured, measure = [], ContextEngine.measure
    monkeypatch.setattr(
        ContextEngine,
        "measure",
        lambda *args, **given: measured.append(1) or measure(*args, **given),
    )
    agent.invoke({"messages": [HumanMessage("hello again")]}, THREAD)
    assert len(measured) == 2 + 1  # two model calls, one end of a turn


@on_both
def test_a_compaction_is_planned_once(adapter, monkeypatch):
    """The check plans what leaves before the limit is reached, and the step after it carries that plan out."""
    planned, plan = [], planning.smaller
    monkeypatch.setattr(
        planning, "smaller", lambda *args: planned.append(1) or plan(*args)
    )
    model = scripted("small", 2_000, policy=lambda *_: AIMessage("Yes."))
    state = agent_on(adapter, model).invoke({"messages": talk(20)}, THREAD)
    assert state["messages"][-1].text == "Yes."
    assert len(planned) == 1


def test_an_interrupt_that_quotes_an_overflow_is_none():
    asked = []

    def answer(messages):
        asked.append(len(messages))
        return AIMessage(interrupt(str(openai_overflow(9_000, 8_000))))

    agent = chat_on(engine_of(8_000), answer, checkpointer=InMemorySaver())
    history = [kind("word " * 400) for kind in 4 * (HumanMessage, AIMessage)]
    agent.invoke({"messages": [*history, HumanMessage("hi")]}, THREAD)
    assert agent.invoke(Command(resume="yes"), THREAD)["messages"][-1].text == "yes"
    assert len(asked) == 2
