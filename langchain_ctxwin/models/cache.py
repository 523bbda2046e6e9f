"""The cache of what sources stated: stale facts serve while their sources are asked again, in memory and in a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from langchain_ctxwin.core.events import ModelChangeEvent
from langchain_ctxwin.core.model_info import LIMIT_FIELDS, PRICE_FIELDS, ModelInfo
from langchain_ctxwin.models.merging import GUESS, LEARNED, TIERS, Claim
from langchain_ctxwin.models.names import Listing
from langchain_ctxwin.models.sources.learned import LearnedSource, StoredValue
from langchain_ctxwin.protocols import Clock, ModelSource
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.util.background import ForkSafeLock, in_few_daemons, renew_after_fork
from langchain_ctxwin.util.failures import BackOff, FailureLog, reason_of
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.work import Wait, Work

# How long a lookup waits when it finds the facts expired, once per refresh. A source on this machine or network answers
# in that time, a catalog of some thousand models is read in it on a busy machine; slower ones answer later lookups.
GRACE_SECONDS = 1.5

# Snapshots of these tiers are stored: the others answer from memory, and what the caller states may change.
STORED_TIERS = frozenset({"provider", "catalog"})
MAX_SNAPSHOTS = 64  # in the file, those of other programs included; the oldest leave
MAX_ASKED = 256  # answers that are kept of a source that is asked by name
MAX_CHANGES = 100  # reported of one answer, more than anybody reads; the rest is counted in the log

# What a source raises that was written to answer by name only, and is given no name.
CANNOT_LIST = (NotImplementedError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How one source is doing."""

    name: str
    tier: str
    models: int  # that it lists
    age_seconds: float | None  # since it answered last; None when it never did
    fault: str  # why its last answer could not be had; empty when it was


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """All that one source stated at one time."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, revalidate_instances="always")

    models: tuple[ModelInfo, ...]
    fetched_at: float  # seconds since the epoch


_SNAPSHOT = TypeAdapter(SourceSnapshot)
Snapshots = Mapping[str, SourceSnapshot]  # by the identity of the source


def snapshot_file(path: Path | None) -> StoredValue[Snapshots]:
    """Return the file that carries snapshots over restarts."""
    return StoredValue(
        path,
        key="snapshots",
        kind=dict[str, SourceSnapshot],
        events="models.cache",
        what="snapshots",
        writing={"exclude": {"snapshots": {"__all__": {"models": {"__all__": {"provenance", "conflicts"}}}}}},
    )


class SourceCache:
    """What all sources of a registry state, asked in parallel, in daemon threads, each only for a limited time."""

    def __init__(
        self,
        sources: Iterable[tuple[str, ModelSource]],
        *,
        reporter: Reporter,
        cache_path: Path | None = None,
        timeout_seconds: float,
        **options: Any,
    ) -> None:
        self.listing = Listing()
        self.feeds = tuple(
            _Feed(source, name, self._take_up, timeout_seconds=timeout_seconds, **options) for name, source in sources
        )
        self._reporter = reporter
        self._timeout_seconds = timeout_seconds
        self._file = snapshot_file(cache_path)
        self._is_opened = cache_path is None
        self._is_listed = True
        self._lock, self._listing_lock = ForkSafeLock(), ForkSafeLock()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget the call that reads the file; a thread of the parent process may have made it."""
        self._opening: tuple[Future[Any], float] | None = None

    def settled(self, names: Sequence[str] = (), knows: Callable[[], bool] = lambda: True) -> Work[None]:
        """Have what is due asked, and wait for it as long as it is worth; until it `knows`, for all that is on its way.

        Sources that list nothing are asked for the names.
        """
        if not self._is_opened:
            yield self._opened()
        asked = [job for feed in self.feeds for job in feed.ask_if_due()]
        is_cold = not all(feed.has_tried for feed in self.feeds)
        if asked or is_cold:
            yield waiting(self._pending(), self._timeout_seconds) if is_cold else waiting(asked, GRACE_SECONDS)
        asked = [job for feed in self.feeds for name in names for job in feed.ask_if_due(name)]
        if pending := self._pending():  # nearly never, so that a lookup takes no time
            yield waiting(asked, GRACE_SECONDS) if knows() else waiting(pending, self._timeout_seconds)

    def refresh(self) -> None:
        """Ask every source now, also those that failed a moment ago, and wait: for each only its limited time."""
        self._opened().now()
        before = [job for feed in self.feeds for job in feed.pending(is_sure=True)]  # these answers do not count
        wait(before, self._timeout_seconds)
        wait([feed.ask() for feed in self.feeds if not feed.is_stuck], self._timeout_seconds)
        self.flush(self._timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until what was fetched is saved, or could not be; false when that takes longer."""
        deadline = time.monotonic() + timeout_seconds
        wait(self._pending(), timeout_seconds)
        return self._file.flush(max(0.0, deadline - time.monotonic()))

    def states(self) -> tuple[SourceState, ...]:
        """Return how each source is doing."""
        return tuple(feed.state() for feed in self.feeds if feed.tier != LEARNED)

    def _pending(self) -> list[Future[Any]]:
        return [job for feed in self.feeds for job in feed.pending()]

    def _opened(self) -> Wait:
        """The wait for the call that reads what is stored; all who wait for it share its limited time."""
        with self._lock.held:
            if not self._is_opened and self._opening is None:
                with suppress(RuntimeError):  # no thread was free: who comes next tries again
                    self._opening = in_few_daemons(self._restore), time.monotonic() + self._timeout_seconds
            opening = self._opening
        return waiting([opening[0]], max(0.0, opening[1] - time.monotonic())) if opening else waiting([], 0.0)

    def _restore(self) -> None:
        """Take over what is stored, in a thread of its own: the file may be long, and its system may hang."""
        stored = self._file.read() or {}
        for feed in self.feeds:
            if feed.is_stored and feed.key in stored:
                feed.restore(stored[feed.key])
        if stored:
            self._list()
        self._is_opened = True

    def _take_up(self, feed: _Feed, *, before: Sequence[Claim], models: Sequence[ModelInfo], is_new: bool) -> None:
        """List, save and report what a source stated, in its own thread."""
        if is_new:
            self._list()
        if feed.is_stored and None in feed.answers:
            stored = {feed.key: feed.answers[None]}
            self._file.save(lambda others: newest({**others, **stored}))
        if is_new and before and self._reporter.sinks:
            changed = changes(feed.name, (claim.info for claim in before), models)
            for event in changed[:MAX_CHANGES]:
                self._reporter.emit(event)
            if len(changed) > MAX_CHANGES:
                log.warning("models.more_changed", source=feed.name, not_reported=len(changed) - MAX_CHANGES)

    def _list(self) -> None:
        """List everything anew, once for all who wait to do so."""
        self._is_listed = False
        with self._listing_lock.held:
            if not self._is_listed:
                self._is_listed = True
                self.listing = Listing([claim for feed in self.feeds for claim in feed.claims()], self.listing)


class _Feed:
    """One source, its last answers, and its failures. Thread-safe; whatever the source does stays in here.

    A source that hangs holds one thread: until its call returns, no other one is made. `take_up` is told of each
    answer, in the thread that got it.
    """

    def __init__(
        self,
        source: ModelSource,
        name: str,
        take_up: Callable[..., None],
        *,
        ttl_seconds: float,
        clock: Clock,
        timeout_seconds: float,
    ) -> None:
        tier = getattr(source, "tier", None)
        self.name = name
        self.tier = tier if tier in TIERS else "provider"
        self.key = str(getattr(source, "cache_key", None) or "")
        self.is_stored = bool(self.key) and self.tier in STORED_TIERS  # without a key nobody knows whose facts they are
        # What it stated last, by the name that it was asked for; None is its list. Replaced as a whole, never changed.
        self.answers: dict[str | None, SourceSnapshot] = {}
        self.fault = ""
        self._source = source
        self._take_up = take_up
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._back_off = BackOff(clock, longest_seconds=ttl_seconds)  # asked as often as what answers, at least
        self._failure_log = FailureLog(source=name)
        self._lock = ForkSafeLock()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:  # a thread of the parent process may have made the calls
        self._calls: dict[str | None, tuple[Future[Any], float]] = {}
        self.is_stuck = False  # while a call that took too long has not returned

    @property
    def has_tried(self) -> bool:
        return None in self.answers or self._back_off.failures > 0

    def _is_due(self, about: str | None) -> bool:
        """True when there is no fresh answer, no recent failure, and no call under way; one that hangs stops all.

        A clock that was set back makes it due. About one model only sources are asked that list nothing.
        """
        if self.is_stuck or about in self._calls or self._back_off.is_on:
            return False
        listed, known = self.answers.get(None), self.answers.get(about)
        if about is not None and (listed is None or listed.models or self.tier in (GUESS, LEARNED)):
            return False
        return known is None or not 0 <= self._clock() - known.fetched_at < self._ttl_seconds

    def pending(self, *, is_sure: bool = False) -> list[Future[Any]]:
        """The calls that may be waited for, to be sure also one that starts now; what takes longer failed."""
        if not self._calls and not is_sure:  # nearly always, and asked in every lookup
            return []
        now = time.monotonic()
        with self._lock.held:
            self._calls = {about: call for about, call in self._calls.items() if not call[0].done()}
            waited_for = [job for job, since in self._calls.values() if now - since < self._timeout_seconds]
            was_stuck, self.is_stuck = self.is_stuck, len(waited_for) < len(self._calls)
        if self.is_stuck and not was_stuck:  # however long it hangs, it failed once
            self.fail(f"no answer within {self._timeout_seconds:g} seconds")
        return waited_for

    def restore(self, stored: SourceSnapshot) -> None:
        with self._lock.held:
            self.answers = {None: stored, **self.answers}  # an answer of its own is newer

    def claims(self) -> list[Claim]:
        infos = [info for answer in self.answers.values() for info in answer.models]
        return [Claim(source=self.name, tier=self.tier, info=info) for info in infos]

    def state(self) -> SourceState:
        listed = self.answers.get(None)
        return SourceState(
            name=self.name,
            tier=self.tier,
            models=len({(claim.info.provider, claim.info.name) for claim in self.claims()}),
            age_seconds=None if listed is None else max(0.0, self._clock() - listed.fetched_at),
            fault=self.fault,
        )

    def ask_if_due(self, about: str | None = None) -> list[Future[Any]]:
        """The call that was started because it is due; of threads at the same moment only one starts it."""
        self.pending()
        if not self._is_due(about):  # nearly always
            return []
        with self._lock.held:
            return [self._start(about)] if self._is_due(about) else []

    def ask(self, about: str | None = None) -> Future[Any]:
        with self._lock.held:
            job, _ = self._calls.get(about, (None, 0.0))
            return self._start(about) if job is None or job.done() else job

    def _start(self, about: str | None) -> Future[Any]:
        try:
            job = in_few_daemons(partial(self.fetch, about))
        except RuntimeError:
            self.fail("no thread was free to ask it: the process has no more of them, or too many calls hang")
            job = Future()
            job.set_result(None)
        self._calls[about] = job, time.monotonic()
        return job

    def fetch(self, about: str | None) -> None:
        """Ask in this thread; never raises. An answer that comes too late to be waited for is used all the same."""
        try:
            if isinstance(self._source, LearnedSource):
                self._source.refresh()  # what it holds counts by rules of its own
                models: tuple[ModelInfo, ...] = ()
            else:
                models = self._checked(self._source.fetch(about))
        except BaseException as error:  # noqa: BLE001  # a source may fail in any way; this is a thread of its own
            if about is not None or self.answers or not isinstance(error, CANNOT_LIST):
                self.fail(reason_of(error))
                return
            models = ()  # it may answer by name
        with self._lock.held:  # or of answers that come at once all but one may be lost
            before, stated_before = self.answers.get(about), self.claims()
            answers = {**self.answers, about: SourceSnapshot(models=models, fetched_at=self._clock())}
            if len(answers) > MAX_ASKED:
                del answers[next(name for name in answers if name is not None)]
            self.answers = answers
        self._back_off.succeeded()
        self.fault = ""
        self._failure_log.note("models.source_failed", "")
        is_new = (before.models if before else ()) != models
        self._take_up(self, before=stated_before, models=models, is_new=is_new)

    def fail(self, reason: str) -> None:
        """Note a failure, after which the source is left alone for a while, the longer the more often it failed."""
        self._back_off.failed()
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


def _is_sound(info: Any) -> bool:
    """Say whether this is a `ModelInfo` whose fields are of their kinds: one bad entry would break all merging."""
    try:
        _SNAPSHOT.validate_python(SourceSnapshot(models=(info,), fetched_at=0.0))
    except ValidationError:
        return False
    return True


class _GarbageError(Exception):
    """What a source returned are no models; the text names types only."""


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


def newest(snapshots: Snapshots) -> Snapshots:
    """Return at most `MAX_SNAPSHOTS` of them, the latest."""
    kept = sorted(snapshots, key=lambda identity: snapshots[identity].fetched_at)[-MAX_SNAPSHOTS:]
    return {identity: snapshots[identity] for identity in kept}


def waiting(jobs: Sequence[Future[Any]], seconds: float) -> Wait:
    """The wait for calls, of at most so many seconds."""

    async def later() -> None:
        if jobs:
            await asyncio.wait(list(map(asyncio.wrap_future, jobs)), timeout=seconds)

    return Wait(partial(wait, jobs, seconds), later)
