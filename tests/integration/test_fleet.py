"""Do conversations stay whole on several workers of an agent server, of which one is killed?

    CTXWIN_FLEET_ENV=.venv-fleet pytest tests/integration/test_fleet.py

`make fleet ARGS=--help` makes that environment. The large form is `make fleet`.
"""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

ROOT = Path(__file__).parents[2]
VARIABLE = "CTXWIN_FLEET_ENV"
SMALL = (
    "--runs 1 --workers 2 --threads 6 --turns 8 --kills 2 --every 10 --model-seconds 1"
)
PATIENCE = 400  # a run whose worker died is taken over after a minute, one that nobody took after two


@pytest.fixture(scope="module")
def python():
    """The interpreter of the environment that has the agent server."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(
            f"{VARIABLE} names no environment with the agent server aegra: `make fleet` makes .venv-fleet"
        )
    found = (ROOT / named).absolute() / "bin" / "python"
    if not found.exists():
        pytest.skip(f"{VARIABLE}={named} has no bin/python")
    return found


def test_nothing_is_lost_or_done_twice_when_a_worker_is_killed(python):
    command = [python, ROOT / "benchmarks" / "fleet", *SMALL.split()]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    rows = dict(
        line.strip("| ").split(" | ", 1)
        for line in done.stdout.splitlines()
        if " | " in line
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    assert (rows["turns"], rows["workers killed"], rows["turns failed"]) == (
        "48",
        "2",
        "0",
    )
    assert int(rows["compactions"]) >= 6
