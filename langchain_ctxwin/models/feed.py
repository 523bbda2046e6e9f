"""What did one source state last, is it due to be asked again, and may it be asked now?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.memo import Lru
from langchain_ctxwin.models.cache import Snapshot
from langchain_ctxwin.models.merging import TIERS, Claim
from langchain_ctxwin.models.sound import is_sound
from langchain_ctxwin.models.troubles import Troubles, reason_of
from langchain_ctxwin.protocols import Clock, ModelSource
from langchain_ctxwin.util.fork import renew_after_fork

DEFAULT_TIER = "provider"

STORED_TIERS = frozenset({"provider", "catalog"})
"""Tiers whose snapshots are kept on disk: the others answer from memory, and what the caller states may change."""

JITTER = 0.1
"""Part of the time to live by which a refresh comes early, so that processes started together do not ask together."""

FIRST_PAUSE_SECONDS = 10.0
"""Pause after a first failure: longer than a time box, so that a dead source takes little of anybody's time."""

LONGEST_PAUSE_SECONDS = 300.0
"""Pause at most, however often it failed: a source that is back is noticed within five minutes."""

MAX_DOUBLINGS = 10
"""Enough to reach the longest pause; more would only make a large number."""

MAX_ASKED = 256
"""Answers kept of a source that is asked by name."""


CANNOT_LIST = (NotImplementedError, TypeError, LookupError, AttributeError)
"""What a source raises that was written to answer by name only, and is given no name."""


class GarbageError(Exception):
    """What a source returned are no models; the text names types only."""


class Feed:
    """One source, its last snapshot, and its failures. Thread-safe; whatever the source does stays in here."""

    def __init__(
        self, source: ModelSource, name: str, ttl_seconds: float, clock: Clock, chance: Callable[[], float]
    ) -> None:
        self.name = name
        self.tier = tier_of(source)
        self.key = str(getattr(source, "cache_key", None) or "")
        self.is_stored = bool(self.key) and self.tier in STORED_TIERS  # without a key nobody knows whose facts they are
        self.snapshot: Snapshot | None = None
        self.fault = ""
        self._source = source
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._chance = chance
        self._lives_seconds = ttl_seconds
        self._failures = 0
        self._failed_at = 0.0
        self._pause_seconds = 0.0
        self._sent = self._accepted = self._given_up = 0
        self._known: dict[str, tuple[ModelInfo, ...]] = {}
        self._troubles = Troubles(source=name)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the locks anew; a thread of the parent process may have held them."""
        self._asked: Lru[Snapshot] = Lru(MAX_ASKED)
        self._lock = threading.Lock()

    @property
    def has_tried(self) -> bool:
        """True when the source answered or failed at least once."""
        return self.snapshot is not None or self._failures > 0

    @property
    def is_due(self) -> bool:
        """True when there is no fresh snapshot and no recent failure. A clock that was set back makes it due."""
        now = self._clock()
        return not self._is_paused(now) and not _is_fresh(self.snapshot, now, self._lives_seconds)

    def claims(self) -> list[Claim]:
        """Return all that the source stated."""
        listed = self.snapshot.models if self.snapshot else ()
        named = [info for infos in list(self._known.values()) for info in infos]
        return [Claim(source=self.name, tier=self.tier, info=info) for info in (*listed, *named)]

    def restore(self, snapshot: Snapshot) -> None:
        """Take over what was stored, unless the source answered already."""
        with self._lock:
            if self.snapshot is None:
                self.snapshot = snapshot
                self._renew()

    def fetch(self) -> bool:
        """Ask for everything in this thread, and say whether the answer came too late to be waited for. Never raises.

        A late answer is used all the same, unless a newer one was.
        """
        with self._lock:
            self._sent += 1
            ticket = self._sent
        try:
            models = self._checked(self._source.fetch(None))
        except BaseException as error:  # noqa: BLE001  # a source may fail in any way; this is a thread of its own
            if isinstance(error, CANNOT_LIST) and self.snapshot is None:
                self._accept(ticket, ())  # it may answer by name
            elif ticket > max(self._accepted, self._given_up):
                self.fail(reason_of(error))
            return False
        self._accept(ticket, models)
        return ticket <= self._given_up

    def give_up(self, seconds: float) -> None:
        """Note that nobody waits for the latest question any more."""
        self._given_up = self._sent
        self.fail(f"no answer within {seconds:g} seconds")

    def fail(self, reason: str) -> None:
        """Note a failure, after which the source is left alone for a while, the longer the more often it failed."""
        with self._lock:
            self._failures += 1
            self._failed_at = self._clock()
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, MAX_DOUBLINGS))
            self._pause_seconds = min(pause, self._ttl_seconds) * (1 - self._chance() / 2)
            self.fault = reason
        self._troubles.tell("models.source_failed", reason)

    def is_askable(self, name: str) -> bool:
        """True when the source lists nothing, and was not asked about this name within the time to live."""
        if self.snapshot is None or self.snapshot.models or self.tier == "guess":
            return False
        now = self._clock()
        return not self._is_paused(now) and not _is_fresh(self._asked.get(name), now, self._ttl_seconds)

    def ask(self, name: str) -> bool:
        """Ask about one model in this thread, and say whether anything is known about it now. Never raises."""
        try:
            models = self._checked(self._source.fetch(name))
        except BaseException as error:  # noqa: BLE001  # as in `fetch`
            self.fail(reason_of(error))
            return False
        with self._lock:
            self._asked.put(name, Snapshot(models=models, fetched_at=self._clock()))
            changed = self._known.get(name, ()) != models
            self._known = {k: v for k, v in {**self._known, name: models}.items() if v and self._asked.get(k)}
            self._failures, self.fault = 0, ""
        self._troubles.tell("models.source_failed", "")
        return changed

    def _checked(self, said: Any) -> tuple[ModelInfo, ...]:
        if isinstance(said, str | bytes) or not isinstance(said, Sequence):
            raise GarbageError(f"a {type(said).__name__} instead of a list of models")
        models = tuple(filter(is_sound, said))
        if said and not models:
            raise GarbageError(f"{len(said)} entries, none of them a model")
        dropped = len(said) - len(models)
        self._troubles.tell("models.entries_dropped", f"{dropped} entries are no models" if dropped else "")
        return models

    def _accept(self, ticket: int, models: tuple[ModelInfo, ...]) -> None:
        with self._lock:
            if ticket < self._accepted:
                return
            self._accepted = ticket
            self.snapshot = Snapshot(models=models, fetched_at=self._clock())
            self._renew()
            self._failures, self.fault = 0, ""
            self._known = {} if models else self._known
        self._troubles.tell("models.source_failed", "")

    def _renew(self) -> None:
        self._lives_seconds = self._ttl_seconds * (1 - JITTER * self._chance())

    def _is_paused(self, now: float) -> bool:
        return self._failures > 0 and 0 <= now - self._failed_at < self._pause_seconds


def _is_fresh(snapshot: Snapshot | None, now: float, seconds: float) -> bool:
    return snapshot is not None and 0 <= now - snapshot.fetched_at < seconds


def tier_of(source: object) -> str:
    """Return the tier that a source states; one that is no tier, or none, counts as a provider."""
    tier = getattr(source, "tier", None)
    return tier if tier in TIERS else DEFAULT_TIER
