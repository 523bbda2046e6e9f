"""Outcomes: how often each model answered each kind of task well, in memory or in a file that processes share."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import Field, TypeAdapter

from langchain_ctxwin.errors import expect
from langchain_ctxwin.util.files import SharedFile
from langchain_ctxwin.util.work import Worker

# Trials after which older ones count for less, so that a model that changed under its name is judged anew: a share of
# successes is then known to about 3 points.
MAX_TRIALS = 200.0
PRIOR_TRIALS = 10.0  # outcomes that weigh as much as what is presumed: a share of ten is known to about 15 points
VERSION = 1
MAX_WAITING = 1_000  # outcomes that are not in the file yet; more come only where it takes seconds to write
FLUSH_SECONDS = (
    5.0  # a file of this size takes milliseconds, on a network folder perhaps a second
)

_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Outcomes of one model on one kind of task."""

    successes: _Number = 0.0
    trials: _Number = 0.0

    def plus(self, other: Count) -> Count:
        """Return both together, scaled down to `MAX_TRIALS` when there are more."""
        trials = self.trials + other.trials
        share = min(1.0, MAX_TRIALS / trials) if trials else 1.0
        return Count(
            successes=(self.successes + other.successes) * share, trials=trials * share
        )

    def chance(self, presumed: float) -> float:
        """Return the chance of a good answer, where one was presumed before anything was counted."""
        return (PRIOR_TRIALS * presumed + self.successes) / (PRIOR_TRIALS + self.trials)


Counts = Mapping[str, Mapping[str, Count]]  # by bucket and model
_COUNTS = TypeAdapter(dict[str, dict[str, Count]])
_NONE = Count()


class Outcomes:
    """Counts successes and trials per model and task bucket; thread-safe.

    With a path, counts are kept in a JSON file that processes may share: each adds what it recorded itself. It is read
    when the object is made and written in a background thread after `record`. Call `flush` before the program ends.
    Trouble with the file is logged and never raised: what could not be written counts in this process alone.

    Raises:
        ConfigError: the path names no place, or a file that holds something else, which is never written.

    Examples:
        >>> outcomes = Outcomes()
        >>> outcomes.record("code/high", "small", success=True)
        >>> outcomes.of("code/high", "small").trials
        1.0
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._file = None if path is None else _file_of(path)
        self._counts: Counts = (self._file.read() if self._file else None) or {}
        self._lock = threading.Lock()
        self._worker = Worker("ctxwin-outcomes", max_waiting=MAX_WAITING)

    def record(self, bucket: str, model: str, *, success: bool) -> None:
        """Count one outcome; returns at once, also on an event loop."""
        expect(success, bool, "success", "True or False")
        one = {bucket: {model: Count(successes=float(success), trials=1.0)}}
        with self._lock:
            self._counts = added(self._counts, one)
        if self._file is not None:
            # in a thread: files must not be touched on an event loop
            add = partial(added, one)
            self._worker.submit(partial(self._file.update, add))

    def of(self, bucket: str, model: str) -> Count:
        """Return what is known of a model on a kind of task: no trials when nothing is."""
        return self._counts.get(bucket, {}).get(model, _NONE)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was recorded is saved, or could not be; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)


def added(one: Counts, other: Counts) -> Counts:
    """Return the sums per bucket and model."""
    both = {bucket: dict(models) for bucket, models in one.items()}
    for bucket, models in other.items():
        summed = both.setdefault(bucket, {})
        for model, count in models.items():
            summed[model] = summed.get(model, _NONE).plus(count)
    return both


def _file_of(path: str | os.PathLike[str]) -> SharedFile[Counts]:
    """The file that keeps counts."""
    return SharedFile(
        path, events="models.outcomes", key="outcomes", version=VERSION, values=_COUNTS
    )
