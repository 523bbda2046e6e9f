"""What of a session can a caller of an agent set? Its messages, and nothing else."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_ctxwin import ContextEngine, ContextNodes, ModelLimits, create_context_agent
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from langchain_ctxwin.routing import RoutedChatModel
from langchain_ctxwin.tools import ToolSelector
from support.desk import CONFIG, TOOLS, state_of
from support.fakes import ScriptedChatModel, script
from support.graphs import chat_on
from support.routing import router, scripted

LIMITS = ModelLimits(8192)
TRACE = "forged by a caller"
FORGED = {
    "context_summary": TRACE,
    "context_view": {"start": {"id": TRACE, "index": 0}, "cleared": [TRACE]},
    "context_pending": {"due": True, "reason": TRACE},
    "context_counts": {"first": TRACE, "speakers": {"": TRACE}},
    "context_tools": [TRACE],
    "context_model": {"model": TRACE},
    "context_guard": {"compactions": 7, "reason": TRACE},
    "context_report": {"over_by": 0, "stopped": TRACE},
    "llm_input_messages": [SystemMessage(TRACE)],
}


def by_agent(model, tools=()):
    """The ready agent."""
    return create_context_agent(model, tools, limits=LIMITS, checkpointer=InMemorySaver())


def by_nodes(model, tools=()):
    """The nodes in a graph of one's own, as the documentation shows it."""
    return chat_on(ContextEngine(LIMITS), model.bind_tools(tools) if tools else model, tools=tools)


def by_middleware(model, tools=(), **options):
    """LangChain's agent with the middleware."""
    middleware = [ContextWindowMiddleware(ContextEngine(LIMITS))]
    return create_agent(model, list(tools), middleware=middleware, checkpointer=InMemorySaver(), **options)


def by_middleware_and_state(model, tools=()):
    """The same, with linear storage of the history."""
    return by_middleware(model, tools, state_schema=ContextAgentState)


GRAPHS = [by_agent, by_nodes, by_middleware, by_middleware_and_state]


def model_of(*answers):
    return ScriptedChatModel(policy=script(*answers or ("done",)), strict=False)


def ask(text="hi"):
    return {"messages": [HumanMessage(text)]}


def mended(graph, given):
    """Run a turn and return what was said to be mended."""
    events = graph.stream(given, CONFIG, stream_mode="custom")
    return [event["fault"] for event in events if event["type"] == "context.session_mended"]


@pytest.mark.parametrize("graph_of", GRAPHS)
def test_a_caller_sets_messages_only(graph_of):
    """The schema says so, and what else is sent reaches neither the model nor the state."""
    model = model_of()
    graph = graph_of(model)

    graph.invoke({**ask(), **FORGED}, CONFIG)

    assert set(graph.get_input_jsonschema()["properties"]) == {"messages"}
    assert TRACE not in str([request.messages for request in model.requests])
    assert TRACE not in str(state_of(graph))


@pytest.mark.parametrize("graph_of", GRAPHS)
def test_a_summary_of_nothing_that_left_is_dropped_and_said(graph_of):
    """A command writes any key, whatever the input schema; but no summary of ours stands beside the whole history."""
    model = model_of()
    graph = graph_of(model)
    graph.invoke(ask(), CONFIG)
    graph.invoke(Command(update={"context_summary": TRACE}), CONFIG)

    told = [mended(graph, ask()), mended(graph, ask())]

    assert told == [["context_summary stands for nothing that left the view: it was dropped"], []]
    assert TRACE not in str([request.messages for request in model.requests])
    assert not state_of(graph)["context_summary"]


@pytest.mark.parametrize("graph_of", GRAPHS)
def test_the_application_writes_any_key(graph_of):
    """`update_state` is its own way to change a thread."""
    graph = graph_of(model_of())
    graph.invoke(ask(), CONFIG)

    graph.update_state(CONFIG, {"context_guard": {"compactions": 7}})
    graph.invoke(ask(), CONFIG)

    assert state_of(graph)["context_report"]["compactions"] == 7


@tool
def approve() -> str:
    """Ask a person."""
    return f"the person said {interrupt('may I?')}"


@pytest.mark.parametrize("graph_of", GRAPHS)
def test_a_person_can_answer_an_interrupt(graph_of):
    """What a run is resumed with is no input."""
    graph = graph_of(ScriptedChatModel(policy=asks_once), [approve])
    stopped = graph.invoke(ask(), CONFIG)

    resumed = graph.invoke(Command(resume="yes"), CONFIG)

    assert stopped["__interrupt__"][0].value == "may I?"
    assert [m.content for m in resumed["messages"] if isinstance(m, ToolMessage)] == ["the person said yes"]


def asks_once(messages, _):
    """Calls the tool, and is done when it has its result."""
    is_answered = isinstance(messages[-1], ToolMessage)
    return AIMessage("done") if is_answered else AIMessage("", tool_calls=[{"name": "approve", "args": {}, "id": "c1"}])


PLAIN = st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(allow_nan=False) | st.text(max_size=5)
ODD = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
NAMES = st.sampled_from(["over_by", "stopped", "input_limit", "total_tokens", "model", "reason", "key", "due", "start"])
STORED = st.dictionaries(st.sampled_from(sorted(FORGED)), ODD | st.dictionaries(NAMES, ODD))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(STORED)
def test_no_stored_value_stops_a_conversation(stored):
    """Of any key, also where tools and models are chosen; the request is the one without it."""
    model = scripted("model-of-the-test", 8_000, policy=script("done"))
    agent = create_context_agent(
        RoutedChatModel(router(model)), [], tool_selector=ToolSelector(TOOLS, 500), checkpointer=InMemorySaver()
    )
    agent.invoke(ask("one"), CONFIG)
    agent.update_state(CONFIG, stored, as_node="agent")

    agent.invoke(ask("two"), CONFIG)

    assert [message.content for message in model.requests[-1].messages] == ["one", "done", "two"]


@pytest.mark.parametrize("odd", [5, "text", {"a": 1}, ["text"], [None]])
def test_a_request_that_is_none_of_ours_is_built_again(odd):
    """Also where the view is none of ours."""
    nodes = ContextNodes(ContextEngine(LIMITS))

    request = nodes.model_input({**ask(), "llm_input_messages": odd, "context_view": [1]})

    assert [message.content for message in request] == ["hi"]


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({"context_tools": "look"}, ["context_tools is no list of names: it was dropped"]),
        ({"context_tools": ["look", {}]}, ["context_tools is no list of names: it was dropped"]),
        ({"context_report": [1]}, ["context_report is list, not a mapping: it was dropped"]),
        ({"context_report": {"over_by": "9"}}, ["context_report['over_by'] holds nothing of ours: it was dropped"]),
        ({"context_summary": [TRACE]}, ["context_summary is list, not a text: it was dropped"]),
    ],
)
def test_what_is_mended_is_said_once(stored, told):
    """With the next turn the state is ours again."""
    agent = create_context_agent(
        model_of(), [], limits=LIMITS, tool_selector=ToolSelector(TOOLS, 500), checkpointer=InMemorySaver()
    )
    agent.invoke(ask(), CONFIG)
    agent.update_state(CONFIG, stored, as_node="agent")

    assert [mended(agent, ask()), mended(agent, ask())] == [told, []]
