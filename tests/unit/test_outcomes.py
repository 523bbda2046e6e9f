"""Recorded outcomes: counted per model and bucket, shared by processes, bounded; file trouble is survived."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin import ConfigError
from langchain_ctxwin.routing import Outcomes
from langchain_ctxwin.routing.outcomes import (
    MAX_TRIALS,
    Count,
)


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


# Counting


def test_outcomes_are_counted_per_model_and_bucket():
    outcomes = Outcomes()
    for success in (True, False, True):
        outcomes.record("math/hard", "m", success=success)
    assert outcomes.of("math/hard", "m") == Count(successes=2, trials=3)
    assert (outcomes.of("math/easy", "m"), outcomes.of("math/hard", "n")) == (
        Count(),
        Count(),
    )


@given(st.lists(st.booleans(), max_size=2 * int(MAX_TRIALS)))
def test_counts_stay_bounded(successes):
    count = Count()
    for success in successes:
        count = count.plus(Count(successes=float(success), trials=1.0))
    assert 0 <= count.successes <= count.trials + 1e-9
    assert count.trials <= MAX_TRIALS + 1e-9


def test_a_chance_moves_from_what_was_presumed_with_what_was_counted():
    assert [Count(successes=n, trials=10.0).chance(0.5) for n in (0, 5, 10)] == [
        0.25,
        0.5,
        0.75,
    ]


def test_what_is_no_outcome_and_no_place_is_refused():
    with pytest.raises(ConfigError, match="success"):
        Outcomes().record("b", "m", success=1)
    with pytest.raises(ConfigError, match="give the path of a file"):
        Outcomes("a\0b")


# The file


def test_a_file_that_cannot_be_written_costs_nothing(tmp_path):
    blocked = tmp_path / "folder"
    blocked.write_text("a file where a folder is needed")
    with capture_logs() as logs:
        outcomes = saved(saved(Outcomes(blocked / "outcomes.json")))
    assert known(outcomes) == (2.0, 2.0)
    assert [log["event"] for log in logs].count("models.outcomes_not_saved") == 1
    blocked.unlink()
    saved(outcomes)
    assert known(outcomes) == (3.0, 3.0)
    assert known(Outcomes(blocked / "outcomes.json")) == (1.0, 1.0)


def test_processes_add_to_one_file(path):
    one, other = Outcomes(path), Outcomes(path)
    saved(one)
    saved(other, success=False)
    assert known(Outcomes(path)) == (1.0, 2.0)
    assert known(one) == (1.0, 1.0)
