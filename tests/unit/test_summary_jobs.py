"""Is each summary written once, off the critical path, and is nothing of it lost or shown by mistake?"""

import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import permutations

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.summarize import SummaryJobs
from langchain_ctxwin.summarize import jobs as module
from langchain_ctxwin.summarize.jobs import SummaryStore
from langchain_ctxwin.summarize.model import Written, as_summarizer, writer_of
from support.fakes import ScriptedChatModel
from support.graphs import chat_on

PATIENCE = 20.0  # of a test with a thread; nothing here takes a second
PanicError = type("PanicError", (BaseException,), {})  # as of an extension
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="this system has no fork"
)


RUNNING = (None, "")


class Jobs(SummaryJobs):
    def begin(self, write=lambda: "text", key="key", **options):
        return self.start(key, write, **options)

    def ended(self, key="key"):
        """Wait for a job and return what became of it."""
        assert self.drain(PATIENCE) == 0
        return self.told(key)

    def told(self, key="key"):
        """The text that a job wrote, and why there is none."""
        job = self.find(key)
        return job and (job.written and job.written.text, job.failure)


class Gate:
    """A summarizer that waits until it is opened, and counts how often it was called."""

    def __init__(self, text="tea"):
        self.text = text
        self.calls = 0
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self):
        self.calls += 1
        self.entered.release()
        assert self.opened.wait(PATIENCE)
        return self.text

    def wait_entered(self):
        assert self.entered.acquire(timeout=PATIENCE)


@pytest.fixture
def gate():
    """A closed gate; its threads end with the test."""
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def store():
    return SummaryStore(InMemoryStore(), "thread")


def raising(error):
    def write():
        raise error

    return write


def test_a_key_is_written_once_beside_the_caller_however_many_start_it(gate):
    jobs = Jobs()
    assert jobs.find("key") is None
    with ThreadPoolExecutor(20) as pool:
        started = set(pool.map(lambda _: jobs.begin(gate), range(200)))
    assert jobs.told() == RUNNING
    gate.opened.set()
    assert jobs.ended() == ("tea", "")
    assert (started, jobs.begin(gate), gate.calls) == ({True}, True, 1)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (
            lambda: 1 // 0,
            "the summarizer failed: ZeroDivisionError: integer division or modulo by zero",
        ),
        (
            lambda: " \n",
            "the summarizer returned no characters: expected a text that is not empty",
        ),
        (
            lambda: None,
            "the summarizer returned NoneType: expected a text that is not empty",
        ),
        (raising(PanicError("boom")), "the summarizer failed: PanicError: boom"),
        (raising(SystemExit(3)), "the summarizer failed: SystemExit: 3"),
        (raising(SummarizationError()), "SummarizationError"),
    ],
)
def test_whatever_a_summarizer_raises_ends_its_job_alone(write, reason):
    """The key stays known until it is forgotten."""
    jobs = Jobs()
    jobs.begin(write)
    assert jobs.ended() == (None, reason)
    jobs.begin()
    assert jobs.ended() == (None, reason)
    jobs.forget("key")
    jobs.begin()
    assert jobs.ended() == ("text", "")


def test_no_more_than_the_bound_run_at_a_time(gate, monkeypatch):
    """A start without a free thread is refused and not remembered; a free thread serves it."""
    monkeypatch.setattr(module, "MAX_RUNNING", 2)
    jobs = Jobs()
    assert [jobs.begin(gate, key) for key in "abc"] == [True, True, False]
    assert (jobs.find("c"), jobs.begin(gate, "a")) == (None, True)
    gate.opened.set()
    assert (jobs.drain(PATIENCE), jobs.begin(gate, "c")) == (0, True)


def test_a_late_text_is_there_for_who_asks_again(gate, store):
    """It was paid for."""
    jobs = Jobs()
    jobs.begin(gate, store=store)
    late = jobs.find("key").ended
    jobs.forget("key")
    gate.opened.set()
    wait([late], PATIENCE)
    jobs.begin(lambda: "another", store=store)
    assert jobs.ended() == ("tea", "")


def test_a_cancelled_job_leaves_nothing_and_does_not_disturb_the_next_attempt(
    gate, store, monkeypatch
):
    """Its text is neither kept nor stored, its key is free at once, and its thread counts until it ends."""
    monkeypatch.setattr(module, "MAX_RUNNING", 1)
    jobs, second = Jobs(), Gate("second")
    jobs.begin(gate, store=store, thread_id="t")
    first = jobs.find("key").ended
    gate.wait_entered()
    jobs.cancel_thread("t")
    assert (jobs.find("key"), jobs.begin(second)) == (None, False)
    gate.opened.set()
    wait([first], PATIENCE)
    assert (jobs.begin(second), jobs.told(), store.get("key")) == (True, RUNNING, None)
    second.opened.set()
    assert jobs.ended() == ("second", "")


