"""Is each summary written once, off the critical path, and is nothing of it lost or shown by mistake?"""

import gc
import os
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from structlog.testing import capture_logs

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.summarize import (
    Job,
    ModelSummarizer,
    RedisLease,
    SummaryJobs,
    SummaryStore,
    Written,
    default_jobs,
)
from langchain_ctxwin.summarize import jobs as background
from langchain_ctxwin.summarize import store as lease
from langchain_ctxwin.summarize.jobs import MAX_ABANDONED
from langchain_ctxwin.util.background import MAX_HANGING, in_few_daemons
from support.fakes import ScriptedChatModel, script
from support.forking import forked

PATIENCE = 20.0  # of a test with a thread; nothing here takes a second
HOUR = 3600.0
PanicError = type("PanicError", (BaseException,), {})  # as of an extension


class Clock:
    """Seconds that a test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Gate:
    """A summarizer that waits until it is opened, and counts how often it was called."""

    def __init__(self, text="The user wants tea."):
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


def ended(jobs, key):
    """Wait for a job and return what became of it, its time left out."""
    assert jobs.drain(PATIENCE) == 0
    job = jobs.find(key)
    if job and job.written:
        written = job.written.to_json() | {"seconds": 0.0}
        return Job(state=job.state, written=Written.from_json(written), reason=job.reason)
    return job


def done(text, **cost):
    """A job that ended well."""
    return Job(state="done", written=Written(text=text, **cost))


def threads_of(jobs):
    """How many threads of these jobs live."""
    return len(jobs._threads)


def settle(jobs):
    """Wait until every thread ended, abandoned ones included."""
    wait([run.ended for run in list(jobs._threads)], PATIENCE)


def test_a_key_is_written_once_beside_the_caller_however_many_start_it(gate):
    """200 starts from 20 threads are one call, while it runs and after it; then its text is found."""
    jobs = SummaryJobs()
    assert jobs.find("key") is None

    def start(_):
        return jobs.start("key", gate, timeout_seconds=HOUR)

    with ThreadPoolExecutor(20) as pool:
        started = set(pool.map(start, range(200)))
    assert jobs.find("key") == Job(state="running")
    gate.opened.set()
    assert ended(jobs, "key") == done("The user wants tea.")
    assert (started, start(0), gate.calls) == ({True}, True, 1)


def raising(error):
    def write():
        raise error

    return write


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda: 1 // 0, "the summarizer failed: ZeroDivisionError: integer division or modulo by zero"),
        (lambda: " \n", "the summarizer returned ' \\n': expected a text that is not empty"),
        (lambda: None, "the summarizer returned None: expected a text that is not empty"),
        (raising(PanicError("boom")), "the summarizer failed: PanicError: boom"),
        (raising(SystemExit(3)), "the summarizer failed: SystemExit: 3"),
    ],
)
def test_a_failing_summarizer_is_a_failed_job(write, reason):
    """Whatever it raises ends the job alone, and the key stays known until it is forgotten."""
    jobs = SummaryJobs()
    jobs.start("key", write, timeout_seconds=HOUR)
    assert ended(jobs, "key") == Job(state="failed", reason=reason)
    jobs.start("key", lambda: "not called", timeout_seconds=HOUR)
    assert ended(jobs, "key").state == "failed"
    jobs.forget("key")
    jobs.start("key", lambda: "again", timeout_seconds=HOUR)
    assert ended(jobs, "key") == done("again")


def test_no_more_than_the_bound_run_at_a_time(gate):
    """A start without a free thread is refused and not remembered; a free thread serves it."""
    jobs = SummaryJobs(max_running=2)
    assert [jobs.start(key, gate, timeout_seconds=HOUR) for key in "abc"] == [True, True, False]
    assert (jobs.find("c"), jobs.start("a", gate, timeout_seconds=HOUR)) == (None, True)
    gate.opened.set()
    assert jobs.drain(PATIENCE) == 0
    assert jobs.start("c", gate, timeout_seconds=HOUR)


@pytest.mark.parametrize("is_seen", [True, False], ids=["looked at", "not looked at"])
def test_a_job_past_its_time_is_failed_and_its_late_text_dropped(gate, is_seen):
    """The reason names the seconds and what to do; what comes later is neither kept nor stored."""
    clock, summaries = Clock(), SummaryStore(InMemoryStore(), "thread")
    jobs = SummaryJobs(clock=clock)
    jobs.start("key", gate, timeout_seconds=30, shelf=summaries)
    gate.wait_entered()
    clock.now += 30
    late = Job(
        state="failed",
        reason="no summary within 30 seconds: use a faster summarizer or raise summary_timeout_seconds",
    )
    assert not is_seen or jobs.find("key") == late
    gate.opened.set()
    settle(jobs)
    assert (jobs.find("key"), summaries.get("key"), threads_of(jobs)) == (late, None, 0)


def test_summarizers_that_hang_take_a_bounded_number_of_threads(gate):
    """Abandoned threads free the places of running ones, up to their own bound; when they end, work goes on."""
    clock = Clock()
    jobs = SummaryJobs(max_running=4, clock=clock)
    started = 0
    for number in range(50):
        started += jobs.start(f"key {number}", gate, timeout_seconds=1)
        clock.now += 1
    assert (started, threads_of(jobs)) == (MAX_ABANDONED, MAX_ABANDONED)
    gate.opened.set()
    settle(jobs)
    assert jobs.start("after", gate, timeout_seconds=HOUR)
    assert ended(jobs, "after") == done("The user wants tea.")


@pytest.mark.parametrize(("jump", "state"), [(-1e9, "done"), (29.0, "done"), (1e9, "failed")])
def test_a_clock_that_jumps_fails_running_jobs_past_their_time_only(gate, jump, state):
    """Neither backwards nor a little forwards; and what is done stays done."""
    clock = Clock()
    jobs = SummaryJobs(clock=clock)
    jobs.start("done", lambda: "text", timeout_seconds=30)
    ended(jobs, "done")
    jobs.start("running", gate, timeout_seconds=30)
    clock.now += jump
    gate.opened.set()
    settle(jobs)
    assert (jobs.find("done").state, jobs.find("running").state) == ("done", state)


def test_a_cancelled_job_leaves_nothing_and_does_not_disturb_the_next_attempt(gate):
    """Its text is neither kept nor stored, its key is free at once, and its thread counts until it ends."""
    summaries, second = SummaryStore(InMemoryStore(), "thread"), Gate("second")
    jobs = SummaryJobs()
    jobs.start("key", gate, timeout_seconds=HOUR, shelf=summaries)
    first = [run.ended for run in jobs._threads]
    gate.wait_entered()
    jobs.cancel("key")
    assert (jobs.find("key"), threads_of(jobs)) == (None, 1)
    jobs.start("key", second, timeout_seconds=HOUR)
    gate.opened.set()
    wait(first, PATIENCE)
    assert (jobs.find("key"), summaries.get("key"), threads_of(jobs)) == (Job(state="running"), None, 1)
    second.opened.set()
    assert ended(jobs, "key") == done("second")


def test_forgetting_ends_no_work(gate):
    """A running job goes on and stays known; unknown keys are fine."""
    jobs = SummaryJobs()
    jobs.start("key", gate, timeout_seconds=HOUR)
    for key in ("key", "unknown"):
        jobs.forget(key)
    jobs.cancel("unknown")
    gate.opened.set()
    assert ended(jobs, "key") == done("The user wants tea.")


def test_draining_says_how_many_still_run(gate):
    """It waits no longer than asked, and not at all for abandoned threads."""
    clock = Clock()
    jobs = SummaryJobs(clock=clock)
    jobs.start("hanging", gate, timeout_seconds=HOUR)
    jobs.start("quick", lambda: "text", timeout_seconds=2 * HOUR)
    assert (jobs.drain(0.2), jobs.find("quick").state) == (1, "done")
    clock.now += HOUR
    assert jobs.drain(HOUR) == 0


def test_the_most_recently_used_results_are_remembered(monkeypatch):
    """Memory stays bounded, and what was asked for stays longest."""
    monkeypatch.setattr(background, "MAX_REMEMBERED", 3)
    jobs = SummaryJobs()
    for key in "abcde":
        jobs.start(key, lambda: "text", timeout_seconds=HOUR)
        jobs.drain(PATIENCE)
        assert jobs.find("a").state == "done"
    assert [key for key in "abcde" if jobs.find(key)] == ["a", "d", "e"]


def test_a_summary_is_stored_before_the_job_is_done_and_used_instead_of_written_again(gate):
    """Who sees the job done may rely on the other processes' seeing the text, with what it cost."""
    summaries = SummaryStore(InMemoryStore(), "thread")
    jobs, others = SummaryJobs(), SummaryJobs()
    jobs.start("key", lambda: "text", timeout_seconds=HOUR, shelf=summaries)
    assert ended(jobs, "key") == done("text")
    assert summaries.get("key") == jobs.find("key").written
    summaries.put("key", Written(text="stored", calls=1, input_tokens=9))
    others.start("key", gate, timeout_seconds=HOUR, shelf=summaries)
    assert (ended(others, "key"), gate.calls) == (done("stored", calls=1, input_tokens=9), 0)


