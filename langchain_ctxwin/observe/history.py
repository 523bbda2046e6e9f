"""A history of events in one SQLite file, which several processes write and reports read."""

from __future__ import annotations

import atexit
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote
from weakref import WeakSet

from pydantic import TypeAdapter, ValidationError

from langchain_ctxwin.core.events import KINDS, Event, NoticeEvent, StepEvent, SummaryEvent
from langchain_ctxwin.errors import ConfigError, brief
from langchain_ctxwin.reporting import EXIT_SECONDS, Reporter
from langchain_ctxwin.util.background import Worker
from langchain_ctxwin.util.failures import FailureLog, reason_of
from langchain_ctxwin.util.files import place

T = TypeVar("T")

MAX_EVENTS = 100_000  # unless told, some 150 MB: about 40,000 model calls
BUSY_SECONDS = 5.0  # how long a write waits for another process; each of them takes a millisecond
MAX_WAITING = 10_000  # events for a slow disk, some 10 MB; of more, the newest are lost, which is logged
IDLE_SECONDS = 1.0  # how long the thread waits for another event: steps follow each other faster
LINGER_SECONDS = 0.05  # how long events gather: a thread that wakes for each costs a step some 5 %
POLL_SECONDS = 0.01  # until a write is tried again
PRIMARY_CODE = 0xFF  # part of an error code of SQLite that says its kind (sqlite.org/rescode)
BATCH_ROWS = 1_000  # events that are read at once: nobody who writes waits longer than for these
APPLICATION_ID = 0x43545857  # tells our files from those of other programs: CTXW
VERSION = 1  # of the tables; a file with a higher one is left alone
SCHEMA = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL, name TEXT, thread TEXT, model TEXT, answer_id TEXT, quality REAL,
    json TEXT
);
CREATE INDEX events_time ON events (time);
CREATE INDEX events_name ON events (name);
CREATE INDEX events_thread ON events (thread);
CREATE INDEX events_model ON events (model);
CREATE INDEX events_answer ON events (answer_id) WHERE answer_id != '';
"""


class HistorySink:
    """Writes events into a file that `History`, `ctxwin report` and `ctxwin check` read.

    Several processes may write one file. Whatever is wrong with it (a full disk, a folder that cannot be written, a
    file that is locked, foreign, or of a newer version) is logged once as `history.not_saved` and costs events, which
    `lost` counts; what is not ours is left as it is.

    Events are written by a thread of the sink's own, one after the other, without waiting for the disk; the end of the
    process waits a second for it. A machine that loses its power may damage the file.

    Args:
        path: the file; it is made when it is missing, and its folder, too.
        max_events: of more, the oldest leave.

    Raises:
        ConfigError: the path names no place or a link, or `max_events` is no whole number of at least 1.

    Examples:
        >>> sink = HistorySink("history.db", max_events=50_000)  # create_context_agent(..., sinks=[sink])
        >>> sink.lost
        0
    """

    def __init__(self, path: str | Path, *, max_events: int = MAX_EVENTS) -> None:
        if not isinstance(max_events, int) or isinstance(max_events, bool) or max_events < 1:
            raise ConfigError(f"max_events={max_events!r}: give a whole number of events, at least 1")
        self.path = place(path, follows_link=False)
        _require_no_link(self.path)
        self.max_events = max_events
        self.lost = 0
        """Events that could not be written."""
        self._failures = FailureLog(path=str(self.path))
        self._worker = Worker(
            "ctxwin-history", max_waiting=MAX_WAITING, idle_seconds=IDLE_SECONDS, linger_seconds=LINGER_SECONDS
        )
        _sinks.add(self)

    def emit(self, event: Event) -> None:
        """Have an event written; never raises, and never waits."""
        try:
            is_taken = self._worker.submit(partial(self._write, event))
        except RuntimeError:  # no thread to be had: the process is about to end
            is_taken = False
        if not is_taken:
            self.lost += 1
            self._failures.note("history.lost", "the disk is too slow, or no thread can be started")

    def flush(self, timeout_seconds: float = EXIT_SECONDS) -> bool:
        """Wait until all events are written; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)

    def _write(self, event: Event) -> None:
        try:
            facts = event.to_dict()
            about = (
                event.time,
                event.name,
                event.thread,
                event.model,
                facts.get("answer_id", ""),
                facts.get("quality"),
            )
            row = (*map(_storable, about), json.dumps(facts, default=str))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _require_no_link(self.path)
            _done(self.path, "rwc", partial(self._added, row))
        except (ConfigError, sqlite3.Error, OSError, ValueError, OverflowError) as error:
            self.lost += 1
            is_of_file = isinstance(error, ConfigError | sqlite3.Error)  # their texts quote no event
            reason = f"{type(error).__name__}: {error}" if is_of_file else reason_of(error)
            self._failures.note("history.not_saved", reason)
        else:
            self._failures.note("history.not_saved", "")

    def _added(self, row: Sequence[Any], file: sqlite3.Connection) -> None:
        # Waiting for the disk would take 15 ms an event, so that busy servers would lose most of them.
        file.execute("PRAGMA synchronous = OFF")
        file.execute("BEGIN IMMEDIATE")
        _require_ours(file, self.path, may_be_new=True)
        columns = "time, name, thread, model, answer_id, quality, json"
        added = file.execute(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
        file.execute("DELETE FROM events WHERE id <= ?", ((added.lastrowid or 0) - self.max_events,))
        file.execute("COMMIT")


_sinks: WeakSet[HistorySink] = WeakSet()


@atexit.register
def _write_the_rest() -> None:
    """Wait for all sinks, a second together."""
    Reporter(_sinks, own=()).flush()


class History:
    """Reads the events that a `HistorySink` wrote, and scores answers.

    Args:
        path: the file.

    Raises:
        ConfigError: the path names no place. Also raised by what reads or writes: the file is missing, cannot be
            opened, is foreign, or of a newer version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = place(path)
        self.skipped = 0
        """Events that `events` left out because they are not as this version writes them."""

    def events(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        model: str | None = None,
        thread: str | None = None,
        kind: type[Event] | None = None,
    ) -> Iterator[Event]:
        """Yield events in the order in which they were written, whatever the clocks said.

        Args:
            since: earliest time, in seconds since the epoch.
            until: time from which on they are left out.
            model: those of this model alone.
            thread: those of this thread alone.
            kind: those of this type alone, for example `StepEvent`.
        """
        tests = {"time >= ?": since, "time < ?": until, "model = ?": model, "thread = ?": thread}
        chosen = {"id > ?": 0, **{test: _storable(value) for test, value in tests.items() if value is not None}}
        names = [name for name, one in KINDS.items() if kind and issubclass(one, kind)]
        named = f" AND name IN ({', '.join('?' * len(names))})" if kind else ""
        # Only what is written here becomes part of the statement.
        query = f"SELECT id, json, quality FROM events WHERE {' AND '.join(chosen)}{named} ORDER BY id LIMIT ?"  # noqa: S608
        while True:
            rows = self._asked("ro", query, (*chosen.values(), *names, BATCH_ROWS)).fetched
            if not rows:
                return
            for _, text, quality in rows:
                event = event_of(text)
                if event is None:
                    self.skipped += 1
                else:
                    yield replace(event, quality=quality) if isinstance(event, StepEvent) else event
            chosen["id > ?"] = rows[-1][0]

    def score(self, answer_id: str, quality: float) -> None:
        """Set the quality of an answer.

        Args:
            answer_id: the `id` of the model's message.
            quality: from 0 for useless to 1 for right.

        Raises:
            ConfigError: the quality is not from 0 to 1, no event in the file is about this answer, or the file cannot
                be written.
        """
        if isinstance(quality, bool) or not isinstance(quality, int | float) or not 0 <= quality <= 1:
            raise ConfigError(f"quality={brief(quality)}: give a number from 0 to 1")
        update = "UPDATE events SET quality = ? WHERE answer_id = ? AND answer_id != ''"
        if not self._asked("rw", update, (float(quality), _storable(answer_id))).changed:
            raise ConfigError(
                f"answer_id={brief(answer_id)}: {self.path} has no event of this answer: give the id of the model's "
                "message, after the event was written and before the oldest events left"
            )

    def forget(self, thread_id: str) -> int:
        """Delete the events of a thread, and return how many there were.

        The file is written anew (a second for 100 MB), so that none of their bytes stay in it.

        Raises:
            ConfigError: the file cannot be written.
        """
        deleted = self._asked("rw", "DELETE FROM events WHERE thread = ?", (_storable(thread_id),)).changed
        if deleted:
            self._asked("rw", "VACUUM")
        return deleted

    def _asked(self, mode: str, statement: str, values: Sequence[Any] = ()) -> _Answer:
        if not self.path.is_file():
            raise ConfigError(f"there is no history {self.path}: name the file that a HistorySink writes")

        def ask(file: sqlite3.Connection) -> _Answer:
            _require_ours(file, self.path)
            cursor = file.execute(statement, values)
            return _Answer(cursor.fetchall(), cursor.rowcount)

        try:
            return _done(self.path, mode, ask)
        except sqlite3.Error as error:
            raise ConfigError(
                f"cannot use the history {self.path}: {error}: name the file that a HistorySink writes"
            ) from error


def event_of(text: str) -> Event | None:
    """Return the event that `json.dumps(event.to_dict())` describes; None when it is none of this version's."""
    try:
        facts = json.loads(text)
        kind, name = KINDS[facts["name"]], facts.pop("name")
        # Some are told by the name, or nested otherwise; derived fields are worked out again.
        if kind is SummaryEvent:
            facts["status"] = name.removeprefix("context.summary_")
        if kind is NoticeEvent:
            common = {one: facts.pop(one) for one in ("thread", "model", "time")}
            facts = {**common, "notice": name.removeprefix("context."), "about": facts}
        return cast("Event", _reader(name).validate_python(facts))
    except (ValueError, TypeError, LookupError, RecursionError, ValidationError):
        return None


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(KINDS[name])


class _Answer(NamedTuple):
    """What a statement gave."""

    fetched: list[Any]
    changed: int  # rows


class _FileLocks:
    """A lock for each file: while this process is forked, it has no file open.

    A child would take over locks of a connection that is open, and wait for them for ever.
    """

    def __init__(self) -> None:
        self._known: dict[Path, threading.Lock] = {}
        self._adding = threading.Lock()
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(before=self._acquire, after_in_parent=self._release, after_in_child=self._release)

    def of(self, path: Path) -> threading.Lock:
        """Return the lock of a file; whoever has it must not wait."""
        with self._adding:
            return self._known.setdefault(path, threading.Lock())

    def _acquire(self) -> None:
        self._adding.acquire()
        for lock in self._known.values():
            lock.acquire()

    def _release(self) -> None:
        for lock in self._known.values():
            lock.release()
        self._adding.release()


_locks = _FileLocks()


def _done(path: Path, mode: str, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do work in a transaction of its own; while another process has the file, it is tried again from the start.

    Nothing waits with the file open: forks would wait for it, and other threads.
    """
    address = f"file:{quote(str(path))}?mode={mode}"
    ends = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with _locks.of(path), closing(sqlite3.connect(address, uri=True, timeout=0, isolation_level=None)) as file:
                return work(file)
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & PRIMARY_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() >= ends:
                raise
        time.sleep(POLL_SECONDS)


def _require_ours(file: sqlite3.Connection, path: Path, *, may_be_new: bool = False) -> None:
    """Make the tables in an empty file, if it may be one.

    Raises:
        ConfigError: the file belongs to another program or to a newer version of this package.
    """
    owner, version, tables = (
        file.execute(question).fetchone()[0]
        for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if may_be_new and (owner, version, tables) == (0, 0, 0):
        for statement in filter(str.strip, SCHEMA.split(";")):
            file.execute(statement)
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {VERSION}")
        return
    if owner != APPLICATION_ID:
        raise ConfigError(f"{path} is not a history of this package: name another file")
    if version > VERSION:
        raise ConfigError(
            f"the history {path} is of version {version}, newer than {VERSION}: upgrade langchain-ctxwin, or name "
            "another file"
        )


def _require_no_link(path: Path) -> None:
    """Raise a `ConfigError` for a link: what it leads to may be anybody's, and would become a history."""
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, which is not followed: give the path of the file itself")


def _storable(value: Any) -> Any:
    """A text that SQLite takes: what is no Unicode is escaped."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
