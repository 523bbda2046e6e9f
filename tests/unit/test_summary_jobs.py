"""Is each summary written once, off the critical path, and is nothing of it lost or shown by mistake?"""

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, SecretStr
from structlog.testing import capture_logs

from langchain_ctxwin import ContextConfig, ContextEngine, ModelLimits
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.summarize import (
    Job,
    RedisLease,
    SummaryJobs,
    SummaryStore,
    Written,
    as_summarizer,
    default_jobs,
    writer_of,
)
from langchain_ctxwin.summarize import jobs as module
from langchain_ctxwin.summarize.jobs import RELEASE_SCRIPT
from langchain_ctxwin.util import in_few_daemons
from langchain_ctxwin.util.background import MAX_HANGING
from langchain_ctxwin.util.failures import digest_of
from support.fakes import ScriptedChatModel
from support.forking import forked
from support.graphs import chat_on

PATIENCE = 20.0  # of a test with a thread; nothing here takes a second
HOUR = 3600.0
PanicError = type("PanicError", (BaseException,), {})  # as of an extension
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


class Jobs(SummaryJobs):
    """Jobs with a clock that a test sets."""

    def __init__(self, **options):
        self.now = 1000.0
        super().__init__(clock=lambda: self.now, **options)

    def begin(self, write=lambda: "text", key="key", *, seconds=HOUR, store=None):
        return self.start(key, write, timeout_seconds=seconds, store=store)

    @property
    def threads(self):
        return sum(not run.has_ended for run in self._threads)

    def settle(self):
        """Wait until every thread ended, abandoned ones included."""
        wait([run.ended for run in list(self._threads)], PATIENCE)

    def ended(self, key="key"):
        """Wait for a job and return what became of it, its time left out."""
        assert self.drain(PATIENCE) == 0
        job = self.find(key)
        if job and job.written:
            written = job.written.to_json() | {"seconds": 0.0}
            return Job(state=job.state, written=Written.from_json(written), reason=job.reason)
        return job


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


def done(text, **cost):
    return Job(state="done", written=Written(text=text, **cost))


def raising(error):
    def write():
        raise error

    return write


def test_a_key_is_written_once_beside_the_caller_however_many_start_it(gate):
    jobs = Jobs()
    assert jobs.find("key") is None
    with ThreadPoolExecutor(20) as pool:
        started = set(pool.map(lambda _: jobs.begin(gate), range(200)))
    assert jobs.find("key") == Job(state="running")
    gate.opened.set()
    assert jobs.ended() == done("tea")
    assert (started, jobs.begin(gate), gate.calls) == ({True}, True, 1)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda: 1 // 0, "the summarizer failed: ZeroDivisionError: integer division or modulo by zero"),
        (lambda: " \n", "the summarizer returned no characters: expected a text that is not empty"),
        (lambda: None, "the summarizer returned NoneType: expected a text that is not empty"),
        (raising(PanicError("boom")), "the summarizer failed: PanicError: boom"),
        (raising(SystemExit(3)), "the summarizer failed: SystemExit: 3"),
    ],
)
def test_whatever_a_summarizer_raises_ends_its_job_alone(write, reason):
    """The key stays known until it is forgotten."""
    jobs = Jobs()
    jobs.begin(write)
    assert jobs.ended() == Job(state="failed", reason=reason)
    jobs.begin()
    assert jobs.ended().state == "failed"
    jobs.forget("key")
    jobs.begin()
    assert jobs.ended() == done("text")


def test_no_more_than_the_bound_run_at_a_time(gate):
    """A start without a free thread is refused and not remembered; a free thread serves it."""
    jobs = Jobs(max_running=2)
    assert [jobs.begin(gate, key) for key in "abc"] == [True, True, False]
    assert (jobs.find("c"), jobs.begin(gate, "a")) == (None, True)
    gate.opened.set()
    assert (jobs.drain(PATIENCE), jobs.begin(gate, "c")) == (0, True)


def test_summarizers_that_hang_take_a_bounded_number_of_threads(gate):
    """Abandoned threads free the places of running ones, up to their own bound; when they end, work goes on."""
    jobs, started = Jobs(max_running=4), 0
    for number in range(50):
        started += jobs.begin(gate, f"key {number}", seconds=1)
        jobs.now += 1
    assert (started, jobs.threads) == (module.MAX_ABANDONED, module.MAX_ABANDONED)
    gate.opened.set()
    jobs.settle()
    assert jobs.begin(gate)
    assert jobs.ended() == done("tea")


LATE = "no summary within 30 seconds: use a faster summarizer or raise summary_timeout_seconds"


