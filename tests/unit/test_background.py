"""Threads that work in the background: their order, their bounds and their end."""

import os
import threading

import pytest

from langchain_ctxwin.util.work import Worker
from support.forking import forked

PATIENCE = 10


def test_tasks_are_done_one_after_the_other_and_what_is_too_much_is_refused():
    """One is being done, one waits, and a third finds no room; flushing waits for both."""
    gate, begun, done = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        gate.wait(PATIENCE)
        done.append("first")

    worker = Worker("test")
    assert worker.submit(first)
    assert begun.wait(PATIENCE)
    assert (
        worker.submit(lambda: done.append("second")),
        worker.submit(lambda: done.append("third")),
    ) == (True, False)
    assert worker.flush(0.01) is False
    gate.set()
    assert (worker.flush(PATIENCE), done) == (True, ["first", "second"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_does_only_its_own_tasks():
    """What waits at the fork is the parent's to do, and no lock is held for ever."""
    gate, done = threading.Event(), []
    worker = Worker("test", max_waiting=2)
    worker.submit(lambda: gate.wait(PATIENCE))
    worker.submit(lambda: done.append("parent"))

    # as when another thread submits at this moment
    with worker._changed, forked() as is_child:
        if is_child:
            assert worker.flush(0) is True
            worker.submit(lambda: done.append("child"))
            assert (worker.flush(PATIENCE), done) == (True, ["child"])
    gate.set()
    assert (worker.flush(PATIENCE), done) == (True, ["parent"])
