"""Inside deepagents: our middleware in the place of its own summarizer."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import CompactionEvent, MemorySink
from support.agents import THREAD, WORD, model_of

deepagents = pytest.importorskip(
    "deepagents", reason="deepagents is not installed: pip install deepagents"
)

pytestmark = pytest.mark.integration

THEIRS = "SummarizationMiddleware"


def test_ours_takes_the_place_of_its_summarizer():
    """By its name: then only ours decides what leaves, and no summarizer of theirs asks the model."""
    sink, asked = MemorySink(), []

    def policy(messages, tools):
        asked.append(messages)
        return AIMessage("So.")

    model = model_of(40_000, policy=policy)
    ours = ContextWindowMiddleware(sinks=[sink], name=THEIRS)
    agent = deepagents.create_deep_agent(
        model=model, tools=[], middleware=[ours], checkpointer=InMemorySaver()
    )
    for n in range(8):
        agent.invoke(
            {"messages": [HumanMessage(f"question {n} " + WORD * 6_000)]}, THREAD
        )
    assert len(asked) == 8
    assert not any(request.refused for request in model.requests)
    assert sink.of(CompactionEvent)
