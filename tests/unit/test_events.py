"""What do sinks hear of an agent's work, whoever runs it, and can a sink ever harm a turn?"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from structlog.testing import capture_logs

from langchain_ctxwin import (
    BudgetExceededError,
    ConfigError,
    ContextConfig,
    ContextEngine,
    ModelInfo,
    ModelLimits,
    ModelRouter,
    NoModelFitsError,
    RoutedChatModel,
    RoutingConfig,
    ToolResultConfig,
    ToolResultGuard,
    create_context_agent,
)
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import (
    CompactionEvent,
    ContextCallbackHandler,
    Event,
    LogSink,
    MemorySink,
    NoticeEvent,
    Prices,
    RecoveryEvent,
    RefusalEvent,
    Reporter,
    RouteEvent,
    StepEvent,
    StreamSink,
    SummaryEvent,
    ToolResultEvent,
    ToolsEvent,
    Usage,
)
from langchain_ctxwin.summarize import SummaryJobs
from support import agents
from support.agents import PATIENCE, THREAD, WAYS, WORD, agent_on, ask, call, on_both, talk, values
from support.conversations import CharCounter
from support.fakes import ScriptedChatModel, core_overflow, script
from support.tool_runs import results

LIMIT = 1_000
COUNT = CharCounter()
PRICED = ModelInfo(name="scripted", input_price=Decimal(1), output_price=Decimal(10), cache_read_price=Decimal("0.1"))
SECRET = "xyzzy"  # noqa: S105  # a word to look for


def model_of(window: int, **options: Any) -> ScriptedChatModel:
    return agents.model_of(window, counter=COUNT, **options)


@tool
def read(words: int) -> str:
    """Read some words."""
    return f"{SECRET} " * words


def agent_of(adapter: str, model: Any, *sinks: Any, **options: Any) -> Any:
    given = {"config": ContextConfig(output_reserve=0), "counter": COUNT, "prices": PRICED}
    return agent_on(adapter, model, sinks=sinks, **{**given, **options})


def chat(agent: Any, turns: int, words: int = 60) -> None:
    for n in range(turns):
        ask(agent, f"{SECRET} {n} " + WORD * words)


@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_every_step_is_told_with_its_sizes_and_its_cost(adapter, is_async):
    """One event for each answer, equal to the report in the state and to what the provider said, on every way."""
    sink = MemorySink()
    model = model_of(LIMIT, policy=script(call("read", "c1", words=20), "done"))
    agent = agent_of(adapter, model, sink, tools=[read])
    asked = {"messages": [HumanMessage("Please read.")]}
    asyncio.run(agent.ainvoke(asked, THREAD)) if is_async else agent.invoke(asked, THREAD)
    first, second = sink.of(StepEvent)
    answers = [message for message in values(agent)["messages"] if isinstance(message, AIMessage)]
    report = values(agent)["context_report"]
    assert [event.answer_id for event in (first, second)] == [message.id for message in answers]
    assert [event.reported_tokens for event in (first, second)] == [request.tokens for request in model.requests]
    assert (first.tools_called, first.tools_offered, second.tools_called) == (("read",), ("read",), ())
    assert (second.thread, second.model, second.calls) == ("1", "scripted", 1)
    assert (second.regions["tools"], sum(second.regions.values())) == (report["tool_tokens"], second.estimated_tokens)
    output = answers[-1].usage_metadata["output_tokens"]
    assert second.cost == (Decimal(second.reported_tokens) + 10 * output) / 1_000_000
    assert second.utilization == second.reported_tokens / LIMIT
    missed = abs(first.estimated_tokens - first.reported_tokens)
    assert (first.accuracy, first.unused_reserve_tokens) == (1 - missed / first.reported_tokens, 0)
    assert second.time > 0
    assert json.loads(json.dumps(second.to_dict()))["cost"] == str(second.cost)


@on_both
def test_a_compaction_is_told_with_what_left(adapter):
    """Sizes are those of the requests, and results nothing was taken from are counted."""
    sink = MemorySink()
    steps = [call("read", f"c{n}", words=100) for n in range(12)]
    agent = agent_of(adapter, model_of(LIMIT, policy=script(*steps, "done")), sink, tools=[read])
    ask(agent, "Please read.")
    compactions = sink.of(CompactionEvent)
    assert len(compactions) == values(agent)["context_guard"]["compactions"] > 0
    assert all(event.tokens_after < event.tokens_before for event in compactions)
    assert all(event.tokens_after <= event.input_limit == LIMIT for event in compactions)
    assert all(event.left_messages >= event.left_results >= event.unused_results for event in compactions)
    assert all(event.duration_seconds >= 0 and event.reason and event.actions for event in compactions)
    assert [event.compactions for event in sink.of(StepEvent)][-1] == len(compactions)


def test_a_result_that_was_used_later_is_not_counted_as_unused():
    """An identifier that a later call names was taken from the result that brought it."""
    sink = MemorySink()
    engine = ContextEngine(ModelLimits(context_window=400), COUNT, config=ContextConfig(output_reserve=0), sinks=[sink])
    history = [
        HumanMessage("Find both.", id="u"),
        call("find", "c1").model_copy(update={"id": "a1"}),
        ToolMessage("order W-1001 " + WORD * 150, tool_call_id="c1", name="find", id="r1"),
        call("find", "c2", order="W-1001").model_copy(update={"id": "a2"}),
        ToolMessage("order Z-2002 " + WORD * 150, tool_call_id="c2", name="find", id="r2"),
        call("find", "c3").model_copy(update={"id": "a3"}),
        ToolMessage("nothing " + WORD * 150, tool_call_id="c3", name="find", id="r3"),
    ]
    window = engine.measure(history)
    engine.apply(engine.emergency(window), window)
    [event] = sink.of(CompactionEvent)
    assert (event.left_results, event.unused_results) == (2, 1)


@on_both
def test_a_refusal_and_a_recovery_are_told(adapter):
    """What a provider refuses, and what cannot be made to fit at all."""
    sink = MemorySink()
    model = model_of(LIMIT, faults=[core_overflow(1_200, 900)])
    ask(agent_of(adapter, model, sink), "hello " + WORD * 200)
    [recovery], [step] = sink.of(RecoveryEvent), sink.of(StepEvent)
    assert (recovery.attempt, recovery.stated_tokens, recovery.stated_limit, step.calls) == (1, 1_200, 900, 2)
    sink.clear()
    with pytest.raises(BudgetExceededError):
        ask(agent_of(adapter, model_of(LIMIT), sink, system_prompt=WORD * 1_200), "hello")
    [refusal] = sink.of(RefusalEvent)
    assert (refusal.reason, refusal.input_limit, sink.of(StepEvent)) == ("BudgetExceededError", LIMIT, [])
    assert refusal.total_tokens > LIMIT


@on_both
def test_a_request_that_its_provider_refuses_to_the_end_is_told(adapter):
    """After the last recovery the provider's own error leaves the step."""
    sink = MemorySink()
    model = model_of(LIMIT, faults=[core_overflow(1_200, 900 - number) for number in range(5)])
    with pytest.raises(ContextOverflowError):
        ask(agent_of(adapter, model, sink), "hello " + WORD * 200)
    assert sink.of(RecoveryEvent)
    assert (len(sink.of(RefusalEvent)), sink.of(StepEvent)) == (1, [])


