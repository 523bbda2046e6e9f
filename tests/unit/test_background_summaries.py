"""Does a summary that is written beside the agent arrive, whole and once, whatever fails, without anybody waiting?"""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ContextNodes, pin
from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.agent.storage import NOWHERE, RunPlace
from langchain_ctxwin.core.record import OPENING, Record
from langchain_ctxwin.core.turns import last_user
from langchain_ctxwin.core.view import VIEW
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.summarize import jobs as jobs_module
from langchain_ctxwin.summarize.jobs import SummaryStore
from langchain_ctxwin.testing import request_faults
from langchain_ctxwin.util.work import arun, in_daemon, run
from support import spoiled
from support.agents import PATIENCE, THREAD
from support.conversations import TOOLS, payload
from support.fakes import exact_count
from support.spoiled import (
    SUMMARY,
    WORDS,
    Chat,
    Writer,
    pairs,
)

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
    assert chat.state["context_report"]["compactions"] == 1


@pytest.mark.parametrize("number", [12, 20])
def test_a_summary_for_a_bound_by_number_covers_all_that_leaves_with_it(
    number,
):
    chat = Chat(Writer(), window=20_000, trigger_messages=number, keep=0.5)
    chat.until(lambda events: "compacted" in events)
    assert (chat.account[: len(OPENING)], SUMMARY in chat.account) == (OPENING, True)
    assert chat.state["context_guard"]["dropped_turns"] == 0


def test_nobody_waits_for_a_slow_summarizer(gate):
    """What left meanwhile is in the record; the summary is shown with the next compaction."""
    chat = chat_of(writer := Writer(gate=gate))
    chat.until(lambda events: chat.left and "summary_ready" not in events)
    before = chat.state["context_view"]
    assert (chat.left, len(writer.given)) == (before["start"]["index"], 1)
    gate.set()
    chat.jobs.drain(PATIENCE)
    assert chat.ask(drain=False) == ["summary_ready"]
    assert (chat.state["context_view"], chat.refusals) == (before, [])
    chat.until(lambda events: "compacted" in events)
    assert chat.account.startswith(f"{OPENING}\n{SUMMARY} Part 1.\n")


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
            ("the summar", "a request of")
        )


def test_a_summary_that_is_not_written_in_time_is_given_up(gate):
    flow, state = Steps(engine := engine_of(Writer(gate=gate))), {}
    for count in range(1, 40):
        state["messages"] = pairs(count)
        state |= flow.take("prepare", state)
        if state.get("context_pending", {}).get("key"):
            break
    now = engine.clock()
    for seconds, reason in ((59, ""), (60, "no summary within 60 seconds")):
        engine.clock = lambda seconds=seconds: now + seconds
        state |= flow.take("prepare", state)
        assert reason in state.get("context_guard", {}).get("reason", "")
    assert not state["context_pending"]


def test_a_summary_that_is_longer_than_what_it_covers_is_not_shown(monkeypatch):
    monkeypatch.setattr(jobs_module, "checked", lambda text, *_: text)
    monkeypatch.setattr(jobs_module, "longest", lambda _: 10_000)
    chat = chat_of(Writer("word " * 2_000))
    chat.until(lambda events: "summary_failed" in events)
    assert "tokens, what it covers" in chat.state["context_guard"]["reason"]
    assert not chat.state.get("context_summary")


def test_of_a_summary_that_is_much_longer_than_asked_for_the_beginning_is_shown(
    monkeypatch,
):
    monkeypatch.setattr(jobs_module, "checked", lambda text, *_: text)
    text = "\n".join(f"line {number}" for number in range(900))
    chat = chat_of(Writer(text), summary_max_tokens=100)
    chat.until(lambda events: "summary_ready" in events)
    shown = chat.state["context_pending"]["text"]
    assert text.startswith(f"{shown}\n")
    assert exact_count([HumanMessage(shown)]) <= 150


