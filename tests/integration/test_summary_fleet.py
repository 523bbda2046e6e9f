"""Do processes share summaries through real stores and a real lease server, and does an exit leave none behind?"""

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite import SqliteStore
from structlog.testing import capture_logs

from langchain_ctxwin.summarize import RedisLease, SummaryJobs, SummaryStore, Written
from langchain_ctxwin.summarize import jobs as summary_store
from langchain_ctxwin.util import in_daemon

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

PATIENCE = 60.0  # importing LangGraph takes seconds on a busy machine
TEXT = "The user wants tea."
CHILD = """\
import json, sys, time
from pathlib import Path
from langgraph.store.sqlite import SqliteStore
from langchain_ctxwin.summarize import RedisLease, SummaryJobs, SummaryStore

options = json.loads(sys.argv[1])
opened = SqliteStore.from_conn_string(options["store"])
store = opened.__enter__()
store.setup()

def write():
    with open(options["log"], "a") as log:
        log.write("called\\n")
    time.sleep(options.get("seconds", 0))
    while not Path(options.get("until", options["log"])).exists():
        time.sleep(0.02)
    return options["text"]

lease = RedisLease.from_url(options["lease"]) if options.get("lease") else None
jobs = SummaryJobs(lease=lease, drain_seconds=options.get("drain_seconds", 5))
summaries = SummaryStore(store, "thread") if options.get("is_stored", True) else None
"""
LEAVES = f"""{CHILD}
assert jobs.start("key", write, timeout_seconds=60, store=summaries)
print(time.time(), flush=True)
"""
STAYS = f"""{CHILD}
print("ready", flush=True)
sys.stdin.readline()
assert jobs.start("key", write, timeout_seconds=60, store=summaries)
seen = set()
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    job = jobs.find("key")
    seen.add(job.state if job else "elsewhere")
    if job is None:
        Path(options["until"]).touch()
    written = (job and job.written) or summaries.get("key")
    if written:
        break
    time.sleep(0.02)
print(json.dumps([sorted(seen), written and written.text]))
"""


@pytest.fixture
def options(tmp_path):
    """What a child is told: where its store is, and where it notes its calls."""
    return {"store": str(tmp_path / "store.sqlite"), "log": str(tmp_path / "log"), "text": TEXT}


def child(source, options, **streams):
    command = [sys.executable, "-c", source, json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **streams)


def leave(options):
    """Run a process that starts a job and ends; return how long its exit took."""
    process = child(LEAVES, options)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    return time.time() - float(output.splitlines()[0])


def stored(options, key="key"):
    with SqliteStore.from_conn_string(options["store"]) as store:
        store.setup()
        return SummaryStore(store, "thread").get(key)


def calls(options):
    """How often any process called the summarizer."""
    log = Path(options["log"])
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_process_that_ends_at_once_leaves_the_summary_in_the_store(options):
    """The exit waits for the text, and the next process uses it without a call."""
    leave(options | {"seconds": 0.5})
    assert stored(options).text == TEXT
    leave(options)
    assert calls(options) == 1


@pytest.mark.parametrize("told", [{"drain_seconds": 0.5}, {"drain_seconds": 3600, "is_stored": False}], ids=str)
def test_the_exit_does_not_wait_for_a_summarizer_that_hangs(options, told):
    """It takes the drain's time and no more; without a store none, because nobody could read what would be written."""
    seconds = leave(options | {"seconds": 3600} | told)
    assert (seconds < PATIENCE, stored(options), calls(options) <= 1) == (True, None, True)


