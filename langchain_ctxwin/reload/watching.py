"""How does a thread notice that a file may have changed? The system tells it; now and then it looks by itself."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from pathlib import Path

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.reload.folders import folders_of
from langchain_ctxwin.reload.telling import tell

STEP_MS = 5
"""How often changes are gathered: 1 % of a core, and a change is seen within 6 ms; at 10 ms it is half and 20 ms."""

DEBOUNCE_MS = 50
"""How long changes are gathered at most, in a folder where others never stop writing."""

STOP_SECONDS = 2.0
"""How long `stop` waits for a callback that is running; the thread is a daemon and never holds up the exit."""

UNTOLD_SECONDS = 0.1
"""How often to look where the system cannot tell: while the folder is missing, or watches have run out."""

Look = Callable[[], float]
"""Looks at the file and returns after how many seconds to look again, whatever the system tells; never raises."""


class Watching:
    """One thread that looks at a file whenever it may have changed."""

    def __init__(self, path: Path, look: Look) -> None:
        _check_installed()
        self._path = path
        self._look = look
        self._stop = threading.Event()
        # With the caller's context, what is logged on a reload would carry the request that started it.
        run = contextvars.Context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="ctxwin-config", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; from within the thread it ends when the look at hand is done."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        was_told = True
        while not self._stop.is_set():
            try:
                self._follow()
                was_told = True
            except Exception as error:  # noqa: BLE001  # no watches left, a folder that went away, a file system without
                if was_told:
                    tell("warning", "config.not_watched", path=str(self._path), reason=str(error), instead="looks")
                was_told = False
                self._stop.wait(min(self._look(), UNTOLD_SECONDS))

    def _follow(self) -> None:
        """Look at every change until it is another set of folders that has to be watched."""
        from watchfiles._rust_notify import RustNotify  # noqa: PLC0415  # `watch` cannot look once it watches

        folders = folders_of(self._path)
        with RustNotify([path for path, *_ in folders], False, False, 0, False, True) as changes:
            while not self._stop.is_set() and folders_of(self._path) == folders:
                wait_seconds = self._look()
                if not folders:
                    wait_seconds = min(wait_seconds, UNTOLD_SECONDS)
                changes.watch(DEBOUNCE_MS, STEP_MS, max(1, round(wait_seconds * 1000)), self._stop)


def _check_installed() -> None:
    try:
        import watchfiles  # noqa: F401, PLC0415  # extra `reload`
    except ImportError as error:
        raise ConfigError('watching needs watchfiles: pip install "langchain-ctxwin[reload]"') from error