class Store(InMemoryStore):
    """A store whose writes go wrong as a test says."""

    def __init__(self, put):
        super().__init__()
        self.write = put

    def put(self, *args, **options):
        self.write()


@pytest.mark.parametrize("error", [ConnectionError("gone"), PanicError("gone")], ids=repr)
def test_a_store_that_fails_does_not_fail_the_job(error):
    """The text is there for this process at least."""
    jobs = SummaryJobs()
    with capture_logs() as logs:
        jobs.start("key", lambda: "text", timeout_seconds=HOUR, shelf=SummaryStore(Store(raising(error)), "thread"))
        assert ended(jobs, "key") == done("text")
    assert [entry["event"] for entry in logs] == (["summary.not_stored"] if isinstance(error, Exception) else [])


def test_a_store_that_hangs_does_not_fail_the_job(gate):
    """At the end of its time the job is done with the text that it has."""
    clock = Clock()
    jobs = SummaryJobs(clock=clock)
    jobs.start("key", lambda: "text", timeout_seconds=30, shelf=SummaryStore(Store(gate), "thread"))
    gate.wait_entered()
    assert jobs.find("key") == Job(state="running")
    clock.now += 30
    assert (jobs.find("key").state, jobs.find("key").written.text) == ("done", "text")


class HeldLease:
    """Grants nothing, as when another process has every key."""

    def acquire(self, key, ttl_seconds):
        return False

    def release(self, key):
        raise AssertionError("it was never granted")