@pytest.mark.parametrize("is_seen", [True, False], ids=["looked at", "not looked at"])
@pytest.mark.parametrize(("seconds", "is_late"), [(-1e9, False), (29, False), (30, True), (1e9, True)])
def test_a_job_past_its_time_is_failed_and_its_late_text_dropped(gate, store, seconds, is_late, is_seen):
    """Whoever looked: what comes later is neither kept nor stored, and what is done stays done."""
    jobs = Jobs()
    jobs.begin(key="before", seconds=30)
    jobs.ended("before")
    jobs.begin(gate, seconds=30, store=store)
    gate.wait_entered()
    jobs.now += seconds
    assert not is_seen or jobs.find("key").state == ("failed" if is_late else "running")
    gate.opened.set()
    jobs.settle()
    assert jobs.ended() == (Job(state="failed", reason=LATE) if is_late else done("tea"))
    assert (store.get("key") is None, jobs.threads, jobs.find("before").state) == (is_late, 0, "done")


def test_a_cancelled_job_leaves_nothing_and_does_not_disturb_the_next_attempt(gate, store):
    """Its text is neither kept nor stored, its key is free at once, and its thread counts until it ends."""
    jobs, second = Jobs(), Gate("second")
    jobs.begin(gate, store=store)
    first = [run.ended for run in jobs._threads]
    gate.wait_entered()
    jobs.cancel("key")
    assert (jobs.find("key"), jobs.threads) == (None, 1)
    jobs.begin(second)
    gate.opened.set()
    wait(first, PATIENCE)
    assert (jobs.find("key"), store.get("key"), jobs.threads) == (Job(state="running"), None, 1)
    second.opened.set()
    assert jobs.ended() == done("second")


def test_forgetting_ends_no_work_and_draining_waits_for_no_abandoned_one(gate):
    jobs = Jobs()
    jobs.begin(gate)
    jobs.begin(key="quick", seconds=2 * HOUR)
    for key in ("key", "unknown"):
        jobs.forget(key)
    jobs.cancel("unknown")
    assert (jobs.drain(0.2), jobs.find("quick").state, jobs.find("key").state) == (1, "done", "running")
    jobs.now += HOUR
    assert jobs.drain(HOUR) == 0


def test_the_most_recently_used_results_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    jobs = Jobs()
    for key in "abcde":
        jobs.begin(key=key)
        jobs.drain(PATIENCE)
        assert jobs.find("a").state == "done"
    assert [key for key in "abcde" if jobs.find(key)] == ["a", "d", "e"]


def test_a_summary_is_stored_before_the_job_is_done_and_used_instead_of_written_again(gate, store):
    """Who sees the job done may rely on the other processes' seeing the text, with what it cost."""
    jobs, others = Jobs(), Jobs()
    jobs.begin(store=store)
    assert jobs.ended() == done("text")
    assert store.get("key") == jobs.find("key").written
    store.put("key", Written(text="stored", calls=1, input_tokens=9))
    others.begin(gate, store=store)
    assert (others.ended(), gate.calls) == (done("stored", calls=1, input_tokens=9), 0)


def failing_store(put):
    store = type("Store", (InMemoryStore,), {"put": lambda *_, **__: put()})()
    return SummaryStore(store, "thread")


@pytest.mark.parametrize("error", [ConnectionError("gone"), PanicError("gone")], ids=repr)
def test_a_store_that_fails_does_not_fail_the_job(error):
    jobs = Jobs()
    with capture_logs() as logs:
        jobs.begin(store=failing_store(raising(error)))
        assert jobs.ended() == done("text")
    assert [entry["event"] for entry in logs] == (["summary.not_stored"] if isinstance(error, Exception) else [])


def test_a_store_that_hangs_does_not_fail_the_job(gate):
    """At the end of its time the job is done with the text that it has."""
    jobs = Jobs()
    jobs.begin(store=failing_store(gate))
    gate.wait_entered()
    assert jobs.find("key") == Job(state="running")
    jobs.now += HOUR
    assert (jobs.find("key").state, jobs.find("key").written.text) == ("done", "text")


class Lease:
    """Grants nothing, as when another process has every key; or raises what a test says."""

    def __init__(self, error=None):
        self.error = error

    def acquire(self, key, ttl_seconds):
        if self.error:
            raise self.error
        return False

    def release(self, key):
        raise self.error or AssertionError("it was never granted")


def test_a_job_of_another_process_is_elsewhere(gate, store):
    """No call is made; the key stays known until its time is over, unless the store has the text already."""
    jobs = Jobs(lease=Lease())
    jobs.begin(gate, seconds=30, store=store)
    assert (jobs.ended(), gate.calls) == (Job(state="elsewhere"), 0)
    jobs.now += 30
    assert jobs.find("key") == Job(
        state="failed",
        reason="another process took this summary and did not finish it within 30 seconds: use a faster summarizer, "
        "raise summary_timeout_seconds, or let all processes share one store",
    )
    store.put("finished", Written(text="stored"))
    jobs.begin(gate, "finished", store=store)
    assert jobs.ended("finished") == done("stored")


