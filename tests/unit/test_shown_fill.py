"""Does an agent see how full its window is, at no cost to the provider's prompt cache?"""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits, create_context_agent
from langchain_ctxwin.core.outcome import seen
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.middleware import ContextAgentState, ContextWindowMiddleware
from support.conversations import CharCounter, conversations, payload, ready
from support.fakes import ScriptedChatModel, exact_count, script

COUNTER = CharCounter()
LINE = re.compile(r"\[Context window (\d+)% full\]")
THREAD = {"configurable": {"thread_id": "1"}}
WORD = "fox "
WINDOWS = st.sampled_from((200, 400, 800, 2000))
RUNS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def engine_of(window, *, show_fill=True, **config):
    return ContextEngine(
        ModelLimits(context_window=window),
        counter=COUNTER,
        config=ContextConfig(output_reserve=0, show_fill=show_fill, **config),
    )


def requests(engine, messages):
    """Yield `(window, state)` of every request of a conversation that grows message by message."""
    state = {}
    for stop in range(1, len(messages) + 1):
        history = messages[:stop]
        if not ready(history):
            continue
        try:
            window = engine.measure(history, session=state)
            state |= seen(window)
            for plan in (engine.plan, engine.emergency):
                if compaction := plan(window):
                    state |= engine.apply(compaction, window)
                    window = engine.measure(history, session=state)
        except BudgetExceededError:
            return
        yield window, state


def told(messages):
    """The percentages that a request tells, in order."""
    return [int(found) for message in messages for found in LINE.findall(str(message.content))]


def talk(turns, words=20):
    made = []
    for n in range(turns):
        made += [HumanMessage(f"question {n} " + WORD * words, id=f"q{n}"), AIMessage(WORD * words, id=f"a{n}")]
    return [*made, HumanMessage("And now?", id="now")]


@RUNS
@given(messages=conversations(pins=False), window=WINDOWS, placement=st.sampled_from(("system", "user")))
def test_between_compactions_each_request_extends_the_one_before(messages, window, placement):
    """Byte for byte: a line that was sent stays where it is."""
    last, compactions = [], 0
    for measured, state in requests(engine_of(window, summary_placement=placement), messages):
        request = list(map(payload, measured.priced_view.messages()))
        now = state["context_guard"].get("compactions", 0)
        if now == compactions:
            assert request[: len(last)] == last
        last, compactions = request, now


@RUNS
@given(messages=conversations(), window=WINDOWS)
def test_every_request_is_valid_fits_and_counts_its_lines(messages, window):
    """The line is priced like everything else."""
    engine = engine_of(window)
    for measured, _ in requests(engine, messages):
        request = engine.build(measured)
        assert find_faults(request) == []
        assert COUNTER(request) <= measured.total_tokens <= window


@RUNS
@given(messages=conversations(huge=True), window=WINDOWS)
def test_an_emergency_says_exactly_what_the_request_costs_afterwards(messages, window):
    """With the lines that the smaller request has."""
    engine = engine_of(window)
    before = engine.measure(messages)
    try:
        compaction = engine.emergency(before)
    except BudgetExceededError:
        return
    if compaction is not None:
        after = engine.measure(messages, session=engine.apply(compaction, before))
        assert after.total_tokens == compaction.tokens_after


@pytest.mark.parametrize("turns", range(0, 19, 3))
def test_the_last_line_says_the_tenth_that_the_report_says(turns):
    """Rounded down, for an exact counter that no report has corrected."""
    window = engine_of(1_000).measure(talk(turns))
    assert told(window.messages)[-1] == int(10 * window.report["utilization"]) * 10


def test_each_tenth_is_told_once():
    """At the end of the message by which it is full."""
    window = engine_of(1_000).measure(talk(18))
    assert told(window.messages) == sorted(set(told(window.messages)))
    assert all(message.content.endswith("% full]") for message in window.messages if told([message]))


def test_the_model_s_own_words_get_no_line():
    """Only user messages and tool results carry it."""
    window = engine_of(1_000).measure(talk(18))
    assert {message.type for message in window.messages if told([message])} == {"human"}


