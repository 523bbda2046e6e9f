"""Real processes that start in milliseconds: copies of one that has imported everything."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

from support.oracle import exact_count

TESTS = Path(__file__).parents[1]
SOURCE = """\
import sys
sys.path[:0] = {paths!r}
from support.forking import serve
serve({module!r})
"""


CHILD_SECONDS = 60
"""Longest life of a forked child."""


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


class Copier:
    """Runs functions of one module in processes of their own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def run(self, *works: dict[str, Any]) -> list[int]:
        """Run `work(**options)` for each set of options, all at once, and return how the processes ended.

        0 is well, a negative number is the signal that killed one.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(works) + "\n")
        self._process.stdin.flush()
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def errors(self) -> str:
        """What the processes said on the way."""
        return self._log.read_text()[-3000:]


@contextmanager
def copier(module: str, log: Path) -> Iterator[Copier]:
    """Start the process that is copied; `module` defines `work` and lies in the tests or their folders."""
    source = SOURCE.format(
        paths=[str(TESTS), str(TESTS / "integration")], module=module
    )
    with log.open("w") as errors:
        streams: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": errors,
        }
        process = subprocess.Popen([sys.executable, "-c", source], text=True, **streams)
    with process:  # its input ends here, and with it its loop
        yield Copier(process, log)


def serve(module: str) -> None:
    """Fork for each piece of work that is asked for."""
    work = importlib.import_module(module).work
    exact_count([HumanMessage("hello")])  # reads its vocabulary once
    for line in sys.stdin:
        pids = [_forked(work, options) for options in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        sys.stdout.write(f"{json.dumps(codes)}\n")
        sys.stdout.flush()


def _forked(work: Any, options: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.dup2(2, 1)  # what the work prints is no answer to whom it is copied for
    code = 1
    try:
        work(**options)
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001  # the copy must not go on with what its original has to do
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
