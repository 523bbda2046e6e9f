"""Does a summary that is written beside the agent arrive, whole and once, without anybody waiting for it?"""

import json
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ContextConfig, ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.agent.histories import Place
from langchain_ctxwin.agent.summaries import Summaries
from langchain_ctxwin.core.assembly import RECORD_ID
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.core.record import OPENING, render_record
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.summarize import SummaryJobs, SummaryStore
from support.fakes import ScriptedChatModel, exact_count
from support.graphs import chat_on
from support.unruly import TEXTS, Conversation

THREAD = {"configurable": {"thread_id": "1"}}
WORDS = "lorem ipsum dolor sit amet " * 6
SUMMARY = "## Facts\nThe budget is 700."
WINDOW = 1200


class Writer:
    """A summarizer that writes when it is let; it remembers what it was given."""

    def __init__(self, *, is_open=True):
        self.given = []
        self.gate = threading.Event()
        if is_open:
            self.gate.set()

    def summarize(self, messages, *, previous, max_tokens):
        self.given.append((tuple(m.content for m in messages), previous))
        assert self.gate.wait(10)
        return f"{SUMMARY} Part {len(self.given)}."


def engine_of(writer, *, jobs=None, **config):
    settings = ContextConfig(**{"output_reserve": 0, "pin_first_user": False, **config})
    limits = ModelLimits(context_window=WINDOW)
    return ContextEngine(
        limits=limits, counter=exact_count, summarizer=writer, config=settings, jobs=jobs or SummaryJobs()
    )


class Chat:
    """A conversation on the nodes, one question and answer at a time."""

    def __init__(self, writer, *, jobs=None, graph=None, **config):
        self.jobs = jobs or SummaryJobs()
        self.model = ScriptedChatModel(input_limit=WINDOW)
        self.graph = graph or chat_on(engine_of(writer, jobs=self.jobs, **config), self.model)

    def ask(self, count=1, *, waits=True):
        """Ask `count` questions, letting the summaries finish in between or not."""
        events = []
        for _ in range(count):
            number = len(self.state.get("messages", ())) // 2
            question = {"messages": [HumanMessage(f"question {number} {WORDS}")]}
            events += self.graph.stream(question, THREAD, stream_mode="custom")
            if waits:
                self.jobs.drain(10)
        return kinds(events)

    @property
    def state(self):
        return self.graph.get_state(THREAD).values

    def until(self, is_reached):
        """Ask while the summarizer writes, until a function of the events says so."""
        for _ in range(40):
            if is_reached(self.ask(waits=False)):
                return self
        raise AssertionError("not reached in 40 questions")


def is_begun(events):
    return "summary_started" in events


def left(chat):
    """How many messages the record counts."""
    return (chat.state.get("context_record") or {}).get("left", {}).get("messages", 0)


def kinds(events):
    return [event["type"].removeprefix("context.") for event in events]


def account(model):
    """What the last request says of messages that left."""
    return next((m.content for m in model.requests[-1].messages if m.id == RECORD_ID), "")


def refusals(chat):
    return [r.refused for r in chat.model.requests if r.refused or find_faults(list(r.messages))]


def test_a_summary_begun_early_is_shown_when_the_room_is_needed():
    """Past `prepare` it is written, at the limit it is shown, in between the request only grows."""
    chat = Chat(Writer())
    events, begun = [], 0
    while "compacted" not in events:
        begun = len(chat.model.requests)
        events += chat.ask()
    texts = [[m.content for m in request.messages] for request in chat.model.requests[:begun]]
    assert all(after[: len(before)] == before for before, after in pairwise(texts))
    assert events == ["summary_started", "summary_ready", "compacted"]
    assert SUMMARY in account(chat.model)
    assert refusals(chat) == []
    state = chat.state
    assert (state["context_report"]["compactions"], state["context_guard"]["summarizer"]["summaries"]) == (1, 1)


def test_nobody_waits_for_a_slow_summarizer():
    """Turns go on, and turns leave into the record; a late summary stands above it and leaves the start alone."""
    writer = Writer(is_open=False)
    chat = Chat(writer)
    chat.until(lambda events: left(chat) and "summary_ready" not in events)
    before, record = chat.state["context_view"], chat.state["context_record"]
    assert (left(chat), len(writer.given)) == (before["start"]["index"], 1)
    writer.gate.set()
    chat.jobs.drain(10)
    assert chat.ask(waits=False)[:2] == ["summary_ready", "compacted"]
    after = chat.state["context_view"]
    assert (after["start"], chat.state["context_record"], refusals(chat)) == (before["start"], record, [])
    assert account(chat.model).startswith(f"{OPENING}\n{SUMMARY} Part 1.\n{render_record(record)}\n")