@on_both
def test_summaries_are_told_with_what_they_cost(adapter):
    """A summary that a model wrote has calls, tokens and a price; one that failed has a reason."""
    sink = MemorySink()
    options = {"config": ContextConfig(output_reserve=0, summarize="inline", trigger=0.5)}
    writer = ScriptedChatModel(policy=lambda *_: AIMessage("They talked."), model_name="writer")
    prices = {"scripted": PRICED, "writer": replace(PRICED, name="writer")}
    known = Prices(prices.get, is_instant=True)
    chat(agent_of(adapter, model_of(LIMIT), sink, summarizer=writer, prices=known, **options), 8)
    ready = [event for event in sink.of(SummaryEvent) if event.status == "ready"]
    assert len(ready) == len(writer.requests) > 0
    assert [event.input_tokens for event in ready] == [request.tokens for request in writer.requests]
    assert all((event.model, event.calls) == ("writer", 1) and event.cost > 0 for event in ready)


class Caching(ScriptedChatModel):
    """A model whose requests are read from the cache but for ten tokens."""

    def _metered(self, answer: AIMessage, tokens: int) -> AIMessage:
        made = super()._metered(answer, tokens)
        return made.model_copy(
            update={"usage_metadata": {**made.usage_metadata, "input_token_details": {"cache_read": tokens - 10}}}
        )


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("name", ["scripted", "writer"])
def test_a_summary_costs_what_its_own_model_takes_for_it(name, mode):
    """Input from the cache is cheap, and the price of the agent's model says nothing about another one."""
    sink, jobs = MemorySink(), SummaryJobs()
    config = ContextConfig(output_reserve=0, summarize=mode, prepare=0.3, trigger=0.5)
    writer = Caching(policy=lambda *_: AIMessage("They talked."), model_name=name)
    agent = agent_of("nodes", model_of(LIMIT), sink, summarizer=writer, config=config, jobs=jobs)
    for n in range(8):
        ask(agent, f"{n} " + WORD * 60)
        jobs.drain(PATIENCE)
    ready = [event for event in sink.of(SummaryEvent) if event.status == "ready"]
    assert ready
    for event in ready:
        price = Decimal(10) + (event.input_tokens - 10) * Decimal("0.1") + 10 * event.output_tokens
        assert event.cost == (price / 1_000_000 if name == "scripted" else None)


