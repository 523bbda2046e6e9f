"""Does the agent's own model summarize after its last request, so that the provider reads the prefix from its cache?"""

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import (
    ContextConfig,
    ModelLimits,
    SummaryJobs,
    create_context_agent,
)
from support.agents import PATIENCE, THREAD, agent_on, on_both, values
from support.fakes import ScriptedChatModel, core_overflow, exact_count

WORDS = "lorem ipsum dolor sit amet " * 36
SUMMARY = "The user counts questions."
WINDOW = 12_000
MARK = "Pause here"


class Provider(ScriptedChatModel):
    """Answers questions, and asked for a summary writes one."""

    calls_a_tool: bool = False
    refuses_longer: bool = False

    def _next(self, messages, tools):
        if MARK not in messages[-1].text:
            words = f"answer {len(messages)}. {WORDS}"
            return AIMessage(SUMMARY if asks(messages) else words)
        if self.refuses_longer:
            return core_overflow(13_000, WINDOW)
        calls = [{"name": "search", "args": {}, "id": "1"}]
        return AIMessage(SUMMARY, tool_calls=calls if self.calls_a_tool else [])

    @property
    def summaries(self):
        return [request for request in self.requests if asks(request.messages)]

    @property
    def extended(self):
        """Of each summary, whether it was asked for behind the last request."""
        return [MARK in request.messages[-1].text for request in self.summaries]


def provider(**options):
    return Provider(profile={"max_input_tokens": WINDOW}, **options)


def asks(messages):
    return MARK in messages[-1].text or "<transcript" in messages[-1].text


@tool
def search(query: str) -> str:
    """Search."""
    return query


def talk(model, adapter="nodes", *, summarize="background"):
    """Ask until the agent has summarized, each background summary finished before the next question."""
    jobs = SummaryJobs()
    config = ContextConfig(output_reserve=0, summarize=summarize, pin_first_user=False)
    options = {
        "counter": exact_count,
        "summarizer": model,
        "config": config,
        "jobs": jobs,
    }
    agent = agent_on(adapter, model, [search], system_prompt="You are kind.", **options)
    for number in range(40):
        agent.invoke({"messages": [HumanMessage(f"question {number} {WORDS}")]}, THREAD)
        jobs.drain(10)
        if model.summaries:
            agent.invoke({"messages": [HumanMessage("one more")]}, THREAD)
            break
    return agent.get_state(THREAD).values


@on_both
@pytest.mark.parametrize("summarize", ["background", "inline"])
def test_the_own_model_is_asked_by_one_message_after_the_last_request(
    adapter, summarize
):
    """System message, tools and messages are those of the request before; the provider finds its prefix unchanged."""
    talk(model := provider(), adapter, summarize=summarize)
    asked = payload_of(model.summaries[0])
    requests = [payload_of(one) for one in model.requests if not asks(one.messages)]
    assert any(
        asked[: len(request)] == request and len(asked) - len(request) <= 2
        for request in requests
    )
    assert {len(request.tools) for request in model.requests} == {1}


def payload_of(request):
    return [(message.type, message.content) for message in request.messages]


def test_a_tool_call_instead_of_a_summary_is_a_failure():
    model = provider(calls_a_tool=True)
    state = talk(model)
    assert state["messages"][-1].text.startswith("answer")
    assert (
        "called a tool instead of writing a summary" in state["context_guard"]["reason"]
    )


def test_a_request_refused_as_too_large_is_replaced_by_the_transcript():
    model = provider(refuses_longer=True)
    state = talk(model)
    first, *others = model.extended
    assert (first, {*others}) == (True, {False})
    assert state["context_pending"]["text"] == SUMMARY


# Who sees the calls of a summarizer, where they run, and what it may do to the agent that asked for them.


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


def agent_with(summarizer, jobs, **config):
    return create_context_agent(
        ScriptedChatModel(),
        [],
        limits=ModelLimits(context_window=1000, max_output_tokens=100),
        summarizer=summarizer,
        config=ContextConfig(**config),
        checkpointer=InMemorySaver(),
        jobs=jobs,
    )


def questions():
    return [
        {"messages": [HumanMessage(f"Question {number}: {'word ' * 60}")]}
        for number in range(16)
    ]


def ask(agent, config=None):
    for question in questions():
        agent.invoke(question, {**THREAD, **(config or {})})


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
        await agent.ainvoke(question, THREAD)
        assert await asyncio.to_thread(jobs.drain, PATIENCE) == 0
    assert values(agent)["context_summary"] == SUMMARY
    assert loops == {asyncio.get_running_loop()}
