"""Usage over time as a picture (extra: report)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe.reports import UsageRow

PARTS = {
    "cached_tokens": "input from the cache",
    "written_tokens": "input written to it",
    "new_tokens": "other input",
    "output_tokens": "output",
}


def plot_usage(usage: Sequence[UsageRow], path: Path) -> None:
    """Draw the tokens of all models by day and part, and the utilization of each model's input limit, into a file.

    Raises:
        ConfigError: there is nothing to draw.
        ImportError: matplotlib is not installed.
        OSError, ValueError: the file cannot be written, or the end of its name is no format.
    """
    if not usage:
        raise ConfigError("there are no requests to draw: choose other events, or leave --plot out")
    from matplotlib.figure import Figure  # noqa: PLC0415  # extra `report`

    days = sorted({row.day for row in usage})
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    bottoms = [0] * len(days)
    for name, label in PARTS.items():
        tokens: defaultdict[str, int] = defaultdict(int)
        for row in usage:
            tokens[row.day] += getattr(row, name)
        heights = [tokens[day] for day in days]
        above.bar(days, heights, bottom=bottoms, label=label)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for model in sorted({row.model for row in usage}):
        rows = [row for row in usage if row.model == model and row.of_limit is not None]
        below.plot([row.day for row in rows], [row.of_limit for row in rows], "o-", label=model or "unknown")
    above.set_ylabel("tokens")
    below.set(ylabel="request / input limit (mean)", ylim=(0, None))
    below.tick_params(axis="x", rotation=45)
    above.legend()
    below.legend()
    figure.savefig(path)