def test_a_summary_that_was_paid_for_and_left_out_is_told_with_its_cost():
    """What has no place to be cut at fits nowhere, and stands in the bill all the same."""
    sink, jobs = MemorySink(), SummaryJobs()
    config = ContextConfig(output_reserve=0, prepare=0.3, trigger=0.5)
    writer = ScriptedChatModel(policy=lambda *_: AIMessage("novel" * 9_000), model_name="scripted")

    class Bare:
        def summarize(self, messages: Any, *, previous: str, max_tokens: int) -> str:
            return writer.invoke([HumanMessage("Sum up.")]).text

    agent = agent_of("nodes", model_of(LIMIT), sink, summarizer=Bare(), config=config, jobs=jobs)
    for n in range(8):
        ask(agent, f"{n} " + WORD * 60)
        jobs.drain(PATIENCE)
    failed = [event for event in sink.of(SummaryEvent) if event.status == "failed"]
    assert failed
    for event, request in zip(failed, writer.requests, strict=False):
        assert (event.calls, event.input_tokens) == (1, request.tokens)
        assert event.cost == (Decimal(event.input_tokens) + 10 * event.output_tokens) / 1_000_000


def test_messages_are_never_told():
    """No word of a message, a result, a prompt or an error of a summarizer is in any event."""
    sink = MemorySink()

    def write(messages: Any) -> str:
        raise RuntimeError(f"cannot read {SECRET}")

    config = ContextConfig(output_reserve=0, trigger=0.5, summarize="inline")
    guard = ToolResultGuard(ToolResultConfig(max_tokens=300))
    model = model_of(LIMIT, policy=script(*(call("read", f"c{n}", words=400) for n in range(6)), SECRET), faults=[])
    agent = agent_of(
        "nodes", model, sink, tools=[read], guard=guard, config=config, summarizer=write, system_prompt=SECRET
    )
    chat(agent, 8)
    assert {type(event) for event in sink.events} >= {StepEvent, CompactionEvent, SummaryEvent, ToolResultEvent}
    assert [event for event in sink.events if SECRET in json.dumps(event.to_dict())] == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("wiring", ["wrap", "node", "agent", "middleware"])
