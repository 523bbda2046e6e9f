"""How do all sources stay fresh, while none of them is waited for longer than it is worth?"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any

from langchain_ctxwin.daemon import in_few_daemons
from langchain_ctxwin.models.cache import SnapshotCache
from langchain_ctxwin.models.explaining import SourceState, state_of
from langchain_ctxwin.models.feed import Feed
from langchain_ctxwin.models.listing import Listing
from langchain_ctxwin.protocols import Clock, ModelSource

GRACE_SECONDS = 0.5
"""How long a lookup waits when it finds the facts expired. A source on this machine or network answers in that time, so
that its facts are never stale; for a slow one the old facts serve until it has answered. Paid once per refresh."""

_chance = random.Random().random  # noqa: S311  # spreads load over time, guards nothing


class Feeds:
    """All sources of a registry. They are asked in parallel, in daemon threads, and each only for a limited time."""

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
        self._round: Future[Any] | None = None
        self._opening: Future[Any] | None = None
        self._saving: Future[Any] | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._listing_lock = threading.Lock()

    def is_settled(self, names: Sequence[str]) -> bool:
        """True when nothing is to be asked, so that a lookup needs no thread and no time."""
        has_news = self._opening is None or any(feed.is_due for feed in self.all)
        return not has_news and not self._askable(names) and all(feed.has_tried for feed in self.all)

    def settle(self, names: Sequence[str] = ()) -> None:
        """Have what is due asked, wait for it as long as it is worth, and ask about names where nothing is listed."""
        self._notice_fork()
        self._open()
        is_cold = not all(feed.has_tried for feed in self.all)
        job, is_new = self._join()
        if job is not None and (is_cold or is_new):
            wait([job], self._timeout_seconds + GRACE_SECONDS if is_cold else GRACE_SECONDS)
        self._ask(names)

    def finish(self) -> bool:
        """Wait for a refresh that is under way, and say whether there was one."""
        job = self._round
        if job is None:
            return False
        return not wait([job], self._timeout_seconds + GRACE_SECONDS).not_done

    def refresh(self) -> None:
        """Ask every source now, also those that failed a moment ago, and wait: for each only its limited time."""
        self._notice_fork()
        self._open()
        self.finish()  # what was asked before this call does not count
        self._join(force=True)
        self.finish()
        if self._saving is not None:
            wait([self._saving], self._timeout_seconds)

    def states(self) -> tuple[SourceState, ...]:
        """Return how each source is doing."""
        return tuple(state_of(feed, self._clock()) for feed in self.all)

    def _notice_fork(self) -> None:
        """Forget threads that did not survive a fork; nobody would ever end them."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._opening = self._round = self._saving = None

    def _open(self) -> None:
        """Read what is stored, once."""
        with self._lock:
            if self._opening is None:
                self._opening = _started(self._restore)
        wait([self._opening], self._timeout_seconds)

    def _restore(self) -> None:
        stored = self._cache.load() if self._cache else {}
        for feed in self.all:
            if feed.is_stored and feed.key in stored:
                feed.restore(stored[feed.key])
        if stored:
            self._list()

    def _join(self, *, force: bool = False) -> tuple[Future[Any] | None, bool]:
        """The refresh under way, or a new one when something is due; and whether it is new."""
        with self._lock:
            if self._round is not None and not self._round.done():
                return self._round, False
            due = [feed for feed in self.all if force or feed.is_due]
            if not due and not (force and self._beside):
                return None, False
            self._round = _started(partial(self._refresh, due))
            return self._round, True

    def _refresh(self, due: Sequence[Feed]) -> None:
        jobs = {feed: _started(partial(self._fetch, feed)) for feed in due}
        others = [_started(work) for work in self._beside]
        late = wait([*jobs.values(), *others], self._timeout_seconds).not_done
        for feed, job in jobs.items():
            if job in late or not feed.has_tried:  # the latter where no thread was to be had
                feed.give_up(self._timeout_seconds)
        self._list()
        self._save([feed for feed, job in jobs.items() if job not in late])

    def _fetch(self, feed: Feed) -> None:
        if feed.fetch():
            self._list()

    def _askable(self, names: Sequence[str]) -> list[tuple[Feed, str]]:
        return [(feed, name) for feed in self.all for name in names if feed.is_askable(name)]

    def _ask(self, names: Sequence[str]) -> None:
        jobs = {_started(partial(feed.ask, name)): feed for feed, name in self._askable(names)}
        if not jobs:
            return
        done, late = wait(jobs, self._timeout_seconds)
        for feed in {jobs[job] for job in late}:
            feed.give_up(self._timeout_seconds)
        if any(job.result() for job in done):
            self._list()

    def _list(self) -> None:
        with self._listing_lock:
            claims = [claim for feed in self.all for claim in feed.claims()]
            self.listing = Listing(claims, self.listing)

    def _save(self, fetched: Sequence[Feed]) -> None:
        stored = {feed.key: feed.snapshot for feed in fetched if feed.is_stored and not feed.fault and feed.snapshot}
        if self._cache and stored:
            self._saving = _started(partial(self._cache.save, stored))


def _started(work: Callable[[], Any]) -> Future[Any]:
    """The work in a daemon thread; done at once, with nothing, when there is no thread to be had."""
    try:
        return in_few_daemons(work)
    except RuntimeError:
        nothing: Future[Any] = Future()
        nothing.set_result(None)
        return nothing