def test_a_job_of_another_process_is_elsewhere(gate):
    """No call is made; the key stays known until its time is over, and then says what to do."""
    clock = Clock()
    jobs = SummaryJobs(lease=HeldLease(), clock=clock)
    jobs.start("key", gate, timeout_seconds=30, shelf=SummaryStore(InMemoryStore(), "thread"))
    assert (ended(jobs, "key"), gate.calls) == (Job(state="elsewhere"), 0)
    clock.now += 30
    assert jobs.find("key") == Job(
        state="failed",
        reason="another process took this summary and did not finish it within 30 seconds: use a faster summarizer, "
        "raise summary_timeout_seconds, or let all processes share one store",
    )


def test_what_another_process_finished_is_done_although_it_has_the_lease(gate):
    """Leases outlive the work; the store knows better."""
    summaries = SummaryStore(InMemoryStore(), "thread")
    summaries.put("key", Written(text="stored"))
    jobs = SummaryJobs(lease=HeldLease())
    jobs.start("key", gate, timeout_seconds=HOUR, shelf=summaries)
    assert ended(jobs, "key") == done("stored")


def test_a_lease_that_fails_does_not_stop_the_work():
    """Twice is better than never, and one that cannot be released runs out by itself; a warning says each."""

    class Lease:
        def acquire(self, key, ttl_seconds):
            raise ConnectionError("gone")

        def release(self, key):
            raise ConnectionError("gone")

    jobs = SummaryJobs(lease=Lease())
    with capture_logs() as logs:
        jobs.start("good", lambda: "text", timeout_seconds=HOUR)
        assert ended(jobs, "good") == done("text")
        jobs.start("bad", raising(ValueError()), timeout_seconds=HOUR)
        assert ended(jobs, "bad").state == "failed"
    told = {"error": "ConnectionError: gone", "log_level": "warning"}
    assert logs == [
        {"event": "summary.lease_failed", "key": "good", **told},
        {"event": "summary.lease_failed", "key": "bad", **told},
        {"event": "summary.lease_not_released", "key": "bad", **told},
    ]


