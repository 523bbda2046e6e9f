"""What has happened with each candidate so far: failures it rests from, limits it stated, how long its answers take."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from langchain_ctxwin.core.limits import Known, for_everybody, stated_limit, unrefuted
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.recovery import BLIND_STEP, lowered, smaller_of
from langchain_ctxwin.memo import AcceptedSizes
from langchain_ctxwin.models.memories import declared_limits
from langchain_ctxwin.models.routing.candidates import Candidate
from langchain_ctxwin.protocols import Clock

RECENT_ANSWERS = 20
"""Answers whose time counts: the median of fewer jumps, that of more is late to notice a slow day."""

HEARD_SECONDS = 3_600.0
"""How long a limit that was met is obeyed here. After the hour one refused request finds out whether it was raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    what: str
    until: float
    """When the candidate has rested enough, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    limits: Mapping[str, int]
    until: float


class Experience:
    """Thread-safe memory of one router; losing it costs a few refused requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}
        self._heard: dict[str, _Heard] = {}
        self._seconds: dict[str, deque[float]] = {}
        self._accepted = AcceptedSizes(clock)

    def failed(self, name: str, what: str, *, rest_seconds: float) -> None:
        """Let a candidate rest."""
        with self._lock:
            self._failures[name] = _Failure(what=what, until=self._clock() + rest_seconds)

    def answered(self, name: str, seconds: float, *, tokens: int = 0) -> None:
        """Take up how long an answer took, and the input it was reported to be for; whoever answers is well."""
        self._accepted.note(name, tokens)
        with self._lock:
            self._failures.pop(name, None)
            if heard := self._heard.get(name):
                self._heard[name] = replace(heard, limits=unrefuted(heard.limits, tokens))
            self._seconds.setdefault(name, deque(maxlen=RECENT_ANSWERS)).append(max(0.0, seconds))

    def resting(self, name: str) -> str:
        """Return why a candidate rests, and for how long; empty when it does not."""
        failure = self._failures.get(name)
        left = failure.until - self._clock() if failure else 0.0
        return f"failed ({failure.what}), rests for {left:.0f} s more" if failure and left > 0 else ""

    def seconds(self, name: str) -> float | None:
        """Return how long an answer usually takes; None before the first one."""
        with self._lock:
            known = self._seconds.get(name)
            return median(known) if known else None

    def refused(self, candidate: Candidate, overflow: ContextOverflow, *, tokens: int) -> Mapping[str, int]:
        """Remember the limit that a refusal states, or one below the refused size when it states none.

        Both hold for every conversation, so one that only its own conversation may believe is not kept. What was stated
        and kept is returned.
        """
        if overflow.said_by == "request":
            return {}
        accepted = self._accepted.of(candidate.name)
        known = Known(limits=candidate.limits, accepted_tokens=accepted, refused_tokens=tokens)
        declared = declared_limits(candidate.info)
        stated = for_everybody(stated_limit(overflow, known), declared)
        inferred = {} if overflow.limit else {"max_input_tokens": int(BLIND_STEP * tokens)}
        if limits := stated or unrefuted(for_everybody(inferred, declared), accepted):
            with self._lock:
                both = smaller_of(self._live(candidate.name), limits)
                self._heard[candidate.name] = _Heard(limits=both, until=self._clock() + HEARD_SECONDS)
        return stated

    def informed(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the limits it was heard to have, where those are smaller."""
        heard = self._live(candidate.name)
        return replace(candidate, limits=lowered(candidate.limits, heard)) if heard else candidate

    def _live(self, name: str) -> Mapping[str, int]:
        heard = self._heard.get(name)
        return heard.limits if heard and heard.until > self._clock() else {}
