"""Which settings does a file hold now? Read, checked and exchanged as a whole, or the last good ones."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from langchain_ctxwin.config import FileConfig, changes, listed
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.reload.lifetimes import lifetimes
from langchain_ctxwin.reload.settling import Seen, Settling, look
from langchain_ctxwin.reload.telling import tell
from langchain_ctxwin.reload.watching import STOP_SECONDS, Watching
from langchain_ctxwin.settings_file import read_bytes

OnChange = Callable[[FileConfig, FileConfig], object]
"""Called with the settings before and after."""

POLL_SECONDS = 1.0
"""How often to look although no change was told: some network file systems tell none."""

MISSING_POLL_SECONDS = 0.1
"""The same while there is nothing to read: a folder that is gone cannot tell that it is back."""


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
        pip install "langchain-ctxwin[reload]"
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

    def __init__(self, path: str | Path, *, on_change: OnChange | None = None) -> None:
        self.path = Path(path).absolute()
        """The file, as it was given; links are followed anew at each look."""
        self.problem = ""
        """Why the file as it is now was rejected; empty when it is what is active."""
        content = read_bytes(self.path)
        self._current = FileConfig.from_bytes(content, self.path)
        self._settling = Settling(Seen(content=content))
        self._on_change = on_change
        self._news: deque[tuple[FileConfig, FileConfig]] = deque()  # what the callback was not yet told
        self._watching: Watching | None = None
        self._make_locks()

    def _make_locks(self) -> None:
        """Reentrant where a signal handler may come in between."""
        self._lock = threading.RLock()  # of writers
        self._telling = threading.Lock()  # of whoever calls the callback
        self._switching = threading.RLock()  # of `start` and `stop`, which wait neither for a file nor for a callback

    @property
    def current(self) -> FileConfig:
        """The settings that hold now; reading them takes no lock."""
        return self._current

    def start(self) -> Self:
        """Watch the file on a daemon thread; no effect while it is watched. A forked process watches by itself.

        Raises:
            ConfigError: watchfiles is not installed.
        """
        with self._switching:
            if self._watching is None:
                self._watching = Watching(self.path, self._look)
                lifetimes.add(self)
        return self

    def stop(self) -> None:
        """Stop watching; `current` stays. No effect when it is not watched.

        A callback that is running is waited for, but no longer than two seconds.
        """
        with self._switching:
            watching, self._watching = self._watching, None
            lifetimes.discard(self)
        if watching is not None:
            watching.stop()

    def hold(self) -> bool:
        """Let nothing change until `release`, because the process is about to fork; False when a file system hangs."""
        return self._lock.acquire(timeout=STOP_SECONDS)

    def release(self) -> None:
        """Undo `hold`."""
        self._lock.release()

    def resume(self) -> None:
        """Watch again in a forked process, where no other thread of its parent runs."""
        self._make_locks()
        self._watching = None
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
            seen = look(self.path)
            self._settling.settle(seen)
            is_active = self._judge(seen)
        self._notify()
        return is_active

    def _look(self) -> float:
        """Take the file if it has changed and settled; return after how many seconds to look again."""
        try:
            wait_seconds = self._taken()
            self._notify()
        except Exception as error:  # noqa: BLE001  # whatever it is, the next version of the file may be without it
            self._reject(f"cannot read settings from {self.path}: {type(error).__name__}")
            return POLL_SECONDS
        return wait_seconds

    def _taken(self) -> float:
        with self._lock:
            seen, now_seconds = look(self.path), time.monotonic()
            settled = self._settling.offer(seen, now_seconds)
            if settled is not None:
                self._judge(settled)
            wait_seconds = self._settling.wait_seconds(now_seconds)
        idle_seconds = MISSING_POLL_SECONDS if seen.problem else POLL_SECONDS
        return idle_seconds if wait_seconds is None else min(wait_seconds, idle_seconds)

    def _judge(self, seen: Seen) -> bool:
        try:
            after = None if seen.problem else FileConfig.from_bytes(seen.content, self.path)
        except ConfigError as error:
            return self._reject(str(error))
        if after is None:
            return self._reject(seen.problem)
        self._accept(after)
        return True

    def _reject(self, problem: str) -> bool:
        self.problem = problem
        tell("warning", "config.rejected", path=str(self.path), error=problem, active="the last good settings")
        return False

    def _accept(self, after: FileConfig) -> None:
        before, was_rejected = self._current, bool(self.problem)
        self.problem = ""
        differences = changes(listed(before), listed(after))
        if differences:
            self._current = after
            self._news.append((before, after))
        if differences or was_rejected:
            tell("info", "config.reloaded", path=str(self.path), changes=differences)

    def _notify(self) -> None:
        """Tell the callback all news in their order, unless another thread, or a caller of this one, is at it."""
        telling = self._telling  # a process that the callback forks has another one
        # Looked at again after each release, because what came just before found the lock taken.
        while self._news and telling.acquire(blocking=False):
            try:
                while self._news:
                    self._call(*self._news.popleft())
            finally:
                telling.release()

    def _call(self, before: FileConfig, after: FileConfig) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(before, after)
        except (Exception, SystemExit):  # noqa: BLE001  # the settings are valid and active, whatever a callback does
            tell("exception", "config.callback_failed", path=str(self.path))
