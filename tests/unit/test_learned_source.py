"""What providers were heard to say: the latest counts, it expires, processes share it, file trouble is survived."""

import pytest

from langchain_ctxwin import ModelInfo, ModelLimits
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources import (
    LEARNED_TTL_SECONDS,
    MAX_TOKENS,
    LearnedSource,
)
from support.model_sources import wait_for_writers
from support.walking import FakeClock

DAY = 24 * 3600.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "learned.json"


def saved(source, model="m", **limits):
    source.learn(model, limits or {"context_window": 8192})
    wait_for_writers()
    return source


@pytest.mark.parametrize("latest", [4096, 16_384])
def test_the_latest_statement_wins(latest, path):
    """Smaller or larger, in memory and in the file."""
    watch = FakeClock()
    source = saved(LearnedSource(path, clock=watch), context_window=8192)
    watch.now += 1
    saved(source, context_window=latest)
    assert (
        source.recall("m")
        == LearnedSource(path, clock=watch).recall("m")
        == {"context_window": latest}
    )


def test_a_statement_expires(path):
    watch = FakeClock()
    source = saved(
        LearnedSource(path, clock=watch), context_window=8192, max_input_tokens=6000
    )
    watch.now += DAY
    saved(source, max_input_tokens=6000)  # heard again, it lives on
    watch.now += LEARNED_TTL_SECONDS - DAY
    assert (
        source.recall("m")
        == LearnedSource(path, clock=watch).recall("m")
        == {"max_input_tokens": 6000}
    )
    watch.now += DAY
    assert (source.recall("m"), source.fetch(None)) == ({}, [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("context_window", value)
            for value in (0, True, 8192.0, "8192", None, MAX_TOKENS + 1)
        ),
        ("max_output_tokens", 1024),
    ],
)
def test_a_bad_limit_is_refused_and_changes_nothing(field, value):
    source = LearnedSource()
    with pytest.raises(
        ConfigError, match=r"'m': .*give context_window or max_input_tokens"
    ):
        source.learn("m", {"max_input_tokens": 6000, field: value})
    assert source.recall("m") == {}


def test_a_path_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="path="):
        LearnedSource(5)


def test_entries_are_fetched_as_model_infos():
    """Of two statements that contradict each other the smaller is obeyed."""
    source = LearnedSource()
    source.learn("b", {"context_window": 8192, "max_input_tokens": 9000})
    source.learn("a", {"max_input_tokens": 100})
    infos = [
        ModelInfo(name="a", max_input_tokens=100),
        ModelInfo(name="b", context_window=8192),
    ]
    assert (source.fetch(None), source.fetch("b"), source.fetch("c")) == (
        infos,
        infos[1:],
        [],
    )
    assert infos[1].limits == ModelLimits(8192)
