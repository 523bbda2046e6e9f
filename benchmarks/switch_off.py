"""What is each mechanism worth? It is replaced by nothing or by something plain, and the other benchmarks run again.

One row each of `switches.ROWS`. A figure that stays what it is with everything on is shown as a dot; a row of dots
shows a mechanism that nothing here pays for. `--help` says how to run some of them.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import multiprocessing
import os
import pkgutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import structlog

import langchain_ctxwin
import sufficiency
import usage_sizes
from arena_parts.managers import MANAGERS
from arena_parts.play import Job, Outcome
from arena_parts.play import play as play_scenario
from arena_parts.scenarios import CLOCK, SCENARIOS
from arena_parts.score import row as arena_row
from calibration import in_words, percent
from odd_servers import SERVERS, served
from step_cost import ROOMY, SMALL, history
from step_cost import cost as step_milliseconds
from step_cost import ours as our_step
from switches import ROWS, Row, SeamGoneError, applied
from transcripts import Transcript, generate, load
from usage_replay import OURS as OUR_COUNT
from usage_replay import replayed

WINDOWS = (4_096, 8_192)
QUICK_SCENARIOS = ("parallel", "json_rows", "long_message")
WAITING_SHARE = 3
MEASURE_SECONDS = 900
SUMMARY_SECONDS = 60.0
SPEED_TOLERANCE = 0.25
"""Part by which milliseconds differ from run to run."""

Figures = dict[str, str]
"""What a measure says, one cell each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How thoroughly to measure, and on what."""

    data: Path | None
    is_quick: bool

    def __call__(self, quick: Any, full: Any) -> Any:
        return quick if self.is_quick else full

    @property
    def conversations(self) -> tuple[Transcript, ...]:
        return _conversations(self.data, self(1, 7))


@lru_cache(maxsize=2)
def _conversations(data: Path | None, per_file: int) -> tuple[Transcript, ...]:
    return tuple(sufficiency.conversations(data, (), per_file, None))


@lru_cache(maxsize=1)
def _talks(data: Path | None) -> list[Any]:
    return sorted(usage_sizes.load(data), key=lambda talk: -len(talk.points))


def _waiting(start: Any) -> Any:
    def started(self: Any, *given: Any, **named: Any) -> bool:
        is_begun = start(self, *given, **named)
        self.drain(SUMMARY_SECONDS)
        return bool(is_begun)

    return started


PROMPT = Row(name="summaries take no time", seams={"summarize.jobs:SummaryJobs.start": _waiting})
"""Otherwise figures would depend on how busy the machine is."""


# ---- the measures ---------------------------------------------------------------------------------------------------


def shown_values(how: How) -> Figures:
    """Of the values that the next call needs: all, those last seen long ago, and the steps that have all of theirs."""
    chosen = how.conversations
    figures = Figures()
    for window in WINDOWS:
        jobs = [sufficiency.Job(transcript=t, window=window, arms=(sufficiency.OURS,)) for t in chosen]
        tally = sum((tally for _, tally in sufficiency.played(jobs)), sufficiency.Tally())
        shares = [sufficiency.share(tally, sufficiency.OURS, group) for group in ("all", "far", "steps")]
        name = f"{window // 1024}k"
        figures[f"{name} all/far/steps"] = "/".join(f"{share:.3f}".removeprefix("0") for share in shares)
        figures[f"{name} billed"] = f"{sufficiency.billed(tally, sufficiency.OURS):,.0f}"
        figures[f"{name} over+refused"] = f"{tally[sufficiency.OURS, 'over']}+{tally['', 'refused']}"
    return figures


def arena(how: How, manager: str = "ours-nodes") -> Figures:
    """Scripted agents with a strict provider, at 8,192 tokens; a summary is there as soon as it is begun."""
    names = how(QUICK_SCENARIOS, [name for name in SCENARIOS if name != CLOCK])
    jobs = [Job(manager=manager, scenario=name, window=WINDOWS[-1]) for name in names]
    outcomes: list[Outcome] = []
    with applied(PROMPT), multiprocessing.Pool(WAITING_SHARE * (os.cpu_count() or 1), maxtasksperchild=4) as pool:
        outcomes.extend(pool.imap_unordered(play_scenario, jobs, chunksize=1))
    total = arena_row(outcomes)
    prefix = "" if manager == "ours-nodes" else f"{manager} "
    return {
        f"{prefix}failed/invalid/false": f"{total.failed}/{total.invalid}/{total.false_refusals}",
        f"{prefix}facts at end": f"{total.facts_at_end:.2f}",
        f"{prefix}prefix": f"{total.stable:.2f}",
        f"{prefix}cost": f"{total.cost:.2f}",
    }


def calibration(how: How) -> Figures:
    """Errors of counts in % before the request is sent, mean / 95 % quantile."""
    every = _talks(how.data)
    talks = every[how(len(every) // 4, 0) :: how(20, 3)]  # the longest come first
    with multiprocessing.Pool(os.cpu_count()) as pool:
        found = [sighting for one in pool.imap(replayed, talks, chunksize=1) for sighting in one]
    following = [s for s in found if s.kind == "next" and s.responses]
    compacted = [s for s in found if s.kind == "compacted"]
    first = [s for s in found if s.kind == "next" and not s.responses and s.source in usage_sizes.WHOLE]
    return {
        "first": in_words([s.error(OUR_COUNT) for s in first]),
        "next": in_words([s.error(OUR_COUNT) for s in following]),
        "compacted": in_words([s.error(OUR_COUNT) for s in compacted]),
        "above %": f"{percent([s.true > s.upper for s in following]):.1f}",
        "width %": f"{mean(s.upper / s.counts[OUR_COUNT] - 1 for s in following) * 100:.1f}",
    }


def speed(how: How) -> Figures:
    """Milliseconds of processor time of one step, by way of meeting the history: the same objects, loaded, new."""
    found = list(load(how.data, limit=5)) if how.data else [generate(seed) for seed in range(4)]
    tools = next(t.tools for t in found if t.tools)
    figures = Figures()
    for size in how((1_000,), (1_000, 10_000)):
        messages = history(found, size)
        for name, window in (("all", ROOMY), ("32k", SMALL)):
            ways = ("the same objects", "loaded anew", "first sight")
            spent = [step_milliseconds(messages, partial(our_step, tools, window), way) for way in ways]
            figures[f"ms {size:,} {name}"] = "/".join(f"{ms:.1f}" for ms in spent)
    return figures


def odd_servers(how: How) -> Figures:
    """Servers that state, cut and count in ways of their own: refused/cut requests of all, mean part of the limit."""
    chosen = how.conversations[:: how(2, 3)]
    figures = Figures()
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for name in SERVERS:
            tallies = pool.map(partial(served, name), chosen, chunksize=1)
            total = sum(tallies[1:], tallies[0])
            sent = total["filled"] / max(1, total["answered"])
            figures[name] = f"{total['refused']}/{total['cut']} of {total['requests']}, {sent:.2f}"
    return figures


def recall(how: How) -> Figures:
    """Part of the evidence that one search brings, in short and in long messages."""
    if how.data is None:
        return {}
    memory = importlib.import_module("memory")
    chats = list(memory.load(how.data, with_times=False))[: how(4, None)]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        rows = pool.map(found_evidence, chats, chunksize=1)
    figures = Figures()
    for group in dict.fromkeys(chat.group for chat in chats):
        mine = [row for chat, row in zip(chats, rows, strict=True) if chat.group == group]
        figures[f"recall {group}"] = f"{sum(hit for hit, _ in mine) / sum(all_ for _, all_ in mine):.3f}"
    return figures


def found_evidence(chat: Any) -> tuple[int, int]:
    """How many texts of evidence a search shows, and of how many."""
    from langchain_ctxwin.recall import search_messages

    hits = wanted = 0
    for question in chat.questions:
        found = search_messages(chat.messages, question.text, max_tokens=2_000)
        shown = [(excerpt.message.id, excerpt.text) for excerpt in found.excerpts]
        wanted += len(question.evidence)
        hits += sum(any(key == one and text in told for one, told in shown) for key, text in question.evidence)
    return hits, wanted


def conformance(_: How) -> Figures:
    """Cases of the conformance suite that pass."""
    suite = importlib.import_module("conformance")
    with multiprocessing.Pool(1) as pool:
        passed, every, failing = pool.apply(_conformance, (suite.__name__,))
    return {"conformance": f"{passed}/{every}" + (f" ({', '.join(failing)})" if failing else "")}


def _conformance(name: str) -> tuple[int, int, list[str]]:
    logging.disable(logging.CRITICAL)
    suite = importlib.import_module(name)
    found = suite.results_of(suite.OurNodes)
    failing = [test.removeprefix("test_") for test in found.all if found.passed[test] < found.all[test]]
    return sum(found.passed.values()), sum(found.all.values()), failing


MEASURES: dict[str, Callable[[How], Figures]] = {
    "shown": shown_values,
    "arena": arena,
    "own": partial(arena, manager="ours-own-model"),
    "calibration": calibration,
    "servers": odd_servers,
    "speed": speed,
    "recall": recall,
    "conformance": conformance,
}


NOISY = ("arena", "own", "speed")
"""Measures that depend on the clock."""


# ---- running --------------------------------------------------------------------------------------------------------


def measured(row: Row, names: Sequence[str], how: How) -> dict[str, Figures | str]:
    """Measure with one mechanism off; of a measure that fails, why."""
    found: dict[str, Figures | str] = {}
    for name in names:
        try:
            with applied(row), _within(MEASURE_SECONDS):
                found[name] = MEASURES[name](how)
        except SeamGoneError:
            raise
        except Exception as error:  # noqa: BLE001  # without a mechanism anything may fail, and that is a figure
            found[name] = f"{type(error).__name__}: {str(error)[:80]}".replace("\n", " ").replace("|", "/")
    return found


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def everything() -> Iterator[ModuleType]:
    """Import every module of the package, so that all names which a seam has are known."""
    for info in pkgutil.walk_packages(langchain_ctxwin.__path__, "langchain_ctxwin."):
        try:
            yield importlib.import_module(info.name)
        except ImportError:  # an extra that is not installed
            continue


# ---- the table ------------------------------------------------------------------------------------------------------


class Table:
    """Markdown, row by row as they are found; written anew to a file after each."""

    def __init__(self, base: Mapping[str, Figures], again: Mapping[str, Figures], path: Path | None) -> None:
        self._base, self._path = base, path
        self._noise = {
            name: {column for column in cells if name in again and again[name].get(column) != cells[column]}
            for name, cells in base.items()
        }
        self._lines = dict.fromkeys(base, ())
        self._rows: dict[str, list[list[str]]] = {name: [] for name in base}
        self._still: list[str] = []
        for name, cells in base.items():
            self._rows[name].append(["**all on**", *cells.values()])
            if again.get(name):
                self._rows[name].append(["**all on, again**", *self._cells(name, again[name])[1]])

    def add(self, row: Row, found: Mapping[str, Figures | str]) -> None:
        moved = False
        for name, cells in found.items():
            has_moved, shown = self._cells(name, cells)
            moved = moved or has_moved
            self._rows[name].append([row.title, *shown])
        if found and not moved:
            self._still.append(f"{row.title} ({', '.join(found)})")
        print(f"{row.name}: {'moves' if moved else 'nothing moves'}", flush=True)
        self.write()

    def _cells(self, name: str, cells: Figures | str) -> tuple[bool, list[str]]:
        base = self._base[name]
        if isinstance(cells, str):
            return True, [cells, *[""] * (len(base) - 1)]
        shown, moved = [], False
        for column, before in base.items():
            now = cells.get(column, "")
            is_same = now == before or (column.startswith("ms") and _is_as_fast(before, now))
            moved = moved or not (is_same or column in self._noise[name])
            shown.append("·" if is_same else now)
        return moved, shown

    def text(self) -> str:
        parts = []
        for name, rows in self._rows.items():
            columns = ["mechanism off", *self._base[name]]
            lines = [f"| {' | '.join(columns)} |", f"|---|{'---|' * (len(columns) - 1)}"]
            parts += [f"\n## {name}\n", *lines, *(f"| {' | '.join(cells)} |" for cells in rows)]
        parts += ["\n## Nothing moves\n", *(f"- {one}" for one in self._still)]
        return "\n".join(parts) + "\n"

    def write(self) -> None:
        if self._path:
            self._path.write_text(self.text(), encoding="utf-8")


def _is_as_fast(before: str, now: str) -> bool:
    pairs = zip(map(float, before.split("/")), map(float, now.split("/")), strict=False)
    return all(abs(one - other) <= SPEED_TOLERANCE * max(one, other) + 0.3 for one, other in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with recorded conversations; generated ones without it")
    parser.add_argument("--only", nargs="+", default=[], help="rows whose name holds one of these")
    parser.add_argument("--measures", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--quick", action="store_true", help="fewer conversations, scenarios and sizes")
    parser.add_argument("--check", action="store_true", help="only look whether every seam is still there")
    parser.add_argument("--write", type=Path, help="file for the table, written after each row")
    options = parser.parse_args()
    list(everything())
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    warnings.simplefilter("ignore")
    how = How(data=options.data, is_quick=options.quick)
    rows = [row for row in ROWS if not options.only or any(word in row.name for word in options.only)]
    gone = checked(rows)
    if options.check or gone:
        print(*gone, sep="\n")
    if options.check:
        return len(gone)
    assert set(MANAGERS) >= {"ours-nodes", "ours-own-model"}
    began = time.perf_counter()
    names = [name for name in options.measures if any(name in row.measures for row in rows)]
    nothing = Row(name="nothing", seams={})
    base, again = measured(nothing, names, how), measured(nothing, [n for n in names if n in NOISY], how)
    if failed := {name: figures for name, figures in base.items() if isinstance(figures, str)}:
        sys.exit(f"with everything on: {failed}")
    table = Table(base, again, options.write)
    for row in rows:
        asked = [name for name in names if name in row.measures]
        if asked and row.name not in {line.partition(": the package")[0] for line in gone}:
            table.add(row, measured(row, asked, how))
    print(table.text())
    print(f"{time.perf_counter() - began:.0f} seconds")
    return len(gone)


def checked(rows: Sequence[Row]) -> list[str]:
    """Say which rows have a seam that is gone."""
    gone = []
    for row in rows:
        try:
            with applied(row):
                pass
        except SeamGoneError as error:
            gone.append(str(error))
    return gone


if __name__ == "__main__":
    sys.exit(main())
