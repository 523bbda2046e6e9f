"""What slow sources stated survives restarts in one file; trouble with the file is told once and never raised."""

import json
import threading
from concurrent.futures import wait
from datetime import date
from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from langchain_ctxwin import ModelInfo, ModelRegistry
from langchain_ctxwin.models.cache import MAX_SNAPSHOTS, SourceSnapshot, newest, snapshot_file
from langchain_ctxwin.models.sources.learned import VERSION, StoredValue
from langchain_ctxwin.util import in_daemon
from support.agents import PATIENCE
from support.model_sources import NOON, ListSource, Watch, model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "models.json"


def snapshot(*models, fetched_at=NOON):
    return SourceSnapshot(models=models, fetched_at=fetched_at)


def events(logs):
    return [log["event"] for log in logs if log["log_level"] == "warning"]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def save(file, snapshots):
    """Do what a registry does with what it fetched."""
    file.save(lambda stored: newest({**stored, **snapshots}))
    assert file.flush(PATIENCE)


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


def test_every_fact_comes_back_and_the_snapshots_of_others_stay(path):
    save(snapshot_file(path), {"one": snapshot(FULL, ModelInfo(name="bare"))})
    save(snapshot_file(path), {"two": snapshot()})
    save(snapshot_file(path), {"two": snapshot(fetched_at=NOON + 1)})
    expected = {"one": snapshot(FULL, ModelInfo(name="bare")), "two": snapshot(fetched_at=NOON + 1)}
    assert snapshot_file(path).read() == expected
    assert sorted(file.name for file in path.parent.iterdir()) == ["models.json", "models.json.lock"]  # no draft


def test_the_file_does_not_grow_without_limit():
    many = {str(index): snapshot(fetched_at=NOON + index) for index in range(MAX_SNAPSHOTS + 2)}
    assert list(newest(many)) == [str(index) for index in range(2, MAX_SNAPSHOTS + 2)]


WRONG = [
    *({}, {"name": ""}, {"name": 1}, {"name": "m", "context_window": "8k"}, {"name": "m", "input_price": "cheap"}),
    *({"name": "m", "retires_on": "soon"}, {"name": "m", "capabilities": [1]}, {"name": "m", "provider": 7}),
    {"name": "m", "deprecated": "no"},
]


@pytest.mark.parametrize(
    "snapshots",
    [
        *([], {"api": None}, {"api": {"fetched_at": "noon", "models": []}}),
        *({"api": {"fetched_at": NOON, "models": [fields]}} for fields in WRONG),
    ],
)
def test_a_corrupt_file_is_started_anew(path, snapshots):
    text = json.dumps({"version": VERSION, "snapshots": snapshots})
    cache = snapshot_file(write(path, text))
    with capture_logs() as logs:
        assert cache.read() == {}
        save(cache, {"api": snapshot(FULL)})
    assert events(logs) == ["models.cache_unreadable"]
    assert cache.read() == {"api": snapshot(FULL)}


def test_a_file_of_a_newer_version_is_left_alone(path):
    text = json.dumps({"version": VERSION + 1, "snapshots": "in another shape"})
    cache = snapshot_file(write(path, text))
    with capture_logs() as logs:
        assert cache.read() == {}
        save(cache, {"api": snapshot(FULL)})
        save(cache, {"api": snapshot(FULL)})
    assert events(logs) == ["models.cache_unreadable", "models.cache_not_saved"]
    assert path.read_text(encoding="utf-8") == text


# In a registry


def restarted(path, source, watch):
    return ModelRegistry([source], 60, watch, cache_path=path)


def test_a_restart_asks_nothing_within_the_time_to_live(path):
    """After it, old facts serve while the source fails: a network that is down takes no model away."""
    watch, first = Watch(), ListSource(model(), cache_key="provider api")
    registry = restarted(path, first, watch)
    registry.lookup("nova-1")
    assert registry.flush()  # what was fetched is saved then
    watch.now += 30
    second = ListSource(cache_key="provider api", failing=OSError("down"))
    assert restarted(path, second, watch).lookup("nova-1") == registry.lookup("nova-1")
    assert (first.fetched, second.fetched) == ([None], [])
    watch.now += 10_000
    assert restarted(path, second, watch).lookup("nova-1").context_window == 8192
    assert second.fetched == [None]


@pytest.fixture
def reading(monkeypatch):
    """Threads that read the file, each of which waits until `released` is set."""
    read, threads, released = StoredValue.read, [], threading.Event()

    def held(file):
        if file._file is not None:  # a memory of limits without a file has one of these too
            threads.append(threading.current_thread())
            released.wait(PATIENCE)
        return read(file)

    monkeypatch.setattr(StoredValue, "read", held)
    yield threads, released
    released.set()


async def test_an_event_loop_reads_no_file(path, reading):
    threads, released = reading
    save(snapshot_file(path), {"provider api": snapshot(model())})
    released.set()
    source = ListSource(cache_key="provider api")
    info = await restarted(path, source, Watch()).alookup("nova-1")
    assert (info.context_window, source.fetched, len(threads)) == (8192, [], 1)
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("method", ["lookup", "refresh"])
def test_a_file_system_that_hangs_is_waited_for_once_and_the_sources_are_asked(path, reading, method):
    """What is read late replaces no answer."""
    threads, released = reading
    stored = snapshot(model(context_window=1))
    save(snapshot_file(path), {"provider api": stored, "provider other": snapshot(model("other"))})
    sources = ListSource(model(), cache_key="provider api"), ListSource(cache_key="provider other", failing=OSError())
    known = ModelRegistry(sources, 60, Watch(), cache_path=path, timeout_seconds=0.3)
    if method == "refresh":
        known.refresh()
    assert [known.lookup("nova-1").context_window for _ in range(2)] == [8192, 8192]
    (late, _) = known._cache._opening
    released.set()
    late.result()
    assert [known.lookup(name).context_window for name in ("nova-1", "other")] == [8192, 8192]
    assert len(threads) == 1


def test_a_file_that_no_thread_could_read_is_read_later(path, monkeypatch):
    save(snapshot_file(path), {"provider api": snapshot(model())})
    source = ListSource(cache_key="provider api")
    known = restarted(path, source, Watch())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError))
        assert known.models() == []
    assert (known.lookup("nova-1").context_window, source.fetched) == (8192, [])


def test_answers_that_come_at_once_are_all_kept():
    others = []

    def now():
        if not others:
            others.append(in_daemon(lambda: feed.fetch("other")))
            wait(others, 0.2)  # it may have to wait for this answer
        return NOON

    feed = ModelRegistry([ListSource(model(), model("other"))], 60, now)._cache.feeds[0]
    feed.fetch("nova-1")
    wait(others)
    assert {*feed.answers} == {"nova-1", "other"}


def test_only_what_cannot_change_and_has_a_place_is_stored_each_place_apart(path):
    keys = [("explicit", "mine"), ("profile", "mine"), ("provider", ""), ("provider", "here"), ("catalog", "there")]
    for tier, cache_key in keys:
        restarted(path, ListSource(model(), tier=tier, cache_key=cache_key), Watch()).refresh()
    assert snapshot_file(path).read() == {"here": snapshot(model()), "there": snapshot(model())}


def test_a_failed_refresh_does_not_store_old_facts_as_new(path):
    source = ListSource(model(), cache_key="provider api")
    registry = restarted(path, source, Watch())
    registry.refresh()
    newer = {"provider api": snapshot(model(context_window=1), fetched_at=NOON + 5)}
    save(snapshot_file(path), newer)
    source.failing = OSError()
    registry.refresh()
    assert snapshot_file(path).read() == newer
