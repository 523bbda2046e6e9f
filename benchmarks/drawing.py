"""Draws figures that benchmarks have printed. Every point is read from the text that stands beside the plot."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # Okabe and Ito's, told apart by everybody
INK, GRID = "#333333", "#dddddd"

ARMS = ("ours", "newest only", "drop to half", "drop and list")
SHARES = re.compile(rf"^ *(\d+) ({'|'.join(ARMS)}) +(\d+) +([\d.]+)(?: +[\d.]+){{4}} +(\d+) +\d+$", re.MULTILINE)
WAYS = ("the same objects", "loaded anew", "first sight")
STEPS = re.compile(rf"^({'|'.join(WAYS)}) +([\d,]+)((?: +[\d.]+)+)$", re.MULTILINE)
STEP_HEAD = re.compile(r"^ms per step +messages (.*)$", re.MULTILINE)
METHODS = ("TokenEstimator", "len // 4", "count_tokens_approx.", "exact o200k as a proxy")
ERRORS = re.compile(rf"^(\w+) +({'|'.join(map(re.escape, METHODS))}) +([\d.]+) +([\d.]+)", re.MULTILINE)
OTHER_PROJECTS = "Messages of recorded agents"
SELF_WRITTEN = "Self-written"
BILLS = re.compile(r"^(\S.{23})(ours|langchain|drop to half|never) +([\d,]+) ", re.MULTILINE)
BILLED_ARMS = ("ours", "langchain", "drop to half", "never")
WINDOW = re.compile(r"^window ([\d,]+):", re.MULTILINE)


def draw(texts: dict[str, str], folder: Path) -> dict[str, list[str]]:
    """Draw what there is a plot for; return the names of the files by benchmark. Older plots are removed."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.family": "sans-serif"})
    mpl.rcParams.update({"font.size": 9, "text.color": INK, "axes.edgecolor": INK, "axes.spines.top": False})
    mpl.rcParams.update({"axes.spines.right": False, "axes.grid": True, "grid.color": GRID, "legend.frameon": False})
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    drawn: dict[str, list[str]] = {}
    for name, make in PLOTS.items():
        if figure := make(texts.get(name, "")):
            file = f"{re.sub(r'[^a-z]+', '_', name)}.svg"
            figure.savefig(folder / file, metadata={"Date": None, "Creator": None})
            drawn[name] = [file]
    return drawn


def panels(number: int, *, width: float = 3.4, height: float = 3.0, share_y: bool = True):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(4.5, width * number), height), layout="constrained")
    return figure, figure.subplots(1, number, sharey=share_y, squeeze=False)[0]


def sufficiency(text: str):
    """What requests show against what they are billed, by policy; a panel for each window."""
    rows = [
        (int(w), arm, float(shown), int(billed))
        for w, arm, values, shown, billed in SHARES.findall(text)
        if int(values)
    ]
    windows = list(dict.fromkeys(window for window, *_ in rows))
    if not rows:
        return None
    figure, axes = panels(len(windows))
    for axis, window in zip(axes, windows, strict=True):
        for arm, color in zip(ARMS, COLORS, strict=True):
            points = [(billed, shown) for at, of, shown, billed in rows if (at, of) == (window, arm)]
            axis.plot(*zip(*points, strict=True), "o", color=color, markersize=7, label=arm)
        axis.set_title(f"window of {window:,} tokens")
        axis.set_xlim(left=0)
        axis.set_xlabel("billed input tokens per call")
    axes[0].set_ylabel("share of needed values shown")
    legend_below(figure, axes[0])
    return figure


def step_cost(text: str):
    """Processor time of a step against the length of the history; a panel for each way to meet it."""
    head, rows = STEP_HEAD.search(text), STEPS.findall(text)
    if head is None or not rows:
        return None
    names = re.split(r" {2,}", head[1].strip())
    figure, axes = panels(len(WAYS))
    for axis, way in zip(axes, WAYS, strict=True):
        lines = [(int(size.replace(",", "")), list(map(float, cells.split()))) for at, size, cells in rows if at == way]
        for number, (name, color) in enumerate(zip(names, COLORS, strict=True)):
            axis.plot([size for size, _ in lines], [cells[number] for _, cells in lines], "o-", color=color, label=name)
        axis.set(xscale="log", yscale="log", title=way, xlabel="messages in the history")
    axes[0].set_ylabel("milliseconds per step")
    legend_below(figure, axes[0])
    return figure


def tokens(text: str):
    """Mean error by family: on messages of projects that nothing was fitted to, else on self-written texts."""
    sections = {part.strip().partition(":")[0]: part for part in text.split("\n\n")}
    title = next((t for start in (OTHER_PROJECTS, SELF_WRITTEN) for t in sections if t.startswith(start)), None)
    if title is None:
        return None
    rows = {(family, method): float(mean) for family, method, mean, _ in ERRORS.findall(sections[title])}
    families = list(dict.fromkeys(family for family, _ in rows))
    figure, (axis,) = panels(1, width=6.5)
    grouped_bars(axis, families, METHODS, rows)
    axis.set(title=title, ylabel="mean error, %")
    legend_below(figure, axis)
    return figure


def provider_bills(text: str):
    """Bill per call by each provider's cache rules; a panel for each window."""
    parts = WINDOW.split(text)
    found = {window: bills(part) for window, part in zip(parts[1::2], parts[2::2], strict=True)}
    if not found:
        return None
    figure, axes = panels(len(found), width=4.6, height=4.2)
    for axis, (window, rows) in zip(axes, found.items(), strict=True):
        rules = list(dict.fromkeys(rule for rule, _ in rows))
        grouped_bars(axis, rules, BILLED_ARMS, rows)
        axis.set_xticks(axis.get_xticks(), rules, rotation=40, ha="right", fontsize=7)
        axis.set_title(f"window of {window} tokens")
    axes[0].set_ylabel("billed per call, in uncached input tokens")
    legend_below(figure, axes[0])
    return figure


def bills(part: str) -> dict[tuple[str, str], float]:
    rows = BILLS.findall(part)
    return {(rule.strip(), arm): float(total.replace(",", "")) for rule, arm, total in rows}


def grouped_bars(axis, groups, series, values: dict[tuple[str, str], float]) -> None:
    width = 0.8 / len(series)
    for number, (name, color) in enumerate(zip(series, COLORS, strict=True)):
        places = [at + (number - (len(series) - 1) / 2) * width for at in range(len(groups))]
        axis.bar(places, [values[group, name] for group in groups], width * 0.9, color=color, label=name)
    axis.set_xticks(range(len(groups)), groups)
    axis.grid(visible=False, axis="x")
    axis.set_axisbelow(True)


def legend_below(figure, axis) -> None:
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)


PLOTS: dict[str, Callable[[str], object]] = {
    "sufficiency": sufficiency,
    "cost, providers": provider_bills,
    "step_cost": step_cost,
    "tokens": tokens,
}
"""What is drawn of which benchmark, by its name in run.py."""
