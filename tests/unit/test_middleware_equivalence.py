"""Do the nodes and the middleware send the same requests, and do they leave the same session?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ContextEngine, ContextState, create_context_agent
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from langchain_ctxwin.summarize import SummaryJobs
from support.fakes import ScriptedChatModel, script
from support.graphs import chat_on

THREAD = {"configurable": {"thread_id": "1"}}
PROMPT = "You are a careful assistant."
WORD = "fox "  # one token in most vocabularies
PATIENCE = 20.0  # of a test with a thread; nothing here takes a second
RUNS = settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@tool
def read(words: int, call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
    """Read some words."""
    return ToolMessage(WORD * words, tool_call_id=call_id, id=f"result of {call_id}", name="read")


class Numbered(ScriptedChatModel):
    """A model whose answers have ids that do not differ from run to run."""

    def _metered(self, answer: AIMessage, tokens: int) -> AIMessage:
        return super()._metered(answer, tokens).model_copy(update={"id": f"answer {len(self.requests)}"})


class Prompt(SummaryJobs):
    """Jobs that are done as soon as they are started."""

    def start(self, *args: Any, **options: Any) -> bool:
        started = super().start(*args, **options)
        self.drain(PATIENCE)
        return started


class Digest:
    """A summarizer that says how much it was given."""

    def summarize(self, messages: list[Any], *, previous: str, max_tokens: int) -> str:
        return f"{previous} {len(messages)} more messages".strip()[-max_tokens:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation and how it is managed."""

    window: int
    turns: list[tuple[int, list[list[int]], int]]
    """Of each turn the words of the question, of the results of each step, and of the answer."""
    mode: str
    has_summarizer: bool
    keep: float

    @property
    def config(self) -> ContextConfig:
        return ContextConfig(summarize=self.mode, keep=self.keep, output_reserve=0)

    def model(self) -> Numbered:
        """Return the model that plays the scenario, and that refuses what is larger than the window."""
        calls, answers = 0, []
        for _, steps, words in self.turns:
            for step in steps:
                made = [{"name": "read", "args": {"words": n}, "id": f"c{calls + i}"} for i, n in enumerate(step)]
                answers.append(AIMessage("", tool_calls=made))
                calls += len(step)
            answers.append(AIMessage(f"done {WORD * words}"))
        return Numbered(policy=script(*answers), input_limit=self.window, profile={"max_input_tokens": self.window})

    def summarizer(self) -> Digest | None:
        return Digest() if self.has_summarizer else None


WORDS = st.sampled_from((1, 10, 60, 150, 400))
STEPS = st.lists(st.lists(WORDS, min_size=1, max_size=3), max_size=3)
SCENARIOS = st.builds(
    Scenario,
    window=st.sampled_from((400, 700, 1500, 4000)),
    turns=st.lists(st.tuples(WORDS, STEPS, WORDS), min_size=1, max_size=5),
    mode=st.sampled_from(("inline", "background", "off")),
    has_summarizer=st.booleans(),
    keep=st.sampled_from((0.2, 0.5, 0.8)),
)
LONG_ONE = Scenario(
    window=1500, turns=[(60, [[60, 60], [150]], 60)] * 8, mode="background", has_summarizer=True, keep=0.5
)


def nodes_for(scenario, model):
    """The agent on the nodes; with an engine of its own where the test has to bring the jobs."""
    if scenario.mode != "background":
        options = {"config": scenario.config, "summarizer": scenario.summarizer()}
        return create_context_agent(model, [read], system_prompt=PROMPT, checkpointer=InMemorySaver(), **options)
    engine = ContextEngine(limits=model, config=scenario.config, summarizer=scenario.summarizer(), jobs=Prompt())
    return chat_on(engine, model.bind_tools([read]), tools=[read], prompt=PROMPT)


def middleware_for(scenario, model):
    """The agent of langchain with the middleware, which gets no engine."""
    middleware = ContextWindowMiddleware(summarizer=scenario.summarizer(), config=scenario.config, jobs=Prompt())
    return create_agent(
        model,
        [read],
        system_prompt=PROMPT,
        middleware=[middleware],
        state_schema=ContextAgentState,
        checkpointer=InMemorySaver(),
    )


def session_of(agent):
    """The session keys that an agent left, without the time of day, and its history."""
    values = agent.get_state(THREAD).values
    session = {key: value for key, value in values.items() if key.startswith("context_")}
    session["context_pending"] = {k: v for k, v in session.get("context_pending", {}).items() if k != "since"}
    return session, [plain(message) for message in values["messages"]]


def plain(message):
    return message.model_dump(include={"type", "content", "id", "tool_calls", "tool_call_id"})


def sent(model):
    return [([plain(message) for message in request.messages], request.tools) for request in model.requests]


async def play(make, scenario, *, is_async):
    """Run the conversation; return what was sent, what is left, and the error that ended it."""
    model = scenario.model()
    agent, error = make(scenario, model), ""
    for number, (words, _, _) in enumerate(scenario.turns):
        question = {"messages": [HumanMessage(f"question {number} {WORD * words}", id=f"q{number}")]}
        try:
            await agent.ainvoke(question, THREAD) if is_async else agent.invoke(question, THREAD)
        except (BudgetExceededError, ContextOverflowError) as refusal:
            error = repr(refusal)
            break
    return sent(model), session_of(agent), error


def outcomes(scenario):
    """The same scenario on both, sync and async."""
    ways = [(make, is_async) for make in (nodes_for, middleware_for) for is_async in (False, True)]
    return [asyncio.run(play(make, scenario, is_async=is_async)) for make, is_async in ways]


@RUNS
@given(scenario=SCENARIOS)
def test_nodes_and_middleware_send_the_same_requests_and_leave_the_same_session(scenario):
    """Any script, any window, every way to summarize; sync and async."""
    nodes, *others = outcomes(scenario)
    requests, (session, history), error = nodes
    for other_requests, (other_session, other_history), other_error in others:
        assert other_requests == requests
        assert (other_history, other_error) == (history, error)
        if not error:
            assert other_session == session


@pytest.mark.parametrize("mode", ["inline", "background", "off"])
def test_the_compared_conversations_are_compacted(mode):
    """The comparison is not empty: a long conversation is compacted, and the requests are as many as the answers."""
    scenario = replace(LONG_ONE, mode=mode)
    requests, (session, history), error = asyncio.run(play(middleware_for, scenario, is_async=False))
    assert (len(requests), error) == (24, "")
    assert session["context_guard"]["compactions"] > 0
    assert bool(session.get("context_summary")) is (mode != "off")
    assert len(history) == 8 * 7


def test_the_hidden_keys_are_those_of_the_nodes():
    """Same names, same types; only the built request is the nodes' alone."""
    nodes, agent = get_type_hints(ContextState), get_type_hints(ContextAgentState)
    names = nodes.keys() - {"llm_input_messages"}
    assert {name: agent[name] for name in names} == {name: nodes[name] for name in names}
