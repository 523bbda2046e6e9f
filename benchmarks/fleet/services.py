"""Postgres, Valkey and workers of the open-source agent server aegra, which are killed and started again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
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
    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, python: Path, folder: Path, *, migrates: bool = False) -> None:
        told = self.environment | {"RUN_MIGRATIONS_ON_STARTUP": str(migrates)}
        server = ["uvicorn", "aegra_api.main:app", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  # ours
                [python, "-m", *server], cwd=folder, env=told, stdout=log, stderr=log
            )

    def is_up(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(
                f"worker {self.name} ended by itself: {self.log.read_text()[-2_000:]}"
            )
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
            name = f"w{number}"
            worker = Worker(
                name=name,
                port=_free_port(),
                log=self.folder / f"{name}.log",
                environment=self._environment(name),
            )
            worker.start(self.python, self.folder, migrates=not number)
            self.workers.append(worker)
            if not number:
                self.wait()
        self.wait()

    def wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not all(worker.is_up() for worker in self.workers):
            if time.monotonic() > end:
                raise RuntimeError(
                    f"the workers are not up after {START_SECONDS:g} seconds, see {self.folder}"
                )
            time.sleep(POLL_SECONDS)

    def kill(self, number: int) -> None:
        """End a worker as the system does that is out of memory, and start it again."""
        worker = self.workers[number % len(self.workers)]
        assert worker.process is not None
        self.killed.add(worker.process.pid)
        worker.process.kill()
        worker.process.wait()
        worker.start(self.python, self.folder)

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

    def _environment(self, name: str) -> dict[str, str]:
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(BENCHMARKS)]),
            "DATABASE_URL": self.dsn,
            "REDIS_BROKER_ENABLED": "true",
            "REDIS_URL": self.valkey,
            "AEGRA_CONFIG": str(self.folder / "aegra.json"),
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
def serving(
    folder: Path, environment: Path, *, workers: int, model_seconds: float
) -> Iterator[Fleet]:
    """Start everything in a folder, yield it, and stop it."""
    sys.path.append(str(ROOT / "tests"))
    from support.postgres import running_postgres
    from support.valkey import running_valkey

    graphs = {GRAPH: f"{Path(__file__).parent / 'served.py'}:graph"}
    (folder / "aegra.json").write_text(json.dumps({"graphs": graphs}))
    with (
        running_postgres(SETTINGS) as postgres,
        running_valkey() as valkey,
        postgres.fresh_database() as dsn,
    ):
        python = environment / "bin" / "python"
        fleet = Fleet(
            folder=folder,
            python=python,
            dsn=dsn,
            valkey=valkey,
            model_seconds=model_seconds,
        )
        try:
            fleet.start(workers)
            yield fleet
        finally:
            fleet.stop()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
