"""What do sinks hear of an agent's work, whoever runs it?"""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool

from langchain_ctxwin import (
    BudgetExceededError,
    ContextConfig,
    ToolResultConfig,
    ToolResultGuard,
)
from langchain_ctxwin.core.events import SentRequest, cache_miss
from langchain_ctxwin.observe import (
    CacheMissEvent,
    CompactionEvent,
    MemorySink,
    OverflowEvent,
    StepEvent,
    SummaryEvent,
    ToolResultEvent,
)
from langchain_ctxwin.summarize import SummaryJobs
from support import agents
from support.agents import (
    PATIENCE,
    PRICED,
    THREAD,
    WAYS,
    WORD,
    agent_on,
    ask,
    call,
    on_both,
    values,
)
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel, core_overflow, script, usage
from support.tool_runs import results

LIMIT = 1_000
COUNT = CharCounter()
SECRET = "xyzzy"  # noqa: S105  # a word to look for
PLAIN = {"config": ContextConfig(output_reserve=0), "counter": COUNT}
INLINE = {
    **PLAIN,
    "config": ContextConfig(output_reserve=0, summarize="inline", trigger=0.5),
}


def model_of(window=LIMIT, **options):
    return agents.model_of(window, counter=COUNT, **options)


def watched(adapter, model, **options):
    """An agent, and the sink that hears of it."""
    sink = MemorySink()
    return agent_on(
        adapter, model, **{"sinks": [sink], "prices": PRICED, **PLAIN, **options}
    ), sink


def chat(agent, turns, words=60, jobs=None):
    for n in range(turns):
        ask(agent, f"{SECRET} {n} " + WORD * words)
        if jobs:
            jobs.drain(PATIENCE)


def summaries(sink, status="ready"):
    return [event for event in sink.of(SummaryEvent) if event.status == status]


@tool
def read(words: int) -> str:
    """Read some words."""
    return f"{SECRET} " * words


@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_every_step_is_told_with_its_sizes_and_its_cost(adapter, is_async):
    """One event for each answer, equal to the report in the state and to what the provider said, on every way."""
    model = model_of(policy=script(call("read", "c1", words=20), "done"))
    agent, sink = watched(adapter, model, tools=[read])
    asked = {"messages": [HumanMessage("Please read.")]}
    asyncio.run(agent.ainvoke(asked, THREAD)) if is_async else agent.invoke(
        asked, THREAD
    )
    first, second = sink.of(StepEvent)
    report = values(agent)["context_report"]
    answers = [one for one in values(agent)["messages"] if isinstance(one, AIMessage)]
    output = answers[-1].usage_metadata["output_tokens"]
    assert [(event.answer_id, event.reported_tokens) for event in (first, second)] == [
        (answer.id, request.tokens)
        for answer, request in zip(answers, model.requests, strict=True)
    ]
    assert first.tools_called == first.tools_offered == ("read",)
    assert (second.thread, second.model, second.calls) == ("1", "scripted", 1)
    assert second.regions["tools"] == report["tool_tokens"]
    assert sum(second.regions.values()) == second.estimated_tokens
    assert second.cost == (Decimal(second.reported_tokens) + 10 * output) / 1_000_000
    assert second.utilization == second.reported_tokens / LIMIT
    missed = abs(first.estimated_tokens - first.reported_tokens)
    assert first.accuracy == 1 - missed / first.reported_tokens


@on_both
def test_a_compaction_is_told_with_what_left(adapter):
    """Sizes are those of the requests."""
    steps = [call("read", f"c{n}", words=100) for n in range(12)]
    agent, sink = watched(
        adapter, model_of(policy=script(*steps, "done")), tools=[read]
    )
    ask(agent, "Please read.")
    compactions = sink.of(CompactionEvent)
    assert len(compactions) == values(agent)["context_guard"]["compactions"] > 0
    for event in compactions:
        assert event.tokens_after < event.tokens_before
        assert event.tokens_after <= event.input_limit == LIMIT
        assert event.reason
    assert sink.of(StepEvent)[-1].compactions == len(compactions)


@on_both
def test_a_recovery_and_refusals_are_told(adapter):
    """What a provider refuses once, or to the end, and what cannot be made to fit at all."""
    faults = [core_overflow(1_200, 900 - number) for number in range(5)]
    agent, sink = watched(adapter, model_of(faults=faults))
    with pytest.raises(ContextOverflowError):
        ask(agent, "hello " + WORD * 200)
    first, *_, refusal = sink.of(OverflowEvent)
    told = (first.attempt, first.stated_tokens, first.stated_limit)
    assert (told, first.is_recovered) == ((1, 1_200, 900), True)
    assert (refusal.is_recovered, refusal.reason) == (False, "ContextOverflowError")
    assert sink.of(StepEvent) == []
    agent, sink = watched(adapter, model_of(), system_prompt=WORD * 1_200)
    with pytest.raises(BudgetExceededError):
        ask(agent, "hello")
    [refusal] = sink.of(OverflowEvent)
    assert (refusal.reason, refusal.input_limit) == ("BudgetExceededError", LIMIT)
    assert refusal.total_tokens > LIMIT


