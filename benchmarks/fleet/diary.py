"""What happened in the workers, one JSON line each, also when a worker is killed a moment later."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Diary:
    """Appends lines to a file; several processes may share it."""

    def __init__(self, path: Path, worker: str) -> None:
        self._worker = worker
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, **fields: Any) -> None:
        line = {
            "kind": kind,
            "worker": self._worker,
            "pid": os.getpid(),
            "at": round(time.time(), 3),
            **fields,
        }
        # one call, so that no two lines mix
        os.write(self._file, f"{json.dumps(line)}\n".encode())


def read_diary(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