class FakeRedis:
    """The commands of a Redis server that a lease uses, without its clock."""

    def __init__(self):
        self.values = {}

    def set(self, name, token, *, nx, px):
        return None if name in self.values else self.values.setdefault(name, token)

    def get(self, name):
        return self.values.get(name)

    def eval(self, script, number, name, token):
        assert (script, number) == (lease.RELEASE_SCRIPT, 1)
        return self.values.pop(name) if self.values.get(name) == token else 0


def test_a_failed_summary_can_be_tried_again_at_once():
    """Its lease is given back before anybody can know that it failed."""
    redis = FakeRedis()
    jobs = SummaryJobs(lease=RedisLease(redis))
    jobs.start("key", raising(ConnectionError("rate limited")), timeout_seconds=HOUR)
    assert (ended(jobs, "key").state, redis.values) == ("failed", {})
    jobs.forget("key")
    jobs.start("key", lambda: "text", timeout_seconds=HOUR)
    assert (ended(jobs, "key"), list(redis.values)) == (done("text"), ["ctxwin:lease:key"])


def test_a_cancelled_summary_gives_its_lease_back(gate):
    """Another branch, or another process, may want it at once; the late end of the thread releases nothing more."""
    released = threading.Semaphore(0)

    class Lease(RedisLease):
        def release(self, key):
            super().release(key)
            released.release()

    redis = FakeRedis()
    jobs = SummaryJobs(lease=Lease(redis))
    jobs.start("key", gate, timeout_seconds=HOUR)
    gate.wait_entered()
    jobs.cancel("key")
    assert released.acquire(timeout=PATIENCE)
    assert redis.values == {}
    jobs.start("key", gate, timeout_seconds=HOUR)
    gate.wait_entered()
    gate.opened.set()
    assert (ended(jobs, "key"), list(redis.values)) == (done(gate.text), ["ctxwin:lease:key"])
    assert not released.acquire(blocking=False)


def test_a_lease_of_another_process_is_not_released():
    """Ours ran out, and its key was granted again."""
    redis = FakeRedis()
    ours = RedisLease(redis)
    assert ours.acquire("key", 1)
    redis.values["ctxwin:lease:key"] = "another token"
    ours.release("key")
    ours.release("never ours")
    assert redis.values == {"ctxwin:lease:key": "another token"}


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"max_running": 0}, "max_running=0: give a whole number of summaries, at least 1"),
        ({"max_running": "4"}, "max_running='4': give a whole number of summaries, at least 1"),
        ({"drain_seconds": -5}, "drain_seconds=-5: give a number of seconds, 0 to wait for nothing"),
        ({"drain_seconds": float("nan")}, "drain_seconds=nan: give a number of seconds, 0 to wait for nothing"),
        (
            {"lease": "redis://"},
            "lease='redis://' has no methods acquire and release: pass RedisLease.from_url(url), or None",
        ),
        (
            {"lease": RedisLease},
            (
                "lease=<class 'langchain_ctxwin.summarize.store.RedisLease'> has no methods acquire and release: pass "
                "RedisLease.from_url(url), or None"
            ),
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(setting, told):
    """With the value and what to give instead."""
    with pytest.raises(ConfigError) as raised:
        SummaryJobs(**setting)
    assert str(raised.value) == told


def test_a_lease_says_which_url_it_takes_and_what_to_install(monkeypatch):
    """The rest of a URL may hold a password, so it is not shown."""
    pytest.importorskip("redis")
    with pytest.raises(ConfigError) as raised:
        RedisLease.from_url("http://:secret@host")
    assert str(raised.value) == "url with the scheme 'http': pass redis://host:6379/0 or rediss://..."
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r'pip install "langchain-ctxwin\[redis\]"'):
        RedisLease.from_url("redis://host")