def test_a_guard_tells_of_every_result(wiring, is_async):
    """Results that fit and results that do not, with the thread of the run."""
    sink = MemorySink()
    guard = ToolResultGuard(ToolResultConfig(max_tokens=300), sinks=[sink])
    calls = [{"name": "read", "args": {"words": n}, "id": f"c{n}", "type": "tool_call"} for n in (1, 2_000)]
    results(wiring, guard, [read], *calls, is_async=is_async, config=THREAD)
    fits, large = sorted(sink.of(ToolResultEvent), key=lambda event: event.tokens)
    assert (fits.is_oversized, fits.is_reduced, fits.level, fits.name) == (False, False, "debug", "tool_result.guarded")
    assert (large.is_oversized, large.is_stored, large.name) == (True, True, "tool_result.reduced")
    assert large.tokens > large.budget_tokens >= large.shown_tokens
    assert {event.thread for event in (fits, large)} == {"1"}
    assert {event.tool for event in (fits, large)} == {"read"}


@on_both
def test_a_guard_without_sinks_tells_those_of_its_agent(adapter):
    """And one that has its own keeps them."""
    sink, own = MemorySink(), MemorySink()
    for guard in (ToolResultGuard(), ToolResultGuard(sinks=[own])):
        model = model_of(LIMIT, policy=script(call("read", "c1", words=2), "done"))
        ask(agent_of(adapter, model, sink, tools=[read], guard=guard), "Read.")
    assert (len(sink.of(ToolResultEvent)), len(own.of(ToolResultEvent)), own.of(StepEvent)) == (1, 1, [])


def routed(**options: Any) -> tuple[RoutedChatModel, list[ScriptedChatModel]]:
    models = [model_of(window, model_name=name) for name, window in (("small", 500), ("large", 5_000))]
    prices = {"small": "1", "large": "10"}
    infos = {
        one.model_name: ModelInfo(
            name=one.model_name,
            context_window=one.input_limit,
            input_price=Decimal(prices[one.model_name]),
            output_price=Decimal(prices[one.model_name]),
            capabilities=frozenset({"tools"}),
        )
        for one in models
    }
    registry = type("Known", (), {"lookup": lambda self, model: infos[getattr(model, "model_name", model)]})()
    config = RoutingConfig(quality=0, cost=1)
    return RoutedChatModel(ModelRouter(models, registry, config, counter=COUNT), **options), models


@on_both
def test_a_route_is_told_for_each_answer(adapter):
    """With what failed before it, and with the cost of the cheapest that would have taken it."""
    sink = MemorySink()
    model, models = routed()
    models[0].faults.append(ConnectionError("down"))
    agent = agent_on(adapter, model, sinks=[sink])
    ask(agent, "hello")
    ask(agent, "hello again")
    answered = [event for event in sink.of(RouteEvent) if event.has_answered]
    assert [event.model for event in answered] == ["large", "large"]
    assert [bool(event.fallbacks) for event in answered] == [True, False]
    assert all(event.estimated_cost >= event.cheapest_cost > 0 for event in answered[:1])
    assert [event.cost is not None for event in sink.of(StepEvent)] == [True, True]


@on_both
def test_an_answer_of_another_candidate_is_told_with_its_own_limits_and_prices(adapter):
    """Those of the one that was asked first and failed say nothing about it."""
    sink = MemorySink()
    model, models = routed()
    agent = agent_on(adapter, model, sinks=[sink], config=ContextConfig(output_reserve=0))
    ask(agent, "hello")
    models[0].faults.append(ConnectionError("down"))
    ask(agent, "hello again")
    first, second = sink.of(StepEvent)
    assert (first.model, first.context_window, second.model, second.context_window) == ("small", 500, "large", 5_000)
    assert second.input_limit == 5_000
    assert second.cost == Decimal(10) * (second.reported_tokens + second.output_tokens) / 1_000_000


@on_both
def test_a_request_that_no_candidate_takes_is_told(adapter):
    """It was refused before anybody was asked."""
    sink = MemorySink()
    model, _ = routed()
    agent = agent_on(adapter, model, sinks=[sink], config=ContextConfig(output_reserve=0))
    with pytest.raises(NoModelFitsError):
        ask(agent, [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}])
    assert [event.reason for event in sink.of(RefusalEvent)] == ["NoModelFitsError"]


