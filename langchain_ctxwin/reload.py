"""Settings that follow their file while the program runs: read when complete, exchanged as a whole."""

from __future__ import annotations

import atexit
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from langchain_ctxwin.config import FileConfig
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.log import log

__all__ = ["ConfigFile"]

NOTICES = {"step": 10, "debounce": 50, "rust_timeout": 1_000}
"""Milliseconds: the system's notices are taken when none came for one or two steps, at the latest after `debounce`.
Without a notice the file is looked at once a second: another folder may have taken the place of this one, a link lead
elsewhere, and some file systems send none.
"""


class ConfigFile:
    """All settings of a program, from one TOML or JSON file that may change while the program runs.

    `current` is one frozen `FileConfig`, exchanged as a whole: read it once per request, and a request in flight keeps
    what it started with. A file that is missing, empty or invalid changes nothing but `problem`.

    Replace the file by an atomic rename (write another file in the same folder, then `os.replace`), or by exchanging
    a link as Kubernetes does: then every version that is read is whole. The file is read some 10 to 50 ms after a
    change, so what is written in place, slowly, can be read half-way. What the system sends no notice
    of is seen within about a second: a write to the file that a link leads to, a change after the folder was exchanged,
    and changes on some network file systems. The first read, at construction, takes what is there.

    Setup:
        ```bash
        pip install "langchain-ctxwin[reload]"
        ```

    Key init args:
        path: the file; its ending says the format.

    Instantiate:
        ```python
        settings = ConfigFile("settings.toml").start()
        ```

    Use:
        ```python
        engine = ContextEngine(limits=model, config=settings)
        with ConfigFile(
            "settings.toml"
        ) as settings:  # watches until the end of the block
            print(settings.current.tool_results.max_tokens)
        ```

    Raises:
        ConfigError: the file is missing or invalid at construction, when there is no last good configuration yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        """The file, as it was given; links are followed anew at each look."""
        self.problem = ""
        """Why the file as it is now was rejected; empty when it is what is active."""
        self._current = FileConfig.from_file(self.path)
        self._lock = threading.Lock()
        self._watching: tuple[threading.Thread, threading.Event] | None = None

    @property
    def current(self) -> FileConfig:
        """The settings that hold now; reading them takes no lock."""
        return self._current

    def start(self) -> Self:
        """Watch the file on a daemon thread; no effect while it is watched. Start in each process that is forked.

        Raises:
            ConfigError: the extra `reload` is not installed.
        """
        try:
            import watchfiles  # noqa: PLC0415  # an extra
        except ImportError as error:
            raise ConfigError(
                "ConfigFile.start needs watchfiles: pip install 'langchain-ctxwin[reload]'"
            ) from error
        if self._watching is None:
            stopped = threading.Event()
            thread = threading.Thread(
                target=self._watch,
                args=(watchfiles, stopped),
                name="ctxwin-config",
                daemon=True,
            )
            self._watching = (thread, stopped)
            thread.start()
            # before the interpreter is taken down under a thread that needs it
            atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop watching; `current` stays. No effect when it is not watched."""
        watching, self._watching = self._watching, None
        atexit.unregister(self.stop)
        if watching is not None:
            thread, stopped = watching
            stopped.set()
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reload(self) -> bool:
        """Take the file as it is now, without waiting for it to settle; for programs that were signaled a change.

        Returns:
            True when what the file holds is active now, changed or not; False when it was rejected.
        """
        with self._lock:
            path = str(self.path)
            try:
                after = FileConfig.from_file(self.path)
            except ConfigError as error:
                if self.problem != str(error):
                    self.problem, active = str(error), "the last good settings"
                    log.warning(
                        "config.rejected", path=path, error=self.problem, active=active
                    )
                return False
            if after != self._current or self.problem:
                log.info("config.reloaded", path=path)
            self.problem = ""
            if after != self._current:
                self._current = after
            return True

    def _watch(self, watchfiles: ModuleType, stopped: threading.Event) -> None:
        options: dict[str, Any] = {**NOTICES, "watch_filter": None}
        while not stopped.is_set():
            try:
                for _ in watchfiles.watch(
                    self.path.parent,
                    recursive=False,
                    yield_on_timeout=True,
                    stop_event=stopped,
                    **options,
                ):
                    self.reload()
            except (OSError, RuntimeError):  # no folder, or no more watches to be had
                stopped.wait(NOTICES["rust_timeout"] / 1_000)
                self.reload()