def test_blocks_get_a_block():
    """A question with blocks stays as it is, with one more."""
    blocks = [{"type": "text", "text": "Look."}]
    window = engine_of(1_000).measure([HumanMessage(blocks, id="q")])
    assert window.messages[0].content == [*blocks, {"type": "text", "text": "[Context window 0% full]"}]


def test_the_history_is_not_changed():
    """The line is in the request only."""
    history = talk(18)
    engine_of(1_000).measure(history)
    assert told(history) == []


def test_without_the_setting_no_line_is_shown():
    """It is off by default."""
    assert told(engine_of(1_000, show_fill=False).measure(talk(18)).messages) == []
    assert ContextConfig().show_fill is False


def test_after_a_compaction_the_line_says_what_is_left():
    """The first message of the view tells it anew."""
    engine, history = engine_of(400), talk(18)
    before = engine.measure(history)
    after = engine.measure(history, session=engine.apply(engine.emergency(before), before))
    assert told(after.messages)[-1] == int(10 * after.report["utilization"]) * 10 < 100


def test_a_request_that_is_measured_again_is_not_priced_again():
    """The messages with a line are priced once, like all others."""
    priced = []

    def count(messages, *, tools=None):
        priced.extend(messages)
        return COUNTER(messages, tools=tools)

    engine = ContextEngine(ModelLimits(context_window=1_000), counter=count, config=ContextConfig(show_fill=True))
    history = talk(12)
    engine.measure(history)
    first = len(priced)
    engine.measure(history)
    assert len(priced) == first


@tool
def read(part: int) -> str:
    """Read a part."""
    return WORD * 100


async def run(kind, *, is_async):
    """Play a turn of twelve calls; return the requests."""
    calls = [AIMessage("", tool_calls=[{"name": "read", "args": {"part": n}, "id": f"c{n}"}]) for n in range(12)]
    model = ScriptedChatModel(policy=script(*calls, "done"), input_limit=1_000, profile={"max_input_tokens": 1_000})
    config = ContextConfig(show_fill=True, output_reserve=0)
    if kind == "nodes":
        agent = create_context_agent(model, [read], config=config, counter=exact_count, checkpointer=InMemorySaver())
    else:
        middleware = [ContextWindowMiddleware(config=config, counter=exact_count)]
        agent = create_agent(
            model, [read], middleware=middleware, state_schema=ContextAgentState, checkpointer=InMemorySaver()
        )
    given = {"messages": [HumanMessage("Read all.", id="q")]}
    await agent.ainvoke(given, THREAD) if is_async else agent.invoke(given, THREAD)
    return [[payload(message) for message in request.messages] for request in model.requests]


def test_nodes_and_middleware_show_the_same_lines():
    """Sync and async; and there are some, in tool results too."""
    first, *others = [
        asyncio.run(run(kind, is_async=is_async)) for kind in ("nodes", "middleware") for is_async in (False, True)
    ]
    assert all(other == first for other in others)
    lines = [
        LINE.search(str(content)) for kind, content, *_ in first[4] if kind == ToolMessage("", tool_call_id="").type
    ]
    assert any(lines)


def test_reported_sizes_do_not_change_a_line_that_was_sent():
    """The provider's counts differ from the estimates; each request extends the one before all the same."""
    calls = [AIMessage("", tool_calls=[{"name": "read", "args": {"part": n}, "id": f"c{n}"}]) for n in range(12)]
    model = ScriptedChatModel(policy=script(*calls, "done"), profile={"max_input_tokens": 4_000})
    agent = create_context_agent(model, [read], config=ContextConfig(show_fill=True, output_reserve=0))
    agent.invoke({"messages": [HumanMessage("Read all.", id="q")]})
    sent = [list(map(payload, request.messages)) for request in model.requests]
    assert all(after[: len(before)] == before for before, after in pairwise(sent))
    assert len(told(model.requests[-1].messages)) > 1