def test_a_summary_is_stored_before_the_job_is_done_and_used_instead_of_written_again(
    gate, store
):
    """Who sees the job done may rely on the other processes' seeing the text, with what it cost."""
    jobs, others = Jobs(), Jobs()
    jobs.begin(lambda: ScriptedChatModel().invoke("tea?").text and "text", store=store)
    assert jobs.ended() == ("text", "")
    assert store.get("key") == jobs.find("key").written
    stored = Written(text="stored", tokens={"input_tokens": 9})
    store.put("key", stored)
    others.begin(gate, store=store)
    assert (others.ended(), gate.calls) == (("stored", ""), 0)
    assert others.find("key").written == stored


CHILD_SECONDS = 60  # longest life of a forked child


@contextmanager
def forked():
    """Yield in a child process whose exit code says whether the body passed, and check it in the parent."""
    with warnings.catch_warnings():
        # forking beside threads is what is tested
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        yield False
        assert os.waitpid(child, 0)[1] == 0
        return
    code = 1
    signal.alarm(CHILD_SECONDS)  # a child that waits for ever is killed
    try:
        yield True
        code = 0
    finally:
        os._exit(code)


@needs_fork
def test_a_forked_child_does_not_wait_for_its_parents_threads(gate, monkeypatch):
    """It knows no jobs and starts them anew, also when the fork came while the lock was held."""
    monkeypatch.setattr(module, "MAX_RUNNING", 1)
    jobs = Jobs()
    jobs.begin(key="done")
    jobs.ended("done")
    jobs.begin(gate)
    jobs._lock.acquire()
    with forked() as is_child:
        if is_child:
            assert (jobs.find("key"), jobs.find("done"), jobs.drain(PATIENCE)) == (
                None,
                None,
                0,
            )
            assert jobs.begin(lambda: "child's")
            assert jobs.ended() == ("child's", "")
        else:
            jobs._lock.release()
    assert jobs.told() == RUNNING


class Wording:
    def __init__(self, word):
        self.word = word

    def summarize(self, messages, *, previous, max_tokens):
        return self.word


def chat(model, key="key"):
    return ChatOpenAI(model=model, api_key=key)


def chain(prompt):
    return (
        ChatPromptTemplate.from_messages([("system", prompt)])
        | chat("a")
        | StrOutputParser()
    )


def test_no_two_summarizers_are_taken_for_each_other():
    """Models and chains are known by their settings, as in another process; what cannot be compared is its own."""

    def settings():
        bound = [chat("a").bind(temperature=share) for share in (0.1, 0.2)]
        return [chat("a"), chat("b"), *bound, chain("Sum up."), chain("Decisions?")]

    first, again = (
        [writer_of(as_summarizer(one)) for one in settings()] for _ in range(2)
    )
    own = [make for _ in range(2) for make in (lambda _: "a", Wording("a"))]
    others = [writer_of(as_summarizer(one)) for one in own]
    assert first == again
    assert len({*first, *others}) == len(first) + len(own)
    assert writer_of(as_summarizer(chat("a", key="another"))) == first[0]


def test_two_engines_with_one_thread_name_and_history_show_their_own_summaries():
    """Arms of an experiment, or two tenants behind one greeting, share the jobs of their process."""
    jobs, shown = SummaryJobs(), dict[str, str]()
    for word in ("CORMORANT", "PELICAN"):
        model = ScriptedChatModel(input_limit=1500)
        config = ContextConfig(output_reserve=0)
        engine = ContextEngine(
            ModelLimits(context_window=1500),
            summarizer=Wording(word),
            config=config,
            jobs=jobs,
        )
        agent = chat_on(engine, model)
        for turn in range(14):
            asked = HumanMessage(
                f"Boat {turn}: are the nets on the quay dry enough to be mended? " * 8,
                id=str(turn),
            )
            agent.invoke(
                {"messages": [asked]}, {"configurable": {"thread_id": "harbour"}}
            )
            jobs.drain(5)
        shown[word] = str([request.messages for request in model.requests])
    assert [
        (mine in shown[mine], other in shown[mine])
        for mine, other in permutations(shown)
    ] == [(True, False)] * 2
