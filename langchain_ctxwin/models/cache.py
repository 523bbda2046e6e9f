"""The cache of what sources stated: stale facts serve while their sources are asked again, in memory and in a file.

`SourceCache` asks all sources in parallel, `Feed` keeps what one of them stated and how it failed, and a file carries
snapshots over restarts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.merging import GUESS, TIERS, Claim
from langchain_ctxwin.models.names import Listing
from langchain_ctxwin.protocols import Clock, ModelSource
from langchain_ctxwin.util.background import in_daemon, in_few_daemons
from langchain_ctxwin.util.failures import FailureLog, pause_seconds, reason_of
from langchain_ctxwin.util.files import SharedFile
from langchain_ctxwin.util.forks import renew_after_fork
from langchain_ctxwin.util.memo import Lru

GRACE_SECONDS = 1.5
"""How long a lookup waits when it finds the facts expired. A source on this machine or network answers in that time, a
catalog of some thousand models is read in it on a busy machine; for a slower one the old facts serve until it has
answered. Paid once per refresh."""

DEFAULT_TIER = "provider"

STORED_TIERS = frozenset({"provider", "catalog"})
"""Tiers whose snapshots are kept on disk: the others answer from memory, and what the caller states may change."""

JITTER = 0.1
"""Part of the time to live by which a refresh comes early, so that processes started together do not ask together."""

MAX_ASKED = 256
"""Answers kept of a source that is asked by name."""

NO_THREAD = "no thread was free to ask it: the process has no more of them, or too many calls hang"

CANNOT_LIST = (NotImplementedError, TypeError, LookupError, AttributeError)
"""What a source raises that was written to answer by name only, and is given no name."""

FILE_VERSION: Final = 1

MAX_SNAPSHOTS = 64
"""Snapshots kept in the file, those of other programs included; the oldest leave."""

_chance = random.Random().random  # noqa: S311  # spreads load over time, guards nothing


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


class SourceCache:
    """What all sources of a registry state. They are asked in daemon threads, each only for a limited time.

    A source that hangs holds one thread: until its call returns, no other one is made.

    Args:
        sources: Names and sources.
        ttl_seconds: After this time a source is asked again.
        clock: Seconds since the epoch.
        timeout_seconds: Longest wait for one source.
        cache_path: File in which processes share snapshots.
        beside: What else is read from files whenever sources are asked.
        chance: Spreads refreshes over time.
    """

    def __init__(
        self,
        sources: Sequence[tuple[str, ModelSource]],
        *,
        ttl_seconds: float,
        clock: Clock,
        timeout_seconds: float,
        cache_path: Path | None = None,
        beside: Sequence[Callable[[], None]] = (),
        chance: Callable[[], float] = _chance,
    ) -> None:
        self.feeds = tuple(Feed(source, name, ttl_seconds, clock, chance, self._list) for name, source in sources)
        self.listing = Listing()
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._file = None if cache_path is None else snapshot_file(cache_path)
        self._beside = beside
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the locks anew and forget threads, none of which survives a fork."""
        self._round: Future[Any] | None = None
        self._full_round: Future[Any] | None = None
        self._opening: Future[Any] | None = None
        self._saving: Future[Any] | None = None
        self._settling: Future[Any] | None = None
        self._lock = threading.Lock()
        self._listing_lock = threading.Lock()

    def is_settled(self, names: Sequence[str], *, has_facts: bool = False) -> bool:
        """True when nothing is to be asked, so that a lookup needs no thread and no time."""
        if self._opening is None or any(feed.is_due for feed in self.feeds):
            return False
        return all(feed.has_tried for feed in self.feeds) and not self.askable(names, has_facts=has_facts)

    def settle(self) -> None:
        """Have what is due asked, and wait for it as long as it is worth."""
        self._open()
        is_cold = not all(feed.has_tried for feed in self.feeds)
        before, current = self._round, self._joined()
        if current is not None and (is_cold or current is not before):
            wait([current], self._longest_wait if is_cold else GRACE_SECONDS)

    def settling(self) -> Future[Any]:
        """Return `settle` in one thread for all who wait for it at this moment."""
        with self._lock:
            if self._settling is None or self._settling.done():
                self._settling = in_daemon(self.settle)
            return self._settling

    def askable(self, names: Sequence[str], *, has_facts: bool) -> list[tuple[Feed, str]]:
        """Questions worth asking: where facts are known none is added to one that has not been answered."""
        free = [feed for feed in self.feeds if not (feed.is_asking if has_facts else feed.is_stuck)]
        return [(feed, name) for feed in free for name in names if feed.is_askable(name)]

    def ask(self, names: Sequence[str], *, has_facts: bool) -> None:
        """Ask sources that list nothing about these names; where facts are known, wait for a moment only."""
        asked = [(feed, name, feed.asking(name)) for feed, name in self.askable(names, has_facts=has_facts)]
        jobs = [job for _, _, job in asked if job is not None]
        late = wait(jobs, GRACE_SECONDS if has_facts else self._timeout_seconds).not_done
        for feed, name, job in asked:
            if job in late and not has_facts:
                feed.give_up(name, self._timeout_seconds)

    def finish(self) -> None:
        """Wait for a refresh that is under way."""
        if self._round is not None:
            wait([self._round], self._longest_wait)

    def refresh(self) -> None:
        """Ask every source now, also those that failed a moment ago, and wait: for each only its limited time."""
        self._open()
        before = self._round  # what was asked before this call does not count
        while True:
            current = self._joined(force=True)
            if current is None or wait([current], self._longest_wait).not_done:
                break
            if current is self._full_round and current is not before:
                break
        self.flush(self._timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until what was fetched is saved, or could not be; false when that takes longer."""
        self.finish()
        return self._saving is None or not wait([self._saving], timeout_seconds).not_done

    def states(self) -> tuple[SourceState, ...]:
        """Return how each source is doing."""
        return tuple(feed.state(self._clock()) for feed in self.feeds)

    @property
    def _longest_wait(self) -> float:
        return self._timeout_seconds + GRACE_SECONDS

    def _open(self) -> None:
        """Read what is stored, once."""
        with self._lock:
            if self._opening is None:
                self._opening = _started(self._restore) or _done()
        wait([self._opening], self._timeout_seconds)

    def _restore(self) -> None:
        stored = (self._file.read() if self._file else None) or {}
        for feed in self.feeds:
            if feed.is_stored and feed.key in stored:
                feed.restore(stored[feed.key])
        if stored:
            self._list()

    def _joined(self, *, force: bool = False) -> Future[Any] | None:
        """The refresh under way, else a new one when something is due, or all is asked."""
        with self._lock:
            if self._round is not None and not self._round.done():
                return self._round
            due = [feed for feed in self.feeds if feed.is_due or (force and not feed.is_stuck)]
            if not due and not (force and self._beside):
                return None
            job = _started(partial(self._refresh, due))
            if job is None:
                for feed in due:
                    feed.fail(NO_THREAD)
                return None
            self._round = job
            self._full_round = job if force else self._full_round
            return job

    def _refresh(self, due: Sequence[Feed]) -> None:
        jobs = {feed: job for feed in due if (job := feed.asking()) is not None}
        others = filter(None, map(_started, self._beside))
        late = wait([*jobs.values(), *others], self._timeout_seconds).not_done
        for feed, job in jobs.items():
            if job in late:
                feed.give_up(None, self._timeout_seconds)
        self._list()
        fetched = [feed for feed, job in jobs.items() if job not in late]
        stored = {feed.key: feed.snapshot for feed in fetched if feed.is_stored and not feed.fault and feed.snapshot}
        if self._file and stored:
            self._saving = _started(partial(self._file.update, lambda others: newest({**others, **stored})))

    def _list(self) -> None:
        with self._listing_lock:
            try:
                self.listing = Listing(_claims(self.feeds), self.listing)
            except Exception:  # noqa: BLE001  # one that states the unspeakable takes no other down
                self.listing = Listing(_claims(filter(_is_listable, self.feeds)), self.listing)


class Feed:
    """One source, its last snapshot, and its failures. Thread-safe; whatever the source does stays in here."""

    def __init__(
        self,
        source: ModelSource,
        name: str,
        ttl_seconds: float,
        clock: Clock,
        chance: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        tier = getattr(source, "tier", None)
        self.name = name
        self.tier = tier if tier in TIERS else DEFAULT_TIER
        self.key = str(getattr(source, "cache_key", None) or "")
        self.is_stored = bool(self.key) and self.tier in STORED_TIERS  # without a key nobody knows whose facts they are
        self.snapshot: Snapshot | None = None
        self.fault = ""
        self._source = source
        self._ttl_seconds = self._lives_seconds = ttl_seconds
        self._clock = clock
        self._chance = chance
        self._changed = changed  # called when an answer came that nobody waited for
        self._failures = 0
        self._failed_at = 0.0
        self._pause_seconds = 0.0
        self._known: dict[str, tuple[ModelInfo, ...]] = {}
        self._failure_log = FailureLog(source=name)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the locks anew and forget calls; a thread of the parent process may have held or made them."""
        self._calls: dict[str | None, Future[Any]] = {}
        self._left: set[str | None] = set()  # what was asked in calls that nobody waits for any more
        self._asked: Lru[Snapshot] = Lru(MAX_ASKED)
        self._lock = threading.Lock()

    @property
    def has_tried(self) -> bool:
        """True when the source answered or failed at least once."""
        return self.snapshot is not None or self._failures > 0

    @property
    def is_due(self) -> bool:
        """True when there is no fresh snapshot, no recent failure, and no hanging call.

        A clock that was set back makes it due.
        """
        return not self._is_paused() and not self._is_fresh(self.snapshot, self._lives_seconds) and not self.is_stuck

    @property
    def is_asking(self) -> bool:
        """True while any call of this source has not returned."""
        with self._lock:
            return any(not job.done() for job in self._calls.values())

    @property
    def is_stuck(self) -> bool:
        """True while a call that nobody waits for any more has not returned."""
        if not self._left:  # nearly always, and asked in every lookup
            return False
        with self._lock:
            return any(not job.done() for about, job in self._calls.items() if about in self._left)

    def is_askable(self, name: str) -> bool:
        """True when the source lists nothing, and was not asked about this name within the time to live."""
        if self.snapshot is None or self.snapshot.models or self.tier == GUESS:
            return False
        return not self._is_paused() and not self._is_fresh(self._asked.get(name), self._ttl_seconds)

    def claims(self) -> list[Claim]:
        """Return all that the source stated."""
        listed = self.snapshot.models if self.snapshot else ()
        named = [info for infos in list(self._known.values()) for info in infos]
        return [Claim(source=self.name, tier=self.tier, info=info) for info in (*listed, *named)]

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
        with self._lock:
            if self.snapshot is None:
                self._take(snapshot)

    def asking(self, about: str | None = None) -> Future[Any] | None:
        """Return the call that asks this already, else start one; None when there is no thread to be had.

        Args:
            about: One model; None for all.
        """
        with self._lock:
            self._calls = {key: job for key, job in self._calls.items() if not job.done()}
            self._left &= self._calls.keys()
            job = self._calls.get(about) or _started(partial(self.fetch, about))
            if job is not None:
                self._calls[about] = job
        if job is None:
            self.fail(NO_THREAD)
        return job

    def fetch(self, about: str | None = None) -> None:
        """Ask in this thread; never raises. An answer that comes too late to be waited for is used all the same."""
        try:
            models = self._checked(self._source.fetch(about))
        except BaseException as error:  # noqa: BLE001  # a source may fail in any way; this is a thread of its own
            if about is None and self.snapshot is None and isinstance(error, CANNOT_LIST):
                models = ()  # it may answer by name
            else:
                if not self._is_late(about):
                    self.fail(reason_of(error))
                return
        is_new = self._accept(about, models)
        if self._is_late(about) or is_new:
            self._changed()

    def give_up(self, about: str | None, seconds: float) -> None:
        """Note that nobody waits for a call any more."""
        with self._lock:
            if (job := self._calls.get(about)) is not None and not job.done():
                self._left.add(about)
        self.fail(f"no answer within {seconds:g} seconds")

    def fail(self, reason: str) -> None:
        """Note a failure, after which the source is left alone for a while, the longer the more often it failed."""
        with self._lock:
            self._failures += 1
            self._failed_at = self._clock()
            self._pause_seconds = min(pause_seconds(self._failures), self._ttl_seconds) * (1 - self._chance() / 2)
            self.fault = reason
        self._failure_log.note("models.source_failed", reason)

    def _is_late(self, about: str | None) -> bool:
        """True for a call that nobody waits for; it is over now."""
        with self._lock:
            is_late = about in self._left
            self._left.discard(about)
            return is_late

    def _checked(self, said: Any) -> tuple[ModelInfo, ...]:
        if isinstance(said, str | bytes) or not isinstance(said, Sequence):
            raise _GarbageError(f"a {type(said).__name__} instead of a list of models")
        models = tuple(filter(_is_sound, said))
        if said and not models:
            raise _GarbageError(f"{len(said)} entries, none of them a model")
        dropped = len(said) - len(models)
        self._failure_log.note("models.entries_dropped", f"{dropped} entries are no models" if dropped else "")
        return models

    def _accept(self, about: str | None, models: tuple[ModelInfo, ...]) -> bool:
        """Take up an answer, and say whether one about a model brings something new."""
        answer = Snapshot(models=models, fetched_at=self._clock())
        with self._lock:
            if about is None:
                self._take(answer)
                is_new, self._known = False, {} if models else self._known
            else:
                self._asked.put(about, answer)
                is_new = self._known.get(about, ()) != models
                self._known = {k: v for k, v in {**self._known, about: models}.items() if v and self._asked.get(k)}
            self._failures, self.fault = 0, ""
        self._failure_log.note("models.source_failed", "")
        return is_new

    def _take(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lives_seconds = self._ttl_seconds * (1 - JITTER * self._chance())

    def _is_paused(self) -> bool:
        return self._failures > 0 and 0 <= self._clock() - self._failed_at < self._pause_seconds

    def _is_fresh(self, snapshot: Snapshot | None, seconds: float) -> bool:
        return snapshot is not None and 0 <= self._clock() - snapshot.fetched_at < seconds


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


def _claims(feeds: Iterable[Feed]) -> list[Claim]:
    return [claim for feed in feeds for claim in feed.claims()]


def _is_listable(feed: Feed) -> bool:
    try:
        Listing(feed.claims())
    except Exception as error:  # noqa: BLE001  # as in `_list`
        feed.fail(reason_of(error))
        return False
    return True


def _started(work: Callable[[], Any]) -> Future[Any] | None:
    """The work in a daemon thread; None when there is no thread to be had."""
    try:
        return in_few_daemons(work)
    except RuntimeError:
        return None


def _done() -> Future[Any]:
    nothing: Future[Any] = Future()
    nothing.set_result(None)
    return nothing


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
