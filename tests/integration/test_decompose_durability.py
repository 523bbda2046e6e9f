"""Does work that a killed process left unfinished go on in another one, without a finished part being paid again?"""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from langchain_ctxwin import ModelLimits, TokenEstimator
from langchain_ctxwin.decompose import create_map_reduce_graph
from support.checkpoints import sqlite_saver
from support.fakes import ScriptedChatModel

pytestmark = pytest.mark.integration

WINDOW, OUTPUT = 1600, 400
CONFIG = {"configurable": {"thread_id": "1"}, "max_concurrency": 2}
TALES = [f"Tale {number} begins. " + "The door of oak has two hinges of brass. " * 40 for number in range(9)]
START_SECONDS = 60.0  # importing LangGraph takes seconds on a busy machine
FATAL_CALL = 5
CHILD = """\
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from test_decompose_durability import work
work(Path({folder!r}))
"""


def graph_of(saver, log, *, dies=False):
    """Return a graph whose model notes each answered part in `log`, or kills its process at the fatal call."""

    def answer(messages, tools):
        text = messages[-1].text
        part = re.search(r"The (\w+)s \(part (\d+) of", text)
        name = f"{part[1]} {part[2]}" if part else "last"
        if dies and len(log.read_text().splitlines()) == FATAL_CALL:
            os.kill(os.getpid(), signal.SIGKILL)
        with log.open("a") as lines:
            lines.write(f"{name}\n")
        return AIMessage(", ".join(dict.fromkeys(re.findall(r"Tale \d+", text))))

    model = ScriptedChatModel(policy=answer, input_limit=WINDOW - OUTPUT)
    limits = ModelLimits(WINDOW, requested_output_tokens=OUTPUT)
    return create_map_reduce_graph(model, limits=limits, counter=TokenEstimator("openai"), checkpointer=saver)


def work(folder):
    """Begin the work and die in the middle of it."""
    with sqlite_saver(folder / "run.sqlite", strict=True) as saver:
        graph = graph_of(saver, folder / "calls.log", dies=True)
        graph.invoke({"question": "Which doors are there?", "documents": TALES}, CONFIG)


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """Calls that were in flight, and answers that were just being saved, are made twice; the answer is complete."""
    log = tmp_path / "calls.log"
    log.touch()
    script = tmp_path / "child.py"
    here = Path(__file__).parent
    script.write_text(CHILD.format(paths=[str(here), str(here.parent)], folder=str(tmp_path)))
    child = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=START_SECONDS)
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    with sqlite_saver(tmp_path / "run.sqlite", strict=True) as saver:
        result = graph_of(saver, log).invoke(None, CONFIG)
    calls = Counter(log.read_text().splitlines())
    assert result["answer"] == ", ".join(f"Tale {number}" for number in range(9))
    assert result["failures"] == []
    assert set(calls) == {"last", *(f"document {number}" for number in range(1, result["parts"] + 1))}
    assert calls.total() - len(calls) <= 2 * CONFIG["max_concurrency"] < FATAL_CALL