class Steps:
    """The steps of an engine outside of a graph; `setup` is what an adapter would know."""

    def __init__(self, engine, **setup):
        self.engine, self.setup = engine, setup

    def step(self, state, place=NOWHERE):
        return AgentStep(state=state, engine=self.engine, place=place, **self.setup)

    def take(self, verb, state, place=NOWHERE, *, is_async=False):
        """Take a step, `prepare` or `summarize`, and return what is news."""
        step = self.step(state, place)
        work = getattr(step, verb)()
        asyncio.run(arun(work)) if is_async else run(work)
        return step.stored()

    def request(self, state):
        return self.step(state).request()


class Speaker:
    """A summarizer that passes on who spoke."""

    def summarize(self, messages, *, previous, max_tokens):
        return previous or f"Talk with {messages[0].content[:12]}"


@pytest.mark.parametrize("is_named", [False, True])
def test_conversations_share_an_engine_and_its_jobs_but_no_summary(is_named):
    """Equal messages after different ones make different summaries, with and without a thread's name."""
    engine = spoiled.engine_of(Speaker(), jobs := SummaryJobs(), keep=0.5)
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


class Late(SummaryJobs):
    """Jobs that are begun when a test says so, and done then."""

    def __init__(self):
        super().__init__()
        self.waiting, self.forgotten = {}, 0

    def start(self, key, write, **options):
        if self.find(key) is None:
            self.waiting[key] = (write, options)
        return True

    def find(self, key):
        if key in self.waiting:
            return SimpleNamespace(written=None, failure="")
        return super().find(key)

    def forget(self, key):
        self.forgotten += 1
        super().forget(key)

    def finish(self):
        for key, (write, options) in self.waiting.items():
            super().start(key, write, **options)
        self.waiting = {}
        self.drain(PATIENCE)


