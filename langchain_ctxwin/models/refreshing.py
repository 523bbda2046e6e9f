"""How do all sources stay fresh, while none of them is waited for longer than it is worth?"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from langchain_ctxwin.models.cache import SnapshotCache
from langchain_ctxwin.models.calls import NO_THREAD, Calls, started
from langchain_ctxwin.models.explaining import SourceState, state_of
from langchain_ctxwin.models.feed import Feed
from langchain_ctxwin.models.listing import Listing
from langchain_ctxwin.models.merging import Claim
from langchain_ctxwin.models.troubles import reason_of
from langchain_ctxwin.protocols import Clock, ModelSource
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.fork import renew_after_fork

GRACE_SECONDS = 1.5
"""How long a lookup waits when it finds the facts expired. A source on this machine or network answers in that time, a
catalog of some thousand models is read in it on a busy machine; for a slower one the old facts serve until it has
answered. Paid once per refresh."""

_chance = random.Random().random  # noqa: S311  # spreads load over time, guards nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """Sources asked together."""

    job: Future[Any]
    number: int
    is_full: bool
    """True when every source is asked, not only those that are due."""


class Feeds:
    """All sources of a registry. They are asked in parallel, in daemon threads, and each only for a limited time.

    A source that hangs holds one thread: until its call returns, no other one is made.
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
        self.all = tuple(Feed(source, name, ttl_seconds, clock, chance) for name, source in sources)
        self.listing = Listing()
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._cache = None if cache_path is None else SnapshotCache(cache_path)
        self._beside = beside  # what else is read from files in each round
        self._calls = Calls()
        self._rounds = 0
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the locks anew and forget threads, none of which survives a fork."""
        self._calls.renew()
        self._round: _Round | None = None
        self._opening: Future[Any] | None = None
        self._saving: Future[Any] | None = None
        self._settling: Future[Any] | None = None
        self._lock = threading.Lock()
        self._listing_lock = threading.Lock()

    def is_settled(self, names: Sequence[str], *, has_facts: bool = False) -> bool:
        """True when nothing is to be asked, so that a lookup needs no thread and no time."""
        if self._opening is None or any(map(self._is_due, self.all)):
            return False
        return all(feed.has_tried for feed in self.all) and not self.askable(names, has_facts=has_facts)

    def settle(self) -> None:
        """Have what is due asked, and wait for it as long as it is worth."""
        self._open()
        is_cold = not all(feed.has_tried for feed in self.all)
        current, is_new = self._join()
        if current is not None and (is_cold or is_new):
            wait([current.job], self._longest_wait if is_cold else GRACE_SECONDS)

    def settling(self) -> Future[Any]:
        """Return `settle` in one thread for all who wait for it at this moment."""
        with self._lock:
            if self._settling is None or self._settling.done():
                self._settling = in_daemon(self.settle)
            return self._settling

    def askable(self, names: Sequence[str], *, has_facts: bool) -> list[tuple[Feed, str]]:
        """Questions worth asking: where facts are known none is added to one that has not been answered."""
        is_busy = self._calls.is_asking if has_facts else self._calls.is_stuck
        pairs = ((feed, name) for feed in self.all for name in names)
        return [(feed, name) for feed, name in pairs if feed.is_askable(name) and not is_busy(feed)]

    def ask(self, names: Sequence[str], *, has_facts: bool) -> None:
        """Ask sources that list nothing about these names; where facts are known, wait for a moment only."""
        running: dict[Future[Any], Feed] = {}
        for feed, name in self.askable(names, has_facts=has_facts):
            job = self._calls.join(feed, name, partial(self._ask, feed, name))
            if job is None:
                feed.fail(NO_THREAD)
            else:
                running[job] = feed
        late = wait(running, GRACE_SECONDS if has_facts else self._timeout_seconds).not_done
        if not has_facts:
            self._give_up({running[job]: job for job in late})

    def finish(self) -> None:
        """Wait for a refresh that is under way."""
        if self._round is not None:
            wait([self._round.job], self._longest_wait)

    def refresh(self) -> None:
        """Ask every source now, also those that failed a moment ago, and wait: for each only its limited time."""
        self._open()
        before = self._rounds  # what was asked before this call does not count
        while True:
            current, _ = self._join(force=True)
            if current is None or wait([current.job], self._longest_wait).not_done:
                break
            if current.is_full and current.number > before:
                break
        self.flush(self._timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until what was fetched is saved, or could not be; false when that takes longer."""
        self.finish()
        return self._saving is None or not wait([self._saving], timeout_seconds).not_done

    def states(self) -> tuple[SourceState, ...]:
        """Return how each source is doing."""
        return tuple(state_of(feed, self._clock()) for feed in self.all)

    @property
    def _longest_wait(self) -> float:
        return self._timeout_seconds + GRACE_SECONDS

    def _open(self) -> None:
        """Read what is stored, once."""
        with self._lock:
            if self._opening is None:
                self._opening = started(self._restore) or _done()
        wait([self._opening], self._timeout_seconds)

    def _restore(self) -> None:
        stored = self._cache.load() if self._cache else {}
        for feed in self.all:
            if feed.is_stored and feed.key in stored:
                feed.restore(stored[feed.key])
        if stored:
            self._list()

    def _is_due(self, feed: Feed) -> bool:
        return feed.is_due and not self._calls.is_stuck(feed)

    def _join(self, *, force: bool = False) -> tuple[_Round | None, bool]:
        """The refresh under way, or a new one when something is due; and whether it is new."""
        with self._lock:
            if self._round is not None and not self._round.job.done():
                return self._round, False
            due = [feed for feed in self.all if self._is_due(feed) or (force and not self._calls.is_stuck(feed))]
            if not due and not (force and self._beside):
                return None, False
            job = started(partial(self._refresh, due))
            if job is None:
                self._refuse(due)
                return None, False
            self._rounds += 1
            self._round = _Round(job=job, number=self._rounds, is_full=force)
            return self._round, True

    def _refresh(self, due: Sequence[Feed]) -> None:
        asked = {feed: self._calls.join(feed, None, partial(self._fetch, feed)) for feed in due}
        self._refuse([feed for feed, job in asked.items() if job is None])
        jobs = {feed: job for feed, job in asked.items() if job is not None}
        others = filter(None, map(started, self._beside))
        late = wait([*jobs.values(), *others], self._timeout_seconds).not_done
        self._give_up({feed: job for feed, job in jobs.items() if job in late})
        self._list()
        self._save([feed for feed, job in jobs.items() if job not in late])

    def _refuse(self, feeds: Sequence[Feed]) -> None:
        for feed in feeds:
            feed.fail(NO_THREAD)

    def _give_up(self, late: dict[Feed, Future[Any]]) -> None:
        for feed, job in late.items():
            self._calls.leave(job)
            feed.give_up(self._timeout_seconds)

    def _fetch(self, feed: Feed) -> None:
        if feed.fetch():
            self._list()

    def _ask(self, feed: Feed, name: str) -> None:
        if feed.ask(name):
            self._list()

    def _list(self) -> None:
        with self._listing_lock:
            try:
                self.listing = Listing(self._claims(self.all), self.listing)
            except Exception:  # noqa: BLE001  # one that states the unspeakable takes no other down
                self.listing = Listing(self._claims(list(filter(_is_listable, self.all))), self.listing)

    def _claims(self, feeds: Sequence[Feed]) -> list[Claim]:
        return [claim for feed in feeds for claim in feed.claims()]

    def _save(self, fetched: Sequence[Feed]) -> None:
        stored = {feed.key: feed.snapshot for feed in fetched if feed.is_stored and not feed.fault and feed.snapshot}
        if self._cache and stored:
            self._saving = started(partial(self._cache.save, stored))


def _is_listable(feed: Feed) -> bool:
    try:
        Listing(feed.claims())
    except Exception as error:  # noqa: BLE001  # as above
        feed.fail(reason_of(error))
        return False
    return True


def _done() -> Future[Any]:
    nothing: Future[Any] = Future()
    nothing.set_result(None)
    return nothing
