"""Outcomes: which models did well on which kinds of tasks, counted in any conversation and any process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.background import Worker
from langchain_ctxwin.util.files import SharedFile, place, read_table
from langchain_ctxwin.util.forks import renew_after_fork

FLUSH_SECONDS = 5.0
"""How long `flush` waits unless told: a file of this size takes milliseconds, on a network folder perhaps a second."""

MAX_NAME_CHARS = 256
"""Longest name of a bucket or a model that is kept, so that the file stays small; far above any name in use."""

MAX_TRIALS = 200.0
"""Trials after which older ones count for less, so that a model that changed under its name is judged anew: a share of
successes is then known to about 3 points."""

MAX_CELLS = 4096
"""Pairs of a bucket and a model that are kept: fifty models in every bucket; about half a megabyte."""

LARGEST = 1e12
"""Numbers above it are no times and no counts; the times of the next thirty thousand years are below."""

FILE_VERSION = 1

_Number = Annotated[float, Field(ge=0, le=LARGEST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Outcomes of one model on one kind of task."""

    successes: _Number = 0.0
    trials: _Number = 0.0
    at: _Number = 0.0
    """When the latest was recorded, in seconds since the epoch."""

    def plus(self, other: Count) -> Count:
        """Return both together, scaled down to `MAX_TRIALS` when there are more."""
        trials = self.trials + other.trials
        share = min(1.0, MAX_TRIALS / trials) if trials else 1.0
        return Count(
            successes=(self.successes + other.successes) * share, trials=trials * share, at=max(self.at, other.at)
        )


Cell = tuple[str, str]
"""Bucket and model."""

Counts = Mapping[Cell, Count]


class Outcomes:
    """Counts successes and trials per model and task bucket; thread-safe and bounded.

    With a path, counts are kept in a JSON file that processes may share: each adds what it recorded itself, so none
    loses what another saved. It is read when the object is made and by `refresh`, and written in a background thread
    after `record`. Call `flush` before the program ends. Trouble with the file is logged and never raised: counting
    goes on in memory. A file with a fault is set aside as `<name>.corrupt` before it is replaced; one of a newer
    version is left alone. A lock file `<name>.lock` beside it stays.

    Raises:
        ConfigError: the path names no place.

    Example:
        >>> outcomes = Outcomes()
        >>> outcomes.record("math/hard", "small", success=True)
        >>> outcomes.of("math/hard", "small").trials
        1.0
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Clock = time.time) -> None:
        self._file = (
            path
            if path is None
            else SharedFile[Counts](
                place(path), events="models.outcomes", version=FILE_VERSION, empty={}, read=_read_counts, write=_written
            )
        )
        self._clock = clock
        self._saved: Counts = {}  # these three are replaced as a whole, never changed
        self._saving: Counts = {}
        self._new: Counts = {}
        self._worker = Worker("ctxwin-outcomes")
        self.renew()
        renew_after_fork(self)
        self.refresh()

    def renew(self) -> None:
        """Make the lock anew; in a forked process, what is unsaved is the parent's to save."""
        self._lock = threading.Lock()
        self._saved, self._saving, self._new = added(self._saved, added(self._saving, self._new)), {}, {}

    def record(self, bucket: str, model: str, *, success: bool) -> None:
        """Count one outcome; returns at once, also on an event loop.

        Raises:
            ConfigError: a name is empty or too long, or `success` is no boolean; nothing was counted.
        """
        for what, name in (("bucket", bucket), ("model", model)):
            if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
                raise ConfigError(f"{what}={name!r}: give a name of 1 to {MAX_NAME_CHARS} characters")
        if not isinstance(success, bool):
            raise ConfigError(f"success={success!r}: give True or False")
        one = {(bucket, model): Count(successes=float(success), trials=1.0, at=self._clock())}
        with self._lock:
            if self._file is None:
                self._saved = added(self._saved, one)
                return
            self._new = added(self._new, one)
        try:  # in a thread: files must not be touched on an event loop; a task that waits saves this one too
            self._worker.submit(partial(self._save_new, self._file))
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._file.not_saved(str(error))

    def of(self, bucket: str, model: str) -> Count:
        """Return what is known of a model on a kind of task: no trials when nothing is."""
        cell: Cell = (bucket, model)
        nothing = Count()
        with self._lock:
            parts = [counts.get(cell, nothing) for counts in (self._saved, self._saving, self._new)]
        return parts[0].plus(parts[1]).plus(parts[2])

    def refresh(self) -> None:
        """Take over what other processes saved. Reads the file: in async code call it in a thread."""
        stored = self._file.read() if self._file else None
        with self._lock:
            if stored and not self._saving:  # else the writer is about to take over the same and more
                self._saved = stored

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was recorded is saved, or could not be; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)

    def _save_new(self, file: SharedFile[Counts]) -> None:
        """Save what is new; what fails is kept and tried again with the next outcome."""
        with self._lock:
            self._saving, self._new = self._new, {}
        saved = file.update(lambda stored: added(stored, self._saving))
        with self._lock:
            if saved is None:
                self._new = added(self._saving, self._new)
            else:
                self._saved = saved
            self._saving = {}


def added(one: Counts, other: Counts) -> dict[Cell, Count]:
    """Return the sums per cell; of more than `MAX_CELLS` the ones that were heard of last."""
    nothing = Count()
    both = {cell: one.get(cell, nothing).plus(other.get(cell, nothing)) for cell in chain(one, other)}
    if len(both) <= MAX_CELLS:
        return both
    newest = sorted(both, key=lambda cell: (both[cell].at, cell))[-MAX_CELLS:]
    return {cell: both[cell] for cell in newest}


def _read_counts(content: bytes) -> tuple[Counts, str]:
    counts, fault = read_table(content, version=FILE_VERSION, key="outcomes", read=_read_count)
    return added(counts, {}), fault


def _read_count(bucket: str, model: str, value: Any) -> Count | None:
    try:
        count = _COUNT.validate_python(value)
    except ValidationError:
        return None
    return count if bucket and model and count.successes <= count.trials else None


def _written(counts: Counts) -> str:
    buckets: dict[str, dict[str, Any]] = {}
    for (bucket, model), count in counts.items():
        buckets.setdefault(bucket, {})[model] = asdict(count)
    return json.dumps({"version": FILE_VERSION, "outcomes": buckets}, indent=1, sort_keys=True)


_COUNT = TypeAdapter(Count)