class Conversation:
    """A history that grows and is rewritten, driven through the steps, checked after each request."""

    def __init__(self, *, is_async, has_store, **config):
        self.is_async, self.config = is_async, config
        store = has_store and SummaryStore(InMemoryStore(), "t")
        self.place = RunPlace("t", store) if store else RunPlace()
        self.writer = Writer()
        self.history, self.session, self.previous = [], {"context_view": {}}, None
        self.saved, self.serial = [], 0
        self.is_rewritten = self.was_rewritten = False
        self.lose("good")

    def lose(self, kind):
        """Another process: what was being written is lost."""
        self.jobs = Late()
        engine = spoiled.engine_of(self.writer, self.jobs, **self.config)
        self.steps = Steps(engine, system_prompt="Be careful.", all_tools=TOOLS)
        self.writer.text = BAD.get(kind, SUMMARY)

    def finish(self, kind):
        self.writer.text = BAD.get(kind, SUMMARY)
        self.jobs.finish()

    def act(self, name, *given):
        if self.history or name in {"ask", "finish", "lose"}:
            getattr(self, name)(*given)

    def add(self, kind, chars=0, **fields):
        self.serial += 1
        text = f"number {self.serial} " + "lorem " * (chars // 6)
        self.history.append(kind(text, id=f"m{self.serial}", **fields))

    def ask(self, chars, is_pinned):
        self.add(HumanMessage, chars)
        if is_pinned:
            self.history[-1] = pin(self.history[-1])
        self.request()

    def step(self, sizes, order):
        """One AI message with parallel calls, ids reused now and then, results in any order."""
        names = [f"c{self.serial % 7}{number}" for number in range(len(sizes))]
        calls = [{"name": "read", "args": {"path": name}, "id": name} for name in names]
        self.add(AIMessage, tool_calls=calls)
        for name, chars in zip(names[::order], sizes, strict=True):
            self.add(ToolMessage, chars, tool_call_id=name)
        self.request()

    def answer(self, chars):
        self.add(AIMessage, chars)
        if last_user(self.history) is not None:
            self.session = self.after("summarize", self.session)

    def edit(self, where, chars):
        content = {"content": "changed " + "lorem " * (chars // 6)}
        place = where % len(self.history)
        self.history[place] = self.history[place].model_copy(update=content)
        self.is_rewritten = True

    def remove(self, where):
        self.history.pop(where % len(self.history))
        self.is_rewritten = True

    def fork(self, where):
        """Go back to an earlier checkpoint; what the process knows stays."""
        if self.saved:
            history, self.session = self.saved[where % len(self.saved)]
            self.history, self.is_rewritten = [*history], True

    def after(self, verb, session):
        """The session after a step, as a checkpoint holds it."""
        state = {**session, "messages": [*self.history]}
        news = self.steps.take(verb, state, self.place, is_async=self.is_async)
        stored = {**session, **news}
        stored.pop("llm_input_messages", None)
        assert json.loads(json.dumps(stored)) == stored
        return stored

    def sent(self):
        return self.steps.request({**self.session, "messages": self.history})

    def request(self):
        """Take the steps before a model call and check what must hold."""
        if last_user(self.history) is None:
            return
        before, forgotten = self.session, self.jobs.forgotten
        self.session = self.after("prepare", before)
        self.was_rewritten |= self.is_rewritten
        self.check_request(sent := self.sent())
        self.check_session(before)
        payloads = [payload(message) for message in sent]
        compactions = [
            one.get("context_guard", {}).get("compactions", 0)
            for one in (before, self.session)
        ]
        is_same = len({*compactions}) == 1 and not self.is_rewritten
        if is_same and self.previous:
            assert payloads[: len(self.previous)] == self.previous
        self.previous, self.is_rewritten = payloads, False
        self.saved.append(([*self.history], self.session))
        # of a failure that was noted nothing is known any more: whoever takes the step again, tries again
        if forgotten == self.jobs.forgotten:
            again = {**self.after("prepare", before), "messages": self.history}
            assert again["context_view"] == self.session["context_view"]
            assert [payload(one) for one in self.steps.request(again)] == payloads

    def check_request(self, sent):
        assert request_faults(sent) == []
        assert exact_count(sent, tools=TOOLS) <= self.config["window"]
        question = self.history[last_user(self.history)]
        shown = next(message for message in sent if message.id == question.id)
        if (
            question.id
            not in VIEW.validate_python(self.session["context_view"]).clamped
        ):
            assert shown.content == question.content

    def check_session(self, before):
        """What left is counted by the record, a summary covers no more than that, and nothing comes back."""
        view = VIEW.validate_python(self.session["context_view"])
        old = VIEW.validate_python(before["context_view"])
        record = Record.from_json(self.session.get("context_record"))
        sources = {line.source for line in record.lines}
        told = sources | view.cleared | view.clamped.keys()
        assert told <= {message.id for message in self.history}
        start = view.start.index if view.start else 0
        assert view.covered <= start
        if old.start and not self.was_rewritten:
            assert start >= old.start.index
        if not self.was_rewritten:
            assert bool(self.session.get("context_summary")) is (view.covered > 0)
            assert record.messages == start - len(view.pinned)


WINDOWS = (400, 800, 1600)
SIZES_CHARS = (8, 60, 200, 400, 800)
GIANT_CHARS = 9000
NUMBERS, CHARS = st.integers(0, 30), st.sampled_from(SIZES_CHARS)
PARALLEL, ORDERS = st.lists(CHARS, min_size=1, max_size=3), st.sampled_from((1, -1))
GROWTH = st.one_of(
    st.tuples(
        st.just("ask"), st.sampled_from((*SIZES_CHARS, GIANT_CHARS)), st.booleans()
    ),
    st.tuples(st.just("ask"), CHARS, st.just(False)),
    *[st.tuples(st.just("step"), PARALLEL, ORDERS)] * 2,
    *[st.tuples(st.just("answer"), CHARS)] * 2,
)
JOBS = st.tuples(
    st.sampled_from(("finish", "finish", "lose")),
    st.sampled_from([*BAD, *["good"] * 4]),
)
PAST = st.one_of(
    st.tuples(st.just("edit"), NUMBERS, CHARS),
    st.tuples(st.sampled_from(("remove", "fork")), NUMBERS),
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


@given(events=WILD, setup=SETUPS)
def test_a_conversation_whose_past_is_rewritten_keeps_every_invariant(events, setup):
    conversation = Conversation(**setup)
    try:
        for event in events:
            conversation.act(*event)
    except BudgetExceededError:
        return
