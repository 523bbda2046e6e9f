"""Does a summary that is written beside the agent arrive, whole and once, whatever fails, without anybody waiting?"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ContextNodes, render_record
from langchain_ctxwin.agent.storage import RunPlace
from langchain_ctxwin.core.record import OPENING
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.util.work import in_daemon
from support import spoiled
from support.agents import PATIENCE, RUNS, THREAD
from support.fakes import exact_count
from support.spoiled import (
    SUMMARY,
    WORDS,
    Chat,
    Writer,
    pairs,
)
from support.unruly import TEXTS, Conversation, Steps

WINDOW = 1200
TURNS = 10


def engine_of(writer, jobs=None, **config):
    return spoiled.engine_of(writer, jobs, window=WINDOW, **config)


def chat_of(writer, **options):
    return Chat(writer, window=WINDOW, **options)


@pytest.fixture
def gate():
    """A closed gate; what waits for it ends with the test."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_summary_begun_early_is_shown_when_the_room_is_needed(is_async):
    """Past `prepare` it is written, at the limit it is shown, in between the request only grows."""
    chat = chat_of(Writer())
    events, begun = [], 0
    while "compacted" not in events:
        begun = len(chat.model.requests)
        events += chat.ask(is_async=is_async)
    texts = [
        [m.content for m in request.messages] for request in chat.model.requests[:begun]
    ]
    assert all(after[: len(before)] == before for before, after in pairwise(texts))
    assert events == ["summary_started", "summary_ready", "compacted"]
    assert SUMMARY in chat.account
    assert chat.refusals == []
    state = chat.state
    assert (
        state["context_report"]["compactions"],
        state["context_guard"]["summarizer"]["summaries"],
    ) == (1, 1)


def test_nobody_waits_for_a_slow_summarizer(gate):
    chat = chat_of(writer := Writer(gate=gate))
    chat.until(lambda events: chat.left and "summary_ready" not in events)
    before, record = chat.state["context_view"], chat.state["context_record"]
    assert (chat.left, len(writer.given)) == (before["start"]["index"], 1)
    gate.set()
    chat.jobs.drain(PATIENCE)
    assert chat.ask(drain=False)[:2] == ["summary_ready", "compacted"]
    after, kept = chat.state["context_view"], chat.state["context_record"]
    assert (after["start"], kept["lines"], chat.refusals) == (
        before["start"],
        record["lines"],
        [],
    )
    assert chat.account.startswith(
        f"{OPENING}\n{SUMMARY} Part 1.\n{render_record(record)}\n"
    )


class Forgetful(SummaryJobs):
    """A process that ends right after it began a summary: the work is never done."""

    def start(self, *_, **__):
        return True

    def find(self, key):
        return None


@pytest.mark.parametrize("store", [None, InMemoryStore()], ids=["lost", "stored"])
def test_another_process_picks_the_summary_up_or_writes_it_inline_once(store):
    saver, writer, started = InMemorySaver(), Writer(), 0
    for _ in range(24):  # a fresh set of jobs is a fresh process
        chat = chat_of(
            writer, jobs=None if store else Forgetful(), saver=saver, store=store
        )
        started += chat.ask().count("summary_started")
        assert chat.refusals == []
    assert SUMMARY in chat.state["context_summary"]
    times, swaps = len(writer.given), chat.state["context_guard"]["compactions"]
    assert times == started if store else times <= swaps + 1


def test_the_report_says_why_no_summary_is_tried_any_more():
    writer, jobs = Writer(RuntimeError("down")), SummaryJobs()
    nodes = ContextNodes(engine_of(writer, jobs))
    state = {"messages": pairs(13)}
    for _ in range(8):
        state |= nodes.budget_check.invoke(state)
        jobs.drain(PATIENCE)
    assert state["context_report"]["stopped"] == "summaries_ineffective"
    assert len(writer.given) == 2
    state["messages"] = [*state["messages"], HumanMessage("something else", id="next")]
    state |= nodes.budget_check.invoke(state)
    assert state["context_report"]["stopped"] == ""


# --- faults of summarizers, stores and clocks

BAD = {
    "raises": RuntimeError("down"),
    "panics": type("PanicException", (BaseException,), {})("index out of bounds"),
    "nothing": "",
    "none": None,
    "placeholder": "Conversation summary unavailable.",
    "novel": "once upon a time " * 4000,
    "long": "and then " * 60,
    "contradiction": "The user never asked anything and wants nothing.",
}


@pytest.mark.parametrize(
    ("summarize", "is_async"), [("inline", False), ("background", True)]
)
@pytest.mark.parametrize("kind", [*BAD, "hangs"])
def test_a_bad_summarizer_fails_no_turn_and_loses_no_message(
    kind, summarize, is_async, gate
):
    """Inline a hanging one is given up after its time, in the background nobody waits for it."""
    hangs = kind == "hangs"
    writer = Writer(gate=gate) if hangs else Writer(BAD[kind])
    chat = Chat(
        writer,
        summarize=summarize,
        **({"summary_timeout_seconds": 0.05} if hangs else {}),
    )
    chat.ask(TURNS, is_async=is_async, drain=not hangs)
    chat.check(TURNS)
    assert not hangs or not chat.state.get("context_summary")
    if summarize == "background" and kind in {"raises", "nothing", "none", "novel"}:
        assert chat.state["context_guard"]["reason"].startswith(
            ("summary refused", "a request of")
        )