def test_a_process_without_threads_refuses_and_remembers_nothing(monkeypatch):
    """A system at its limit, or an interpreter at its end, gives no thread."""

    def no_thread(work):
        raise RuntimeError("can't start new thread")

    jobs = SummaryJobs()
    with monkeypatch.context() as patch:
        patch.setattr(background, "in_daemon", no_thread)
        assert not jobs.start("key", lambda: "text", timeout_seconds=HOUR)
    assert (jobs.find("key"), threads_of(jobs)) == (None, 0)
    assert jobs.start("key", lambda: "text", timeout_seconds=HOUR)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_its_parents_threads(gate):
    """Running jobs are unknown there and start anew, also when the fork came while the lock was held."""
    jobs = SummaryJobs(max_running=1)
    jobs.start("done", lambda: "text", timeout_seconds=HOUR)
    ended(jobs, "done")
    jobs.start("running", gate, timeout_seconds=HOUR)
    jobs._lock.acquire()
    with forked() as is_child:
        if is_child:
            assert (jobs.find("running"), jobs.find("done").state, jobs.drain(PATIENCE)) == (None, "done", 0)
            assert jobs.start("running", lambda: "child's", timeout_seconds=HOUR)
            assert ended(jobs, "running") == done("child's")
        else:
            jobs._lock.release()
    assert jobs.find("running") == Job(state="running")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
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


def test_a_summary_does_not_reach_the_users_stream():
    """The job's model streams, and the graph's message stream shows the answer alone."""
    jobs, secret = SummaryJobs(), "the summary that nobody should see in the stream"
    writer = ScriptedChatModel(policy=script(secret))

    def write():
        return "".join(chunk.text for chunk in writer.stream([HumanMessage("Summarize.")]))

    def node(state):
        jobs.start("key", write, timeout_seconds=HOUR)
        jobs.drain(PATIENCE)
        return {"messages": [ScriptedChatModel(policy=script("the answer")).invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    stream = builder.compile().stream({"messages": [HumanMessage("hi")]}, stream_mode="messages")
    assert "".join(message.text for message, _ in stream) == "the answer"
    job = ended(jobs, "key")
    assert (job.written.text, job.written.calls) == (secret, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_model_summarizer_writes_in_a_job(is_async):
    """Sync and async callables both work in the job's thread, and their calls are counted."""
    model = ScriptedChatModel(policy=lambda messages, tools: AIMessage("The user wants tea."))

    async def acall(messages):
        return await model.ainvoke(messages)

    summarizer = ModelSummarizer(acall if is_async else model.invoke)
    messages = [HumanMessage("I would like a cup of green tea, please, with a little honey and no milk at all.")]
    jobs = SummaryJobs()
    jobs.start("key", lambda: summarizer.summarize(messages, previous="", max_tokens=50), timeout_seconds=HOUR)
    written = ended(jobs, "key").written
    assert (written.text, written.calls, written.input_tokens) == ("The user wants tea.", 1, model.requests[0].tokens)


def test_engines_share_jobs_and_what_nobody_needs_is_freed():
    """Neither the exit nor the fork hook keeps jobs alive; those of the process stay."""
    assert default_jobs() is default_jobs()
    jobs = SummaryJobs()
    jobs.start("key", lambda: "text", timeout_seconds=HOUR, shelf=SummaryStore(InMemoryStore(), "thread"))
    settle(jobs)
    for thread in [thread for thread in threading.enumerate() if thread.name == "ctxwin"]:
        thread.join(PATIENCE)
    alive = weakref.ref(jobs)
    del jobs
    gc.collect()
    assert alive() is None