def test_two_processes_write_one_summary(options, valkey_url):
    """The other sees that it is written elsewhere and finds the text in the shared store."""
    told = options | {"lease": valkey_url, "until": f"{options['log']}.seen"}  # a text comes when somebody waits for it
    assert stored(options) is None  # the tables are there before two processes want to create them at once
    processes = [child(STAYS, told, stdin=subprocess.PIPE) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = []
    for process in processes:
        output, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")
        answers.append(json.loads(output.splitlines()[-1]))
    assert ([text for _, text in answers], calls(options)) == ([TEXT, TEXT], 1)
    assert sorted("elsewhere" in seen for seen, _ in answers) == [False, True]


def test_a_lease_ends_with_its_time(valkey_url):
    """A process that died holds a key no longer than it said; keys do not disturb each other."""
    ours, theirs = (RedisLease.from_url(valkey_url, prefix="time:") for _ in range(2))
    assert (ours.acquire("a", 0.2), theirs.acquire("a", 60), theirs.acquire("b", 60)) == (True, False, True)
    time.sleep(0.3)
    assert theirs.acquire("a", 60)


def test_a_lease_is_released_by_its_owner_alone(valkey_url):
    """Another process gets the key at once, and keeps it whatever the first one does later."""
    ours, theirs = (RedisLease.from_url(valkey_url, prefix="release:") for _ in range(2))
    assert (ours.acquire("key", 60), theirs.acquire("key", 60)) == (True, False)
    theirs.release("key")
    assert not theirs.acquire("key", 60)
    ours.release("key")
    assert theirs.acquire("key", 60)
    ours.release("key")
    assert not ours.acquire("key", 60)


@pytest.mark.parametrize("decode_responses", [False, True])
def test_a_request_that_was_repeated_is_not_refused_by_itself(valkey_url, decode_responses):
    """The server did it, the answer got lost, the client asks again: the lease is still ours."""
    from redis import Redis

    class Repeating(Redis):
        def set(self, *args, **options):
            super().set(*args, **options)
            return super().set(*args, **options)

    client = Repeating.from_url(valkey_url, decode_responses=decode_responses)
    lease = RedisLease(client, prefix=f"repeated {decode_responses}:")
    other = RedisLease.from_url(valkey_url, prefix=f"repeated {decode_responses}:")
    assert (lease.acquire("key", 60), other.acquire("key", 60)) == (True, False)


@pytest.mark.parametrize("is_up", [False, True], ids=["gone", "silent"])
def test_a_lease_server_that_does_not_answer_stops_no_work(is_up):
    """Work twice rather than never, with a warning, and soon."""
    with socket.socket() as silent, capture_logs() as logs:
        silent.bind(("127.0.0.1", 0))
        if is_up:
            silent.listen()
        lease = RedisLease.from_url(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", socket_timeout=0.05)
        jobs = SummaryJobs(lease=lease)
        jobs.start("key", lambda: TEXT, timeout_seconds=60)
        assert (jobs.drain(PATIENCE), jobs.find("key").state) == (0, "ready")
    assert [(entry["event"], entry["key"]) for entry in logs] == [("summary.lease_failed", "key")]


def test_a_summary_waits_in_postgres(postgres_dsn):
    """A job of one process puts it, another one's connection reads it; odd characters included."""
    text = "nul \0, lone \ud800 and 日本"
    with PostgresStore.from_conn_string(postgres_dsn) as store:
        store.setup()
        jobs = SummaryJobs()
        jobs.start("key", lambda: text, timeout_seconds=60, store=SummaryStore(store, "thread.\0"))
        assert jobs.drain(PATIENCE) == 0
    with PostgresStore.from_conn_string(postgres_dsn) as store:
        written = SummaryStore(store, "thread.\0").get("key")
        assert (written.text, SummaryStore(store, "thread.\0").get("other")) == (text, None)


async def test_a_summary_waits_in_postgres_for_an_event_loop(postgres_dsn):
    """The job's thread puts through the async store while its loop goes on, and the loop reads."""
    async with AsyncPostgresStore.from_conn_string(postgres_dsn) as store:
        await store.setup()
        place, jobs = SummaryStore(store, "thread"), SummaryJobs()
        jobs.start("key", lambda: TEXT, timeout_seconds=60, store=place)
        assert await asyncio.wrap_future(in_daemon(lambda: jobs.drain(PATIENCE))) == 0
        assert await place.aget("key") == jobs.find("key").written


def test_a_store_that_was_closed_costs_the_stored_copy_only(postgres_dsn):
    """The connection is gone when the summary is done: the text stays here, and a warning says so."""
    with PostgresStore.from_conn_string(postgres_dsn) as store:
        store.setup()
    jobs = SummaryJobs()
    with capture_logs() as logs:
        jobs.start("key", lambda: TEXT, timeout_seconds=60, store=SummaryStore(store, "thread"))
        assert (jobs.drain(PATIENCE), jobs.find("key").written.text) == (0, TEXT)
    assert [entry["event"] for entry in logs] == ["summary.not_read", "summary.not_stored"]


def test_a_database_that_somebody_locked_holds_up_no_turn(options, monkeypatch):
    """SQLite waits seconds for another connection; the turn does not, and the text is there afterwards."""
    with SqliteStore.from_conn_string(options["store"]) as store:
        store.setup()
        SummaryStore(store, "thread").put("key", Written(text=TEXT))
        other = sqlite3.connect(options["store"], isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(summary_store, "READ_SECONDS", 0.1)
        with capture_logs() as logs:
            assert SummaryStore(store, "thread").get("key") is None
        other.execute("ROLLBACK")
        other.close()
        monkeypatch.setattr(summary_store, "READ_SECONDS", PATIENCE)
        assert SummaryStore(store, "thread").get("key") == Written(text=TEXT)
    assert [entry["event"] for entry in logs] == ["summary.not_read"]
