"""Engines in small windows, histories for them, and one agent on either adapter: nodes or middleware."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, settings
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelInfo,
    ModelLimits,
    create_context_agent,
)
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel

THREAD = {"configurable": {"thread_id": "1"}}
WORD = "fox "  # one token in most vocabularies
LONG = "The quick brown fox jumps over the lazy dog. " * 12  # about 120 tokens
PATIENCE = 20.0  # of what waits for a thread; nothing that is tested takes a second
PRICED = ModelInfo(
    name="scripted",
    input_price=Decimal(1),
    output_price=Decimal(10),
    cache_read_price=Decimal("0.1"),
)
"""What is known of the models below."""

ENGINE_OPTIONS = {
    "jobs",
    "learned",
    "sinks",
}
ADAPTERS = ("nodes", "middleware")
on_both = pytest.mark.parametrize("adapter", ADAPTERS)
WAYS = [(adapter, is_async) for adapter in ADAPTERS for is_async in (False, True)]
RUNS = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def engine_of(window=600, counter=None, summarizer=None, **options):
    """Return an engine whose input limit is `window`; options are its own, or those of its `ContextConfig`."""
    own = {name: options.pop(name) for name in ENGINE_OPTIONS & options.keys()}
    config = ContextConfig(**{"output_reserve": 0, **options})
    return ContextEngine(
        ModelLimits(context_window=window),
        counter or CharCounter(),
        summarizer,
        config,
        **own,
    )


def agent_on(adapter, model, tools=(), **options):
    """Compile an agent that takes the limits of its model; the options are those of either adapter.

    Windows of a few hundred tokens have no room for the recall tool.
    """
    options.setdefault("recall", False)
    graph = {"checkpointer": options.pop("checkpointer", None) or InMemorySaver()}
    graph |= {
        name: options.pop(name)
        for name in ("system_prompt", "store")
        if name in options
    }
    if adapter == "nodes":
        return create_context_agent(model, tools, **graph, **options)
    middleware = [ContextWindowMiddleware(**options)]
    return create_agent(
        model,
        list(tools),
        middleware=middleware,
        state_schema=ContextAgentState,
        **graph,
    )


def model_of(window, **options):
    """Return a model that states its window and refuses what is larger."""
    return ScriptedChatModel(
        **{"profile": {"max_input_tokens": window}, "input_limit": window, **options}
    )


def values(agent):
    """Return the state of the thread."""
    return agent.get_state(THREAD).values


def ask(agent, text, config=THREAD):
    """Take one turn."""
    return agent.invoke({"messages": [HumanMessage(text)]}, config)


def call(name, key, **args):
    """Return a call as a model writes it."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": key}])


def talk(turns, words=60):
    """Return a history of questions q0.. and answers a0.. of so many words, and the current question `now`."""
    made = []
    for n in range(turns):
        made += [
            HumanMessage(f"question {n} " + WORD * words, id=f"q{n}"),
            AIMessage(WORD * words, id=f"a{n}"),
        ]
    return [*made, HumanMessage("And now?", id="now")]


def called(number, text, name="read", **args):
    """Return a step: a call and its result."""
    asking = call(name, f"c{number}", **args).model_copy(update={"id": f"a{number}"})
    return [
        asking,
        ToolMessage(text, tool_call_id=f"c{number}", name=name, id=f"r{number}"),
    ]


def compacted(
    engine,
    messages,
    state=None,
):
    """Make a history that is too large fit; return the window afterwards and the state."""
    window = engine.measure(messages, session=state)
    compaction = engine.emergency(window)
    assert compaction is not None
    state = {**(state or {}), **engine.apply(compaction, window)}
    return engine.measure(messages, session=state), state


def is_refused(*models):
    """Tell whether any request was refused."""
    return any(request.refused for model in models for request in model.requests)
