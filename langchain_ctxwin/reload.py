"""Settings that follow their file while the program runs: looked at, read when complete, exchanged as a whole."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from langchain_ctxwin.config import FileConfig, changes, listed
from langchain_ctxwin.errors import PATH, ConfigError, expect
from langchain_ctxwin.settings_file import read_bytes
from langchain_ctxwin.util.background import renew_after_fork
from langchain_ctxwin.util.failures import log_failure
from langchain_ctxwin.util.log import log

__all__ = ["ConfigFile"]


LOOK_SECONDS = 0.015
"""How often to look: about a hundredth of a core, on any file system, whatever became of file, links or folder."""

SETTLE_SECONDS = 0.05
"""How long content has to stay the same: longer than writers pause between two pieces, and hardly noticed."""

DOUBTFUL_SECONDS = 0.5
"""The same for content that looks unfinished: no file, an empty one, or one that ends in the middle of a line."""

STOP_SECONDS = 2.0
"""How long `stop` waits for a callback that is running; the thread is a daemon and never holds up the exit."""


class ConfigFile:
    """All settings of a program, from one TOML, YAML or JSON file that may change while the program runs.

    `current` is one frozen `FileConfig`, exchanged as a whole: read it once per request, and a request in flight keeps
    what it started with. A file that is missing, empty or invalid changes nothing but `problem`.

    Replace the file by an atomic rename (write another file in the same folder, then `os.replace`), or by exchanging
    a link as Kubernetes does: then every version that is read is whole. A file that is written in place is taken when
    it has not changed for 50 ms, and after half a second when it is empty or its last line has no end. So a writer
    that pauses longer than that between two pieces can be read half-way when its first piece, cut at the end of a
    line, is valid by itself; nothing but an atomic rename can exclude that. The first read, at construction, takes
    what is there.

    Setup:
        ```bash
        pip install langchain-ctxwin
        ```

    Key init args:
        path: the file; its ending says the format.
        on_change: called with the settings before and after, one change after the other. It runs where a change was
            noticed, mostly on the watching thread, which looks at nothing meanwhile; what it raises is logged.

    Instantiate:
        ```python
        settings = ConfigFile("settings.toml").start()
        ```

    Use:
        ```python
        engine = ContextEngine(limits=model, config=settings)
        with ConfigFile("settings.toml") as settings:  # watches until the end of the block
            print(settings.current.tool_results.max_tokens)
        ```

    Raises:
        ConfigError: the file is missing or invalid at construction, when there is no last good configuration yet.
    """

    def __init__(
        self, path: str | Path, *, on_change: Callable[[FileConfig, FileConfig], object] | None = None
    ) -> None:
        self.path = Path(expect(path, PATH, "path", "the path of a settings file")).absolute()
        """The file, as it was given; links are followed anew at each look."""
        self.problem = ""
        """Why the file as it is now was rejected; empty when it is what is active."""
        content = read_bytes(self.path)
        self._current = FileConfig.from_bytes(content, self.path)
        self._settling = Settling(FileContent(content=content))
        self._on_change = on_change
        self._news: deque[tuple[FileConfig, FileConfig]] = deque()  # what the callback was not yet told
        self._make_locks()
        renew_after_fork(self)

    def _make_locks(self) -> None:
        """Locks are reentrant where a signal handler may come in between; no thread watches yet."""
        self._lock = threading.RLock()  # of writers
        self._telling = threading.Lock()  # of whoever calls the callback
        self._switching = threading.RLock()  # of `start` and `stop`, which wait neither for a file nor for a callback
        self._watching: tuple[threading.Thread, threading.Event] | None = None

    @property
    def current(self) -> FileConfig:
        """The settings that hold now; reading them takes no lock."""
        return self._current

    def start(self) -> Self:
        """Watch the file on a daemon thread; no effect while it is watched. A forked process watches by itself."""
        with self._switching:
            if self._watching is None:
                stopped = threading.Event()
                thread = threading.Thread(target=self._watch, args=(stopped,), name="ctxwin-config", daemon=True)
                thread.start()
                self._watching = (thread, stopped)
                atexit.register(self.stop)  # before the interpreter is taken down under a thread that needs it
        return self

    def stop(self) -> None:
        """Stop watching; `current` stays. No effect when it is not watched.

        A callback that is running is waited for, but no longer than two seconds.
        """
        with self._switching:
            watching, self._watching = self._watching, None
            atexit.unregister(self.stop)
        if watching is not None:
            thread, stopped = watching
            stopped.set()
            if threading.current_thread() is not thread:  # a callback may stop the watching
                thread.join(STOP_SECONDS)

    def renew(self) -> None:
        """Watch again, if it was watched, in a forked process, where no other thread of its parent runs."""
        was_watched = self._watching is not None
        self._make_locks()
        if was_watched:
            self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reload(self) -> bool:
        """Take the file as it is now, without waiting for it to settle; for programs that are told, as by a signal.

        While the callback is running, this does not wait for it: it is called again as soon as it is done.

        Returns:
            True when what the file holds is active now, changed or not; False when it was rejected.
        """
        with self._lock:
            seen = FileContent.at(self.path)
            self._settling.settle(seen)
            is_active = self._judge(seen)
        self._notify()
        return is_active

    def _watch(self, stopped: threading.Event) -> None:
        while not stopped.wait(LOOK_SECONDS):
            try:
                with self._lock:
                    settled = self._settling.offer(FileContent.at(self.path), time.monotonic())
                    if settled is not None:
                        self._judge(settled)
                self._notify()
            except Exception as error:  # noqa: BLE001  # whatever it is, the next version of the file may be without it
                self._reject(f"cannot read settings from {self.path}: {type(error).__name__}")

    def _judge(self, seen: FileContent) -> bool:
        if seen.problem:
            return self._reject(seen.problem)
        try:
            after = FileConfig.from_bytes(seen.content, self.path)
        except ConfigError as error:
            return self._reject(str(error))
        before, was_rejected = self._current, bool(self.problem)
        self.problem = ""
        differences = changes(listed(before), listed(after))
        if differences:
            self._current = after
            if self._on_change:
                self._news.append((before, after))
        if differences or was_rejected:
            log.info("config.reloaded", path=str(self.path), changes=differences)
        return True

    def _reject(self, problem: str) -> bool:
        self.problem = problem
        log.warning("config.rejected", path=str(self.path), error=problem, active="the last good settings")
        return False

    def _notify(self) -> None:
        """Tell the callback all news in their order, unless another thread, or a caller of this one, is at it."""
        telling = self._telling  # a process that the callback forks has another one
        # Looked at again after each release, because what came just before found the lock taken.
        while self._on_change and self._news and telling.acquire(blocking=False):
            try:
                while self._news:
                    self._on_change(*self._news.popleft())
            except (Exception, SystemExit) as error:  # noqa: BLE001  # the settings are active, whatever a callback does
                log_failure("config.callback_failed", error, path=str(self.path))
            finally:
                telling.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """What a file held at one moment."""

    content: bytes = b""
    problem: str = ""
    """Why there is no content."""

    @classmethod
    def at(cls, path: Path) -> FileContent:
        """Return what a file holds now."""
        try:
            return cls(content=read_bytes(path))
        except ConfigError as error:
            return cls(problem=str(error))

    @property
    def settle_seconds(self) -> float:
        """How long it has to stay the same to count as complete."""
        is_whole = self.content.endswith(b"\n") or self.content.rstrip().endswith(b"}")
        return SETTLE_SECONDS if is_whole and self.content.strip() else DOUBTFUL_SECONDS


class Settling:
    """Lets content through that has stayed the same for long enough, each only once."""

    def __init__(self, judged: FileContent) -> None:
        self.settle(judged)

    def settle(self, seen: FileContent) -> None:
        """Note that this is judged, however long it has been there."""
        self._judged = self._candidate = seen
        self._since_seconds = 0.0

    def offer(self, seen: FileContent, now_seconds: float) -> FileContent | None:
        """Return what has settled now; None while it may still change, and for what was let through before."""
        if seen != self._candidate:
            self._candidate, self._since_seconds = seen, now_seconds
        if seen == self._judged or now_seconds - self._since_seconds < seen.settle_seconds:
            return None
        self.settle(seen)
        return seen
