"""What slow sources stated survives restarts in one file; trouble with the file is told once and never raised."""

import json
import os
import stat
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models import cache as cache_module
from langchain_ctxwin.models.cache import FILE_VERSION, MAX_SNAPSHOTS, Snapshot, SnapshotFile, newest
from langchain_ctxwin.models.registry import ModelRegistry
from support.model_sources import NOON, ListSource, Watch, model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "models.json"


def snapshot(*models, fetched_at=NOON):
    return Snapshot(models=models, fetched_at=fetched_at)


def events(logs):
    return [log["event"] for log in logs if log["log_level"] == "warning"]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


FULL = ModelInfo(
    name="nova-1",
    provider="acme",
    context_window=8192,
    max_input_tokens=8000,
    max_output_tokens=100,
    input_price=Decimal(0),
    output_price=Decimal("1.10"),
    cache_read_price=Decimal("0.000001"),
    capabilities=frozenset({"tools", "images"}),
    tokenizer_family="acme",
    deprecated=True,
    retires_on=date(2030, 1, 31),
    aliases=("nova", "nova-latest"),
)


def test_every_fact_comes_back(path):
    """Prices to the last digit, free ones too; a model of which nothing is known as well."""
    stored = {"api": snapshot(FULL, ModelInfo(name="bare"))}
    SnapshotFile(path).save(stored)
    assert SnapshotFile(path).load() == stored


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.text(min_size=1), st.lists(st.text(min_size=1).map(lambda name: ModelInfo(name=name))), max_size=3
    )
)
def test_any_names_come_back(tmp_path_factory, listed):
    """Names are other people's texts."""
    path = tmp_path_factory.mktemp("names") / "models.json"
    stored = {key: snapshot(*models) for key, models in listed.items()}
    SnapshotFile(path).save(stored)
    assert SnapshotFile(path).load() == stored


def test_a_missing_file_holds_nothing(path):
    """Without a word."""
    with capture_logs() as logs:
        assert SnapshotFile(path).load() == {}
    assert logs == []


def test_saving_keeps_the_snapshots_of_others(path):
    """Programs share the file."""
    SnapshotFile(path).save({"one": snapshot(FULL)})
    SnapshotFile(path).save({"two": snapshot()})
    SnapshotFile(path).save({"one": snapshot(fetched_at=NOON + 1)})
    assert SnapshotFile(path).load() == {"one": snapshot(fetched_at=NOON + 1), "two": snapshot()}


def test_the_file_does_not_grow_without_limit():
    """The oldest snapshots leave."""
    many = {str(index): snapshot(fetched_at=NOON + index) for index in range(MAX_SNAPSHOTS + 2)}
    assert list(newest(many)) == [str(index) for index in range(2, MAX_SNAPSHOTS + 2)]


def entry(**fields):
    return json.dumps({"version": FILE_VERSION, "snapshots": {"api": {"fetched_at": NOON, "models": [fields]}}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"version": 0}',
        '{"version": 1}',
        '{"version": 1, "snapshots": []}',
        '{"version": 1, "snapshots": {"api": null}}',
        '{"version": 1, "snapshots": {"api": {"fetched_at": "noon", "models": []}}}',
        entry(),
        entry(name=""),
        entry(name=1),
        entry(name="m", context_window="8k"),
        entry(name="m", input_price="cheap"),
        entry(name="m", retires_on="soon"),
        entry(name="m", capabilities=[1]),
        entry(name="m", provider=7),
        entry(name="m", deprecated="no"),
    ],
)
def test_a_corrupt_file_is_set_aside_and_started_anew(path, text):
    """It may be a disk error that somebody wants to look at, so it is moved and not deleted."""
    cache = SnapshotFile(write(path, text))
    with capture_logs() as logs:
        assert cache.load() == {}
        cache.save({"api": snapshot(FULL)})
    assert events(logs) == ["models.cache_corrupt"]
    assert cache.load() == {"api": snapshot(FULL)}
    assert path.with_name("models.json.corrupt").read_text(encoding="utf-8") == text


def test_a_file_of_a_newer_version_is_left_alone(path):
    """Two versions of this package may run on one machine; the older one goes without."""
    text = json.dumps({"version": FILE_VERSION + 1, "snapshots": "in another shape"})
    cache = SnapshotFile(write(path, text))
    with capture_logs() as logs:
        assert cache.load() == {}
        cache.save({"api": snapshot(FULL)})
        cache.save({"api": snapshot(FULL)})
    assert (events(logs), path.read_text(encoding="utf-8")) == (["models.cache_newer"], text)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_told_once(path):
    """The program goes on without."""
    write(path, "{}").parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    cache = SnapshotFile(path)
    with capture_logs() as logs:
        cache.save({"api": snapshot(FULL)})
        cache.save({"api": snapshot(FULL)})
    path.parent.chmod(stat.S_IRWXU)
    assert events(logs) == ["models.cache_not_saved"]


