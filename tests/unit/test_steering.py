"""Can a host compact a thread now, see what would leave, and take it back?"""

import asyncio
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextEngine,
    ContextWindowError,
    ModelInfo,
    ModelLimits,
    SummarizationError,
    ThreadBudgetError,
    acompact,
    aundo,
    compact,
    create_context_agent,
    undo,
)
from langchain_ctxwin.core.request import IDLE
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import CompactionEvent, MemorySink, NoticeEvent
from langchain_ctxwin.testing import ScriptedChatModel, count_tokens
from support.agents import (
    THREAD,
    WORD,
    agent_on,
    ask,
    call,
    model_of,
    on_both,
    talk,
    values,
)
from support.fakes import exact_count, script
from support.graphs import chat_on

LIMIT = 4_000
SUMMARY = "They talked of the fox."
SESSION = ("context_view", "context_summary")


def agent_with(adapter, config=(), **options):
    """Return an agent whose model answers nine times, and that model."""
    model = model_of(LIMIT, policy=script(*["done"] * 9))
    settings = ContextConfig(output_reserve=0, **dict(config))
    agent = agent_on(adapter, model, config=settings, counter=exact_count, **options)
    return agent, model


def talked(adapter, turns=12, *, before=(), **options):
    """Return an agent that answered a question after so many turns, and its model."""
    agent, model = agent_with(adapter, **options)
    agent.invoke({"messages": [*before, *talk(turns)]}, THREAD)
    return agent, model


@on_both
def test_a_preview_changes_nothing_and_says_what_then_happens(adapter):
    agent, model = talked(adapter)
    state = agent.get_state(THREAD)
    seen = compact(agent, THREAD, preview=True)
    assert agent.get_state(THREAD) == state
    assert compact(agent, THREAD) == seen
    assert seen.reason == "asked by the host"
    assert [message.id for message in seen.left][:3] == ["q1", "a1", "q2"]
    assert {message.kind for message in seen.left} == {"human", "ai"}
    assert seen.tokens_before - seen.tokens_after > 400
    assert (
        sum(message.tokens for message in seen.left)
        >= seen.tokens_before - seen.tokens_after
    )
    assert "question 1" in seen.record
    assert agent.get_state(THREAD).next == ()
    ask(agent, "Go on.")
    assert len(model.requests) == 2
    shown = {message.id for message in model.requests[-1].messages}
    assert not shown & {message.id for message in seen.left}
    assert compact(agent, THREAD) is None


@on_both
def test_an_answer_carries_the_report_of_its_request(adapter):
    agent, _ = talked(adapter)
    state = values(agent)
    told = state["messages"][-1].response_metadata["ctxwin"]
    assert told.keys() == state["context_report"].keys()
    assert told["total_tokens"] < told["input_limit"] == LIMIT
    assert json.loads(json.dumps(told)) == told


@on_both
def test_undo_brings_the_former_view_back_and_the_next_request_shows_it(adapter):
    heard = MemorySink()
    agent, model = talked(adapter, sinks=[heard])
    before = values(agent)
    left = compact(agent, THREAD).left
    undo(agent, THREAD)
    after = values(agent)
    assert after["messages"] == before["messages"]
    assert {key: after.get(key) or None for key in SESSION} == {
        key: before.get(key) or None for key in SESSION
    }
    assert not after["context_record"]
    assert json.loads(json.dumps(after["context_guard"])) == after["context_guard"]
    ask(agent, "Go on.")
    assert {message.id for message in left} <= {
        message.id for message in model.requests[-1].messages
    }
    assert [one.notice for one in heard.of(NoticeEvent)] == ["compaction_undone"]
    assert [event.reason for event in heard.of(CompactionEvent)] == [
        "asked by the host"
    ]
    assert {event.thread for event in heard.events} == {"1"}
    with pytest.raises(ContextWindowError, match="nothing to undo"):
        undo(agent, THREAD)


@on_both
def test_nothing_is_brought_back_when_its_messages_were_removed(adapter):
    agent, _ = talked(adapter)
    compact(agent, THREAD)
    agent.update_state(
        THREAD, {"messages": [RemoveMessage(id="q1"), RemoveMessage(id="a1")]}
    )
    with pytest.raises(ContextWindowError, match="edited or removed"):
        undo(agent, THREAD)


@on_both
def test_async_hosts_get_the_same(adapter):
    agent, _ = talked(adapter)
    other, _ = talked(adapter)

    async def both():
        made = await acompact(other, THREAD)
        state = values(other)
        await aundo(other, THREAD)
        return made, state

    made, state = asyncio.run(both())
    assert made == compact(agent, THREAD)
    assert state["context_view"] == values(agent)["context_view"]
    assert not values(other).get("context_view")


