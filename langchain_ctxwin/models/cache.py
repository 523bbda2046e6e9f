"""The cache of what sources stated: stale facts serve while their sources are asked again, in memory and in a file.

`SourceCache` asks all sources in parallel, `Feed` keeps what one of them stated and how it failed, and a file carries
snapshots over restarts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from langchain_ctxwin.core.events import ModelChangeEvent
from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.merging import GUESS, LEARNED, LIMIT_FIELDS, TIERS, Claim
from langchain_ctxwin.models.names import Listing
from langchain_ctxwin.protocols import Clock, ModelSource
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.util.background import Worker, in_few_daemons
from langchain_ctxwin.util.failures import FailureLog, pause_seconds, reason_of
from langchain_ctxwin.util.files import SharedFile
from langchain_ctxwin.util.forks import ForkSafeLock, renew_after_fork
from langchain_ctxwin.util.log import log

GRACE_SECONDS = 1.5
"""How long a lookup waits when it finds the facts expired. A source on this machine or network answers in that time, a
catalog of some thousand models is read in it on a busy machine; for a slower one the old facts serve until it has
answered. Paid once per refresh."""

DEFAULT_TIER = "provider"

STORED_TIERS = frozenset({"provider", "catalog"})
"""Tiers whose snapshots are kept on disk: the others answer from memory, and what the caller states may change."""

MAX_ASKED = 256
"""Answers kept of a source that is asked by name."""

MAX_CHANGES = 100
"""Changed facts reported of one answer, more than anybody reads; the rest is counted in the log."""

NO_THREAD = "no thread was free to ask it: the process has no more of them, or too many calls hang"

CANNOT_LIST = (NotImplementedError, TypeError, LookupError, AttributeError)
"""What a source raises that was written to answer by name only, and is given no name."""

FILE_VERSION: Final = 1

MAX_SNAPSHOTS = 64
"""Snapshots kept in the file, those of other programs included; the oldest leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How one source is doing."""

    name: str
    tier: str
    models: int
    """Models that it lists."""

    age_seconds: float | None
    """Since it answered last; None when it never did."""

    fault: str
    """Why its last answer could not be had; empty when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that one source stated at one time."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    models: tuple[ModelInfo, ...]
    fetched_at: float
    """Seconds since the epoch."""


Snapshots = Mapping[str, Snapshot]
"""Identity of a source -> its latest snapshot."""

Wait = tuple[Sequence[Future[Any]], float]
"""Calls that are worth waiting for, and the seconds."""