def test_a_place_that_cannot_be_written_is_told_once(tmp_path):
    """A file where the folder should be stops root as well."""
    cache = SnapshotFile(write(tmp_path / "file", "") / "models.json")
    with capture_logs() as logs:
        assert cache.load() == {}
        cache.save({"api": snapshot(FULL)})
        cache.save({"api": snapshot(FULL)})
    assert events(logs) == ["models.cache_unreadable", "models.cache_not_saved"]


def test_no_draft_stays_behind(path):
    """A reader never sees a part of a file, and the folder holds the file and its lock."""
    SnapshotFile(path).save({"api": snapshot(FULL)})
    assert sorted(file.name for file in path.parent.iterdir()) == ["models.json", "models.json.lock"]


# In a registry


def restarted(path, source, watch, **options):
    return ModelRegistry([source], 60, watch, cache_path=path, **options)


def test_a_restart_asks_nothing_within_the_time_to_live(path):
    """Prices, limits and aliases are there at once."""
    watch = Watch()
    first = ListSource(model(), name="api", cache_key="provider api")
    registry = restarted(path, first, watch)
    registry.refresh()
    watch.now += 30
    second = ListSource(name="api", cache_key="provider api")
    assert restarted(path, second, watch).lookup("nova-1") == registry.lookup("nova-1")
    assert (first.fetched, second.fetched) == ([None], [])


def test_a_restart_serves_old_facts_while_the_source_fails(path):
    """A network that is down at the start of a program takes no model away."""
    watch = Watch()
    restarted(path, ListSource(model(), name="api", cache_key="provider api"), watch).refresh()
    watch.now += 10_000
    failing = ListSource(name="api", cache_key="provider api", failing=OSError("down"))
    assert restarted(path, failing, watch).lookup("nova-1").context_window == 8192
    assert failing.fetched == [None]


def test_a_file_from_the_future_is_not_trusted_to_be_fresh(path):
    """The clock was set back: nobody knows how old the facts are."""
    watch = Watch()
    restarted(path, ListSource(model(), name="api", cache_key="provider api"), watch).refresh()
    watch.now -= 1_000_000
    source = ListSource(model(context_window=4096), name="api", cache_key="provider api")
    registry = restarted(path, source, watch)
    registry.refresh()
    assert registry.lookup("nova-1").context_window == 4096


def test_what_the_caller_states_is_not_stored(path):
    """It may have changed until the next start; only APIs and catalogs are worth storing."""
    watch = Watch()
    for tier in ("explicit", "profile"):
        restarted(path, ListSource(model(), name=tier, tier=tier, cache_key=tier), watch).refresh()
    assert SnapshotFile(path).load() == {}


def test_sources_at_different_addresses_are_stored_apart(path):
    """Two servers of one kind serve different models under the same name of a source."""
    watch = Watch()
    here, there = (
        ListSource(model(), name="api", cache_key="provider api"),
        ListSource(model(context_window=4096), name="api", cache_key="provider api"),
    )
    here.cache_key, there.cache_key = "api here", "api there"
    restarted(path, here, watch).refresh()
    restarted(path, there, watch).refresh()
    windows = {key: stored.models[0].context_window for key, stored in SnapshotFile(path).load().items()}
    assert windows == {"api here": 8192, "api there": 4096}


def test_a_source_that_does_not_say_whose_facts_it_states_is_not_stored(path):
    """Another program's source of the same name may state others."""
    restarted(path, ListSource(model(), name="api"), Watch()).refresh()
    assert SnapshotFile(path).load() == {}


def test_a_place_that_is_no_file_is_not_read(tmp_path):
    """A pipe would be waited for, for ever."""
    os.mkfifo(tmp_path / "models.json")
    with capture_logs() as logs:
        assert SnapshotFile(tmp_path / "models.json").load() == {}
    assert events(logs) == ["models.cache_unreadable"]


def test_a_file_beyond_all_measure_is_set_aside(path, monkeypatch):
    """It is not read to its end."""
    monkeypatch.setattr(cache_module, "MAX_FILE_BYTES", 10)
    with capture_logs() as logs:
        assert SnapshotFile(write(path, " " * 11)).load() == {}
    assert events(logs) == ["models.cache_corrupt"]


def test_flushing_waits_until_what_was_fetched_is_saved(path):
    """A program that ends at once loses nothing."""
    registry = restarted(path, ListSource(model(), cache_key="api"), Watch())
    registry.lookup("nova-1")
    assert registry.flush()
    assert list(SnapshotFile(path).load()) == ["api"]


def test_a_failed_refresh_does_not_store_old_facts_as_new(path):
    """Another process may have stored newer ones meanwhile."""
    watch = Watch()
    source = ListSource(model(), name="api", cache_key="provider api")
    registry = restarted(path, source, watch)
    registry.refresh()
    newer = {"provider api": snapshot(model(context_window=1), fetched_at=NOON + 5)}
    SnapshotFile(path).save(newer)
    source.failing = OSError()
    registry.refresh()
    assert SnapshotFile(path).load() == newer


def test_a_path_that_names_no_place_is_refused():
    """Before anything is fetched."""
    with pytest.raises(ConfigError, match="give the path of a file"):
        ModelRegistry([], cache_path="~nobody-of-this-name/models.json")
