"""Is every way to change a file seen by the thread that watches it?"""

import os
import queue
import shutil
import subprocess
import sys
import threading
import time

import pytest

from langchain_ctxwin.config import FileConfig
from langchain_ctxwin.reload import ConfigFile

pytestmark = pytest.mark.integration

PATIENCE_SECONDS = 20.0


class Watched:
    """A watched file, what became active, and a way to wait for it."""

    def __init__(self, path):
        self.active = []
        self._news = threading.Condition()
        self.settings = ConfigFile(path, on_change=self._note)

    def _note(self, before, after):
        with self._news:
            self.active.append(after.keep)
            self._news.notify_all()

    def until(self, keep):
        with self._news:
            assert self._news.wait_for(lambda: self.active[-1:] == [keep], PATIENCE_SECONDS), self.settings.problem


def until(condition):
    """Wait for something that tells nobody."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
        yield watched


def test_a_write_in_place_is_seen(path, watched):
    """Again and again, in the same file."""
    for keep in (0.1, 0.2, 0.3):
        path.write_text(f"keep = {keep}\n")
        watched.until(keep)


def test_an_atomic_rename_is_seen(path, watched):
    """Again and again: each time it is another file."""
    for keep in (0.1, 0.2, 0.3):
        path.with_name("next").write_text(f"keep = {keep}\n")
        path.with_name("next").replace(path)
        watched.until(keep)


def test_an_editors_save_is_seen(path, watched):
    """The old file becomes a backup, the new one is written beside it, and the backup goes."""
    path.rename(path.with_name("settings.toml~"))
    path.write_text("keep = 0.1\n")
    path.with_name("settings.toml~").unlink()
    watched.until(0.1)


def test_a_file_that_was_deleted_and_comes_back_is_seen(path, watched):
    """Meanwhile the last good settings hold, and the problem says why."""
    path.unlink()
    until(lambda: "No such file" in watched.settings.problem)
    assert watched.settings.current.keep == 0.9
    path.write_text("keep = 0.1\n")
    watched.until(0.1)
    assert watched.settings.problem == ""


def test_a_folder_that_goes_and_comes_back_is_seen(path, watched):
    """And writes in the new folder afterwards, too."""
    shutil.rmtree(path.parent)
    until(lambda: watched.settings.problem)
    path.parent.mkdir()
    path.write_text("keep = 0.1\n")
    watched.until(0.1)
    path.write_text("keep = 0.2\n")
    watched.until(0.2)


def test_an_exchanged_folder_is_seen(path, watched):
    """A new folder is moved to the place of the old one, as a deployment does."""
    other = path.parent.with_name("next")
    other.mkdir()
    (other / path.name).write_text("keep = 0.1\n")
    path.parent.rename(path.parent.with_name("old"))
    other.rename(path.parent)
    watched.until(0.1)


def test_swapped_links_are_seen(tmp_path):
    """As Kubernetes does it; a write behind the links is seen as well."""
    path = tmp_path / "settings.toml"
    _swap(tmp_path, 0.9)
    path.symlink_to("..data/settings.toml")
    watched = Watched(path)
    with watched.settings:
        for keep in (0.1, 0.2, 0.3):
            _swap(tmp_path, keep)
            watched.until(keep)
        (tmp_path / "..v0.3" / "settings.toml").write_text("keep = 0.4\n")
        watched.until(0.4)


def _swap(folder, keep):
    version = folder / f"..v{keep}"
    version.mkdir()
    (version / "settings.toml").write_text(f"keep = {keep}\n")
    (folder / "..next").symlink_to(version.name)
    (folder / "..next").replace(folder / "..data")


def test_a_bad_file_is_passed_over(path, watched):
    """The next good one is taken."""
    path.write_text("keep = 'x'\n")
    until(lambda: "keep='x'" in watched.settings.problem)
    path.write_text("keep = 0.1\n")
    watched.until(0.1)
    assert watched.active == [0.1]


def test_what_makes_the_judging_fail_is_told_and_the_watching_goes_on(path, monkeypatch):
    """A fault that nobody thought of."""
    watched = Watched(path)

    def fail(content, path):
        raise KeyError("s3cret")

    with watched.settings as settings, monkeypatch.context() as patched:
        patched.setattr(FileConfig, "from_bytes", fail)
        path.write_text("keep = 0.2\n")
        until(lambda: settings.problem == f"cannot read settings from {path}: KeyError")
        patched.undo()
        path.write_text("keep = 0.1\n")
        watched.until(0.1)
        assert settings.problem == ""


@pytest.mark.parametrize(
    "text",
    ["x: !!bool maybe", "x: !!timestamp x", "x: !!int ''", "self: 1", 'tool_results: {"self": 1}', '"\\uD800": 1'],
)
def test_no_file_ends_the_watching(tmp_path, text):
    """The next good one is taken."""
    path = tmp_path / "settings.yaml"
    path.write_text("keep: 0.9\n")
    watched = Watched(path)
    with watched.settings as settings:
        path.write_text(f"{text}\n")
        until(lambda: settings.problem)
        path.write_text("keep: 0.1\n")
        watched.until(0.1)


def test_a_callback_that_exits_does_not_end_the_watching(path):
    """It is called for the next change again."""
    active = queue.Queue()

    def leave(before, after):
        active.put(after.keep)
        sys.exit(1)

    with ConfigFile(path, on_change=leave):
        for keep in (0.1, 0.2):
            path.write_text(f"keep = {keep}\n")
            assert active.get(timeout=PATIENCE_SECONDS) == keep


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_place_of_the_file_is_passed_over(path, watched):
    """Nobody waits for its writer."""
    os.mkfifo(path.with_name("pipe"))
    path.with_name("pipe").replace(path)
    until(lambda: "it is no regular file" in watched.settings.problem)
    path.with_name("next").write_text("keep = 0.1\n")
    path.with_name("next").replace(path)
    watched.until(0.1)


def test_pieces_of_a_slow_writer_never_become_active(path, watched):
    """It truncates the file and pauses after each line; every beginning of the file would be valid."""
    with path.open("w") as file:
        for line in ("trigger = 0.8\n", "keep = 0.4\n", "pin_first_user = false\n", "keep_nothing"):
            file.write(line)
            file.flush()
            time.sleep(0.01)
        file.seek(0)
        file.truncate()
        file.write("keep = 0.1\n")
    watched.until(0.1)
    assert watched.active == [0.1]


def test_two_files_are_watched_at_once(path, watched, tmp_path):
    """Each instance has its own thread."""
    other = tmp_path / "other.yaml"
    other.write_text("keep: 0.9\n")
    second = Watched(other)
    with second.settings:
        other.write_text("keep: 0.2\n")
        path.write_text("keep = 0.1\n")
        second.until(0.2)
        watched.until(0.1)


def test_stopping_ends_the_thread_and_can_be_repeated(path):
    """Afterwards it can be started again."""
    settings = ConfigFile(path)
    for _ in range(2):
        assert settings.start() is settings.start()
        settings.stop()
        settings.stop()
        assert not [thread for thread in threading.enumerate() if thread.name == "ctxwin-config"]


def test_a_callback_may_stop_the_watching(path):
    """The thread does not wait for itself."""
    called = threading.Event()

    def stop(before, after):
        settings.stop()
        called.set()

    settings = ConfigFile(path, on_change=stop).start()
    path.write_text("keep = 0.1\n")
    assert called.wait(PATIENCE_SECONDS)


EXIT = "from langchain_ctxwin.reload import ConfigFile; ConfigFile({path!r}{options}).start()"


def test_a_program_that_never_stops_watching_ends(path):
    """Silently, with its own exit code."""
    code = EXIT.format(path=str(path), options="")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


HANG = """
import sys, threading
from langchain_ctxwin.reload import ConfigFile
begun = threading.Event()
def hang(before, after):
    begun.set()
    threading.Event().wait()
settings = ConfigFile(sys.argv[1], on_change=hang).start()
open(sys.argv[1], "w").write("keep = 0.1\\n")
begun.wait()
if "stop" in sys.argv:
    settings.stop()
"""


@pytest.mark.parametrize("last", ["stop", "exit"])
def test_a_callback_that_hangs_holds_up_neither_stop_nor_exit(path, last):
    """Both wait for a moment only."""
    done = subprocess.run([sys.executable, "-c", HANG, str(path), last], timeout=60, check=False)
    assert done.returncode == 0


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
    """As the workers of a server that loads the program before it forks."""
    child = subprocess.Popen([sys.executable, "-c", FORK, str(path)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout.readline() == b"forked\n"
        path.write_text("keep = 0.1\n")
        assert child.wait(PATIENCE_SECONDS) == 7