class Speaker:
    """A summarizer that passes on who spoke."""

    def summarize(self, messages, *, previous, max_tokens):
        return previous or f"Talk with {messages[0].content[:12]}"


@pytest.mark.parametrize("is_named", [False, True])
def test_conversations_share_an_engine_and_its_jobs_but_no_summary(is_named):
    """Equal messages after different ones make different summaries, with and without a thread's name."""
    engine = spoiled.engine_of(Speaker(), jobs := SummaryJobs(max_running=2), keep=0.5)
    flow = Steps(engine)

    def converse(user):
        state = {}
        for count in range(1, 20):
            hello = HumanMessage(f"I am {user:06}. {WORDS}", id="q")
            state["messages"] = [hello, AIMessage("Hi", id="a"), *pairs(count)]
            place = RunPlace(str(user)) if is_named else RunPlace()
            state |= flow.take("prepare", state, place)
            assert exact_count(flow.request(state)) <= spoiled.WINDOW
            jobs.drain(PATIENCE)
        return user, state["context_summary"]

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(converse, range(12)))
    assert [
        summary.startswith(f"Talk with I am {user:06}")
        for user, summary in told
        if summary
    ].count(False) == 0
    assert sum(bool(summary) for _, summary in told) > len(told) / 2


async def test_a_turn_that_is_cancelled_while_it_summarizes_is_taken_again(gate):
    writer = Writer(gate=gate)
    chat = Chat(writer, summarize="inline")

    async def talk():
        while len(chat.state.get("messages", ())) < 2 * TURNS:
            await chat.heard()

    turns = asyncio.ensure_future(talk())
    assert await asyncio.wrap_future(in_daemon(lambda: writer.called.wait(PATIENCE)))
    turns.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turns
    gate.set()
    assert not chat.state.get("context_summary")
    await chat.graph.ainvoke(None, THREAD)
    await talk()
    chat.check(TURNS)
    assert chat.state["context_summary"].startswith(SUMMARY)


# ---------------------------------------------------------------------------------------------- at any time


WINDOWS = (400, 800, 1600)
SIZES_CHARS = (8, 60, 200, 400, 800)
GIANT_CHARS = 9000
GOOD_SHARE = 3  # so many good summaries for one of each other kind
KINDS = (*TEXTS, *TEXTS[:1] * GOOD_SHARE)
NUMBERS, CHARS = st.integers(0, 30), st.sampled_from(SIZES_CHARS)
PARALLEL, ORDERS = st.lists(CHARS, min_size=1, max_size=3), st.sampled_from((1, -1))
GROWTH = st.one_of(
    st.tuples(st.just("ask"), CHARS, st.just("")),
    st.tuples(
        st.just("ask"),
        st.sampled_from((*SIZES_CHARS, GIANT_CHARS)),
        st.sampled_from(("", "pin", "image")),
    ),
    st.tuples(st.just("step"), PARALLEL, ORDERS),
    st.tuples(st.just("step"), PARALLEL, ORDERS),
    st.tuples(st.just("answer"), CHARS),
    st.tuples(st.just("answer"), CHARS),
)
JOBS = st.tuples(st.sampled_from(("finish", "finish", "lose")), st.sampled_from(KINDS))
PAST = st.one_of(
    st.tuples(st.just("edit"), NUMBERS, CHARS),
    st.tuples(st.sampled_from(("remove", "fork")), NUMBERS),
    st.tuples(st.just("abandon"), CHARS),
)
WILD = st.lists(st.one_of(GROWTH, GROWTH, GROWTH, JOBS, PAST), min_size=15, max_size=60)
SETUPS = st.fixed_dictionaries(
    {
        "window": st.sampled_from(WINDOWS),
        "is_async": st.booleans(),
        "has_store": st.booleans(),
        "pin_first_user": st.booleans(),
        "trigger_messages": st.sampled_from((None, None, 8)),
    }
)


# a question that must not be cut again
PINNED_GIANT = [*[("ask", 8, "")] * 13, ("ask", 9000, "pin"), ("ask", 400, "")]
SMALL = {
    "window": 800,
    "is_async": False,
    "has_store": False,
    "pin_first_user": False,
    "trigger_messages": None,
}


@RUNS
@given(events=WILD, setup=SETUPS)
@example(events=PINNED_GIANT, setup=SMALL)
def test_a_conversation_whose_past_is_rewritten_keeps_every_invariant(events, setup):
    conversation = Conversation(**setup)
    try:
        for event in events:
            conversation.act(event)
    except BudgetExceededError:
        return
