"""Outcomes: which models did well on which kinds of tasks, counted in any conversation and any process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.background import in_daemon
from langchain_ctxwin.util.files import alone, fault_of, place, replace_text, set_aside
from langchain_ctxwin.util.forks import renew_after_fork
from langchain_ctxwin.util.say_once import SayOnce as Troubles

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
_log = structlog.get_logger(__name__)


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
        self._path = None if path is None else place(path)
        self._clock = clock
        self._saved: Counts = {}  # these three are replaced as a whole, never changed
        self._saving: Counts = {}
        self._new: Counts = {}
        self._troubles = Troubles(path=str(self._path))
        self.renew()
        renew_after_fork(self)
        self.refresh()

    def renew(self) -> None:
        """Make the lock anew and forget the writer; in a forked process, what is unsaved is the parent's to save."""
        self._lock = threading.Lock()
        self._writing: Future[Any] | None = None
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
            if self._path is None:
                self._saved = added(self._saved, one)
                return
            self._new = added(self._new, one)
            if self._writing is None:
                try:  # in a thread: files must not be touched on an event loop
                    self._writing = in_daemon(partial(self._save_all, self._path))
                except RuntimeError as error:  # the process may have no more threads, or is about to end
                    self._troubles.tell("models.outcomes_not_saved", str(error))

    def of(self, bucket: str, model: str) -> Count:
        """Return what is known of a model on a kind of task: no trials when nothing is."""
        cell: Cell = (bucket, model)
        nothing = Count()
        with self._lock:
            parts = [counts.get(cell, nothing) for counts in (self._saved, self._saving, self._new)]
        return parts[0].plus(parts[1]).plus(parts[2])

    def refresh(self) -> None:
        """Take over what other processes saved. Reads the file: in async code call it in a thread."""
        if self._path is None:
            return
        try:
            stored = _read_file(self._path)
        except OSError as error:
            self._troubles.tell("models.outcomes_unreadable", fault_of(error))
            return
        self._troubles.tell("models.outcomes_unreadable", stored.fault)
        with self._lock:
            if not self._saving and stored.counts:  # else the writer is about to take over the same and more
                self._saved = stored.counts

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was recorded is saved, or could not be; false when that takes longer. Blocks its thread."""
        writing = self._writing
        return writing is None or not wait([writing], timeout_seconds).not_done

    def _save_all(self, path: Path) -> None:
        """Save until nothing new is left, or it fails: what failed is kept and tried again with the next outcome."""
        while True:
            with self._lock:
                if not self._new:
                    self._writing = None
                    return
                self._saving, self._new = self._new, {}
            try:
                saved = self._save(path)
            except OSError as error:
                self._troubles.tell("models.outcomes_not_saved", fault_of(error))
                saved = None
            with self._lock:
                if saved is None:
                    self._new, self._saving, self._writing = added(self._saving, self._new), {}, None
                    return
                self._saved, self._saving = saved, {}

    def _save(self, path: Path) -> Counts | None:
        """Add the new counts to the file and return all; None when the file must stay as it is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path):
            stored = _read_file(path)
            if stored.is_newer:
                self._troubles.tell("models.outcomes_not_saved", stored.fault)
                return None
            if stored.fault:
                _log.info("models.outcomes_set_aside", path=str(path), moved_to=str(set_aside(path)))
            counts = added(stored.counts, self._saving)
            buckets: dict[str, dict[str, Any]] = {}
            for (bucket, model), count in counts.items():
                buckets.setdefault(bucket, {})[model] = asdict(count)
            replace_text(path, json.dumps({"version": FILE_VERSION, "outcomes": buckets}, indent=1, sort_keys=True))
        self._troubles.tell("models.outcomes_not_saved", "")
        return counts


def added(one: Counts, other: Counts) -> dict[Cell, Count]:
    """Return the sums per cell; of more than `MAX_CELLS` the ones that were heard of last."""
    nothing = Count()
    both = {cell: one.get(cell, nothing).plus(other.get(cell, nothing)) for cell in chain(one, other)}
    if len(both) <= MAX_CELLS:
        return both
    newest = sorted(both, key=lambda cell: (both[cell].at, cell))[-MAX_CELLS:]
    return {cell: both[cell] for cell in newest}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What a file holds, and what is wrong with it."""

    counts: Counts = field(default_factory=dict)
    fault: str = ""
    is_newer: bool = False
    """Written by a later version of this package: it is not replaced."""


def _read_file(path: Path) -> _File:
    """Return what the file holds: nothing when it is missing, what is valid in it when it has a fault.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return _File()
    except (ValueError, RecursionError) as error:
        return _File(fault=f"not JSON: {error}")
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > FILE_VERSION:
        return _File(fault=f"of version {version}, newer than {FILE_VERSION}", is_newer=True)
    buckets = document.get("outcomes") if version == FILE_VERSION else None
    if not isinstance(buckets, dict):
        return _File(fault=f"not outcomes of version {FILE_VERSION}")
    return _valid_cells(buckets)


def _valid_cells(buckets: dict[str, Any]) -> _File:
    """What is valid in the file; what is not is left out and said."""
    counts: dict[Cell, Count] = {}
    invalid: list[str] = []
    adapter = TypeAdapter(Count)
    for bucket, models in buckets.items():
        for model, value in models.items() if isinstance(models, dict) else [("", models)]:
            try:
                count = adapter.validate_python(value)
            except ValidationError:
                count = None
            if count is None or count.successes > count.trials or not (bucket and model):
                invalid.append(f"{bucket}.{model}")
            else:
                counts[bucket, model] = count
    fault = f"{len(invalid)} invalid entries, the first is {invalid[0]!r}" if invalid else ""
    return _File(counts=added(counts, {}), fault=fault)
