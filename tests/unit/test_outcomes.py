"""Recorded outcomes: counted per model and bucket, shared by processes, bounded; file trouble is survived."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.routing import Outcomes
from langchain_ctxwin.routing.quality import MAX_CELLS, MAX_NAME_CHARS, MAX_TRIALS, Count, added
from langchain_ctxwin.util.files import replace_text

NOON = 1_800_000_000.0

counts = st.builds(
    lambda trials, share, at: Count(successes=trials * share, trials=trials, at=at),
    st.floats(0, MAX_TRIALS),
    st.floats(0, 1),
    st.floats(0, 1e11),
)
names = st.text(min_size=1, max_size=9)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outcomes.json"


def saved(outcomes, bucket="math/hard", model="m", *, success=True):
    """Record and wait for the file."""
    outcomes.record(bucket, model, success=success)
    assert outcomes.flush()
    return outcomes


def known(outcomes, bucket="math/hard", model="m"):
    count = outcomes.of(bucket, model)
    return count.successes, count.trials


def at_noon():
    return NOON


# Counting


def test_outcomes_are_counted_per_model_and_bucket():
    """What one model did in one bucket says nothing of others."""
    outcomes = Outcomes(clock=at_noon)
    for success in (True, False, True):
        outcomes.record("math/hard", "m", success=success)
    assert outcomes.of("math/hard", "m") == Count(successes=2, trials=3, at=NOON)
    assert (outcomes.of("math/easy", "m"), outcomes.of("math/hard", "n")) == (Count(), Count())


@given(st.lists(st.booleans(), max_size=2 * int(MAX_TRIALS)))
def test_counts_stay_bounded(successes):
    """However much is recorded, a count has at most so many trials, and never more successes than trials."""
    count = Count()
    for success in successes:
        count = count.plus(Count(successes=float(success), trials=1.0))
    assert 0 <= count.successes <= count.trials + 1e-9
    assert count.trials <= MAX_TRIALS + 1e-9


@given(counts)
def test_a_success_never_lowers_the_count_and_a_failure_never_raises_it(count):
    """Scaling old outcomes down does not turn a success into a loss."""
    assert count.plus(Count(successes=1.0, trials=1.0)).successes >= count.successes - 1e-9
    assert count.plus(Count(trials=1.0)).successes <= count.successes


def test_the_cells_heard_of_last_are_kept():
    """Made-up names cannot fill the memory."""
    old = {("old", str(number)): Count(trials=1.0, at=1.0) for number in range(MAX_CELLS)}
    both = added(old, {("new", "m"): Count(trials=1.0, at=2.0)})
    assert (len(both), ("new", "m") in both) == (MAX_CELLS, True)


def test_threads_lose_no_outcome():
    """Outcomes come from every request at once."""
    outcomes = Outcomes()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: outcomes.record("text/easy", "m", success=True), range(160)))
    assert known(outcomes, "text/easy") == (160.0, 160.0)


@pytest.mark.parametrize(
    ("bucket", "model", "success", "named"),
    [("", "m", True, "bucket=''"), ("b", "", True, "model=''"), ("b", None, True, "model=None"),
     ("b", "m", 1, "success=1"), ("b", "m" * (MAX_NAME_CHARS + 1), True, "model=")],
)  # fmt: skip
def test_what_is_no_outcome_is_refused(bucket, model, success, named):
    """The error names the value; nothing is counted."""
    outcomes = Outcomes()
    with pytest.raises(ConfigError, match=named):
        outcomes.record(bucket, model, success=success)
    assert outcomes.of(bucket, model) == Count()


# The file


def test_what_was_recorded_survives_the_process(path):
    """A new object finds what the old one saved."""
    saved(saved(Outcomes(path)), success=False)
    assert known(Outcomes(path)) == (1.0, 2.0)


@settings(max_examples=20)
@given(st.lists(st.tuples(names, names, st.booleans()), min_size=1, max_size=5))
def test_what_is_written_is_read(tmp_path_factory, recorded):
    """Any names survive the way through the file."""
    path = tmp_path_factory.mktemp("outcomes") / "outcomes.json"
    outcomes = Outcomes(path, clock=at_noon)
    for bucket, model, success in recorded:
        outcomes.record(bucket, model, success=success)
    assert outcomes.flush()
    again = Outcomes(path)
    cells = {(bucket, model) for bucket, model, _ in recorded}
    assert {cell: again.of(*cell) for cell in cells} == {cell: outcomes.of(*cell) for cell in cells}
    assert sum(again.of(*cell).trials for cell in cells) == len(recorded)


def test_objects_that_share_a_file_add_up(path):
    """Each adds its own; none writes over what another saved."""
    one, other = Outcomes(path), Outcomes(path)
    saved(one)
    saved(other, success=False)
    saved(one)
    assert known(one) == known(Outcomes(path)) == (2.0, 3.0)


def test_processes_share_the_file(path):
    """Two processes record into one file and nothing is lost."""
    code = (
        "import sys\nfrom langchain_ctxwin.routing import Outcomes\no = Outcomes(sys.argv[1])\n"
        "for _ in range(20):\n    o.record('b', 'm', success=True)\nassert o.flush(30)\n"
    )
    outcomes = Outcomes(path)
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as process:
        for _ in range(20):
            saved(outcomes, "b")
    assert process.returncode == 0
    assert known(Outcomes(path), "b") == (40.0, 40.0)


def test_recording_writes_in_a_background_thread(path, monkeypatch):
    """Files are not touched on the caller's thread, which may run an event loop."""
    writers = []

    def write(place, text):
        writers.append(threading.current_thread().name)
        replace_text(place, text)

    monkeypatch.setattr("langchain_ctxwin.util.files.replace_text", write)
    saved(Outcomes(path))
    assert writers == ["ctxwin-outcomes"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"version": 0}', '{"version": 1, "outcomes": []}', '{"version": 1, "outcomes": {"b": 1}}',
     "[" * 100_000, '{"version": 1, "outcomes": {"b": {"m": {"successes": 2, "trials": 1, "at": 0}}}}',
     '{"version": 1, "outcomes": {"b": {"m": {"successes": NaN, "trials": 1, "at": 0}}}}',
     '{"version": 1, "outcomes": {"b": {"m": {"successes": 0, "trials": 1' + "0" * 400 + ', "at": 0}}}}'],
)  # fmt: skip
def test_a_corrupt_file_is_set_aside(path, content):
    """The trouble is told once, counting starts anew, and the old content can be looked at."""
    path.write_text(content)
    with capture_logs() as logs:
        outcomes = saved(Outcomes(path))
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["models.outcomes_unreadable"]
    assert known(outcomes) == known(Outcomes(path)) == (1.0, 1.0)
    assert path.with_name("outcomes.json.corrupt").read_text() == content


