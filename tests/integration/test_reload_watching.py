"""Is every way to change a file seen by the thread that watches it, and does nothing end the watching?"""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from langchain_ctxwin.reload import ConfigFile

PATIENCE_SECONDS = 20.0


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Watched:
    """A file and its settings."""

    def __init__(self, path):
        self.path, self.settings = path, ConfigFile(path)

    def write(self, keep):
        self.path.write_text(f"keep = {keep}\n")

    def until(self, keep):
        until(lambda: self.settings.current.keep == keep)


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


@pytest.mark.parametrize("text", ['"keep"', '{"\\uD800": 1}'])
def test_no_file_ends_the_watching(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_text('{"keep": 0.9}')
    watched = Watched(path)
    with watched.settings as settings:
        path.write_text(text)
        until(lambda: settings.problem)
        path.write_text('{"keep": 0.1}')
        watched.until(0.1)


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


IDLE = """
import sys
from langchain_ctxwin.reload import ConfigFile
ConfigFile(sys.argv[1]).start()
"""


def test_a_program_that_watches_ends(path):
    """Silently, with its own exit code."""
    done = subprocess.run(
        [sys.executable, "-c", IDLE, str(path)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
