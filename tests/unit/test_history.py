"""Are events that happened there for reports, from several processes, and does a bad file cost nothing but events?"""

import json
import sqlite3
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from langchain_ctxwin.core.events import Event
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.observe import History, HistorySink, StepEvent
from support.agents import PATIENCE
from support.told import EVERY as EVENTS
from support.told import STEP


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


@pytest.fixture
def warnings():
    """Reasons why events were not saved, as they are logged."""
    with capture_logs() as logs:
        yield lambda: [
            one["reason"] for one in logs if one["event"] == "history.not_saved"
        ]


def _write(path, events, **options):
    sink = HistorySink(path, **options)
    for event in events:
        sink.emit(event)
    assert sink.flush(PATIENCE)
    return sink


def _write_on(sink, *events):
    for event in events:
        sink.emit(event)
    assert sink.flush(PATIENCE)


def test_every_type_of_event_comes_back_as_it_was(path):
    assert _write(path, EVENTS).lost == 0
    assert list(History(path).events()) == EVENTS


def test_all_types_are_tried():
    """A new type of event has to be added to what the history reads."""
    assert {type(event).__name__ for event in EVENTS} == {
        kind.__name__ for kind in Event.__subclasses__()
    }


def test_a_clock_that_is_set_back_changes_no_order_and_the_oldest_events_leave(path):
    events = [
        StepEvent(time=seconds) for seconds in (400.0, 500.0, 300.0, 100.0, 200.0)
    ]
    _write(path, events, max_events=3)
    assert list(History(path).events()) == events[-3:]


def test_an_answer_gets_its_score_later(path):
    _write(path, EVENTS)
    History(path).score(STEP.answer_id, 0.25)
    assert [
        event.quality
        for event in History(path).events()
        if isinstance(event, StepEvent)
    ] == [0.25, 0.0, None, 1.0]


@pytest.mark.parametrize(
    ("answer_id", "quality", "fault"),
    [
        *(
            ("1", quality, "quality=.*: give a number from 0 to 1")
            for quality in (-0.1, 1.1)
        ),
        *(
            (answer_id, 1, f"answer_id='{answer_id}': .* has no event of this answer")
            for answer_id in ("", "3")
        ),
    ],
)
def test_a_score_that_is_none_or_of_no_answer_is_refused(
    path, answer_id, quality, fault
):
    _write(path, EVENTS)
    with pytest.raises(ConfigError, match=fault):
        History(path).score(answer_id, quality)


def _changed(path, *statements, rows=()):
    """Change a file as another program does."""
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.executemany(statement, rows) if rows else file.execute(statement)


BAD_FILES = {
    "no such column: answer_id": lambda path: _changed(
        path, "CREATE TABLE events (mine)"
    ),
    "file is not a database": lambda path: path.write_text("notes " * 1_000),
    "unable to open database file": lambda path: path.mkdir(),
}


@pytest.mark.parametrize(("said", "make"), BAD_FILES.items(), ids=BAD_FILES)
def test_a_file_that_is_not_ours_is_left_alone_and_named_once(
    path, warnings, said, make
):
    make(path)
    sink = _write(path, EVENTS[:3])
    assert (sink.lost, len(warnings())) == (3, 1)
    assert said in warnings()[0]
    with pytest.raises(ConfigError, match=r"history"):
        list(History(path).events())


def test_a_file_that_stays_locked_costs_events(path, warnings, monkeypatch):
    monkeypatch.setattr("langchain_ctxwin.observe.history.BUSY_SECONDS", 0.01)
    sink = _write(path, EVENTS[:1])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    _write_on(sink, EVENTS[1])
    with pytest.raises(ConfigError, match="database is locked"):
        History(path).score(STEP.answer_id, 1)
    other.close()
    _write_on(sink, EVENTS[2])
    assert (sink.lost, warnings()) == (1, ["OperationalError: database is locked"])
    assert list(History(path).events()) == [EVENTS[0], EVENTS[2]]


def test_events_that_this_version_does_not_know_are_skipped(path):
    _write(path, EVENTS[:1])
    many = {"event": "StepEvent", "output_tokens": "many"}
    strange = ["[]", json.dumps({"event": "DreamEvent"}), json.dumps(many)]
    _changed(
        path, "INSERT INTO events (json) VALUES (?)", rows=[(text,) for text in strange]
    )
    history = History(path)
    assert (list(history.events()), history.skipped) == (EVENTS[:1], len(strange))
