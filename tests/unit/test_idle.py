"""Is a conversation whose prompt cache went cold compacted before its next request, and only then?"""

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ContextState,
    add_context_nodes,
)
from langchain_ctxwin.core.plan import IDLE
from support.agents import THREAD, model_of, talk, values
from support.fakes import exact_count, script

LIMIT = 4_000


@pytest.mark.parametrize(
    ("turns", "pause_seconds", "is_on", "compactions"),
    [
        (22, 3_700, True, 1),
        (22, 3_500, True, 0),
        (8, 3_700, True, 0),
        (22, 3_700, False, 0),
    ],
)
def test_a_compaction_that_is_near_happens_when_the_cache_is_cold(
    turns, pause_seconds, is_on, compactions
):
    model, now = model_of(LIMIT, policy=script("done", "done")), [1_000.0]
    config = ContextConfig(output_reserve=0, compact_when_idle=is_on)
    nodes = ContextNodes(
        ContextEngine(model, exact_count, None, config, clock=lambda: now[0])
    )
    builder = StateGraph(ContextState)
    add_context_nodes(builder, nodes, model=model)
    builder.add_edge(START, "budget_check")
    builder.add_edge("agent", "maybe_summarize")
    agent = builder.compile(checkpointer=InMemorySaver())
    agent.invoke({"messages": talk(turns)}, THREAD)
    assert values(agent)["context_report"]["compactions"] == 0
    now[0] += pause_seconds
    agent.invoke({"messages": [HumanMessage("Go on.")]}, THREAD)
    state = values(agent)
    assert state["context_report"]["compactions"] == compactions
    assert (state.get("context_guard", {}).get("reason", "") == IDLE) is bool(
        compactions
    )
