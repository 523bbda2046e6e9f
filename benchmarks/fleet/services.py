"""Postgres, Valkey and workers of the open-source agent server aegra, which are killed and started again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent
GRAPH = "fleet"
START_SECONDS, POLL_SECONDS, STOP_SECONDS = 120.0, 0.3, 60.0
# thirty connections a worker, and durable as it comes
SETTINGS = ("max_connections=500", "shared_buffers=256MB")


@dataclass(slots=True, kw_only=True)
class Worker:
    """One process of the server, in the generation that runs now."""

    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"worker {self.name} ended by itself: see its log")
        try:
            return httpx.get(f"{self.url}/health", timeout=5).is_success
        except httpx.TransportError:
            return False


@dataclass(slots=True, kw_only=True)
class Fleet:
    """The workers and what they share."""

    folder: Path
    python: Path
    dsn: str
    valkey: str
    model_seconds: float
    workers: list[Worker] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    """Processes."""

    @property
    def diary(self) -> Path:
        return self.folder / "diary.jsonl"

    def start(self, count: int) -> None:
        """The first one makes the tables; the others follow."""
        for number in range(count):
            worker = Worker(name=f"w{number}", port=_free_port())
            self._run(worker, migrates=not number)
            self.workers.append(worker)
            if number in {0, count - 1}:
                self._wait()

    def _run(self, worker: Worker, *, migrates: bool = False) -> None:
        server = ["uvicorn", "aegra_api.main:app", "--port", str(worker.port)]
        with (self.folder / f"{worker.name}.log").open("ab") as log:
            worker.process = subprocess.Popen(  # noqa: S603  # ours
                [self.python, "-m", *server],
                cwd=self.folder,
                env=self._environment(worker.name, migrates=migrates),
                stdout=log,
                stderr=log,
            )

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not all(worker.is_up() for worker in self.workers):
            if time.monotonic() > end:
                raise RuntimeError(f"no worker is up after {START_SECONDS:g} seconds")
            time.sleep(POLL_SECONDS)

    def kill(self, number: int) -> None:
        """End a worker as the system does that is out of memory, and start it again."""
        worker = self.workers[number % len(self.workers)]
        assert worker.process is not None
        self.killed.add(worker.process.pid)
        worker.process.kill()
        worker.process.wait()
        self._run(worker)

    def stop(self) -> None:
        running = [worker.process for worker in self.workers if worker.process]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _environment(self, name: str, *, migrates: bool) -> dict[str, str]:
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(BENCHMARKS)]),
            "DATABASE_URL": self.dsn,
            "REDIS_BROKER_ENABLED": "true",
            "REDIS_URL": self.valkey,
            "AEGRA_CONFIG": str(self.folder / "aegra.json"),
            "RUN_MIGRATIONS_ON_STARTUP": str(migrates),
            "ENV_MODE": "PRODUCTION",  # a JSON line for each event
            "LOG_LEVEL": "WARNING",
            "WORKER_COUNT": "1",  # one loop a process, with ten runs in hand: more wait for the same core
            "N_JOBS_PER_WORKER": "10",
            "BG_JOB_MAX_RETRIES": "10",  # a turn may be unlucky more often than the server's three times
            "LANGSMITH_TRACING": "false",
            "FLEET_WORKER": name,
            "FLEET_VALKEY": self.valkey,
            "FLEET_DIARY": str(self.diary),
            "FLEET_MODEL_SECONDS": str(self.model_seconds),
        }
        return {**os.environ, **ours}


@contextmanager
def serving(options: Namespace) -> Iterator[Fleet]:
    """Start everything in a folder, yield it, and stop it."""
    sys.path.append(str(ROOT / "tests"))
    from support.postgres import running_postgres
    from support.valkey import running_valkey

    graphs = {GRAPH: f"{Path(__file__).parent / 'served.py'}:graph"}
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as name,
        running_postgres(SETTINGS) as postgres,
        running_valkey() as valkey,
        postgres.fresh_database() as dsn,
    ):
        (Path(name) / "aegra.json").write_text(json.dumps({"graphs": graphs}))
        fleet = Fleet(
            folder=Path(name),
            python=options.env / "bin" / "python",
            dsn=dsn,
            valkey=valkey,
            model_seconds=options.model_seconds,
        )
        try:
            fleet.start(options.workers)
            yield fleet
        finally:
            fleet.stop()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
