"""Does `make bench` run every benchmark there is, in a small form that ends well, and are results kept as they come?"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import fetch_data  # stands beside the other benchmarks
import figures
import run as bench

FOLDER = bench.FOLDER

# The runner itself, what writes data or documents instead of measuring, and what wants a checkout beside data.
APART = {"run", "figures", "fetch_data", "model_snapshot", "tasks"}
ELSEWHERE = {"providers"}  # its talks are tests of their own
WITHOUT_DATA = {
    row.script: row
    for row in reversed(bench.BENCHMARKS)
    if not row.needs_data and row.script not in ELSEWHERE
}


def test_every_benchmark_is_run():
    runnable = {
        path.stem
        for path in FOLDER.glob("*.py")
        if '__name__ == "__main__"' in path.read_text("utf-8")
    }
    assert {row.script for row in bench.BENCHMARKS} == runnable - APART


@pytest.mark.parametrize("row", bench.BENCHMARKS, ids=lambda row: row.name)
def test_a_benchmark_takes_its_arguments_and_says_what_it_asks(row):
    text = (FOLDER / f"{row.script}.py").read_text("utf-8")
    known = {*re.findall(r'add_argument\(\s*"(--[a-z-]+)"', text)}
    known |= {"--data"} if "parser_of(" in text else set()
    given = {
        word for word in f"{row.full} {row.quick}".split() if word.startswith("--")
    }
    assert given <= known
    assert not row.data or "--data" in known
    assert row.question.endswith(("?", "."))


@pytest.mark.parametrize("row", WITHOUT_DATA.values(), ids=lambda row: row.name)
def test_the_small_form_ends_well_on_made_up_data(row):
    section = bench.run(row, None, quick=True)
    assert not section.is_failure, section.how
    assert section.text


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda path: path.name)
def test_figures_that_are_quoted_are_those_of_the_results(page):
    text = page.read_text("utf-8")
    assert "<!-- figures: " in text
    assert figures.written(text, bench.sections()) == text


def test_a_section_replaces_an_older_one_and_the_others_stay(tmp_path):
    path = tmp_path / "RESULTS.md"
    one, other = (
        bench.Section(name=name, command="python x.py", how="now", text="a\n\nb")
        for name in ("soak", "cost")
    )
    bench.write(path, one)
    bench.write(path, other)
    newer = bench.Section(
        name="soak",
        command="python x.py --data DATA",
        how="later",
        text="## c\n\n| d |",
    )
    bench.write(path, newer)
    assert bench.sections(path) == {"cost": other, "soak": newer}


def test_data_is_rebuilt_from_its_source_and_nothing_of_that_runs(tmp_path):
    """A tool is read from its module, which would end the process."""
    tool = 'import sys\nsys.exit(1)\nclass Tool:\n    def get_info():\n        return {"type": "function"}\n'
    run = {
        "task_id": 0,
        "trial": 1,
        "reward": 1.0,
        "traj": [{"role": "user", "content": "Hi"}],
    }
    files = {
        f"tau_bench/envs/airline/tools/{name}.py": tool
        for name in fetch_data.AIRLINE_TOOLS
    }
    for name, text in {
        **files,
        "historical_trajectories/gpt-4o-airline.json": json.dumps([run]),
    }.items():
        path = tmp_path / fetch_data.TAU / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (row,) = fetch_data.tau_airline(tmp_path.as_uri())
    assert (row["id"], row["messages"]) == ("tau-airline-gpt4o-0-1", run["traj"])
    assert row["tools"] == [{"type": "function"}] * len(fetch_data.AIRLINE_TOOLS)