def test_each_summary_starts_where_the_last_one_ended():
    """Every message is summarized exactly once, and the previous summary is handed on."""
    writer = Writer()
    chat = Chat(writer)
    for _ in range(100):
        chat.ask()
        if len(writer.given) > 2:
            break
    told = [text for messages, _ in writer.given for text in messages]
    assert told == [m.content for m in chat.state["messages"]][: len(told)]
    first, *others = [previous for _, previous in writer.given]
    assert first == ""
    assert len(others) > 1
    assert all(text.startswith(SUMMARY) for text in others)


class Failing(Writer):
    """Writes something else, or raises it."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def summarize(self, messages, *, previous, max_tokens):
        self.given.append(messages)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [RuntimeError("down"), "   ", "word" * 4000, None], ids=repr)
def test_a_summarizer_that_fails_costs_no_turn_and_no_message(answer):
    """It is tried twice, then not again before the next user message."""
    chat = Chat(Failing(answer))
    assert "summary_failed" in chat.ask(24)
    assert refusals(chat) == []
    assert len(chat.state["messages"]) == 48
    assert chat.state["context_guard"]["reason"].startswith(("summary refused", "a request of"))


def test_a_summary_far_too_long_is_shown_shortened():
    """It takes no more room than a summary of the size asked for, and no turn fails."""
    chat = Chat(Failing("- The budget is 700.\n" * 4000))
    assert "summary_failed" not in chat.ask(30)
    assert refusals(chat) == []
    assert set(chat.state["context_summary"].split("\n")) == {"- The budget is 700."}
    assert chat.state["context_report"]["summary_tokens"] < WINDOW / 2


def test_a_summarizer_that_hangs_is_given_up_after_its_time():
    """The clock of the jobs decides; the turn never waits."""
    now, writer = [0.0], Writer(is_open=False)
    chat = Chat(writer, jobs=SummaryJobs(clock=lambda: now[0])).until(is_begun)
    now[0] = 61.0
    assert "summary_failed" in chat.ask(waits=False)
    assert refusals(chat) == []
    writer.gate.set()


def test_a_summary_of_another_branch_is_dropped():
    """A fork from before its last message does not show it."""
    chat = Chat(Writer(is_open=False)).until(is_begun)
    past = next(s for s in chat.graph.get_state_history(THREAD) if not s.next and len(s.values["messages"]) == 4)
    fork = chat.graph.update_state(past.config, {"context_pending": chat.state["context_pending"]})
    chat.graph.invoke({"messages": [HumanMessage("another way")]}, fork)
    assert not chat.state.get("context_pending")
    assert refusals(chat) == []


def test_an_edit_of_a_summarized_message_drops_a_finished_summary():
    """What it says is no longer true of the history."""
    chat = Chat(Writer()).until(is_begun)
    chat.jobs.drain(10)
    chat.ask()
    assert chat.state["context_pending"]["text"]
    edited = chat.state["messages"][2].model_copy(update={"content": "something else " + WORDS})
    chat.graph.update_state(THREAD, {"messages": [edited]})
    chat.ask(12)
    assert "Part 1." not in account(chat.model)
    assert refusals(chat) == []


class Forgetful(SummaryJobs):
    """A process that ends right after it began a summary: the work is never done."""

    def start(self, *_, **__):
        return True

    def find(self, key):
        return None


@pytest.mark.parametrize("store", [None, InMemoryStore()], ids=["lost", "stored"])
def test_another_process_picks_the_summary_up_or_writes_it_inline_once(store):
    """One process per turn: what the last one began is in the store, or this one finds it lost and repeats it."""
    saver, writer, model, started = InMemorySaver(), Writer(), ScriptedChatModel(input_limit=WINDOW), 0
    for turn in range(24):  # a fresh set of jobs is a fresh process
        jobs = SummaryJobs() if store else Forgetful()
        graph = chat_on(engine_of(writer, jobs=jobs), model, checkpointer=saver, store=store)
        question = {"messages": [HumanMessage(f"question {turn} {WORDS}")]}
        started += kinds(graph.stream(question, THREAD, stream_mode="custom")).count("summary_started")
        jobs.drain(10)
    values = graph.get_state(THREAD).values
    assert SUMMARY in values["context_summary"]
    assert [r.refused for r in model.requests if r.refused] == []
    assert len(writer.given) == started if store else len(writer.given) <= values["context_guard"]["compactions"] + 1


async def test_async_steps_do_the_same():
    """The async nodes begin, collect and show like the sync ones."""
    chat = Chat(Writer())
    seen = []
    for number in range(20):
        question = {"messages": [HumanMessage(f"question {number} {WORDS}")]}
        seen += [event async for event in chat.graph.astream(question, THREAD, stream_mode="custom")]
        chat.jobs.drain(10)
    assert kinds(seen)[:3] == ["summary_started", "summary_ready", "compacted"]
    assert refusals(chat) == []


def test_one_long_turn_is_served():
    """Summaries start and arrive inside a turn of many steps."""
    writer = Writer()
    jobs = SummaryJobs()
    nodes = ContextNodes(engine_of(writer, jobs=jobs))
    state = {"messages": [HumanMessage("count", id="q")]}
    for step in range(40):
        state |= nodes.budget_check.invoke(state)
        jobs.drain(10)
        if nodes.route_on_budget(state) == "force_compress":
            state |= nodes.force_compress.invoke(state)
        request = nodes.model_input(state)
        assert exact_count(request) <= WINDOW
        assert [m.content for m in request if m.type == "human" and m.id == "q"] == ["count"]
        call = {"name": "read", "args": {"n": step}, "id": f"c{step}"}
        state["messages"] = [
            *state["messages"],
            AIMessage("", id=f"a{step}", tool_calls=[call]),
            ToolMessage(f"result {step} {WORDS}", id=f"t{step}", tool_call_id=f"c{step}"),
        ]
    assert writer.given
    assert state["context_summary"].startswith(SUMMARY)


def test_too_many_messages_shrink_to_a_summary_although_they_fit():
    """A bound of the user's own counts in the background as well."""
    chat = Chat(Writer(), trigger_messages=8)
    chat.ask(8)
    assert chat.state["context_report"]["compactions"] >= 1
    assert SUMMARY in account(chat.model)