@on_both
@pytest.mark.parametrize("focus", ["customer K-1003", "the parcel of K-1003"])
def test_a_focus_keeps_its_lines_in_a_record_that_holds_few(adapter, focus):
    facts = [
        message
        for n in range(60)
        for message in (
            HumanMessage(
                f"The parcel number {n} of customer K-{1000 + n} went to the depot of town {n}.",
                id=f"f{n}",
            ),
            AIMessage("Noted.", id=f"n{n}"),
        )
    ]
    agent, _ = talked(adapter, before=facts, config={"record_share": 0.05})
    assert "K-1003" not in compact(agent, THREAD, preview=True).record
    assert "K-1003" in compact(agent, THREAD, focus=focus, preview=True).record


@on_both
def test_a_model_writes_the_summary_with_the_focus_and_one_that_fails_leaves_the_record(
    adapter,
):
    asked = []

    def write(messages):
        asked.append(messages[-1].content)
        return SUMMARY

    def fail(_):
        raise RuntimeError("down")

    agent, _ = talked(adapter, 20, summarizer=write, config={"summary_max_tokens": 100})
    made = compact(agent, THREAD, focus="the red fox")
    assert made.summary == values(agent)["context_summary"] == SUMMARY
    assert made.tokens_after == values(agent)["context_report"]["total_tokens"]
    assert any("the red fox" in text for text in asked)
    undo(agent, THREAD)
    assert not values(agent)["context_summary"]
    agent, _ = talked(
        adapter,
        20,
        summarizer=fail,
        config={"summary_max_tokens": 100, "summarize": "inline"},
    )
    with pytest.raises(SummarizationError, match="compact again later"):
        compact(agent, THREAD)
    # the next steps know of the failure
    assert values(agent)["context_guard"]["ineffective"] == 1


def test_what_cannot_be_compacted_says_what_to_pass():
    agent, _ = talked("nodes", turns=1)
    without = create_context_agent(model_of(LIMIT, policy=script("done")), [])
    bare = create_agent(
        model_of(LIMIT, policy=script("done")), checkpointer=InMemorySaver()
    )
    for graph, told in (
        (bare, "neither ContextNodes nor ContextWindowMiddleware"),
        (without, "has no checkpointer"),
        ("agent", "pass the compiled graph"),
    ):
        with pytest.raises(ConfigError, match=told):
            compact(graph, THREAD)
    with pytest.raises(ContextWindowError, match="thread '2' has no messages"):
        compact(agent, {"configurable": {"thread_id": "2"}})
    assert compact(agent, THREAD) is None


@tool
def approve() -> str:
    """Ask a person."""
    return str(interrupt("Approve?"))


@on_both
def test_a_thread_in_the_middle_of_a_run_is_left_alone(adapter):
    agent = agent_on(
        adapter,
        model_of(LIMIT, policy=script(call("approve", "c1"), WORD)),
        [approve],
        counter=exact_count,
    )
    ask(agent, "Go on.")
    with pytest.raises(ContextWindowError, match="middle of a run"):
        compact(agent, THREAD)


# Settings of one run, by the context that the run is given: the same in both adapters.

LIMITS = ModelLimits(context_window=8_192, max_output_tokens=512)
LONG = {"messages": talk(12, words=150)}
SMALL = {"max_history_tokens": 800}


@dataclass
class Settings:
    """A context of somebody's own, with a place for ours."""

    name: str = "Ida"
    ctxwin: dict[str, Any] = field(default_factory=dict)


class Keys(TypedDict, total=False):
    """The same as a mapping."""

    ctxwin: dict[str, Any]


def nodes(model, schema):
    return create_context_agent(model, [], limits=LIMITS, context_schema=schema)


def middleware(model, schema):
    own = ContextWindowMiddleware(limits=LIMITS)
    return create_agent(model, [], middleware=[own], context_schema=schema)


def sent_tokens(model):
    return count_tokens(model.requests[-1].messages)


@pytest.mark.parametrize("make", [nodes, middleware])
@pytest.mark.parametrize("context", [Settings(ctxwin=SMALL), Keys(ctxwin=SMALL)])
def test_a_run_changes_settings_for_itself(make, context):
    model = ScriptedChatModel()
    agent = make(model, type(context) if isinstance(context, Settings) else Keys)
    agent.invoke(LONG)
    whole = sent_tokens(model)
    agent.invoke(LONG, context=context)
    small = sent_tokens(model)
    agent.invoke(LONG)
    assert small < 1_200 < whole == sent_tokens(model)


@pytest.mark.parametrize("make", [nodes, middleware])
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"triger": 0.8}, r"unknown setting triger \(did you mean trigger\?\)"),
        ({"trigger": 0.3, "keep": 0.5}, r"keep=0.5 is not below trigger=0.3"),
    ],
)
def test_a_wrong_setting_of_a_run_is_an_error_before_the_model_is_called(
    make, given, error
):
    model = ScriptedChatModel()
    with pytest.raises(ConfigError, match=error):
        make(model, Settings).invoke(LONG, context=Settings(ctxwin=given))
    assert model.requests == []


