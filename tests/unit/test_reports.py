"""What do reports and gates say of a history, as values and by the commands `ctxwin report`?"""

from dataclasses import replace
from decimal import Decimal

import pytest

from langchain_ctxwin.cli import main
from langchain_ctxwin.observe import History, HistorySink, report
from support.agents import PATIENCE
from support.told import EVENTS, STEP

DAY, NEXT_DAY, EPOCH = "2030-01-01", "2030-01-02", "1970-01-01"
# What a report says of some days, models and kinds of event: their number, then sums and means.
EXPECTED = {
    (DAY, "small", "context.step"): (
        *(2, 1_200, 100, 100, Decimal("0.04"), pytest.approx(0.6), 0.875),
    ),
    (DAY, "small", "context.compacted"): (2, *[None] * 6),
    (NEXT_DAY, "large", "context.step"): (1, 70, *[None] * 5),
    (EPOCH, "", "context.summary_ready"): (
        *(1, 500, None, 80, Decimal("0.01"), None, None),
    ),
    (EPOCH, "large", "context.refused"): (1, *[None] * 6),
}


@pytest.fixture
def path(tmp_path):
    """A history of the events above."""
    sink = HistorySink(tmp_path / "history.db")
    for event in EVENTS:
        sink.emit(event)
    assert sink.flush(PATIENCE)
    return sink.path


def test_a_report_sums_up_what_happened(path):
    """Also what a history has of it."""
    found = {tuple(row.values())[:3]: tuple(row.values())[3:] for row in report(EVENTS)}
    assert {key: found[key] for key in EXPECTED} == EXPECTED
    assert sum(number for number, *_ in found.values()) == len(EVENTS)
    assert report(History(path).events()) == report(EVENTS)


def test_the_report_is_printed_as_a_table(path, capsys):
    assert main(["report", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["day", "model", "event", "number"]
    assert [DAY, "small", "context.compacted", "2", *"------"] in lines


@pytest.mark.parametrize(("calls", "code"), [(1, 0), (2, 1)])
def test_a_failed_gate_is_named_and_fails_the_check(tmp_path, capsys, calls, code):
    """A request that was refused as too large before is none that kept its limit."""
    sink = HistorySink(tmp_path / "history.db")
    sink.emit(replace(STEP, calls=calls))
    assert sink.flush(PATIENCE)
    assert main(["report", "--check", str(sink.path)]) == code
    said = "ctxwin: failed: limit_compliance" if code else ""
    assert capsys.readouterr().err.strip() == said


def test_a_history_that_is_not_there_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "missing.db"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ctxwin: ")
    assert "there is no history" in line
