"""What slow sources stated survives restarts in one file; trouble with the file is told once and never raised."""

import json
import os
from datetime import date
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.cache import MAX_SNAPSHOTS, Snapshot, newest, snapshot_file
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.models.stored import VERSION
from langchain_ctxwin.util import files
from support.agents import PATIENCE
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
    stored = {"api": snapshot(FULL, ModelInfo(name="bare"))}
    save(snapshot_file(path), stored)
    assert snapshot_file(path).read() == stored


def test_saving_keeps_the_snapshots_of_others(path):
    save(snapshot_file(path), {"one": snapshot(FULL)})
    save(snapshot_file(path), {"two": snapshot()})
    save(snapshot_file(path), {"one": snapshot(fetched_at=NOON + 1)})
    assert snapshot_file(path).read() == {"one": snapshot(fetched_at=NOON + 1), "two": snapshot()}
    assert sorted(file.name for file in path.parent.iterdir()) == ["models.json", "models.json.lock"]  # no draft


def test_the_file_does_not_grow_without_limit():
    many = {str(index): snapshot(fetched_at=NOON + index) for index in range(MAX_SNAPSHOTS + 2)}
    assert list(newest(many)) == [str(index) for index in range(2, MAX_SNAPSHOTS + 2)]


def save(file, snapshots):
    """Do what a registry does with what it fetched."""
    file.save(lambda stored: newest({**stored, **snapshots}))
    assert file.flush(PATIENCE)


def entry(**fields):
    return json.dumps({"version": VERSION, "snapshots": {"api": {"fetched_at": NOON, "models": [fields]}}})


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
    cache = snapshot_file(write(path, text))
    with capture_logs() as logs:
        assert cache.read() == {}
        save(cache, {"api": snapshot(FULL)})
    assert events(logs) == ["models.cache_unreadable"]
    assert cache.read() == {"api": snapshot(FULL)}
    assert path.with_name("models.json.corrupt").read_text(encoding="utf-8") == text


def test_a_file_of_a_newer_version_is_left_alone(path):
    text = json.dumps({"version": VERSION + 1, "snapshots": "in another shape"})
    cache = snapshot_file(write(path, text))
    with capture_logs() as logs:
        assert cache.read() == {}
        save(cache, {"api": snapshot(FULL)})
        save(cache, {"api": snapshot(FULL)})
    assert (events(logs), path.read_text(encoding="utf-8")) == (
        ["models.cache_unreadable", "models.cache_not_saved"],
        text,
    )


# In a registry


def restarted(path, source, watch, **options):
    return ModelRegistry([source], 60, watch, cache_path=path, **options)


def test_a_restart_asks_nothing_within_the_time_to_live(path):
    """After it, old facts serve while the source fails: a network that is down takes no model away."""
    watch, first = Watch(), ListSource(model(), cache_key="provider api")
    registry = restarted(path, first, watch)
    registry.refresh()
    watch.now += 30
    second = ListSource(cache_key="provider api", failing=OSError("down"))
    assert restarted(path, second, watch).lookup("nova-1") == registry.lookup("nova-1")
    assert (first.fetched, second.fetched) == ([None], [])
    watch.now += 10_000
    assert restarted(path, second, watch).lookup("nova-1").context_window == 8192
    assert second.fetched == [None]


def test_a_file_from_the_future_is_not_trusted_to_be_fresh(path):
    watch = Watch()
    restarted(path, ListSource(model(), cache_key="provider api"), watch).refresh()
    watch.now -= 1_000_000
    source = ListSource(model(context_window=4096), cache_key="provider api")
    registry = restarted(path, source, watch)
    registry.refresh()
    assert registry.lookup("nova-1").context_window == 4096


@pytest.mark.parametrize(
    ("tier", "cache_key"),
    [("explicit", "mine"), ("profile", "mine"), ("provider", "")],
    ids=["may change", "is here", "nobody's"],
)
def test_what_may_change_or_has_no_place_is_not_stored(path, tier, cache_key):
    restarted(path, ListSource(model(), tier=tier, cache_key=cache_key), Watch()).refresh()
    assert snapshot_file(path).read() == {}


def test_sources_at_different_addresses_are_stored_apart(path):
    watch = Watch()
    restarted(path, ListSource(model(), cache_key="api here"), watch).refresh()
    restarted(path, ListSource(model(context_window=4096), cache_key="api there"), watch).refresh()
    windows = {key: stored.models[0].context_window for key, stored in snapshot_file(path).read().items()}
    assert windows == {"api here": 8192, "api there": 4096}


def test_what_is_no_file_of_ours_is_not_read_to_its_end(path, tmp_path, monkeypatch):
    """A pipe would be waited for, for ever."""
    os.mkfifo(tmp_path / "pipe.json")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with capture_logs() as logs:
        assert snapshot_file(tmp_path / "pipe.json").read() is None
        assert snapshot_file(write(path, " " * 11)).read() == {}
    assert events(logs) == ["models.cache_unreadable"] * 2


def test_flushing_waits_until_what_was_fetched_is_saved(path):
    registry = restarted(path, ListSource(model(), cache_key="api"), Watch())
    registry.lookup("nova-1")
    assert registry.flush()
    assert list(snapshot_file(path).read()) == ["api"]


def test_a_failed_refresh_does_not_store_old_facts_as_new(path):
    watch = Watch()
    source = ListSource(model(), cache_key="provider api")
    registry = restarted(path, source, watch)
    registry.refresh()
    newer = {"provider api": snapshot(model(context_window=1), fetched_at=NOON + 5)}
    save(snapshot_file(path), newer)
    source.failing = OSError()
    registry.refresh()
    assert snapshot_file(path).read() == newer