def test_what_is_valid_in_a_faulty_file_is_kept(path):
    """One bad entry does not cost the others."""
    good = {"successes": 1.0, "trials": 2.0, "at": NOON}
    path.write_text(json.dumps({"version": 1, "outcomes": {"math/hard": {"m": good, "n": "many"}}}))
    assert known(saved(Outcomes(path))) == (2.0, 3.0)


def test_a_file_of_a_newer_version_is_left_alone(path):
    """An older process counts in memory and does not destroy what a newer one saved."""
    newer = '{"version": 2, "outcomes": "of another shape"}'
    path.write_text(newer)
    with capture_logs() as logs:
        outcomes = saved(Outcomes(path))
    assert (path.read_text(), known(outcomes)) == (newer, (1.0, 1.0))
    assert [log["event"] for log in logs] == ["models.outcomes_unreadable", "models.outcomes_not_saved"]


def test_a_file_that_cannot_be_written_costs_nothing(tmp_path):
    """Counting goes on in memory, the trouble is told once, and all is saved when it is over."""
    blocked = tmp_path / "folder"
    blocked.write_text("a file where a folder is needed")
    with capture_logs() as logs:
        outcomes = saved(saved(Outcomes(blocked / "outcomes.json")))
    assert known(outcomes) == (2.0, 2.0)
    assert [log["event"] for log in logs].count("models.outcomes_not_saved") == 1
    blocked.unlink()
    assert known(saved(outcomes)) == known(Outcomes(blocked / "outcomes.json")) == (3.0, 3.0)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs permissions that bind this user")
def test_a_read_only_folder_is_survived(tmp_path):
    """What was there is read, what is new stays in memory."""
    saved(Outcomes(tmp_path / "outcomes.json"))
    tmp_path.chmod(0o500)
    assert known(saved(Outcomes(tmp_path / "outcomes.json"))) == (2.0, 2.0)
    tmp_path.chmod(0o700)


def test_a_path_that_names_no_place_is_refused():
    """The error says what to give instead."""
    with pytest.raises(ConfigError, match="give the path of a file"):
        Outcomes("a\0b")
