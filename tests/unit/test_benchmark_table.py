"""Does `make bench` run every benchmark there is, in a small form that ends well, and are results kept as they come?"""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import figures
import run as bench

FOLDER = bench.FOLDER

# The runner itself, what writes data or documents instead of measuring, and what wants a checkout beside data.
APART = {"run", "figures", "fetch_data", "model_snapshot", "tasks"}
ELSEWHERE = {"providers"}  # its talks are tests of their own
WITHOUT_DATA = {
    row.script: row
    for row in reversed(bench.BENCHMARKS)
    if not row.needs and row.script not in ELSEWHERE
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
    assert known.issuperset(row.needs.split())
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


READING = bench.Benchmark(script="script", full="--steps 3", needs="--data --model")


@pytest.fixture
def script(monkeypatch, tmp_path):
    """A benchmark that prints what it was given and fails with it, beside its data; the path of its model."""
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    code = "import sys\ngiven = ' '.join(sys.argv[1:])\nprint(given)\nsys.exit(given)\n"
    (tmp_path / "script.py").write_text(code)
    (tmp_path / "transcripts").mkdir()
    return tmp_path / "small.gguf"


def test_no_path_of_the_machine_stands_in_a_section(script):
    section = bench.run(READING, script.parent, script, quick=False)
    assert section.text == "--steps 3 --model MODEL --data DATA"
    assert section.command == f"python benchmarks/script.py {section.text}"
    assert section.how.endswith(f"; failed with exit code 1: {section.text}")


def test_without_its_model_a_benchmark_is_not_run_and_its_last_section_stays(script):
    path, row = script.parent / "RESULTS.md", bench.BENCHMARKS[0]
    found = bench.run(READING, script.parent, quick=False)
    assert found.how == "not run: it needs --model, see its --help"
    assert not found.is_failure
    (script.parent / f"{row.script}.py").write_text('"""What?"""')
    left_out = replace(found, name=row.name)
    last = bench.Section(name=row.name, command="python x.py", how="now", text="a")
    for section, kept in ((left_out, left_out), (last, last), (left_out, last)):
        bench.write(path, section)
        assert bench.sections(path) == {row.name: kept}


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
