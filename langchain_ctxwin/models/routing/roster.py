"""Which candidates stand, with their facts as they are now?"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.daemon import in_few_daemons
from langchain_ctxwin.errors import ConfigError, ContextWindowError, UnknownModelError
from langchain_ctxwin.models.routing.candidates import Candidate, Given, Registry, candidate, candidates_of
from langchain_ctxwin.models.routing.experience import Experience
from langchain_ctxwin.protocols import Clock

FACTS_SECONDS = 60.0
"""How long facts of the registry are used before it is asked again: it keeps its own, longer time to live."""


class Roster:
    """The candidates of a router; their facts follow the registry, and what providers said about limits."""

    def __init__(
        self,
        given: Sequence[Given] | Mapping[str, Given],
        registry: Registry | None,
        experience: Experience,
        *,
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._experience = experience
        self._clock = clock
        self._read = candidates_of(given, registry)
        self._read_at = clock()
        self._reading: Future[Any] | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def current(self) -> tuple[Candidate, ...]:
        """Return the candidates in the order they were given, at once: facts that are old serve until newer arrive."""
        if self._registry is not None and self._clock() - self._read_at >= FACTS_SECONDS:
            self._begin_reading()
        return tuple(map(self._experience.informed, self._read))

    def named(self, name: str) -> Candidate:
        """Return one candidate.

        Raises:
            ConfigError: there is none of this name.
        """
        return self._experience.informed(self._as_read(name))

    def _as_read(self, name: str) -> Candidate:
        """The candidate by its facts alone, without what it was heard to say."""
        for known in self._read:
            if known.name == name:
                return known
        raise ConfigError(f"route={name!r} is no candidate: use one of {', '.join(self.names())}")

    def names(self) -> list[str]:
        """Return the names of all candidates."""
        return [known.name for known in self._read]

    def refused(self, name: str, overflow: ContextOverflow, *, tokens: int) -> None:
        """Learn from a refusal, and tell the registry the limit that it states, if that holds for everybody."""
        refusing = self._as_read(name)
        stated = self._experience.refused(refusing, overflow, tokens=tokens)
        if stated and self._registry is not None:
            with suppress(ContextWindowError):  # a registry may hold it for no plausible limit: nothing to learn then
                self._registry.learn(refusing.info, stated)

    def accepted(self, name: str, tokens: int) -> None:
        """Tell a registry that forgets wrong limits how large an input was taken."""
        forget = getattr(self._registry, "accepted", None)
        if tokens and forget is not None:
            forget(self._as_read(name).info, tokens)

    def _begin_reading(self) -> None:
        """Have the registry asked in a thread, one at a time: a source may hang, the caller may be an event loop."""
        with self._lock:
            is_reading = self._reading is not None and not self._reading.done()
            if is_reading and self._pid == os.getpid():  # the thread of a parent process does not answer here
                return
            self._read_at, self._pid = self._clock(), os.getpid()
            with suppress(RuntimeError):  # no thread is free: what is known serves for another while
                self._reading = in_few_daemons(self._read_again)

    def _read_again(self) -> None:
        """Take up what the registry says now; when it fails, the future keeps the error and the facts stay."""
        self._read = tuple(map(self._again, self._read))

    def _again(self, known: Candidate) -> Candidate:
        """Ask the registry again; a model that it no longer knows keeps its facts, the provider decides."""
        try:
            return candidate(known.name, known.given, self._registry)
        except UnknownModelError:
            return known


def smallest_limits(candidates: Sequence[Candidate]) -> ModelLimits:
    """Return limits under which a request fits each candidate, beside the answer that each is set to give.

    The largest requested output is left out: it belongs to one candidate's window, and may fill another one's.
    """
    every = [one.limits for one in candidates]
    window = min((one.context_window for one in every if one.context_window is not None), default=None)
    safe_input = min(one.input_limit(one.output_reserve()) for one in every)
    largest = min((one.max_output_tokens for one in every if one.max_output_tokens is not None), default=None)
    if largest is not None and window is not None and largest > window:
        largest = None
    source = "+".join(dict.fromkeys(one.source for one in every))
    joint = ModelLimits(window, None, largest, source=source)
    if window is not None and joint.input_limit(joint.output_reserve()) <= safe_input:
        return joint
    return replace(joint, max_input_tokens=safe_input)