def test_a_lease_that_fails_does_not_stop_the_work():
    """Twice is better than never, and one that cannot be released runs out by itself; a warning says each."""
    jobs = Jobs(lease=Lease(ConnectionError("gone")))
    with capture_logs() as logs:
        jobs.begin(key="good")
        assert jobs.ended("good") == done("text")
        jobs.begin(raising(ValueError()), "bad")
        assert jobs.ended("bad").state == "failed"
    told = {"error": "ConnectionError", "digest": digest_of("gone"), "log_level": "warning"}
    assert logs == [
        {"event": "summary.lease_failed", "key": "good", **told},
        {"event": "summary.lease_failed", "key": "bad", **told},
        {"event": "summary.lease_not_released", "key": "bad", **told},
    ]


class FakeRedis:
    """The commands of a Redis server that a lease uses, without its clock."""

    def __init__(self):
        self.values = {}
        self.released = threading.Semaphore(0)

    def set(self, name, token, *, nx, px):
        return None if name in self.values else self.values.setdefault(name, token)

    def get(self, name):
        return self.values.get(name)

    def eval(self, script, number, name, token):
        assert (script, number) == (RELEASE_SCRIPT, 1)
        if self.values.get(name) == token:
            del self.values[name]
        self.released.release()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_summary_that_came_to_nothing_gives_its_lease_back(gate, is_cancelled):
    """Before anybody can know that it failed, and at once when cancelled; the late end releases nothing more."""
    redis = FakeRedis()
    jobs = Jobs(lease=RedisLease(redis))
    jobs.begin(gate if is_cancelled else raising(ConnectionError("busy")))
    if is_cancelled:
        gate.wait_entered()
        jobs.cancel("key")
        assert redis.released.acquire(timeout=PATIENCE)
    else:
        assert jobs.ended().state == "failed"
        assert redis.released.acquire(blocking=False)
        jobs.forget("key")
    assert redis.values == {}
    gate.opened.set()
    jobs.begin()
    jobs.settle()
    assert (jobs.ended(), list(redis.values)) == (done("text"), ["ctxwin:lease:key"])
    assert not redis.released.acquire(blocking=False)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"max_running": 0}, "max_running=0: give a whole number of summaries, at least 1"),
        ({"max_running": "4"}, "max_running='4': give a whole number of summaries, at least 1"),
        ({"drain_seconds": float("nan")}, "drain_seconds=nan: give a number of seconds, 0 to wait for nothing"),
        ({"lease": "redis://"}, "lease='redis://' has no methods acquire and release: pass RedisLease.from_url(url), "),
        ({"lease": RedisLease}, "lease=<class 'langchain_ctxwin.summarize.jobs.RedisLease'> has no methods acquire "),
    ],
)
def test_settings_that_cannot_work_are_refused(setting, told):
    with pytest.raises(ConfigError) as raised:
        SummaryJobs(**setting)
    assert str(raised.value).startswith(told)


def test_a_process_without_threads_refuses_and_remembers_nothing(monkeypatch):
    """A system at its limit, or an interpreter at its end, gives no thread."""
    jobs = Jobs()
    with monkeypatch.context() as patch:
        patch.setattr(module, "in_daemon", lambda work: raising(RuntimeError("can't start new thread"))())
        assert not jobs.begin()
    assert (jobs.find("key"), jobs.threads, jobs.begin()) == (None, 0, True)


@needs_fork
def test_a_forked_child_does_not_wait_for_its_parents_threads(gate):
    """Running jobs are unknown there and start anew, also when the fork came while the lock was held."""
    jobs = Jobs(max_running=1)
    jobs.begin(key="done")
    jobs.ended("done")
    jobs.begin(gate)
    jobs._lock.acquire()
    with forked() as is_child:
        if is_child:
            assert (jobs.find("key"), jobs.find("done").state, jobs.drain(PATIENCE)) == (None, "done", 0)
            assert jobs.begin(lambda: "child's")
            assert jobs.ended() == done("child's")
        else:
            jobs._lock.release()
    assert jobs.find("key") == Job(state="running")


@needs_fork
@pytest.mark.usefixtures("free_places")
def test_calls_that_hang_in_the_parent_take_no_place_in_a_forked_child(gate):
    """Their threads do not exist there; the parent's places stay taken until they end."""
    for _ in range(MAX_HANGING):
        in_few_daemons(gate)
    with forked() as is_child:
        if is_child:
            assert in_few_daemons(lambda: "text").result(PATIENCE) == "text"
    with pytest.raises(RuntimeError, match="64 calls have not returned"):
        in_few_daemons(gate)


