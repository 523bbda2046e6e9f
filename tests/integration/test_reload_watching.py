"""Is every way to change a file seen by the thread that watches it, and does nothing end the watching?"""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from langchain_ctxwin.reload import ConfigFile

pytestmark = pytest.mark.integration

PATIENCE_SECONDS = 20.0


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Watched:
    """A file and what of it became active."""

    def __init__(self, path):
        self.path, self.active = path, []
        self.settings = ConfigFile(
            path, on_change=lambda before, after: self.active.append(after.keep)
        )

    def write(self, keep):
        self.path.write_text(f"keep = {keep}\n")

    def until(self, keep):
        until(lambda: self.active[-1:] == [keep])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "conf" / "settings.toml"
    path.parent.mkdir()
    path.write_text("keep = 0.9\n")
    return path


@pytest.fixture
def watched(path):
    watched = Watched(path)
    with watched.settings:
        # until the system sends notices: what comes before is seen by the next look
        time.sleep(0.1)
        yield watched


def rename(path, keep):
    path.with_name("next").write_text(f"keep = {keep}\n")
    path.with_name("next").replace(path)


def save_as_an_editor(path, keep):
    """The old file becomes a backup, the new one is written beside it, and the backup goes."""
    path.rename(path.with_name("settings.toml~"))
    path.write_text(f"keep = {keep}\n")
    path.with_name("settings.toml~").unlink()


def swap_links(path, keep):
    """As Kubernetes does it."""
    version = path.parent / f"..v{keep}"
    version.mkdir()
    (version / path.name).write_text(f"keep = {keep}\n")
    (path.parent / "..next").symlink_to(version.name)
    (path.parent / "..next").replace(path.parent / "..data")
    if not path.is_symlink():
        path.unlink()
        path.symlink_to(f"..data/{path.name}")


@pytest.mark.parametrize(
    "change",
    [rename, save_as_an_editor, swap_links],
)
def test_every_way_to_change_a_file_is_seen(path, watched, change):
    """Again and again, and writes in place afterwards."""
    for keep in (0.1, 0.2):
        change(path, keep)
        watched.until(keep)
    watched.write(0.3)
    watched.until(0.3)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (Path.unlink, "No such file"),
        (lambda path: shutil.rmtree(path.parent), "No such file"),
    ],
    ids=["file", "folder"],
)
def test_a_file_that_goes_and_comes_back_is_seen(path, watched, harm, problem):
    """Meanwhile the last good settings hold, and the problem says why."""
    harm(path)
    until(lambda: problem in watched.settings.problem)
    assert watched.settings.current.keep == 0.9
    path.parent.mkdir(exist_ok=True)
    rename(path, 0.1)
    watched.until(0.1)
    assert watched.settings.problem == ""


@pytest.mark.parametrize(
    "text",
    [
        "keep: x",
        "x: !!bool maybe",
        '"\\uD800": 1',
    ],
)
def test_no_file_ends_the_watching(tmp_path, text):
    (tmp_path / "settings.json").write_text('{"keep": 0.9}')
    watched = Watched(tmp_path / "settings.json")
    with watched.settings as settings:
        watched.path.write_text(f"{text}\n")
        until(lambda: settings.problem)
        watched.path.write_text("keep: 0.1\n")
        watched.until(0.1)
    assert watched.active == [0.1]


def test_stopping_ends_the_thread_and_can_be_repeated(path):
    settings = ConfigFile(path)
    for _ in range(2):
        assert settings.start() is settings.start()
        assert [thread.name for thread in threading.enumerate()].count(
            "ctxwin-config"
        ) == 1
        settings.stop()
        settings.stop()
        assert "ctxwin-config" not in [thread.name for thread in threading.enumerate()]


HANG = """
import sys, threading
from langchain_ctxwin.reload import ConfigFile
begun = threading.Event()
def hang(before, after):
    begun.set()
    threading.Event().wait()
settings = ConfigFile(sys.argv[1], on_change=hang).start()
if "idle" in sys.argv:
    sys.exit()
open(sys.argv[1], "w").write("keep = 0.1\\n")
begun.wait()
if "stop" in sys.argv:
    settings.stop()
"""


@pytest.mark.parametrize("last", ["idle", "stop", "exit"])
def test_a_program_that_watches_ends(path, last):
    """Silently, with its own exit code; a callback that hangs holds up neither stop nor exit for long."""
    done = subprocess.run(
        [sys.executable, "-c", HANG, str(path), last],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


FORK = """
import os, sys, time
from langchain_ctxwin.reload import ConfigFile
settings = ConfigFile(sys.argv[1]).start()
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
print("forked", flush=True)
while settings.current.keep != 0.1:
    time.sleep(0.005)
os._exit(7)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_watches_by_itself(path):
    child = subprocess.Popen(
        [sys.executable, "-c", FORK, str(path)], stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"forked\n"
        path.write_text("keep = 0.1\n")
        assert child.wait(PATIENCE_SECONDS) == 7