def test_a_history_past_its_own_cap_waits_for_the_summary_and_shrinks_to_it():
    """`max_history_tokens` is no reason to lose anything."""
    chat = Chat(Writer(), max_history_tokens=400, keep=0.5)
    while "compacted" not in chat.ask():
        assert chat.state["context_report"]["history_tokens"] <= 400 + 80
    assert chat.state["context_report"]["history_tokens"] <= 400
    assert chat.state["context_guard"]["dropped_turns"] == 0
    assert SUMMARY in account(chat.model)


@pytest.mark.parametrize("summarize", ["background", "off"])
def test_a_history_past_its_own_cap_waits_for_no_summary_that_is_not_due(summarize):
    """A further summary has to cover a lot: until then what leaves goes into the record, and the cap holds."""
    chat = Chat(Writer(), max_history_tokens=400, summarize=summarize)
    chat.ask(8)
    is_told = account(chat.model).startswith(f"{OPENING}\n{SUMMARY} Part 1.")
    sizes = [(chat.ask(), chat.state["context_report"]["history_tokens"])[1] for _ in range(14)]
    assert (is_told, max(sizes) <= 400) == (summarize != "off", True)
    assert left(chat) == chat.state["context_view"]["start"]["index"] > 0


def test_a_damaged_pending_summary_is_dropped_and_said():
    """State passes through many hands; one that is whole is the same after a way through JSON."""
    engine, state = engine_of(Writer()), Chat(Writer(is_open=False)).until(is_begun).state
    again = json.loads(json.dumps({key: state[key] for key in state if key.startswith("context_")}))
    one, two = (engine.measure(state["messages"], session=session).session.pending for session in (state, again))
    assert one == two is not None
    for damaged in ({"key": "k"}, {"key": "k", "start": 3}, ["key"], "key", {"key": "k", "start": {}, "through": {}}):
        window = engine.measure([HumanMessage("hi", id="1")], session={"context_pending": damaged})
        assert window.session.pending is None
        assert window.session.faults


@pytest.mark.parametrize(("ago_seconds", "is_lost"), [(0, False), (10_000, True), (-10_000, True)])
def test_a_clock_that_jumped_does_not_hold_a_lost_summary_for_ever(ago_seconds, is_lost):
    """A summary from the future is as lost as one from long ago."""
    nodes = ContextNodes(engine_of(Writer(), jobs=Forgetful()))
    window = nodes.measure({"messages": [m for n in range(15) for m in _pair(n)]})
    place = Place("1", SummaryStore(InMemoryStore(), "1"))
    begun = Summaries(nodes.engine, clock=lambda: time.time() - ago_seconds).advance(window, place)
    assert begun.session.pending is not None
    assert Summaries(nodes.engine).is_lost(begun, place) is is_lost


