"""Do many conversations on many workers that die and come back stay whole, and what does one turn take?

`make fleet` runs it: Postgres, Valkey and workers of the open-source agent server aegra on this machine, conversations
with large tool results and a model without a network, workers killed while they work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from common import head, parser_of, row
from fleet.check import Stored, faults, figures
from fleet.drive import held
from fleet.graph import Place, build
from fleet.services import Fleet, serving

EXAMPLES = 3  # of each fault, enough to find it in the diary
CHECKPOINT_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def main() -> int:
    options = _options()
    if not (options.env / "bin" / "python").exists():
        sys.exit(
            f"{options.env}/bin/python is missing: run make fleet, or name an environment that has the extra fleet"
        )
    faulty = 0
    for number in range(options.runs):
        print(f"\n## Run {number + 1} of {options.runs}\n")
        faulty += _run(options)
    return 1 if faulty else 0


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__, data="")
    parser.add_argument(
        "--env", type=Path, default=Path(sys.prefix), help="environment of the workers"
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=200)
    parser.add_argument("--turns", type=int, default=20, help="of each thread")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--every", type=float, default=30, help="seconds between kills")
    parser.add_argument(
        "--model-seconds", type=float, default=0.1, help="until the model answers"
    )
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


def _run(options: argparse.Namespace) -> bool:
    """Print what one run came to; whether there was a fault."""
    with serving(options) as fleet:
        began = time.monotonic()
        turns = asyncio.run(held(fleet, options))
        seconds = time.monotonic() - began
        threads = list(stored(fleet, sorted({turn.thread for turn in turns})))
        checkpoints, store = (kb / len(turns) for kb in stored_kb(fleet))
        lines = fleet.diary.read_text(encoding="utf-8").splitlines()
    diary = list(map(json.loads, lines))
    found = faults(diary, turns, threads)
    head("must be zero", "found")
    for fault, where in found.items():
        row(fault, len(where))
    for fault, where in found.items():
        if where:
            print(f"\n{fault}: {json.dumps(where[:EXAMPLES])}")
    print()
    head("what", "figure")
    row("seconds", f"{seconds:.0f}")
    row("kB of checkpoints / store per turn", f"{checkpoints:.1f} / {store:.1f}")
    for what, figure in figures(diary, turns, threads, fleet.killed).items():
        row(what, figure)
    return any(found.values())


def stored(fleet: Fleet, threads: list[str]) -> Iterator[Stored]:
    """The final state of each thread."""
    place = Place(worker="reader", valkey=fleet.valkey, diary=fleet.diary)
    with PostgresSaver.from_conn_string(fleet.dsn) as saver:
        graph = build(place).compile(checkpointer=saver)
        for thread in threads:
            values = graph.get_state({"configurable": {"thread_id": thread}}).values
            compactions = values.get("context_guard", {}).get("compactions", 0)
            history = values.get("messages", [])
            yield Stored(thread=thread, history=history, compactions=compactions)


def stored_kb(fleet: Fleet) -> tuple[float, float]:
    """Kilobytes of checkpoints and of the store, with their indexes."""
    asked = "SELECT pg_total_relation_size(%s::regclass)"
    with psycopg.connect(fleet.dsn) as connection:
        *checkpoints, store = (
            connection.execute(asked, [name]).fetchone()[0] / 1e3  # type: ignore[index]
            for name in (*CHECKPOINT_TABLES, "store")
        )
    return sum(checkpoints), store


if __name__ == "__main__":
    sys.exit(main())
