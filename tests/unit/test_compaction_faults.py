"""Does any fault of a summarizer, a store, a clock or a checkpointer cost a turn that fits, or a message?"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from structlog.testing import capture_logs

from langchain_ctxwin import ContextNodes
from langchain_ctxwin.agent.histories import Place
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.util.background import in_daemon
from support.fakes import exact_count
from support.spoiled import (
    PATIENCE,
    WINDOW,
    WORDS,
    Chat,
    Store,
    Writer,
    engine_of,
    flow_of,
    pairs,
    results,
    steps,
)
from support.stepping import Steps

TURNS = 10
TEXTS = {
    "raises": RuntimeError("down"),
    "panics": type("PanicException", (BaseException,), {})("index out of bounds"),
    "nothing": "",
    "none": None,
    "placeholder": "Conversation summary unavailable.",
    "novel": "once upon a time " * 4000,
    "long": "and then " * 60,
    "contradiction": "The user never asked anything and wants nothing.",
}


@pytest.fixture
def gate():
    """A closed gate; what waits for it ends with the test."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("summarize", ["inline", "background"])
@pytest.mark.parametrize("kind", TEXTS)
async def test_a_bad_summarizer_fails_no_turn_and_loses_no_message(kind, summarize, way):
    """It raises, writes nothing, too much, nothing of substance, or the opposite of what was said."""
    chat = Chat(Writer(TEXTS[kind]), summarize=summarize)
    await chat.ask(TURNS, way=way)
    chat.check(TURNS)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("summarize", ["inline", "background"])
async def test_a_summarizer_that_hangs_fails_no_turn(gate, summarize, way):
    """Inline it is given up after its time, in the background nobody waits for it."""
    chat = Chat(Writer(gate=gate), summarize=summarize, summary_timeout_seconds=0.05)
    await chat.ask(TURNS, way=way, drain=False)
    chat.check(TURNS)
    assert not chat.state.get("context_summary")


def test_a_refused_summary_is_paid_for_all_the_same():
    """What a summary cost is counted, whether it is used or not."""
    flow, state = flow_of(Writer("novel" * 9000)), {"messages": pairs(5)}
    state |= flow.check(state, Place())
    flow.engine.jobs.drain(PATIENCE)
    state |= flow.check(state, Place())
    assert state["context_guard"]["reason"].startswith("summary refused: ")
    assert state["context_guard"]["summarizer"]["summaries"] == 1


def test_a_summary_of_which_no_line_leaves_room_for_the_turn_is_left_out():
    """The turn goes on; what the summary covered is in none any more, to be summarized again."""
    engine = engine_of(Writer())
    nodes = ContextNodes(engine)
    messages = pairs(2)
    said = "andthen" * 250
    covered = {"through": {"id": "a1", "index": 3}, "digest": ""}
    state = {
        "messages": [*messages[:4], HumanMessage("read it all", id="now"), *results(4)],
        "context_summary": said,
        "context_view": {"start": {"id": "now", "index": 4}, "covered": covered},
    }
    state |= nodes.budget_check.invoke(state)
    state |= nodes.force_compress.invoke(state)
    request = nodes.model_input(state)
    assert exact_count(request) <= WINDOW
    assert state["context_summary"] == ""
    assert state["context_view"]["covered"] == {}
    assert find_faults(request) == []
    state["messages"] = [*state["messages"], AIMessage("read", id="read"), HumanMessage("go on", id="next")]
    assert engine.prepare(nodes.measure(state)).start == 0


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("point", ["read", "before", "after"])
async def test_a_store_that_fails_costs_nothing_in_its_own_process(point, way):
    """The text is here; before, during or after the write makes no difference."""
    chat = Chat(Writer(), store=Store(point))
    with capture_logs():
        await chat.ask(TURNS, way=way)
    chat.check(TURNS)
    assert chat.state["context_summary"].startswith("A short summary.")


@pytest.mark.parametrize("point", ["read", "before", "after"])
async def test_a_store_that_fails_costs_no_turn_in_another_process(point):
    """A process per turn: after the write the text is there; before it nothing comes, and the turns go on."""
    store, saver, writer = Store(point), InMemorySaver(), Writer()
    sent = []
    for _ in range(TURNS):
        chat = Chat(writer, store=store, saver=saver)
        with capture_logs():
            await chat.ask(1)
        sent += chat.model.requests
    chat.model.requests[:] = sent
    chat.check(TURNS)
    assert bool(chat.state["context_summary"]) is (point == "after")


@pytest.mark.parametrize("jump_seconds", [1e9, -1e9])
async def test_a_wall_clock_that_jumped_repeats_the_lost_summary_inline(gate, jump_seconds):
    """Another process, whose clock is years away, does not wait for what nobody writes any more."""
    store, saver = InMemoryStore(), InMemorySaver()
    lost = Chat(Writer(gate=gate), store=store, saver=saver)
    while not lost.state.get("context_pending"):
        await lost.ask(1, drain=False)
    pending = lost.state["context_pending"]
    lost.graph.update_state(
        lost.config, {"context_pending": {**pending, "since": pending["since"] + jump_seconds}}, as_node="model"
    )
    chat = Chat(Writer(), store=store, saver=saver)
    await chat.ask(1)
    assert len(chat.jobs._runs) == 0
    assert chat.state["context_pending"]["text"].startswith("A short summary.")


