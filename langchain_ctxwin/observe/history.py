"""Histories of events: in memory, and in one SQLite file, which several processes write and reports read."""

from __future__ import annotations

import atexit
import json
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from langchain_ctxwin.config import place
from langchain_ctxwin.core.events import TYPES, Event
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.util.log import FailureLog
from langchain_ctxwin.util.work import in_daemon, renew_after_fork

MAX_IN_MEMORY = 10_000  # unless told, some 10 MB: what happens in a long afternoon
MAX_EVENTS = 100_000  # unless told, some 150 MB: about 40,000 model calls
BUSY_SECONDS = 1.0  # how long a write waits for another process; each of them takes some milliseconds
EXIT_SECONDS = 1.0  # how long the end of the process waits
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    json TEXT NOT NULL,
    thread TEXT AS (json_extract(json, '$.thread')),
    answer_id TEXT AS (json_extract(json, '$.answer_id'))
);
CREATE INDEX IF NOT EXISTS events_answer ON events (answer_id);
"""
"""Readers and writers of one file do not wait for each other."""

E = TypeVar("E", bound=Event)


class MemorySink:
    """Keeps the newest events; several threads may write at once.

    Args:
        max_events: of more, the oldest are forgotten.

    Examples:
        >>> sink = MemorySink()
        >>> sink.emit(Event(thread="1"))
        >>> [event.thread for event in sink.events]
        ['1']
    """

    def __init__(self, max_events: int = MAX_IN_MEMORY) -> None:
        self._events: deque[Event] = deque(maxlen=max_events)

    def emit(self, event: Event) -> None:
        """Keep an event."""
        self._events.append(event)

    @property
    def events(self) -> list[Event]:
        """The events that are kept, oldest first."""
        return [*self._events.copy()]  # at once, whoever emits meanwhile

    def of(self, kind: type[E]) -> list[E]:
        """Return the kept events of one kind, oldest first."""
        return [event for event in self.events if isinstance(event, kind)]

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()


class HistorySink:
    """Writes events into a file that `History` and `ctxwin report` read.

    Several processes may write one file. Whatever is wrong with it (a full disk, a folder that cannot be written, a
    file that is locked, or no database) is logged once as `history.not_saved` and costs events, which
    `lost` counts.

    Events are written by a thread of the sink's own; the end of the process waits a second for it.

    Args:
        path: the file; it is made when it is missing, and its folder, too.
        max_events: of more, the oldest leave.

    Raises:
        ConfigError: the path names no place, or `max_events` is no whole number of at least 1.

    Examples:
        >>> sink = HistorySink(
        ...     "history.db", max_events=50_000
        ... )  # create_context_agent(..., sinks=[sink])
        >>> sink.lost
        0
    """

    def __init__(self, path: str | Path, *, max_events: int = MAX_EVENTS) -> None:
        if max_events < 1:
            raise ConfigError(
                f"max_events={max_events!r}: give a whole number of events, at least 1"
            )
        self.path = place(path)
        self.max_events = max_events
        self.lost = 0
        """Events that could not be written."""
        self._failures = FailureLog("history.not_saved", path=str(self.path))
        self.renew()
        atexit.register(self.flush)
        renew_after_fork(self.renew)

    def renew(self) -> None:
        """Forget, in a forked process, the events that its parent writes, and the thread that does."""
        self._lock = threading.Lock()
        self._waiting = list[Event]()
        self._job: Future[Any] | None = None

    def emit(self, event: Event) -> None:
        """Have an event written; never waits."""
        with self._lock:
            self._waiting.append(event)
            if self._job is None or self._job.done():
                self._job = in_daemon(self._write_all)

    def flush(self, timeout_seconds: float = EXIT_SECONDS) -> bool:
        """Wait until all events are written; false when that takes longer. Blocks its thread."""
        job = self._job
        return job is None or not wait([job], timeout_seconds).not_done

    def _write_all(self) -> None:
        while True:
            with self._lock:
                events, self._waiting = self._waiting, []
                if not events:
                    self._job = None
                    return
            self._write(events)

    def _write(self, events: Sequence[Event]) -> None:
        """Write events in one transaction: each of them has the disk wait."""
        try:
            rows = [(json.dumps(event.to_dict(), default=str),) for event in events]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _opened(self.path, "rwc") as file:
                file.executescript(SCHEMA)
                file.executemany("INSERT INTO events (json) VALUES (?)", rows)
                file.execute(
                    "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?",
                    (self.max_events,),
                )
        except (sqlite3.Error, OSError, ValueError) as error:
            self.lost += len(events)
            reason = f"{type(error).__name__}: {error}"
            self._failures.note(reason)
        else:
            self._failures.note("")


class History:
    """Reads the events that a `HistorySink` wrote, and scores answers.

    Args:
        path: the file.

    Raises:
        ConfigError: the path names no place. Also raised by what reads or writes: the file is missing, cannot be
            opened, or is foreign.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = place(path)
        self.skipped = 0
        """Events that `events` left out because they are not as this version writes them."""

    def events(self) -> Iterator[Event]:
        """Yield events in the order in which they were written, whatever the clocks said."""
        with self._file("ro") as file:
            for (text,) in file.execute("SELECT json FROM events ORDER BY id"):
                try:
                    values = json.loads(text)
                    event = READERS[values["event"]].validate_python(values)
                except (ValueError, TypeError, LookupError):
                    self.skipped += 1
                else:
                    yield event

    def score(self, answer_id: str, quality: float) -> None:
        """Set the quality of an answer.

        Args:
            answer_id: the `id` of the model's message.
            quality: from 0 for useless to 1 for right.

        Raises:
            ConfigError: the quality is not from 0 to 1, no event in the file is about this answer, or the file cannot
                be written.
        """
        if not 0 <= quality <= 1:
            raise ConfigError(f"quality={brief(quality)}: give a number from 0 to 1")
        update = "UPDATE events SET json = json_set(json, '$.quality', ?) WHERE answer_id = ? AND answer_id != ''"
        with self._file("rw") as file:
            scored = file.execute(update, (float(quality), answer_id)).rowcount
        if not scored:
            raise ConfigError(
                f"answer_id={brief(answer_id)}: {self.path} has no event of this answer: give the id of the model's "
                "message, after the event was written and before the oldest events left"
            )

    @contextmanager
    def _file(self, mode: str) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise ConfigError(
                f"there is no history {self.path}: name the file that a HistorySink writes"
            )
        try:
            with _opened(self.path, mode) as file:
                yield file
        # ValueError: a text that is no Unicode
        except (sqlite3.Error, ValueError) as error:
            raise ConfigError(
                f"cannot use the history {self.path}: {error}: name the file that a HistorySink writes"
            ) from error


READERS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in TYPES
}


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open a file for as long as it is used, and commit: no connection is left for a forked process."""
    address = f"file:{quote(str(path))}?mode={mode}"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as file,
        file,
    ):
        yield file