def _pair(number):
    return HumanMessage(f"q{number} {WORDS}", id=f"q{number}"), AIMessage(f"a{number} {WORDS}", id=f"a{number}")


def test_the_report_says_why_no_summary_is_tried_any_more():
    """After two failures since the last user message, and when the fixed regions are past the trigger by themselves."""
    writer, jobs = Failing(RuntimeError("down")), SummaryJobs()
    nodes = ContextNodes(engine_of(writer, jobs=jobs))
    state = {"messages": [*(m for n in range(13) for m in _pair(n)), HumanMessage("go on", id="last")]}
    for _ in range(8):
        state |= nodes.budget_check.invoke(state)
        jobs.drain(10)
    assert state["context_report"]["stopped"] == "summaries_ineffective"
    assert len(writer.given) == 2
    state["messages"] = [*state["messages"], HumanMessage("something else", id="next")]
    state |= nodes.budget_check.invoke(state)
    assert state["context_report"]["stopped"] == ""


@pytest.mark.parametrize("summarize", ["background", "inline"])
def test_fixed_regions_past_the_trigger_are_diagnosed_and_cost_no_summary(summarize):
    """No compaction of the history can help there, so no model is asked."""
    writer = Writer()
    prompt = "rules " * 1150
    nodes = ContextNodes(engine_of(writer, summarize=summarize), system_prompt=prompt)
    state = {"messages": [*_pair(1), HumanMessage("go on", id="last")]}
    state |= nodes.budget_check.invoke(state)
    assert state["context_report"]["stopped"] == "fixed_regions"
    assert writer.given == []


def test_summaries_come_in_time_although_sizes_are_unsure():
    """Without reported usage a request is at its limit long before its most likely size is; shares follow that."""
    writer, jobs = Writer(), SummaryJobs()
    settings = ContextConfig(output_reserve=0, pin_first_user=False, keep=0.5)
    engine = ContextEngine(limits=ModelLimits(context_window=3000), summarizer=writer, config=settings, jobs=jobs)
    nodes = ContextNodes(engine)
    state, dropped = {"messages": []}, []
    for turn in range(60):
        question, answer = _pair(turn)
        state["messages"] = [*state["messages"], question]
        state |= nodes.budget_check.invoke(state)
        if nodes.route_on_budget(state) == "force_compress":
            state |= nodes.force_compress.invoke(state)
        state["messages"] = [*state["messages"], answer]
        jobs.drain(10)
        dropped.append((state.get("context_guard") or {}).get("dropped_turns"))
    assert state["context_guard"]["compactions"] >= 2
    assert next(number for number in dropped if number is not None) == 0  # the first was there when it was needed
    assert len(writer.given) <= state["context_guard"]["compactions"] + 1


# ---------------------------------------------------------------------------------------------- at any time


WINDOWS = (400, 800, 1600)
SIZES_CHARS = (8, 60, 200, 400, 800)
GIANT_CHARS = 9000
GOOD_SHARE = 3  # so many good summaries for one of each other kind
EXAMPLES = 40

RUNS = settings(
    deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
KINDS = (*TEXTS, *TEXTS[:1] * GOOD_SHARE)
NUMBERS, CHARS = st.integers(0, 30), st.sampled_from(SIZES_CHARS)
PARALLEL, ORDERS = st.lists(CHARS, min_size=1, max_size=3), st.sampled_from((1, -1))
GROWTH = st.one_of(
    st.tuples(st.just("ask"), CHARS, st.just("")),
    st.tuples(st.just("ask"), st.sampled_from((*SIZES_CHARS, GIANT_CHARS)), st.sampled_from(("", "pin", "image"))),
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
CALM = st.lists(st.one_of(GROWTH, GROWTH, GROWTH, JOBS), min_size=15, max_size=60)
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


@RUNS
@given(events=CALM, setup=SETUPS)
def test_a_growing_conversation_keeps_every_invariant(events, setup):
    """Summaries that arrive at any time, of any quality, or never."""
    play(events, setup)


@RUNS
@given(events=WILD, setup=SETUPS)
def test_a_conversation_whose_past_is_rewritten_keeps_every_invariant(events, setup):
    """Edits, removals, forks and abandoned calls at any time."""
    play(events, setup)


def play(events, setup):
    conversation = Conversation(**setup)
    try:
        for event in events:
            conversation.act(event)
    except BudgetExceededError:
        return