def test_a_routed_model_alone_tells_its_calls():
    """A stream as well, with the prices and limits of the one that answered."""
    sink = MemorySink()
    model, _ = routed(sinks=[sink])
    model.invoke("hello")
    list(model.stream("hello"))
    asyncio.run(model.ainvoke("hello"))
    steps = sink.of(StepEvent)
    assert [(step.model, step.context_window) for step in steps] == [("small", 500)] * 3
    assert all(step.cost > 0 and step.reported_tokens and step.duration_seconds >= 0 for step in steps)
    assert [event.name for event in sink.of(RouteEvent)] == ["context.routed"] * 3


class Hanging:
    """A sink that does not return until it is told to."""

    def __init__(self) -> None:
        self.released, self.taken = threading.Event(), 0

    def emit(self, event: Event) -> None:
        self.released.wait(PATIENCE)
        self.taken += 1


class Broken:
    """A sink that raises."""

    def __init__(self, *, inline: bool) -> None:
        self.inline = inline

    def emit(self, event: Event) -> None:
        raise RuntimeError(SECRET)


@on_both
def test_a_sink_that_hangs_or_raises_costs_no_turn(adapter):
    """The turn ends while the sink still hangs, the others hear everything, and nothing is lost when it goes on."""
    hanging, sink = Hanging(), MemorySink()
    reporter = Reporter([hanging, Broken(inline=True), Broken(inline=False), sink])
    with capture_logs() as logs:
        agent = agent_on(adapter, model_of(LIMIT), sinks=reporter)
        answer = ask(agent, "hello")
        assert answer["messages"][-1].text
        assert not hanging.taken
        assert len(sink.of(StepEvent)) == 1
        hanging.released.set()
        assert reporter.flush(PATIENCE)
    assert hanging.taken == len(sink.events)
    assert {(log["sink"], log["reason"]) for log in logs if log["event"] == "metrics.sink_failed"} == {
        ("Broken", "RuntimeError")
    }


class Quitting(MemorySink):
    """A sink that wants to end the process at its first event."""

    inline = False

    def emit(self, event: Event) -> None:
        super().emit(event)
        if len(self.events) == 1:
            raise SystemExit


def test_a_sink_that_ends_its_thread_hears_what_follows():
    """What is no `Exception` is a failure like any other."""
    sink = Quitting()
    reporter = Reporter([sink])
    with capture_logs() as logs:
        for _ in range(3):
            reporter.emit(Event())
        assert reporter.flush(PATIENCE)
    assert len(sink.events) == 3
    assert [log["reason"] for log in logs if log["event"] == "metrics.sink_failed"] == ["SystemExit"]


class Counting:
    """A sink that notes how many threads are in it at once."""

    def __init__(self) -> None:
        self.inside, self.most = 0, 0
        self.entered = threading.Barrier(2)

    def emit(self, event: Event) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        with suppress(threading.BrokenBarrierError):
            self.entered.wait(0.2)
        self.inside -= 1


def test_a_sink_of_several_agents_has_one_thread():
    """It takes one event after the other, whoever reports them."""
    sink = Counting()
    reporters = [Reporter([sink]) for _ in range(3)]
    for reporter in reporters:
        reporter.emit(Event())
    assert all(reporter.flush(PATIENCE) for reporter in reporters)
    assert sink.most == 1


def test_events_that_a_slow_sink_cannot_take_are_lost_with_one_warning(monkeypatch):
    """Its memory is bounded."""
    monkeypatch.setattr("langchain_ctxwin.reporting.MAX_WAITING", 2)
    hanging = Hanging()
    reporter = Reporter([hanging])
    with capture_logs() as logs:
        for _ in range(10):
            reporter.emit(Event())
        hanging.released.set()
        reporter.flush(PATIENCE)
    assert len([log for log in logs if log["event"] == "metrics.lost"]) == 1
    assert hanging.taken < 10


