"""What do reports and gates say of a history, as values and by the commands `ctxwin report`?"""

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
    found = {tuple(row.values())[:3]: tuple(row.values())[3:] for row in report(EVENTS)}
    assert {key: found[key] for key in EXPECTED} == EXPECTED
    assert sum(number for number, *_ in found.values()) == len(EVENTS)
    assert report(History(path).events()) == report(EVENTS)


def test_the_report_is_printed_as_a_table(path, capsys):
    assert main(["report", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["day", "model", "event", "number"]
    assert [DAY, "small", "context.compacted", "2", *"------"] in lines


@pytest.mark.parametrize(
    ("since", "days"), [(NEXT_DAY, {NEXT_DAY}), (DAY, {DAY, NEXT_DAY})]
)
def test_events_are_chosen_by_their_time(path, capsys, since, days):
    assert main(["report", str(path), "--since", f"{since}T00:00:00+00:00"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[0] for line in lines} == days


def test_a_history_that_nothing_is_known_of_fails_no_gate(path, capsys):
    later = ["report", str(path), "--since", "2031-01-01"]
    assert [main([*later, *check]) for check in ([], ["--check"])] == [0, 0]
    assert capsys.readouterr().out.startswith("no events\n")


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
            "--since yesterday: give a date",
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
