"""Which models did well on which kinds of tasks, in any conversation and any process?"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from pathlib import Path

import structlog

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.files import alone, fault_of, place, set_aside
from langchain_ctxwin.models.routing.counts import Cell, Count, Counts, Stored, read_file, replace_file, together
from langchain_ctxwin.protocols import Clock

FLUSH_SECONDS = 5.0
"""How long `flush` waits unless told: a file of this size takes milliseconds, on a network folder perhaps a second."""

MAX_NAME_CHARS = 256
"""Longest name of a bucket or a model that is kept, so that the file stays small; far above any name in use."""

_log = structlog.get_logger(__name__)


class Outcomes:
    """Counts successes and trials per model and task bucket; thread-safe and bounded.

    With a path, counts are kept in a JSON file that processes may share: each adds what it recorded itself, so none
    loses what another saved. It is read when the object is made and by `refresh`, and written in a background thread
    after `record`. Call `flush` before the program ends. Trouble with the file is logged and never raised: counting
    goes on in memory. A file with a fault is set aside as `<name>.corrupt` before it is replaced; one of a newer
    version is left alone. A lock file `<name>.lock` beside it stays.

    Raises:
        ConfigError: the path names no place.

    Example:
        >>> outcomes = Outcomes()
        >>> outcomes.record("math/hard", "small", success=True)
        >>> outcomes.of("math/hard", "small").trials
        1.0
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Clock = time.time) -> None:
        self._path = None if path is None else place(path)
        self._clock = clock
        self._saved: Counts = {}  # these three are replaced as a whole, never changed
        self._saving: Counts = {}
        self._new: Counts = {}
        self._lock = threading.Condition()  # notified when the writer rests
        self._writer: threading.Thread | None = None
        self._reported: dict[str, str] = {}
        self.refresh()

    def record(self, bucket: str, model: str, *, success: bool) -> None:
        """Count one outcome; returns at once, also on an event loop.

        Raises:
            ConfigError: a name is empty or too long, or `success` is no boolean; nothing was counted.
        """
        _require_name("bucket", bucket)
        _require_name("model", model)
        if not isinstance(success, bool):
            raise ConfigError(f"success={success!r}: give True or False")
        one = {(bucket, model): Count(successes=float(success), trials=1.0, at=self._clock())}
        with self._lock:
            if self._path is None:
                self._saved = together(self._saved, one)
                return
            self._new = together(self._new, one)
            self._save_soon(self._path)

    def of(self, bucket: str, model: str) -> Count:
        """Return what is known of a model on a kind of task: no trials when nothing is."""
        cell: Cell = (bucket, model)
        nothing = Count()
        with self._lock:
            parts = [counts.get(cell, nothing) for counts in (self._saved, self._saving, self._new)]
        return parts[0].plus(parts[1]).plus(parts[2])

    def refresh(self) -> None:
        """Take over what other processes saved. Reads the file: in async code call it in a thread."""
        if self._path is None:
            return
        try:
            stored = read_file(self._path)
        except OSError as error:
            self._report("models.outcomes_unreadable", fault_of(error))
            return
        self._report("models.outcomes_unreadable", stored.fault)
        with self._lock:
            if not self._saving and stored.counts:  # else the writer is about to take over the same and more
                self._saved = stored.counts

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was recorded is saved, or could not be; false when that takes longer. Blocks its thread."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._is_writing(), timeout_seconds)

    def _is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()  # a forked process has the name of it only

    def _save_soon(self, path: Path) -> None:
        """Let a daemon thread with an empty context save: files must not be touched on an event loop."""
        if self._is_writing():
            return
        context = contextvars.Context()
        writer = threading.Thread(target=context.run, args=(self._save_all, path), name="ctxwin-outcomes", daemon=True)
        self._writer = writer
        try:
            writer.start()
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._report("models.outcomes_not_saved", str(error))

    def _save_all(self, path: Path) -> None:
        """Save until nothing new is left, or it fails: what failed is kept and tried again with the next outcome."""
        while True:
            with self._lock:
                if not self._new:
                    return self._rest()
                self._saving, self._new = self._new, {}
            try:
                saved = self._save(path)
            except OSError as error:
                self._report("models.outcomes_not_saved", fault_of(error))
                saved = None
            with self._lock:
                if saved is None:
                    self._new, self._saving = together(self._saving, self._new), {}
                    return self._rest()
                self._saved, self._saving = saved, {}

    def _rest(self) -> None:
        self._writer = None
        self._lock.notify_all()

    def _save(self, path: Path) -> Counts | None:
        """Add the new counts to the file and return all; None when the file must stay as it is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path):
            stored = read_file(path)
            if stored.is_newer:
                self._report("models.outcomes_not_saved", stored.fault)
                return None
            _set_aside_faulty(path, stored)
            counts = together(stored.counts, self._saving)
            replace_file(path, counts)
        self._report("models.outcomes_not_saved", "")
        return counts

    def _report(self, event: str, reason: str) -> None:
        """Warn once per trouble: again only when the reason changes, or after it was over (no reason)."""
        if reason and self._reported.get(event) != reason:
            _log.warning(event, path=str(self._path), reason=reason)
        self._reported[event] = reason


def _set_aside_faulty(path: Path, stored: Stored) -> None:
    if stored.fault:
        _log.info("models.outcomes_set_aside", path=str(path), moved_to=str(set_aside(path)))


def _require_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise ConfigError(f"{what}={name!r}: give a name of 1 to {MAX_NAME_CHARS} characters")