class SourceCache:
    """What all sources of a registry state. They are asked in daemon threads, each only for a limited time.

    Args:
        sources: Names and sources.
        ttl_seconds: After this time a source is asked again.
        clock: Seconds since the epoch.
        timeout_seconds: Longest wait for one source.
        cache_path: File in which processes share snapshots.
        reporter: Is told of limits and prices that changed.
    """

    def __init__(
        self,
        sources: Sequence[tuple[str, ModelSource]],
        *,
        ttl_seconds: float,
        clock: Clock,
        timeout_seconds: float,
        cache_path: Path | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.listing = Listing()
        self._reporter = reporter
        self.feeds = tuple(
            Feed(source, name, ttl_seconds, clock, timeout_seconds, self._take_up) for name, source in sources
        )
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._file = None if cache_path is None else snapshot_file(cache_path)
        self._saver = Worker("ctxwin-models", max_waiting=MAX_SNAPSHOTS)
        self._is_listed = True
        self._lock, self._listing_lock = ForkSafeLock(), ForkSafeLock()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget the thread that reads the file, which does not survive a fork."""
        self._opening: Future[Any] | None = None

    def settling(self, names: Sequence[str] = (), knows: Callable[[], bool] = lambda: True) -> Iterator[Wait]:
        """Ask what is due, and yield what is worth waiting for.

        Args:
            names: Asked of sources that list nothing.
            knows: Whether the wanted facts are there; where they are not, all that is on its way is waited for.
        """
        if self._is_settled(names, knows):
            return
        yield [self._opened()], self._timeout_seconds
        asked = [job for feed in self.feeds for job in feed.ask_if_due()]
        is_cold = not all(feed.has_tried for feed in self.feeds)
        yield (self._pending(), self._timeout_seconds) if is_cold else (asked, GRACE_SECONDS)
        asked = [job for feed in self.feeds for name in names for job in feed.ask_if_due(name)]
        yield (asked, GRACE_SECONDS) if knows() else (self._pending(), self._timeout_seconds)

    def settle(self, names: Sequence[str] = (), knows: Callable[[], bool] = lambda: True) -> None:
        """Have what is due asked, and wait for it as long as it is worth."""
        for jobs, seconds in self.settling(names, knows):
            wait(jobs, seconds)

    def refresh(self) -> None:
        """Ask every source now, also those that failed a moment ago, and wait: for each only its limited time."""
        before = [job for feed in self.feeds for job in feed.pending(is_sure=True)]  # these answers do not count
        wait([self._opened(), *before], self._timeout_seconds)
        wait([feed.ask() for feed in self.feeds if not feed.is_stuck], self._timeout_seconds)
        self.flush(self._timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until what was fetched is saved, or could not be; false when that takes longer."""
        wait(self._pending(), timeout_seconds)
        return self._saver.flush(timeout_seconds)

    def states(self) -> tuple[SourceState, ...]:
        """Return how each source is doing."""
        return tuple(feed.state(self._clock()) for feed in self.feeds if feed.tier != LEARNED)

    def _is_settled(self, names: Sequence[str], knows: Callable[[], bool]) -> bool:
        """True when nothing is to be asked or waited for, so that a lookup takes no time."""
        if self._opening is None or any(feed.is_due(name) for feed in self.feeds for name in (None, *names)):
            return False
        return all(feed.has_tried for feed in self.feeds) and (not self._pending() or knows())

    def _pending(self) -> list[Future[Any]]:
        return [job for feed in self.feeds for job in feed.pending()]

    def _opened(self) -> Future[Any]:
        """The call that reads what is stored, once."""
        with self._lock:
            self._opening = self._opening or _started(self._restore, instead=lambda: None)
            return self._opening

    def _restore(self) -> None:
        stored = (self._file.read() if self._file else None) or {}
        for feed in self.feeds:
            if feed.is_stored and feed.key in stored:
                feed.restore(stored[feed.key])
        if stored:
            self._list()

    def _take_up(self, feed: Feed, *, before: Sequence[Claim], models: Sequence[ModelInfo], is_new: bool) -> None:
        """List, save and report what a source stated, in its own thread."""
        if is_new:
            self._list()
        self._save(feed)
        if is_new and before and self._reporter and self._reporter.sinks:
            changed = changes(feed.name, (claim.info for claim in before), models)
            for event in changed[:MAX_CHANGES]:
                self._reporter.emit(event)
            if len(changed) > MAX_CHANGES:
                log.warning("models.more_changed", source=feed.name, not_reported=len(changed) - MAX_CHANGES)

    def _save(self, feed: Feed) -> None:
        if self._file is None or not feed.is_stored or feed.snapshot is None:
            return
        stored = {feed.key: feed.snapshot}
        try:
            self._saver.submit(partial(self._file.update, lambda others: newest({**others, **stored})))
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._file.not_saved(str(error))

    def _list(self) -> None:
        """List everything anew, once for all who wait to do so."""
        self._is_listed = False
        with self._listing_lock:
            if not self._is_listed:
                self._is_listed = True
                self.listing = Listing([claim for feed in self.feeds for claim in feed.claims()], self.listing)


class Feed:
    """One source, its last answers, and its failures. Thread-safe; whatever the source does stays in here.

    A source that hangs holds one thread: until its call returns, no other one is made.
    """

    def __init__(
        self,
        source: ModelSource,
        name: str,
        ttl_seconds: float,
        clock: Clock,
        timeout_seconds: float,
        take_up: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        tier = getattr(source, "tier", None)
        self.name = name
        self.tier = tier if tier in TIERS else DEFAULT_TIER
        self.key = str(getattr(source, "cache_key", None) or "")
        self.is_stored = bool(self.key) and self.tier in STORED_TIERS  # without a key nobody knows whose facts they are
        self.snapshot: Snapshot | None = None
        self.fault = ""
        self._source = source
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._take_up = take_up
        self._failures = 0
        self._failed_at = self._pause_seconds = 0.0
        self._named: dict[str, Snapshot] = {}
        self._failure_log = FailureLog(source=name)
        self._lock = ForkSafeLock()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget calls; a thread of the parent process may have made them."""
        self._calls: dict[str | None, tuple[Future[Any], float]] = {}
        self.is_stuck = False
        """True while a call that took too long has not returned."""

    @property
    def has_tried(self) -> bool:
        """True when the source answered or failed at least once."""
        return self.snapshot is not None or self._failures > 0

    def is_due(self, about: str | None = None) -> bool:
        """True when there is no fresh answer, no recent failure, and no call under way; one that hangs stops all.

        A clock that was set back makes it due.

        Args:
            about: One model, asked only of sources that list nothing; None for all.
        """
        self.pending()
        return self._is_due(about)

    def _is_due(self, about: str | None) -> bool:
        if self.is_stuck or about in self._calls:
            return False
        if self._failures and 0 <= self._clock() - self._failed_at < self._pause_seconds:
            return False
        if about is None:
            return not self._is_fresh(self.snapshot)
        lists_nothing = self.snapshot is not None and not self.snapshot.models and self.tier not in (GUESS, LEARNED)
        return lists_nothing and not self._is_fresh(self._named.get(about))

    def pending(self, *, is_sure: bool = False) -> list[Future[Any]]:
        """Return the calls that may be waited for; what takes longer is a failure.

        Args:
            is_sure: Also those that another thread starts in this moment.
        """
        if not self._calls and not is_sure:  # nearly always, and asked in every lookup
            return []
        now = time.monotonic()
        with self._lock:
            self._calls = {about: call for about, call in self._calls.items() if not call[0].done()}
            waited_for = [job for job, since in self._calls.values() if now - since < self._timeout_seconds]
            was_stuck, self.is_stuck = self.is_stuck, len(waited_for) < len(self._calls)
        if self.is_stuck and not was_stuck:
            self.fail(f"no answer within {self._timeout_seconds:g} seconds")
        return waited_for

    def claims(self) -> list[Claim]:
        """Return all that the source stated."""
        snapshots = [self.snapshot, *list(self._named.values())]
        infos = (info for snapshot in snapshots if snapshot for info in snapshot.models)
        return [Claim(source=self.name, tier=self.tier, info=info) for info in infos]

    def state(self, now: float) -> SourceState:
        """Return how the source is doing."""
        return SourceState(
            name=self.name,
            tier=self.tier,
            models=len({(claim.info.provider, claim.info.name) for claim in self.claims()}),
            age_seconds=None if self.snapshot is None else max(0.0, now - self.snapshot.fetched_at),
            fault=self.fault,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Take over what was stored, unless the source answered already."""
        self.snapshot = self.snapshot or snapshot

    def ask(self, about: str | None = None) -> Future[Any]:
        """Return the call that asks this already, else start one."""
        with self._lock:
            job, _ = self._calls.get(about, (None, 0.0))
            return self._start(about) if job is None or job.done() else job

    def ask_if_due(self, about: str | None = None) -> list[Future[Any]]:
        """Return the call that was started because it is due; of threads at the same moment only one starts it."""
        self.pending()
        with self._lock:
            return [self._start(about)] if self._is_due(about) else []

    def _start(self, about: str | None) -> Future[Any]:
        job = _started(partial(self.fetch, about), instead=partial(self.fail, NO_THREAD))
        self._calls[about] = job, time.monotonic()
        return job

    def fetch(self, about: str | None = None) -> None:
        """Ask in this thread; never raises. An answer that comes too late to be waited for is used all the same."""
        try:
            models = self._checked(self._source.fetch(about))
        except BaseException as error:  # noqa: BLE001  # a source may fail in any way; this is a thread of its own
            if about is not None or self.snapshot or not isinstance(error, CANNOT_LIST):
                self.fail(reason_of(error))
                return
            models = ()  # it may answer by name
        answer = Snapshot(models=models, fetched_at=self._clock())
        before, stated_before = self.snapshot if about is None else self._named.get(about), self.claims()
        if about is None:
            self.snapshot = answer
        else:
            named = {**self._named, about: answer}
            self._named = dict(list(named.items())[-MAX_ASKED:])
        self._failures, self.fault = 0, ""
        self._failure_log.note("models.source_failed", "")
        is_new = (before.models if before else ()) != models
        self._take_up(self, before=stated_before, models=models, is_new=is_new)

    def fail(self, reason: str) -> None:
        """Note a failure, after which the source is left alone for a while, the longer the more often it failed."""
        self._failures += 1
        self._failed_at = self._clock()
        self._pause_seconds = min(pause_seconds(self._failures), self._ttl_seconds)
        self.fault = reason
        self._failure_log.note("models.source_failed", reason)

    def _checked(self, said: Any) -> tuple[ModelInfo, ...]:
        if isinstance(said, str | bytes) or not isinstance(said, Sequence):
            raise _GarbageError(f"a {type(said).__name__} instead of a list of models")
        models = tuple(filter(_is_sound, said))
        if said and not models:
            raise _GarbageError(f"{len(said)} entries, none of them a model")
        dropped = len(said) - len(models)
        self._failure_log.note("models.entries_dropped", f"{dropped} entries are no models" if dropped else "")
        return models

    def _is_fresh(self, snapshot: Snapshot | None) -> bool:
        return snapshot is not None and 0 <= self._clock() - snapshot.fetched_at < self._ttl_seconds


def changes(source: str, before: Iterable[ModelInfo], after: Iterable[ModelInfo]) -> list[ModelChangeEvent]:
    """Return an event for each limit and price that a source stated before, and never as it states it now."""
    known: dict[tuple[str, str], set[Any]] = {}
    for model, field, value in _numbers(before):
        known.setdefault((model, field), set()).add(value)
    return [
        ModelChangeEvent(model=model, field=field, before=str(min(earlier)), after=str(value), source=source)
        for model, field, value in dict.fromkeys(_numbers(after))
        if (earlier := known.get((model, field))) and value not in earlier
    ]


def _numbers(infos: Iterable[ModelInfo]) -> Iterator[tuple[str, str, Any]]:
    for info in infos:
        model = f"{info.provider}/{info.name}" if info.provider else info.name
        for field in (*LIMIT_FIELDS, *PRICE_FIELDS):
            if (value := getattr(info, field)) is not None:
                yield model, field, value


class _GarbageError(Exception):
    """What a source returned are no models; the text names types only."""


def _is_sound(info: Any) -> bool:
    """Say whether this is a `ModelInfo` whose fields are of their kinds: one bad entry would break all merging.

    Limits and prices need no look: a `ModelInfo` with wrong ones cannot be made.
    """
    return (
        isinstance(info, ModelInfo)
        and isinstance(info.name, str)
        and isinstance(info.provider, str | None)
        and isinstance(info.tokenizer_family, str | None)
        and isinstance(info.deprecated, bool)
        and (info.retires_on is None or type(info.retires_on) is date)  # a datetime does not compare with a date
        and isinstance(info.aliases, tuple)
        and isinstance(info.capabilities, frozenset)
        and all(isinstance(text, str) for text in (*info.aliases, *info.capabilities))
    )


def _started(work: Callable[[], Any], *, instead: Callable[[], Any]) -> Future[Any]:
    """The work in a daemon thread, or something else at once when there is no thread to be had."""
    try:
        return in_few_daemons(work)
    except RuntimeError:
        instead()
        done: Future[Any] = Future()
        done.set_result(None)
        return done


def snapshot_file(path: Path) -> SharedFile[Snapshots]:
    """Return the file that carries snapshots over restarts."""
    return SharedFile(path, events="models.cache", version=FILE_VERSION, empty={}, read=_read_snapshots, write=_written)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    version: Literal[1]
    snapshots: dict[str, Snapshot]


_DOCUMENT = TypeAdapter(_Document)
_NOT_STORED: Any = {"snapshots": {"__all__": {"models": {"__all__": {"provenance", "conflicts"}}}}}


def newest(snapshots: Snapshots) -> dict[str, Snapshot]:
    """Return at most `MAX_SNAPSHOTS` of them, the latest."""
    kept = sorted(snapshots, key=lambda identity: snapshots[identity].fetched_at)[-MAX_SNAPSHOTS:]
    return {identity: snapshots[identity] for identity in kept}


def _read_snapshots(content: bytes) -> tuple[Snapshots, str]:
    try:
        return _DOCUMENT.validate_json(content).snapshots, ""
    except (ValidationError, ConfigError) as error:
        return {}, f"not snapshots of version {FILE_VERSION}: {type(error).__name__}"


def _written(snapshots: Snapshots) -> str:
    document = _Document(version=FILE_VERSION, snapshots=dict(snapshots))
    return _DOCUMENT.dump_json(document, exclude_defaults=True, exclude=_NOT_STORED).decode()