def test_engines_share_jobs_and_what_nobody_needs_is_freed(store):
    """Neither the exit nor the fork hook keeps jobs alive; those of the process stay."""
    assert default_jobs() is default_jobs()
    jobs = SummaryJobs()
    jobs.start("key", lambda: "text", timeout_seconds=HOUR, store=store)
    for thread in [thread for thread in threading.enumerate() if thread.name == "ctxwin"]:
        thread.join(PATIENCE)
    alive = weakref.ref(jobs)
    del jobs
    gc.collect()
    assert alive() is None


def replying(word: str) -> Any:
    async def reply(messages: Any) -> str:
        return word

    return reply


class Wording:
    def __init__(self, word: str) -> None:
        self.word, self.asked = word, 0

    def summarize(self, messages: Any, *, previous: str, max_tokens: int) -> str:
        self.asked += 1
        return self.word


def toned(tone: str) -> Any:
    def reply(messages: Any, *, tone: str = tone) -> str:
        return tone

    return reply


def among(messages: Any) -> str:
    return "short" if str(messages) in {"alpha", "beta", "gamma", "delta"} else "long"


def chain(model: str, prompt: str = "Summarize.") -> Any:
    return (
        ChatPromptTemplate.from_messages([("system", prompt)]) | ScriptedChatModel(model_name=model) | StrOutputParser()
    )


WRITERS: dict[str, Callable[[], Any]] = {
    "record": lambda: None,
    "closure": lambda: replying("a"),
    "closure over another": lambda: replying("b"),
    "partial": lambda: partial(max, 1),
    "partial of another": lambda: partial(max, 2),
    "object": lambda: Wording("a"),
    "object with another text": lambda: Wording("b"),
    "method": lambda: Wording("a").summarize,
    "model": lambda: ScriptedChatModel(model_name="a"),
    "another model": lambda: ScriptedChatModel(model_name="b"),
    "model with settings": lambda: ScriptedChatModel(model_name="a").bind(temperature=0.1),
    "model with other settings": lambda: ScriptedChatModel(model_name="a").bind(temperature=0.2),
    "default of a name": lambda: toned("dry"),
    "another default of a name": lambda: toned("warm"),
    "set in the code": lambda: among,
    "chain": lambda: chain("a"),
    "chain of another model": lambda: chain("b"),
    "chain of another prompt": lambda: chain("a", "Say what was decided."),
}


def test_a_summarizer_is_known_by_what_it_is_made_of_and_not_by_where_it_lies():
    """Equal ones are known to be equal in each process, and no two that differ are taken for each other."""
    once, again = ({name: writer_of(as_summarizer(make())) for name, make in WRITERS.items()} for _ in range(2))
    assert once == again
    assert len({*once.values()}) == len(WRITERS)


def test_a_summarizer_is_known_by_the_same_key_in_another_process():
    """Python orders the items of a set anew in each process."""
    code = "import test_summary_jobs as t; print(*(t.writer_of(t.as_summarizer(m())) for m in t.WRITERS.values()))"
    folder = Path(__file__).parent
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.split() == [writer_of(as_summarizer(make())) for make in WRITERS.values()]


def test_a_summarizer_that_counts_its_calls_stays_who_it_is_and_a_key_tells_nothing():
    used = Wording("a")
    used.summarize([], previous="", max_tokens=1)
    assert writer_of(used) == writer_of(Wording("a"))

    class Keyed(BaseModel):
        key: SecretStr

    assert writer_of(Keyed(key=SecretStr("one"))) == writer_of(Keyed(key=SecretStr("two")))


def test_two_engines_with_one_thread_name_and_history_show_their_own_summaries():
    """Arms of an experiment, or two tenants behind one greeting, share the jobs of their process."""
    jobs, shown = SummaryJobs(), dict[str, str]()
    for word in ("CORMORANT", "PELICAN"):
        model = ScriptedChatModel(input_limit=1500)
        config = ContextConfig(output_reserve=0)
        engine = ContextEngine(ModelLimits(context_window=1500), summarizer=Wording(word), config=config, jobs=jobs)
        agent = chat_on(engine, model)
        for turn in range(14):
            asked = HumanMessage(f"Boat {turn}: are the nets on the quay dry enough to be mended? " * 8, id=str(turn))
            agent.invoke({"messages": [asked]}, {"configurable": {"thread_id": "harbour"}})
            jobs.drain(5)
        shown[word] = str([request.messages for request in model.requests])
    assert [(mine in shown[mine], other in shown[mine]) for mine, other in permutations(shown)] == [(True, False)] * 2
