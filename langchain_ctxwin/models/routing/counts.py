"""How often was each model right per task bucket, and how is that kept in a file that several processes share?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from langchain_ctxwin.models.files import replace_text

MAX_TRIALS = 200.0
"""Trials after which older ones count for less, so that a model that changed under its name is judged anew: a share of
successes is then known to about 3 points."""

MAX_CELLS = 4096
"""Pairs of a bucket and a model that are kept: fifty models in every bucket; about half a megabyte."""

LARGEST = 1e12
"""Numbers above it are no times and no counts; the times of the next thirty thousand years are below."""

FILE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Outcomes of one model on one kind of task."""

    successes: float = 0.0
    trials: float = 0.0
    at: float = 0.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a file holds, and what is wrong with it."""

    counts: Counts = field(default_factory=dict)
    fault: str = ""
    is_newer: bool = False
    """Written by a later version of this package: it is not replaced."""


def together(one: Counts, other: Counts) -> dict[Cell, Count]:
    """Return the sums per cell; of more than `MAX_CELLS` the ones that were heard of last."""
    nothing = Count()
    both = {cell: one.get(cell, nothing).plus(other.get(cell, nothing)) for cell in chain(one, other)}
    if len(both) <= MAX_CELLS:
        return both
    newest = sorted(both, key=lambda cell: (both[cell].at, cell))[-MAX_CELLS:]
    return {cell: both[cell] for cell in newest}


def read_file(path: Path) -> Stored:
    """Return what the file holds: nothing when it is missing, what is valid in it when it has a fault.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Stored()
    except (ValueError, RecursionError) as error:
        return Stored(fault=f"not JSON: {error}")
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > FILE_VERSION:
        return Stored(fault=f"of version {version}, newer than {FILE_VERSION}", is_newer=True)
    buckets = document.get("outcomes") if version == FILE_VERSION else None
    if not isinstance(buckets, dict):
        return Stored(fault=f"not outcomes of version {FILE_VERSION}")
    return _valid_cells(buckets)


def replace_file(path: Path, counts: Counts) -> None:
    """Write all counts; a reader sees the old file or the new one, never a part.

    Raises:
        OSError: the file is as it was.
    """
    buckets: dict[str, dict[str, dict[str, float]]] = {}
    for (bucket, model), count in counts.items():
        buckets.setdefault(bucket, {})[model] = asdict(count)
    replace_text(path, json.dumps({"version": FILE_VERSION, "outcomes": buckets}, indent=1, sort_keys=True))


def _valid_cells(buckets: dict[str, Any]) -> Stored:
    counts: dict[Cell, Count] = {}
    invalid: list[str] = []
    for bucket, models in buckets.items():
        for model, value in models.items() if isinstance(models, dict) else [("", models)]:
            count = _count(value)
            if count is None or not (bucket and model):
                invalid.append(f"{bucket}.{model}")
            else:
                counts[bucket, model] = count
    fault = f"{len(invalid)} invalid entries, the first is {invalid[0]!r}" if invalid else ""
    return Stored(counts=together(counts, {}), fault=fault)


def _count(value: object) -> Count | None:
    if not isinstance(value, dict):
        return None
    successes, trials, at = (_plausible(value.get(name)) for name in ("successes", "trials", "at"))
    if successes is None or trials is None or at is None or successes > trials:
        return None
    return Count(successes=successes, trials=trials, at=at)


def _plausible(number: object) -> float | None:
    return float(number) if isinstance(number, int | float) and 0 <= number <= LARGEST else None  # no NaN either