def test_log_and_stream_show_steps_only_when_asked():
    """What every engine logs and streams by itself are compactions and troubles; an own sink takes its place."""
    for sinks, expected in (((), 0), ((LogSink(steps=True), StreamSink(steps=True)), 1)):
        agent = agent_on("nodes", model_of(LIMIT), sinks=sinks)
        with capture_logs() as logs:
            streamed = [*agent.stream({"messages": [HumanMessage("hi")]}, THREAD, stream_mode="custom")]
        assert len([log for log in logs if log["event"] == "context.step"]) == expected
        assert len([one for one in streamed if one["type"] == "context.step"]) == expected


def test_a_handler_tells_of_agents_without_nodes_or_middleware():
    """Any agent of LangChain, its summaries, and its refused requests."""
    sink = MemorySink()
    handler = ContextCallbackHandler([sink], limits=ModelLimits(context_window=LIMIT), prices=PRICED, counter=COUNT)
    model = model_of(LIMIT, policy=script(call("read", "c1", words=3), "done"))
    agent = create_agent(model, [read], checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("Read.")]}, {**THREAD, "callbacks": [handler]})
    first, second = sink.of(StepEvent)
    assert (first.thread, first.model, first.tools_offered, first.tools_called) == (
        "1",
        "scripted",
        ("read",),
        ("read",),
    )
    assert [first.reported_tokens, second.reported_tokens] == [request.tokens for request in model.requests]
    assert [first.accuracy, second.accuracy] == [1.0, 1.0]
    assert second.cost > 0
    assert second.input_limit == LIMIT - second.reserved_tokens
    summary = {"callbacks": [handler], "metadata": {"lc_source": "summarization"}}
    ScriptedChatModel(policy=script("short")).invoke("sum it up", summary)
    assert [(event.status, event.calls) for event in sink.of(SummaryEvent)] == [("ready", 1)]
    refusing = model_of(5)
    with pytest.raises(Exception, match=r"exceed|maximum|large|long|context"):
        refusing.invoke(WORD * 50, {"callbacks": [handler]})
    assert [(event.model, event.total_tokens > 5) for event in sink.of(RefusalEvent)] == [("scripted", True)]


