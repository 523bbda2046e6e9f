"""Does `make bench` run every benchmark there is, with arguments that it takes, and is each told of in the results?"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import run as bench  # noqa: E402  # stands beside the other benchmarks

# The runner itself; what needs servers of its own, or an earlier version, or runs the others for hours.
APART = {"run", "fleet", "goldens", "switch_off", "model_snapshot"}


def scripts():
    runnable = {path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8")}
    return {name for name in runnable if not name.startswith("fit_")} - APART


def test_every_benchmark_is_run():
    assert {row.script for row in bench.BENCHMARKS} == scripts()


@pytest.mark.parametrize("row", bench.BENCHMARKS, ids=lambda row: row.name)
def test_a_benchmark_takes_its_arguments_and_says_what_it_asks(row):
    text = (FOLDER / f"{row.script}.py").read_text("utf-8")
    known = {*re.findall(r'add_argument\(\s*"(--[a-z-]+)"', text), *(["--data"] if row.data else [])}
    given = {word for word in f"{row.full} {row.quick}".split() if word.startswith("--")}
    assert given <= known
    assert not row.data or '"--data"' in text
    assert row.question.endswith(("?", "."))


def test_the_results_tell_of_every_benchmark():
    text = bench.RESULTS.read_text("utf-8")
    assert [row.name for row in bench.BENCHMARKS if f"\n## {row.name}\n" not in text] == []
    plots = re.findall(r"\]\((plots/[^)]+)\)", text)
    assert plots
    assert all((FOLDER / plot).exists() for plot in plots)
