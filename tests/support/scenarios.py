"""Whole conversations on either adapter, drawn by Hypothesis: questions, tool calls, modes and windows."""

from dataclasses import dataclass
from typing import Annotated

from hypothesis import strategies as st
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool

from langchain_ctxwin import ContextConfig, ContextEngine
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.summarize import SummaryJobs
from support.agents import PATIENCE, THREAD, WORD, agent_on
from support.conversations import payload
from support.fakes import ScriptedChatModel, script
from support.graphs import chat_on

PROMPT = "You are a careful assistant."


@tool
def read(words: int, call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
    """Read some words."""
    return ToolMessage(
        WORD * words, tool_call_id=call_id, id=f"result of {call_id}", name="read"
    )


class Numbered(ScriptedChatModel):
    """A model whose answers have ids that do not differ from run to run."""

    def _metered(self, answer, tokens):
        return (
            super()
            ._metered(answer, tokens)
            .model_copy(update={"id": f"answer {len(self.requests)}"})
        )


def digest(messages):
    return f"{len(messages)} more messages"


class Prompt(SummaryJobs):
    """Jobs that are done as soon as they are started."""

    def start(self, *args, **options):
        started = super().start(*args, **options)
        self.drain(PATIENCE)
        return started


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation and how it is managed."""

    window: int
    turns: list[tuple[int, list[list[int]], int]]
    """Of each turn the words of the question, of the results of each step, and of the answer."""
    mode: str
    has_summarizer: bool
    keep: float

    def model(self):
        """Return the model that plays the scenario, and that refuses what is larger than the window."""
        calls, answers = 0, []
        for _, steps, words in self.turns:
            for step in steps:
                made = [
                    {"name": "read", "args": {"words": n}, "id": f"c{calls + i}"}
                    for i, n in enumerate(step)
                ]
                answers.append(AIMessage("", tool_calls=made))
                calls += len(step)
            answers.append(AIMessage(f"done {WORD * words}"))
        return Numbered(
            policy=script(*answers),
            input_limit=self.window,
            profile={"max_input_tokens": self.window},
        )

    def agent(self, adapter, model, **stores):
        """Return an agent; on the nodes with an engine of its own where the test has to bring the jobs."""
        config = ContextConfig(summarize=self.mode, keep=self.keep, output_reserve=0)
        options = {
            "config": config,
            "summarizer": digest if self.has_summarizer else None,
        }
        if self.mode == "background" and adapter == "nodes":
            engine = ContextEngine(limits=model, jobs=Prompt(), **options)
            return chat_on(
                engine, model.bind_tools([read]), tools=[read], prompt=PROMPT, **stores
            )
        options |= {"jobs": Prompt()} if self.mode == "background" else {}
        return agent_on(
            adapter, model, [read], system_prompt=PROMPT, **options, **stores
        )


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
    window=1500,
    turns=[(60, [[60, 60], [150]], 60)] * 8,
    mode="background",
    has_summarizer=True,
    keep=0.5,
)


async def play(scenario, adapter, is_async, **options):
    """Run the conversation; return the agent, the model, what was sent, and the error that ended it."""
    model = scenario.model()
    agent, error = scenario.agent(adapter, model, **options), ""
    for number, (words, _, _) in enumerate(scenario.turns):
        question = {
            "messages": [
                HumanMessage(f"question {number} {WORD * words}", id=f"q{number}")
            ]
        }
        try:
            await agent.ainvoke(question, THREAD) if is_async else agent.invoke(
                question, THREAD
            )
        except (BudgetExceededError, ContextOverflowError) as refusal:
            error = repr(refusal)
            break
    return (
        agent,
        [
            ([*map(plain, request.messages)], request.tools)
            for request in model.requests
        ],
        error,
    )


def plain(message):
    """Return what a message says, with its id."""
    return message.id, payload(message)