class Started(BaseCallbackHandler):
    """Keeps the metadata of every call of a model."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.metadata.append(kwargs["metadata"])


@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_calls_of_models_and_summarizers_carry_metadata(adapter, is_async):
    """For LangSmith and other tracers; what the caller says counts."""
    handler = Started()
    options = {"config": ContextConfig(output_reserve=0, summarize="inline", trigger=0.5), "counter": COUNT}
    writer = ScriptedChatModel(policy=lambda *_: AIMessage("They talked."), model_name="writer")
    agent = agent_on(adapter, model_of(LIMIT), summarizer=writer, **options)
    config = {**THREAD, "callbacks": [handler], "metadata": {"ctxwin_counted_by": "me"}}
    for n in range(9):
        asked = {"messages": [HumanMessage(f"{n} " + WORD * 90)]}
        asyncio.run(agent.ainvoke(asked, config)) if is_async else agent.invoke(asked, config)
    own = [one for one in handler.metadata if one["lc_source"] == "langchain_ctxwin"]
    summaries = [one for one in handler.metadata if one["lc_source"] == "summarization"]
    assert len(own) == 9
    assert len(summaries) == len(writer.requests) > 0
    assert {(one["ls_model_name"], one["ctxwin_input_limit"], one["ctxwin_counted_by"]) for one in own} == {
        ("scripted", LIMIT, "me")
    }
    assert {(one["ls_model_name"], one["ctxwin_call"]) for one in summaries} == {("writer", "summary")}
    assert all("ls_provider" in one and one["thread_id"] == "1" for one in own)


COUNTS = st.none() | st.integers(-5, 2_000) | st.booleans() | st.just("7")


@given(
    st.fixed_dictionaries(
        {"input_tokens": COUNTS, "output_tokens": COUNTS},
        optional={
            "input_token_details": st.dictionaries(
                st.sampled_from(
                    ("cache_read", "cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
                ),
                COUNTS,
            )
            | st.none()
        },
    )
)
def test_the_parts_of_a_usage_never_exceed_it(stated):
    """Whatever a provider reports: a cost is never negative, and caching never makes input free of a price."""
    usage = Usage.of(stated)
    parts = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
    assert parts <= (usage.input_tokens or 0)
    assert 0 <= usage.hour_write_tokens <= (usage.cache_write_tokens or 0)
    cost = usage.cost(PRICED)
    assert (cost is None) == (usage.input_tokens is None or usage.output_tokens is None)
    assert cost is None or cost >= 0


def test_writing_to_a_cache_costs_by_how_long_it_is_kept():
    """The hour has a price of its own."""
    info = replace(PRICED, cache_write_price=Decimal(2), cache_write_hour_price=Decimal(4))
    details = {"cache_read": 100, "cache_creation": 300, "ephemeral_1h_input_tokens": 200}
    usage = Usage.of({"input_tokens": 1_000, "output_tokens": 0, "input_token_details": details})
    assert usage.cost(info) * 1_000_000 == 600 * 1 + 100 * Decimal("0.1") + 100 * 2 + 200 * 4
    only = Usage.of({"input_tokens": 9, "output_tokens": 0, "input_token_details": {"ephemeral_5m_input_tokens": 4}})
    assert only.cache_write_tokens == 4


def test_prices_are_asked_for_once_and_never_waited_for():
    """A registry that is slow or fails leaves costs unknown."""
    asked, ready = [], threading.Event()

    def lookup(name: str) -> ModelInfo:
        asked.append(name)
        ready.set()
        return PRICED

    prices = Prices(lookup)
    assert prices.of("m") is None
    assert ready.wait(PATIENCE)
    while prices.of("m") is None:
        pass
    assert (asked, prices.of("")) == (["m"], None)
    assert Prices(PRICED).of("other", replace(PRICED, name="stated")).name == "stated"


def settle_prices() -> None:
    """Wait until the threads that look prices up have ended."""
    for thread in threading.enumerate():
        if thread.name == "ctxwin" and thread is not threading.current_thread():
            thread.join(PATIENCE)


@on_both
def test_the_first_answer_and_the_first_summary_have_their_costs(adapter):
    """Prices are looked up while models are at work; they take longer than that."""
    sink, known = MemorySink(), []

    def at_work(*_: Any) -> AIMessage:
        settle_prices()
        return AIMessage("They talked.")

    def lookup(name: str) -> ModelInfo:
        known.append(name)
        return replace(PRICED, name=name)

    writer = ScriptedChatModel(policy=at_work, model_name="writer")
    options = {"config": ContextConfig(output_reserve=0, summarize="inline", trigger=0.5), "prices": lookup}
    chat(agent_of(adapter, model_of(LIMIT, policy=at_work), sink, summarizer=writer, **options), 8, words=120)
    assert known == ["scripted", "writer"]
    assert all(event.cost for event in sink.of(StepEvent))
    assert sink.of(SummaryEvent)
    assert all(event.cost for event in sink.of(SummaryEvent))


def test_prices_are_asked_for_again_after_some_minutes():
    """A service that was down is back, prices change, and what was known serves where it is down again."""
    dearer = replace(PRICED, input_price=Decimal(2))
    answers: list[Any] = [OSError("down"), PRICED, dearer, OSError("down"), SystemExit()]
    now = [0.0]

    def lookup(name: str) -> ModelInfo:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    prices = Prices(lookup, clock=lambda: now[0])
    told = []
    for _ in range(5):
        for _ in range(3):
            info = prices.of("m")
            settle_prices()
        told.append(info and info.input_price)
        now[0] += 300.0
    assert (told, answers) == ([None, *map(Decimal, "1222")], [])


@pytest.mark.parametrize("said", [{"input_price": 1}, 3, "dear"])
def test_prices_that_are_none_are_unknown(said):
    """Whatever a function returns costs no turn anything, and is named once."""
    sink = MemorySink()
    agent = agent_of("nodes", model_of(LIMIT), sink, prices=lambda name: said)
    with capture_logs() as logs:
        for n in range(3):
            ask(agent, f"hello {n}")
            settle_prices()
    assert [event.cost for event in sink.of(StepEvent)] == [None] * 3
    reasons = [entry["reason"] for entry in logs if entry["event"] == "metrics.no_prices"]
    assert reasons == [f"scripted: a {type(said).__name__} instead of a ModelInfo"]


def test_an_answer_from_langchains_own_cache_costs_nothing():
    """It has the usage of the answer that was paid for."""
    sink = MemorySink()
    model = model_of(LIMIT, cache=InMemoryCache())
    for _ in range(2):
        model.invoke("hello", {"callbacks": [ContextCallbackHandler([sink], prices=PRICED)]})
    first, second = sink.of(StepEvent)
    assert len(model.requests) == 1
    assert (first.cost > 0, second.cost) == (True, Decimal(0))


class Async:
    """A sink that nobody would await."""

    async def emit(self, event: Event) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Reporter([Async()]), "whose emit is async: make it a plain method"),
        (lambda: Reporter([print]), "sinks holds <built-in function print>: a sink is an object with a method emit"),
        (lambda: Reporter([MemorySink]), "a sink is an object with a method emit"),
        (lambda: ContextWindowMiddleware(sinks="log"), "sinks='log': pass a list of sinks"),
        (lambda: ContextEngine(ModelLimits(context_window=LIMIT), sinks=3), "sinks=3: pass a list of sinks"),
        (lambda: create_context_agent(model_of(LIMIT), [], prices=3), "prices=3: pass a ModelInfo, a ModelRegistry"),
        (lambda: Prices(Async().emit), "pass a ModelInfo, a ModelRegistry, or a function that returns a ModelInfo"),
        (lambda: Prices(ModelInfo), "pass a ModelInfo, a ModelRegistry, or a function that returns a ModelInfo"),
        (lambda: ToolResultGuard(sinks=[3]), "sinks holds 3"),
        (lambda: RoutedChatModel(ModelRouter([model_of(LIMIT)]), sinks=[3]), "sinks holds 3"),
        (lambda: MemorySink(0), "max_events=0: give a whole number of events, at least 1"),
        (
            lambda: ContextWindowMiddleware(ContextEngine(ModelLimits(context_window=9)), sinks=[]),
            "set sinks on the eng",
        ),
    ],
)
def test_what_is_no_sink_is_refused(make, fault):
    """Before any money is spent, with what to pass instead."""
    with pytest.raises(ConfigError) as raised:
        make()
    assert fault in str(raised.value)


def test_every_event_has_a_name_and_json_values():
    """Of each kind, also with nothing in it."""
    kinds = [StepEvent, CompactionEvent, RecoveryEvent, RefusalEvent, RouteEvent, ToolsEvent, ToolResultEvent]
    events = [kind() for kind in kinds]
    events += [SummaryEvent(status="lost"), NoticeEvent(notice="usage_ignored", about={"size": Decimal(1)})]
    shown = [json.loads(json.dumps(event.to_dict())) for event in events]
    assert len({one["name"] for one in shown}) == len(events)
    assert shown[-1]["size"] == "1"


def test_the_oldest_events_are_forgotten():
    """Memory is bounded."""
    sink = MemorySink(max_events=2)
    for n in range(5):
        sink.emit(Event(thread=str(n)))
    assert [event.thread for event in sink.events] == ["3", "4"]
    sink.clear()
    assert sink.events == []


def test_a_direct_engine_tells_of_its_compactions():
    """Who uses the verbs needs no adapter."""
    sink = MemorySink()
    config = ContextConfig(output_reserve=0)
    engine = ContextEngine(ModelLimits(context_window=LIMIT), COUNT, config=config, sinks=[sink])
    window = engine.measure(talk(12))
    state = engine.apply(engine.emergency(window), window)
    [event] = sink.events
    assert isinstance(event, CompactionEvent)
    assert event.tokens_after == engine.measure(talk(12), session=state).total_tokens