def test_an_engine_with_other_settings_is_made_once_and_keeps_the_rest():
    """What it remembers and its summarizer are shared."""
    engine = ContextEngine(
        LIMITS, summarizer=lambda _: "So far.", config=ContextConfig(keep=0.3)
    )
    other = engine.with_settings({"trigger": 0.8})
    assert (other.config.trigger, other.config.keep, engine.config.trigger) == (
        *(0.8, 0.3),
        None,
    )
    assert (other.summarizer, other.writer) == (engine.summarizer, engine.writer)


def test_a_run_may_set_a_low_trigger_beside_the_default_of_keep():
    assert ContextEngine(LIMITS).with_settings({"trigger": 0.2}).config == (
        ContextConfig(trigger=0.2)
    )


# Is a conversation whose prompt cache went cold compacted before its next request, and only then?


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
    engine = ContextEngine(model, exact_count, None, config, clock=lambda: now[0])
    agent = chat_on(engine, model)
    agent.invoke({"messages": talk(turns)}, THREAD)
    assert values(agent)["context_report"]["compactions"] == 0
    now[0] += pause_seconds
    ask(agent, "Go on.")
    state = values(agent)
    assert state["context_report"]["compactions"] == compactions
    assert (state.get("context_guard", {}).get("reason", "") == IDLE) is bool(
        compactions
    )


# Does a thread stop where its budget ends: told before, raised or asked then, whichever adapter runs it?

# tokens in milli-USD
PRICES = ModelInfo(
    name="scripted", input_price=Decimal(1_000), output_price=Decimal(1_000)
)


def ask_often(agent):
    for _ in range(9):
        ask(agent, "Hello, who are you?")


def spent(agent):
    return values(agent)["context_guard"]["spent"]


def test_tokens_that_a_state_holds_as_text_are_counted_on():
    agent, _ = agent_with("nodes", {"max_thread_tokens": 10_000})
    ask(agent, "Hello.")
    agent.update_state(THREAD, {"context_guard": {"spent": {"tokens": "12"}}}, "agent")
    ask(agent, "And you?")
    assert spent(agent)["tokens"] > 12


@on_both
def test_the_next_call_of_a_spent_thread_is_not_made(adapter):
    sink = MemorySink()
    agent, model = agent_with(adapter, {"max_thread_tokens": 60}, sinks=[sink])
    with pytest.raises(ThreadBudgetError) as caught:
        ask_often(agent)
    assert spent(agent)["tokens"] >= 60
    told = f"spent {spent(agent)['tokens']} of max_thread_tokens=60: raise"
    assert told in str(caught.value)
    used = [
        message.usage_metadata["total_tokens"]
        for message in values(agent)["messages"]
        if message.type == "ai"
    ]
    assert sum(used) == spent(agent)["tokens"]
    assert len(model.requests) == len(used) < 9
    notices = [event.notice for event in sink.events if hasattr(event, "notice")]
    assert notices == ["budget_near"]


@on_both
def test_cost_is_counted_by_the_prices_that_are_known(adapter):
    agent, _ = agent_with(adapter, {"max_thread_cost": "0.05"}, prices=PRICES)
    ask(agent, "Hello, who are you?")
    assert Decimal(spent(agent)["cost"]) == Decimal(spent(agent)["tokens"]) / 1_000
    with pytest.raises(
        ThreadBudgetError,
        match=r"the thread spent 0\.\d+ of max_thread_cost=0\.05: raise",
    ):
        ask_often(agent)


@on_both
def test_a_summary_is_a_call_of_the_thread(adapter):
    writer = model_of(LIMIT, policy=script(SUMMARY))
    settings = {"max_thread_tokens": 100_000, "summary_max_tokens": 100}
    agent, _ = talked(adapter, 20, summarizer=writer, config=settings)
    before = spent(agent)["tokens"]
    compact(agent, THREAD)
    assert spent(agent)["tokens"] - before >= writer.requests[0].tokens > 0


@on_both
def test_a_summary_of_which_nobody_knows_the_cost_counts_as_nothing(adapter):
    settings = {"summary_max_tokens": 100}
    agent, _ = talked(adapter, 20, summarizer=lambda _: SUMMARY, config=settings)
    compact(agent, THREAD)
    assert "spent" not in values(agent)["context_guard"]


@on_both
def test_a_person_may_allow_more(adapter):
    """What the question says to resume with goes on."""
    agent, model = agent_with(
        adapter, {"max_thread_tokens": 120, "on_budget": "interrupt"}
    )
    ask(agent, f"Hello, who are you? {'word ' * 80}")
    ask(agent, "Hello, who are you?")
    asked = ask(agent, "And now?")["__interrupt__"][0].value
    assert (asked["reason"], asked["setting"], asked["limit"]) == (
        "thread_budget",
        "max_thread_tokens",
        "120",
    )
    calls = len(model.requests)
    again = agent.invoke(Command(resume="yes"), THREAD)["__interrupt__"][0].value
    done = agent.invoke(Command(resume=again["resume_with"]), THREAD)
    assert done["messages"][-1].text == "done"
    ask(agent, "Go on.")
    assert len(model.requests) == calls + 2
