"""Do processes share summaries through real stores, and does an exit leave none behind?"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langgraph.store.sqlite import SqliteStore

from langchain_ctxwin.summarize.jobs import SummaryStore

pytestmark = pytest.mark.enable_socket

PATIENCE = 60.0  # importing LangGraph takes seconds on a busy machine
TEXT = "The user wants tea."
CHILD = """\
import json, sys, time
from pathlib import Path
from langgraph.store.sqlite import SqliteStore
from langchain_ctxwin.summarize import SummaryJobs, jobs as module
from langchain_ctxwin.summarize.jobs import SummaryStore

options = json.loads(sys.argv[1])
opened = SqliteStore.from_conn_string(options["store"])
store = opened.__enter__()
store.setup()

def write():
    with open(options["log"], "a") as log:
        log.write("called\\n")
    time.sleep(options.get("seconds", 0))
    return options["text"]

module.DRAIN_SECONDS = options.get("drain_seconds", 5)
jobs = SummaryJobs()
summaries = SummaryStore(store, "thread") if options.get("is_stored", True) else None
"""
LEAVES = f"""{CHILD}
assert jobs.start("key", write, store=summaries)
print(time.time(), flush=True)
"""


@pytest.fixture
def options(tmp_path):
    """What a child is told: where its store is, and where it notes its calls."""
    return {
        "store": str(tmp_path / "store.sqlite"),
        "log": str(tmp_path / "log"),
        "text": TEXT,
    }


def child(source, options, **streams):
    command = [sys.executable, "-c", source, json.dumps(options)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **streams
    )


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


@pytest.mark.parametrize(
    "told",
    [{"drain_seconds": 0.5}, {"drain_seconds": 3600, "is_stored": False}],
    ids=str,
)
def test_the_exit_does_not_wait_for_a_summarizer_that_hangs(options, told):
    """It takes the drain's time and no more; without a store none, because nobody could read what would be written."""
    seconds = leave(options | {"seconds": 3600} | told)
    assert (seconds < PATIENCE, stored(options), calls(options) <= 1) == (
        True,
        None,
        True,
    )