class Caching(ScriptedChatModel):
    """A model whose requests are read from the cache but for ten tokens."""

    def _metered(self, answer, tokens):
        made = super()._metered(answer, tokens)
        usage = {
            **made.usage_metadata,
            "input_token_details": {"cache_read": tokens - 10},
        }
        return made.model_copy(update={"usage_metadata": usage})


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("name", ["scripted", "writer"])
def test_a_summary_costs_what_its_own_model_takes_for_it(name, mode):
    """Input from the cache is cheap, and the price of the agent's model says nothing about another one."""
    jobs, config = (
        SummaryJobs(),
        ContextConfig(output_reserve=0, summarize=mode, prepare=0.3, trigger=0.5),
    )
    writer = Caching(policy=lambda *_: AIMessage("They talked."), model_name=name)
    agent, sink = watched(
        "nodes", model_of(), summarizer=writer, config=config, jobs=jobs
    )
    chat(agent, 8, jobs=jobs)
    assert summaries(sink)
    for event in summaries(sink):
        price = (
            Decimal(10)
            + (event.input_tokens - 10) * Decimal("0.1")
            + 10 * event.output_tokens
        )
        assert event.cost == (price / 1_000_000 if name == "scripted" else None)


def test_messages_are_never_told():
    """No word of a message, a result, a prompt or an error of a summarizer is in any event."""

    def write(messages):
        raise RuntimeError(f"cannot read {SECRET}")

    model = model_of(
        policy=script(*(call("read", f"c{n}", words=400) for n in range(6)), SECRET)
    )
    options = {
        "tools": [read],
        "guard": ToolResultGuard(ToolResultConfig(max_tokens=300)),
        "system_prompt": SECRET,
        # a summary is due each time, whatever the record takes
        "config": INLINE["config"].model_copy(update={"record_share": 0.1}),
    }
    agent, sink = watched("nodes", model, summarizer=write, **{**INLINE, **options})
    chat(agent, 8)
    assert {type(event) for event in sink.events} >= {
        StepEvent,
        CompactionEvent,
        ToolResultEvent,
    }
    assert summaries(sink, "refused")
    assert [
        event for event in sink.events if SECRET in json.dumps(event.to_dict())
    ] == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wiring", ["wrap", "node", "agent", "middleware"])
def test_a_guard_tells_of_every_result(wiring, is_async):
    """Results that fit and results that do not, with the thread of the run."""
    sink = MemorySink()
    guard = ToolResultGuard(ToolResultConfig(max_tokens=300), sinks=[sink])
    calls = [
        {"name": "read", "args": {"words": n}, "id": f"c{n}", "type": "tool_call"}
        for n in (1, 2_000)
    ]
    results(wiring, guard, [read], *calls, is_async=is_async, config=THREAD)
    fits, large = sorted(sink.of(ToolResultEvent), key=lambda event: event.tokens)
    assert (fits.is_oversized, fits.is_reduced, fits.level, fits.name) == (
        False,
        False,
        "debug",
        "tool_result.guarded",
    )
    assert (large.is_oversized, large.name) == (True, "tool_result.reduced")
    assert large.tokens > large.shown_tokens
    assert {(event.thread, event.tool) for event in (fits, large)} == {("1", "read")}


# Why did the provider's prompt cache miss?

TALK = [HumanMessage("Who?"), AIMessage("I.", id="before")]
PROMPT = SystemMessage("Be brief.")
LATER = [TALK[0], AIMessage("I.", id="after"), HumanMessage("Why?")]


def missed(messages=(PROMPT, *TALK), tools_digest="t", **changes):
    """What and how much missed, in a request that differs by `changes` from the one before."""
    event = StepEvent(model="m", reported_tokens=5_000, cached_tokens=0)
    before = SentRequest(event, "t", [PROMPT, *TALK])
    now = SentRequest(replace(event, **changes), tools_digest, messages)
    event = cache_miss(now, before, AIMessage("So."))
    return event and (event.changed, event.missed_tokens)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model": "n", "messages": TALK}, "model"),
        ({"messages": TALK, "tools_digest": "u"}, "system"),
        ({"tools_digest": "u", "messages": [PROMPT]}, "tools"),
        ({"messages": [PROMPT, *TALK[1:]]}, "messages"),
        ({"messages": [PROMPT, HumanMessage("What?"), *TALK]}, "messages"),
        ({"messages": [PROMPT, *LATER]}, "nothing"),
    ],
)
def test_the_first_part_that_changed_is_named(changes, part):
    """What is added behind is no change, nor is what was learned of a message."""
    assert missed(**changes) == (part, 5_000)


@pytest.mark.parametrize("cached", [4_500, None])
def test_a_miss_is_a_part_of_the_request_before_worth_a_word(cached):
    assert missed(cached_tokens=cached) is None


@on_both
def test_an_agent_tells_what_changed_when_its_cache_missed(adapter):
    """What a compaction explains is not told; a cache that has expired is one where nothing changed."""
    cached = iter([0, 2_000, 0, 0])

    def policy(messages, tools):
        tokens = sum(len(message.text) // 4 for message in messages)
        return AIMessage(
            "So.",
            usage_metadata={
                **usage(tokens),
                "input_token_details": {"cache_read": next(cached)},
            },
        )

    sink = MemorySink()
    agent = agent_on(adapter, agents.model_of(10_000, policy=policy), sinks=[sink])
    for n in range(4):
        ask(agent, f"question {n} " + WORD * 2_000)
    assert [event.changed for event in sink.of(CacheMissEvent)] == ["nothing"]
