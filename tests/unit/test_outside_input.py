"""Is an argument that cannot work refused where it is given, and can a caller set messages and nothing else?"""

from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextEngine,
    ModelLimits,
    RoutedChatModel,
    TokenEstimator,
    ToolSelector,
    create_context_agent,
)
from langchain_ctxwin.errors import brief
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.summarize import SummaryJobs
from support.agents import ADAPTERS, agent_on
from support.desk import CONFIG, TOOLS, state_of
from support.fakes import ScriptedChatModel, script
from support.graphs import chat_on
from support.routing import router, scripted

LIMITS = ModelLimits(context_window=1_000)
MAKERS = {
    "engine": lambda **options: ContextEngine(LIMITS, **options),
    "middleware": ContextWindowMiddleware,
    "agent": lambda **options: create_context_agent(
        ScriptedChatModel(), [], limits=LIMITS, **options
    ),
}


def refusal(make, *arguments, **options):
    """Return what a refusal says."""
    with pytest.raises(ConfigError) as raised:
        make(*arguments, **options)
    return str(raised.value)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("value", [{"prepare": 0.5}, {}, ContextConfig])
def test_a_config_is_checked_when_it_is_given(maker, value):
    """An empty value is as false as None, and a class is none."""
    told = refusal(MAKERS[maker], config=value)
    assert told == (
        f"config={value!r}: pass a ContextConfig, for example ContextConfig(keep=0.4)"
    )


@pytest.mark.parametrize("maker", MAKERS)
def test_a_summarizer_is_checked_when_it_is_given_and_what_works_passes(maker):
    """Not at the first call, which may be hours later; a model without limits can summarize."""
    for odd in ("a-model", FakeListChatModel, 3):
        assert refusal(MAKERS[maker], summarizer=odd).startswith(f"summarizer={odd!r}")
    summarizer = FakeListChatModel(responses=["text"])
    assert MAKERS[maker](
        counter=TokenEstimator(),
        jobs=SummaryJobs(),
        config=ContextConfig(),
        summarizer=summarizer,
    )


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
    "context_counts": {"first": TRACE, "speakers": {"": TRACE}},
    "context_tools": [TRACE],
    "context_model": {"model": TRACE},
    "context_guard": {"compactions": 7, "reason": TRACE},
    "context_report": {"over_by": 0, "stopped": TRACE},
    "llm_input_messages": [SystemMessage(TRACE)],
}


def by_nodes(model):
    """The nodes in a graph of one's own, as the documentation shows it."""
    return chat_on(ContextEngine(LARGE), model)


def by_middleware(model):
    """LangChain's agent with the middleware alone."""
    middleware = [ContextWindowMiddleware(ContextEngine(LARGE))]
    return create_agent(model, middleware=middleware, checkpointer=InMemorySaver())


GRAPHS = [
    by_nodes,
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
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
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