def test_history_that_was_pruned_drops_the_summary_on_its_way(gate):
    """What is left is shown, the loss is said, and the work on the old messages stops."""
    jobs = SummaryJobs()
    nodes = ContextNodes(engine_of(Writer(gate=gate), jobs))
    state = {"messages": pairs(5)}
    state |= nodes.budget_check.invoke(state)
    key = state["context_pending"]["key"]
    pruned = {**state, "messages": pairs(1, first=8)}
    with capture_logs() as logs:
        pruned |= nodes.budget_check.invoke(pruned)
    assert [m.id for m in nodes.model_input(pruned)] == ["q8", "a8", "last9"]
    assert (pruned["context_pending"], jobs.find(key)) == ({}, None)
    faults = [log["fault"] for log in logs if "fault" in log]
    assert "old checkpoints of this thread were deleted" in faults[0]
    assert "not in this branch" in faults[1]


def test_a_summary_of_everything_that_is_left_is_dropped():
    """Its followers were removed: to show it would leave no message to answer."""
    flow, tight = flow_of(Writer()), flow_of(Writer(), window=200)
    state = {"messages": [HumanMessage("count", id="q"), *steps(8)]}
    state |= flow.check(state, Place())
    flow.engine.jobs.drain(PATIENCE)
    state |= flow.check(state, Place())
    assert state["context_pending"]["text"]
    stop = state["context_pending"]["through"]["index"] + 1
    state["messages"] = state["messages"][:stop]
    state |= tight.before(state, Place())
    assert state["context_view"]["start"]["index"] < stop
    assert exact_count(tight.request(state)) <= 200


def test_a_lost_summary_is_repeated_of_the_messages_as_they_are():
    """The user corrected one of them meanwhile: what is written now is of the correction, and is shown."""
    writer = Writer()
    lost, here = flow_of(Writer()), flow_of(writer)
    state = {"messages": pairs(5)}
    state |= lost.check(state, Place())
    state["messages"][0] = HumanMessage("corrected", id="q0")
    state |= here.before(state, Place())
    assert writer.given[0][0] == "corrected"
    state["messages"] = [*state["messages"][:-1], *pairs(3, first=5)]
    state |= here.before(state, Place())
    assert state["context_summary"].startswith("A short summary.")


def test_a_step_that_is_taken_again_writes_nothing_again():
    """A crash after the step, a fork: the summary that this process began is found, finished or not."""
    writer = Writer()
    flow, state = flow_of(writer), {"messages": pairs(5)}
    for _ in range(3):
        again = state | flow.before(state, Place())
        flow.engine.jobs.drain(PATIENCE)
    assert again["context_pending"]["key"]
    assert len(writer.given) == 1


def test_conversations_without_a_name_do_not_share_what_follows_another_past():
    """Equal messages after different ones make different summaries: nobody reads of another user."""
    flow = flow_of(Speaker(), keep=0.5)  # the last question, which each step replaces, is never all that is kept
    summaries = []
    for user in ("Alice", "Bobby"):
        state = {"messages": [HumanMessage(f"I am {user}. {WORDS}", id="q"), AIMessage("Hello.", id="a"), *pairs(4)]}
        for count in range(4, 24):
            state["messages"] = [*state["messages"][:2], *pairs(count)]
            state |= flow.before(state, Place())
            flow.engine.jobs.drain(PATIENCE)
        summaries.append(state["context_summary"])
    assert ["Alice" in summaries[0], "Bobby" in summaries[0]] == [True, False]
    assert ["Alice" in summaries[1], "Bobby" in summaries[1]] == [False, True]


class Speaker:
    """A summarizer that passes on who spoke."""

    def summarize(self, messages, *, previous, max_tokens):
        return previous or f"Talk with {messages[0].content[:12]}"


async def test_a_turn_that_is_cancelled_while_it_summarizes_is_taken_again(gate):
    """The user pressed stop: the thread can be resumed, and nothing is gone."""
    writer = Writer(gate=gate)
    chat = Chat(writer, summarize="inline")
    turns = asyncio.ensure_future(chat.ask(TURNS, way="async"))
    assert await asyncio.wrap_future(in_daemon(lambda: writer.called.wait(PATIENCE)))
    turns.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turns
    gate.set()
    assert not chat.state.get("context_summary")
    await chat.graph.ainvoke(None, chat.config)
    await chat.ask(TURNS - len(chat.state["messages"]) // 2, way="async")
    chat.check(TURNS)
    assert chat.state["context_summary"].startswith("A short summary.")


def test_many_threads_share_an_engine_and_its_jobs():
    """No conversation sees the summary of another one, none waits for another, and each is answered."""
    engine = engine_of(Speaker(), jobs := SummaryJobs(max_running=2), keep=0.5)
    flow = Steps(engine)

    def talk(user):
        state = {}
        for count in range(1, 16):
            hello = HumanMessage(f"I am {user:06}. {WORDS}", id="q")
            state["messages"] = [hello, AIMessage("Hi", id="a"), *pairs(count)]
            state |= flow.before(state, Place(str(user)))
            assert exact_count(flow.request(state)) <= WINDOW
            jobs.drain(PATIENCE)
        return user, state["context_summary"]

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(talk, range(16)))
    assert [summary.startswith(f"Talk with I am {user:06}") for user, summary in told if summary].count(False) == 0
    assert sum(bool(summary) for _, summary in told) > len(told) / 2
