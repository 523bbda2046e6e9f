"""Who sees the calls of a summarizer, where they run, and what it may do to the agent that asked for them."""

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import (
    ContextConfig,
    ModelLimits,
    SummaryJobs,
    create_context_agent,
)
from support.fakes import ScriptedChatModel

THREAD = {"thread_id": "1"}
SUMMARY = "The user asked for tea."
PATIENCE = 20.0


class Writer(ScriptedChatModel):
    """A summarizer of its own, with usage."""

    policy: Any = staticmethod(lambda messages, tools: AIMessage(SUMMARY))


class Watch(BaseCallbackHandler):
    """Which calls began, under which run."""

    def __init__(self):
        self.calls = []

    def on_chat_model_start(
        self, serialized, messages, *, tags=None, parent_run_id=None, metadata=None, **_
    ):
        is_ours = (metadata or {}).get("lc_source") == "summarization"
        self.calls.append((is_ours, tuple(tags or ()), parent_run_id is not None))


def agent_with(summarizer, jobs=None, *, model=None, **config):
    return create_context_agent(
        model or ScriptedChatModel(),
        [],
        limits=ModelLimits(context_window=1000, max_output_tokens=100),
        summarizer=summarizer,
        config=ContextConfig(**config),
        checkpointer=InMemorySaver(),
        jobs=jobs,
    )


def questions(count=16):
    return [
        {"messages": [HumanMessage(f"Question {number}: {'word ' * 60}")]}
        for number in range(count)
    ]


def ask(agent, config=None):
    for question in questions():
        agent.invoke(question, {"configurable": THREAD, **(config or {})})


def summary_of(agent):
    return agent.get_state({"configurable": THREAD}).values.get("context_summary", "")


@pytest.mark.parametrize("way", ["inline", "background"])
def test_callbacks_of_the_run_see_the_calls_of_its_summarizer(way):
    """As child runs with the tag that keeps their tokens out of the user's stream."""
    watch, jobs = Watch(), SummaryJobs()
    agent = agent_with(Writer(), jobs, summarize=way)
    ask(agent, {"callbacks": [watch]})
    jobs.drain(PATIENCE)
    ours = [(tags, is_child) for is_ours, tags, is_child in watch.calls if is_ours]
    assert ours
    assert all(
        is_child and any("nostream" in tag for tag in tags) for tags, is_child in ours
    )
    assert len(watch.calls) - len(ours) == len(questions())


@pytest.mark.parametrize("way", ["inline", "background"])
async def test_an_async_summarizer_runs_on_the_loop_of_its_caller(way):
    """Clients and semaphores that belong to a loop work."""
    loops, gate, jobs = set(), asyncio.Semaphore(1), SummaryJobs()

    async def write(messages):
        async with gate:
            await asyncio.sleep(0)
            loops.add(asyncio.get_running_loop())
        return SUMMARY

    agent = agent_with(write, jobs, summarize=way)
    for question in questions():
        await agent.ainvoke(question, {"configurable": THREAD})
        assert await jobs.adrain(PATIENCE) == 0
    assert summary_of(agent) == SUMMARY
    assert loops == {asyncio.get_running_loop()}
