"""What do reports and gates say of a history, as values and by the commands `ctxwin report`?"""

import json
from decimal import Decimal

import pytest

from langchain_ctxwin.cli import main
from langchain_ctxwin.observe import History, HistorySink, report
from support.agents import PATIENCE
from support.told import EVENTS, STEP

DAY, NEXT_DAY = "2030-01-01", "2030-01-02"
# The rows of each table, in the order of their columns.
EXPECTED = {
    "usage": [
        (
            DAY,
            "small",
            2,
            100,
            60,
            1040,
            100,
            Decimal("0.04"),
            Decimal("0.01"),
            300,
            pytest.approx(0.6),
            0.875,
        ),
        (NEXT_DAY, "large", 1, *[None] * 9),
    ],
    "tools": [("read", 2, 540, 140, 0.5)],
    "compactions": [("force", 2, 6, 4, 850.0, 250.0, 0.3)],
    "cache_misses": [("messages", "small", 2, 5_000, 1)],
    "summaries": [
        ("ready", 1, 2, 500, 80, Decimal("0.01")),
        ("started", 1, *[None] * 4),
    ],
    "troubles": [
        ("context.overflow_recovered", "small", 1),
        ("context.refused", "large", 1),
        ("context.usage_ignored", "large", 1),
    ],
}


def rows(found):
    """The rows of each table of a report."""
    return {
        name: [tuple(row.values()) for row in table]
        for name, table in found.tables.items()
    }


@pytest.fixture
def path(tmp_path):
    """A history of the events above."""
    sink = HistorySink(tmp_path / "history.db")
    for event in EVENTS:
        sink.emit(event)
    assert sink.flush(PATIENCE)
    return sink.path


def _complaint(capsys):
    text = capsys.readouterr().err
    assert ("Traceback" in text, text.count("\n"), text.partition(" ")[0]) == (
        False,
        1,
        "ctxwin:",
    )
    return text


def test_a_report_sums_up_what_happened(path):
    """Also what a history has of it."""
    assert (report(EVENTS).events, rows(report(EVENTS))) == (18, EXPECTED)
    assert report(History(path).events()) == report(EVENTS)


def test_the_report_is_printed_as_tables_and_as_json(path, capsys):
    assert main(["report", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **report(EVENTS).to_dict(),
        "skipped": 0,
    }
    assert main(["report", str(path)]) == 0
    out = capsys.readouterr().out
    sections = {section.partition(":")[0]: section for section in out.split("\n\n")}
    header, row = sections["Compactions"].splitlines()[1:]
    assert header.split("  ")[0] == "kind"
    assert row.split() == ["force", "2", "6", "4", "850.0000", "250.0000", "0.3000"]


@pytest.mark.parametrize(
    ("options", "events"),
    [
        (["--since", NEXT_DAY], 2),
        (["--since", f"{DAY}T13:00:00+01:00"], 14),
        (["--model", "large"], 3),
        (["--thread", "nobody"], 0),
    ],
)
def test_events_are_chosen(path, capsys, options, events):
    assert main(["report", str(path), "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == events


def test_a_history_that_nothing_is_known_of_is_one_line(path, capsys):
    codes = [
        main(["report", str(path), "--since", "2031-01-01", *check])
        for check in ([], ["--check"])
    ]
    assert (codes, capsys.readouterr().out.splitlines()[:2]) == (
        [0, 0],
        ["no events", "no requests"],
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--gate", "utilization>=0.3"], 0),
        (["--gate", "utilization>=0.9"], 1),
        (["--gate", "utilization>=0.3", "--gate", "utilization<=0.35"], 1),
    ],
)
def test_gates_are_added_and_chosen(tmp_path, capsys, options, code):
    sink = HistorySink(tmp_path / "history.db")
    sink.emit(STEP)
    assert sink.flush(PATIENCE)
    assert main(["report", "--check", str(sink.path), *options]) == code


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["report", "missing.db"], "there is no history"),
        (
            ["report", "history.db", "--since", "yesterday"],
            "--since yesterday: give 12h, 7d, 2w, or a date",
        ),
        (
            ["report", "--check", "history.db", "--gate", "utilization"],
            "--gate utilization: give NAME>=RATIO",
        ),
        (
            ["report", "--check", "history.db", "--gate", "speed>=0.5"],
            "gates for speed: no such measure",
        ),
    ],
)
def test_bad_input_is_named_in_one_line(
    path, capsys, monkeypatch, arguments, complaint
):
    monkeypatch.chdir(path.parent)
    assert main(arguments) == 2
    assert complaint in _complaint(capsys)
