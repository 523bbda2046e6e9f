"""How long does a change of a settings file take to be active, and does anyone ever see half of one?"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from langchain_ctxwin.config import FileConfig
from langchain_ctxwin.reload import ConfigFile

WRITES = 200
READERS = 1_000
RELOADS = 100
READ_EVERY_SECONDS = 0.05  # so that a thousand threads leave the interpreter to the one that reloads
DRILLS = 50
PAUSE_SECONDS = 0.02  # of a slow writer between two pieces
PIECES = 5
GOAL_P99_MS = 100.0
PATIENCE_SECONDS = 10.0


def content(number: int) -> str:
    """Settings that state the same number in many places, so that a mixture or a part of two versions shows."""
    tools = "".join(f"[tool_results.per_tool.tool_{i}]\nmax_tokens = {number}\n" for i in range(20))
    return (
        f"max_history_tokens = {number}\ntrigger_messages = {number}\n"
        f"[tool_results]\nmax_tokens = {number}\n{tools}[retrieval]\nmax_context_tokens = {number}\n"
    )


def stated(config: FileConfig) -> set[int | None]:
    return {
        config.max_history_tokens,
        config.trigger_messages,
        config.tool_results.max_tokens,
        config.retrieval.max_context_tokens,
        *(one.max_tokens for one in config.tool_results.per_tool.values()),
        len(config.tool_results.per_tool) == 20 and config.max_history_tokens,
    }


def in_place(path: Path, number: int) -> None:
    path.write_text(content(number))


def renamed(path: Path, number: int) -> None:
    other = path.with_name("next.toml")
    other.write_text(content(number))
    other.replace(path)


def swapped(path: Path, number: int) -> None:
    """As Kubernetes does: the file links into `..data`, which links to the folder of this version."""
    folder = path.with_name(f"..{number}")
    folder.mkdir()
    (folder / path.name).write_text(content(number))
    link = path.with_name("..next")
    link.symlink_to(folder.name)
    link.replace(path.with_name("..data"))


def prepare(folder: Path, write: Callable[[Path, int], None]) -> Path:
    path = folder / "settings.toml"
    if write is swapped:
        swapped(path, 1000)
        path.symlink_to("..data/settings.toml")
    else:
        in_place(path, 1000)
    return path


def write_to_active(write: Callable[[Path, int], None], writes: int) -> list[float]:
    """Milliseconds from the end of each write until the settings hold."""
    took: list[float] = []
    active = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        path = prepare(Path(folder), write)
        ended = 0.0

        def note(_: FileConfig, after: FileConfig) -> None:
            took.append((time.perf_counter() - ended) * 1_000)
            assert stated(after) == {after.max_history_tokens}
            active.set()

        with ConfigFile(path, on_change=note):
            time.sleep(0.2)
            for number in range(1001, 1001 + writes):
                active.clear()
                write(path, number)
                ended = time.perf_counter()
                assert active.wait(PATIENCE_SECONDS)
    return sorted(took)


def torn_reads(readers: int, reloads: int) -> tuple[int, int, int]:
    """Let readers read all the time while the file is exchanged: reads, different versions seen, torn ones."""
    counts, versions, torn = [0] * readers, set(), []
    done = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        path = prepare(Path(folder), renamed)
        settings = ConfigFile(path)

        def read(place: int) -> None:
            while not done.is_set():
                numbers = stated(settings.current)
                counts[place] += 1
                versions.update(numbers)
                if len(numbers) != 1:
                    torn.append(numbers)
                time.sleep(READ_EVERY_SECONDS)

        threads = [threading.Thread(target=read, args=(place,), daemon=True) for place in range(readers)]
        for thread in threads:
            thread.start()
        for number in range(1001, 1001 + reloads):
            renamed(path, number)
            assert settings.reload()
        done.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    return sum(counts), len(versions), len(torn)


def half_written(drills: int) -> tuple[int, int]:
    """A slow writer truncates the file and writes it in pieces; count what became active, and what was not whole."""
    seen: list[FileConfig] = []
    changed = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        path = prepare(Path(folder), in_place)

        def note(_: FileConfig, after: FileConfig) -> None:
            seen.append(after)
            changed.set()

        with ConfigFile(path, on_change=note) as settings:
            for number in range(1001, 1001 + drills):
                changed.clear()
                write_slowly(path, content(number))
                while settings.current.max_history_tokens != number:
                    assert changed.wait(PATIENCE_SECONDS)
                    changed.clear()
    return len(seen), sum(len(stated(config)) != 1 for config in seen)


def write_slowly(path: Path, text: str) -> None:
    """Every piece but the last ends with a line, so that each beginning of the file is valid by itself."""
    lines = text.splitlines(keepends=True)
    size = len(lines) // PIECES + 1
    with path.open("w") as file:
        for start in range(0, len(lines), size):
            file.writelines(lines[start : start + size])
            file.flush()
            os.fsync(file.fileno())
            time.sleep(PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=WRITES)
    parser.add_argument("--readers", type=int, default=READERS)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    is_met = True
    print(
        f"write to active, {options.writes} writes each [ms]  p50    p95    p99    max (goal: p99 < {GOAL_P99_MS:.0f})"
    )
    for name, write in (("in place", in_place), ("atomic rename", renamed), ("symlink swap", swapped)):
        took = write_to_active(write, options.writes)
        p50, p95, p99 = (took[min(len(took) - 1, int(len(took) * part))] for part in (0.5, 0.95, 0.99))
        is_met = is_met and p99 < GOAL_P99_MS
        print(f"  {name:<38}{p50:>7.1f}{p95:>7.1f}{p99:>7.1f}{took[-1]:>7.1f}")
    reads, versions, torn = torn_reads(options.readers, RELOADS)
    print(
        f"{options.readers:,} readers during {RELOADS} reloads: {reads:,} reads, {versions} versions seen, {torn} torn"
    )
    active, partial = half_written(DRILLS)
    print(
        f"{DRILLS} files written in {PIECES} pieces, {PAUSE_SECONDS * 1_000:.0f} ms apart: "
        f"{active} became active, {partial} of them half-written"
    )
    print(f"p99 {'met' if is_met else 'MISSED'}")
    if torn or partial:
        sys.exit("a configuration was seen in parts")


if __name__ == "__main__":
    main()
