"""Do many conversations on many workers that die and come back stay whole, and what does one turn take?

`make fleet` runs it: Postgres, Valkey and workers of the open-source agent server aegra on this machine, conversations
with large tool results and a model without a network, workers killed while they work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.check import Faults, Turn, faults, figures
from fleet.diary import read_diary
from fleet.drive import closed_loop, connected, killing, open_loop
from fleet.services import Fleet, serving
from fleet.stored import stored_kb, stored_threads

SEEN = 5  # kinds of warnings that are printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run came to."""

    faults: Faults
    figures: dict[str, Any]


def main() -> int:
    options = _options()
    python = options.env / "bin" / "python"
    if not python.exists():
        sys.exit(
            f"{python} is missing: run make fleet, or name an environment that has the extra fleet by --env"
        )
    all_sound = True
    for number in range(options.runs):
        outcome = _run(options)
        is_sound = not any(outcome.faults.counts.values())
        all_sound = all_sound and is_sound
        print(f"\n## Run {number + 1} of {options.runs}\n")
        _print(outcome)
    return 0 if all_sound else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--env", type=Path, default=Path(sys.prefix), help="environment of the workers"
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=200)
    parser.add_argument(
        "--turns",
        type=int,
        default=20,
        help="of each thread; it asks when it was answered",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=0,
        help="turns per second of all threads, instead of --turns",
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="with --rate: how long turns come in"
    )
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument(
        "--every", type=float, default=30, help="seconds between two kills"
    )
    parser.add_argument(
        "--model-seconds",
        type=float,
        default=0.1,
        help="how long the model takes to answer",
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--diary",
        type=Path,
        help="where to keep what happened, a JSON line for each request",
    )
    return parser.parse_args()


def _run(options: argparse.Namespace) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        folder = Path(name)
        told = {"FLEET_MODEL_SECONDS": str(options.model_seconds)}
        with serving(folder, options.env, workers=options.workers, told=told) as fleet:
            before, began = fleet.cpu_seconds(), time.monotonic()
            turns = asyncio.run(_played(fleet, options))
            seconds = time.monotonic() - began
            cpu = [
                after - earlier
                for after, earlier in zip(fleet.cpu_seconds(), before, strict=True)
            ]
            memory = fleet.memory_mb()
            kilobytes = stored_kb(fleet)
            threads = list(
                stored_threads(fleet, sorted({turn.thread for turn in turns}))
            )
            diary = list(read_diary(fleet.diary))
        if options.diary:
            shutil.copy(fleet.diary, options.diary)
        killed = {pid for _, _, pid in fleet.kills}
        found = figures(diary, turns, threads, killed)
        found |= {
            "seconds": seconds,
            "kills": len(killed),
            "memory": memory,
            "said": fleet.said(),
        }
        found |= {"kilobytes": kilobytes, "cpu": None if killed else cpu}
        return Outcome(faults=faults(diary, turns, threads), figures=found)


async def _played(fleet: Fleet, options: argparse.Namespace) -> list[Turn]:
    async with connected(fleet.urls) as clients:
        trouble = asyncio.create_task(
            killing(fleet, kills=options.kills, every_seconds=options.every)
        )
        try:
            if options.rate:
                return await open_loop(
                    clients,
                    threads=options.threads,
                    rate=options.rate,
                    seconds=options.seconds,
                )
            return await closed_loop(
                clients, threads=options.threads, turns=options.turns
            )
        finally:
            trouble.cancel()
            if trouble.done() and not trouble.cancelled():
                trouble.result()  # a worker that could not be started again is an error of the run


def _print(outcome: Outcome) -> None:
    print("| must be zero | found |\n|---|---:|")
    for name, count in outcome.faults.counts.items():
        print(f"| {name} | {count} |")
    for name, where in outcome.faults.examples.items():
        print(f"\n{name}: {json.dumps(where)}")
    print("\n| what | figure |\n|---|---:|")
    for name, value in _rows(outcome.figures):
        print(f"| {name} | {value} |")
    sys.stdout.flush()


def _rows(f: dict[str, Any]) -> list[tuple[str, str]]:
    warned, expected = f["said"]
    said = (
        "; ".join(f"{times} x {text}" for text, times in warned.most_common(SEEN))
        or "none"
    )
    rows = [
        ("turns", f"{f['turns']:,}"),
        ("seconds", f"{f['seconds']:.0f}"),
        ("turns per second", f"{f['turns'] / f['seconds']:.2f}"),
        ("requests", f"{f['requests']:,}"),
        ("requests per second", f"{f['requests'] / f['seconds']:.1f}"),
        (
            "seconds of a turn, median / 99 % / longest",
            " / ".join(f"{seconds:.2f}" for seconds in f["latency"]),
        ),
        ("workers killed", f"{f['kills']}"),
        (
            "times that runs of dead workers were taken over",
            f"{sum(expected.values())}",
        ),
        ("largest request, tokens", f"{f['largest request, tokens']:,}"),
        (
            "summaries written / died with their worker / cut off at the end",
            f"{f['summaries']:,} / {f['died']} / {f['unfinished']}",
        ),
        ("compactions", f"{f['compactions']:,}"),
        ("messages", f"{f['messages']:,}"),
        (
            "kB of checkpoints / store per turn",
            " / ".join(f"{kb / max(1, f['turns']):.1f}" for kb in f["kilobytes"]),
        ),
        ("requests at another worker than the one before", f"{f['moved']:,}"),
        (
            "large results / of these read at several workers",
            f"{f['results']:,} / {f['crossed']:,}",
        ),
        ("MB of memory of the largest worker", f"{f['memory']:.0f}"),
        ("warnings and errors of the workers", said),
    ]
    if f["cpu"]:
        rows.append(
            (
                "CPU seconds per turn, workers / databases",
                " / ".join(f"{s / max(1, f['turns']):.3f}" for s in f["cpu"]),
            )
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
