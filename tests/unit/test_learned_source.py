"""What providers were heard to say: the latest counts, it expires, processes share it, file trouble is survived."""

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin import ModelInfo, ModelLimits
from langchain_ctxwin.core.limits import lowered
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources import LearnedSource
from langchain_ctxwin.models.sources.learned import (
    LEARNED_TTL_SECONDS,
    MAX_MODELS,
    MAX_TOKENS,
    HeardLimit,
    limits_file,
    merged,
)
from langchain_ctxwin.routing.quality import Outcomes
from langchain_ctxwin.util import alone
from support.agents import PATIENCE
from support.model_sources import NOON, Watch

DAY = 24 * 3600.0

statements = st.builds(
    HeardLimit,
    tokens=st.integers(1, 5) | st.integers(1, MAX_TOKENS),
    heard_at=st.sampled_from([NOON, NOON + 1]) | st.floats(0, 1e12),
    is_withdrawn=st.booleans(),
)
names, fields = (
    st.sampled_from(["a", "b"]) | st.text(min_size=1),
    st.sampled_from(["context_window", "max_input_tokens"]),
)
heard = st.dictionaries(names, st.dictionaries(fields, statements, min_size=1), max_size=4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "learned.json"


def saved(source, model="m", **limits):
    """Learn and wait for the file."""
    source.learn(model, limits or {"context_window": 8192})
    assert source.flush()
    return source


def entry(tokens=8192, heard_at=NOON):
    return {"tokens": tokens, "heard_at": heard_at}


def document(**models):
    return json.dumps({"version": 1, "models": models})


def warnings_of(logs):
    return [(log["event"], log["path"]) for log in logs if log["log_level"] == "warning"]


# What is remembered


@pytest.mark.parametrize("latest", [4096, 16_384])
@pytest.mark.parametrize("passed_seconds", [0, -DAY])
def test_the_latest_statement_wins(latest, passed_seconds, path):
    """Smaller or larger, in memory and in the file, even when the clock stands still or was set back."""
    watch = Watch()
    source = saved(LearnedSource(path, clock=watch), context_window=8192)
    watch.now += passed_seconds
    saved(source, context_window=latest)
    assert source.recall("m") == LearnedSource(path, clock=watch).recall("m") == {"context_window": latest}


def test_a_statement_expires(path):
    watch = Watch()
    source = saved(LearnedSource(path, clock=watch), context_window=8192, max_input_tokens=6000)
    watch.now += DAY
    saved(source, max_input_tokens=6000)  # heard again, it lives on
    watch.now = NOON + LEARNED_TTL_SECONDS - 1
    assert source.recall("m") == {"context_window": 8192, "max_input_tokens": 6000}
    watch.now = NOON + LEARNED_TTL_SECONDS
    assert source.recall("m") == LearnedSource(path, clock=watch).recall("m") == {"max_input_tokens": 6000}
    watch.now += DAY
    assert (source.recall("m"), source.fetch(None)) == ({}, [])


@pytest.mark.parametrize("heard_at", [NOON + 2 * LEARNED_TTL_SECONDS, float("nan"), float("inf"), -float("inf")])
def test_a_statement_of_an_impossible_time_does_not_count(path, heard_at):
    path.write_text(document(m={"context_window": entry(heard_at=heard_at)}))
    source = LearnedSource(path, clock=Watch())
    assert source.recall("m") == {}
    saved(source, context_window=4096)
    assert LearnedSource(path, clock=Watch()).recall("m") == {"context_window": 4096}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("context_window", value) for value in (0, -1, True, 8192.0, "8192", None, MAX_TOKENS + 1)),
        ("max_output_tokens", 1024),
        ("", 1024),
    ],
)
def test_a_bad_limit_is_refused_and_changes_nothing(field, value):
    """The error names the model, the field and the value; the good field beside it is not kept either."""
    source = LearnedSource()
    with pytest.raises(ConfigError) as caught:
        source.learn("m", {"max_input_tokens": 6000, field: value})
    assert "'m'" in str(caught.value)
    assert (repr(value) if "window" in field else repr(field)) in str(caught.value)
    assert source.recall("m") == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(({"ttl_seconds": seconds}, f"ttl_seconds={seconds}") for seconds in (0, -1.0, float("nan"))),
        *(({"path": nowhere}, "path=") for nowhere in ("~nobody-of-this-name/learned.json", "a\0b")),
    ],
)
def test_what_can_never_work_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        LearnedSource(**arguments)


def test_the_models_heard_of_longest_ago_leave_first(path):
    full = {f"m{n}": {"context_window": HeardLimit(tokens=8192, heard_at=NOON + n)} for n in range(MAX_MODELS)}
    file = limits_file(path)
    file.save(lambda _: full)
    assert file.flush(PATIENCE)
    watch = Watch(NOON + DAY)
    source = LearnedSource(path, clock=watch)
    for name in ("m0", "new"):
        saved(source, name)
    expected = {*full, "new"} - {"m1"}
    again = LearnedSource(path, clock=watch)
    assert {info.name for info in source.fetch(None)} == {info.name for info in again.fetch(None)} == expected


# As a source of the registry


def test_entries_are_fetched_as_model_infos():
    source = LearnedSource()
    source.learn("b", {"context_window": 8192})
    source.learn("b", {"max_input_tokens": 6000})
    source.learn("a", {"max_input_tokens": 100})
    both = {"context_window": "learned", "max_input_tokens": "learned"}
    infos = [
        ModelInfo(name="a", max_input_tokens=100, provenance={"max_input_tokens": "learned"}),
        ModelInfo(name="b", context_window=8192, max_input_tokens=6000, provenance=both),
    ]
    assert source.fetch(None) == infos
    assert (source.fetch("b"), source.fetch("c")) == (infos[1:], [])
    assert infos[1].limits == ModelLimits(8192, 6000, source="learned")


def test_an_input_limit_larger_than_the_window_is_dropped():
    """Two statements of different times may contradict each other: the smaller is obeyed, nothing raises."""
    source = LearnedSource()
    source.learn("m", {"max_input_tokens": 9000})
    source.learn("m", {"context_window": 8192})
    assert source.fetch("m") == [ModelInfo(name="m", context_window=8192, provenance={"context_window": "learned"})]
    assert lowered(ModelLimits(32_768), source.recall("m")) == ModelLimits(8192)


# The file


def test_another_process_knows_what_was_saved(path):
    """The file holds the same entries, in a form with a version, with nothing but its lock beside it."""
    source = LearnedSource(path, clock=Watch())
    saved(source, "m", context_window=8192, max_input_tokens=6000)
    assert LearnedSource(str(path), clock=Watch()).fetch(None) == source.fetch(None)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "models": {"m": {"context_window": entry(8192), "max_input_tokens": entry(6000)}},
    }
    assert {file.name for file in path.parent.iterdir()} == {"learned.json", "learned.json.lock"}


@settings(max_examples=20)
@given(heard=heard)
def test_statements_survive_the_file(tmp_path_factory, heard):
    path = tmp_path_factory.getbasetemp() / "round_trip.json"
    path.unlink(missing_ok=True)
    file = limits_file(path)
    file.save(lambda _: heard)
    assert (file.flush(PATIENCE), file.read()) == (True, heard)


@settings(max_examples=30)
@given(one=heard, other=heard, third=heard)
def test_merging_keeps_the_newest(one, other, third):
    both = merged(one, other)
    assert both == merged(other, one) == merged(both, one) == merged(both, other)
    assert merged(both, third) == merged(one, merged(other, third))
    assert both.keys() == one.keys() | other.keys()
    for model, kept in both.items():
        assert kept.keys() == one.get(model, {}).keys() | other.get(model, {}).keys()
        for field, statement in kept.items():
            said = [heard[model][field] for heard in (one, other) if field in heard.get(model, {})]
            assert statement in said
            assert statement.heard_at == max(each.heard_at for each in said)


def test_what_others_saved_meanwhile_is_kept(path):
    """Sources on one file that know nothing of each other lose nothing in turn, and learn from each other."""
    watch = Watch()
    first, second = LearnedSource(path, clock=watch), LearnedSource(path, clock=watch)
    saved(first, "a", context_window=1000)
    watch.now += 1
    saved(second, "b", context_window=2000)
    saved(second, "a", max_input_tokens=500)
    saved(first, "c", context_window=3000)
    expected = {"a": (1000, 500), "b": (2000, None), "c": (3000, None)}
    for source in (first, LearnedSource(path, clock=watch)):
        assert {i.name: (i.context_window, i.max_input_tokens) for i in source.fetch(None)} == expected
    assert second.recall("c") == {}
    second.refresh()
    assert second.recall("c") == {"context_window": 3000}


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks there")
def test_threads_and_sources_that_learn_at_once_lose_nothing(path):
    sources = [LearnedSource(path) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: saved(sources[number % 4], f"m{number}", context_window=number + 1), range(80)))
    learned = {info.name: info.context_window for info in LearnedSource(path).fetch(None)}
    assert learned == {f"m{number}": number + 1 for number in range(80)}


def test_nothing_is_written_while_nothing_changed(path):
    with capture_logs() as logs:
        source = LearnedSource(path, clock=Watch())
    source.learn("m", {})
    source.learn("", {"context_window": 8192})  # it would apply to every other unnamed model
    source.refresh()
    assert (source.flush(), list(path.parent.iterdir()), logs, source.fetch(None)) == (True, [], [], [])
    saved(source)
    before = path.stat().st_ino  # a file that is written is a new one
    source.refresh()
    source.recall("m")
    source.fetch(None)
    with pytest.raises(ConfigError):
        source.learn("m", {"context_window": 0})
    assert (source.flush(), path.stat().st_ino) == (True, before)


def test_a_file_that_already_says_it_better_is_not_written(path):
    """Another computer, whose clock is ahead, heard of the model meanwhile: its statement is the newer one."""
    source = LearnedSource(path, clock=Watch())
    saved(LearnedSource(path, clock=Watch(NOON + DAY)), context_window=4096)
    before = path.stat().st_ino
    saved(source, context_window=8192)
    assert (source.recall("m"), path.stat().st_ino) == ({"context_window": 4096}, before)


def test_the_path_is_fixed_when_the_source_is_made(tmp_path, monkeypatch):
    """`~` is the home folder, a missing folder is made; a later change of folder changes nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    saved(LearnedSource("~/made/learned.json"))
    monkeypatch.chdir(tmp_path)
    relative = LearnedSource("relative.json")
    monkeypatch.chdir(tmp_path / "made")
    saved(relative)
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json")}
    assert files == {str(Path("made", "learned.json")), "relative.json"}


def make_learned(path):
    return LearnedSource(path)


def make_outcomes(path):
    return Outcomes(path)


on_each_file = pytest.mark.parametrize("make", [make_learned, make_outcomes])
FOREIGN = [b"root:x:0:0:root:/root:/bin/sh\n", b"\x7fELF\x00\xff", b"[]", b'{"version": 3}', b'{"name": "app"}', b"["]


@on_each_file
@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path, make, content):
    path = tmp_path / "settings.conf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"settings\.conf is a file that holds something else: give another path"):
        make(path)
    assert (path.read_bytes(), [file.name for file in tmp_path.iterdir()]) == (content, ["settings.conf"])


def test_what_comes_into_the_place_of_the_file_later_is_left_as_it_is(tmp_path):
    path = tmp_path / "learned.json"
    source = saved(LearnedSource(path))
    path.write_bytes(b"now something else")
    with capture_logs() as logs:
        saved(source, "a")
    assert warnings_of(logs) == [("models.learned_not_saved", str(path))]
    assert path.read_bytes() == b"now something else"
    path.unlink()
    saved(source, "c")
    assert {info.name for info in LearnedSource(path).fetch(None)} >= {"a", "c"}


def test_an_empty_file_is_filled(path):
    path.touch()
    with capture_logs() as logs:
        saved(LearnedSource(path))
    assert (logs, LearnedSource(path).recall("m")) == ([], {"context_window": 8192})


# Trouble with the file


@pytest.mark.parametrize(
    "content",
    [
        *(b'{"version": 0, "models": {}}', b'{"version": 1, "models": []}'),
        *(
            document(bad=invalid, good={"context_window": entry(4096)}).encode()
            for invalid in (
                8192,
                {"context_window": 8192},
                {"context_window": None},
                *({"context_window": entry(tokens=tokens)} for tokens in (0, True, 1e4, "8192", MAX_TOKENS + 1)),
                *({"context_window": entry(heard_at=heard_at)} for heard_at in ("now", None)),
                {"context_window": {"tokens": 8192}},
                {"price": entry()},
            )
        ),
    ],
)
def test_a_file_that_is_not_understood_is_reported_and_replaced(path, content):
    """Once; the source works in memory, and the first save begins anew."""
    path.write_bytes(content)
    with capture_logs() as logs:
        source = LearnedSource(path)
        assert source.fetch(None) == []
        saved(source)
    assert warnings_of(logs) == [("models.learned_unreadable", str(path))]
    assert re.match(r"no limits of version 1: (version|models)", logs[0]["reason"])
    assert LearnedSource(path).recall("m") == {"context_window": 8192}


def test_the_fault_of_a_file_is_named(path):
    path.write_text(document(m={"context_window": entry(tokens=0)}))
    with capture_logs() as logs:
        LearnedSource(path)
    assert [log["reason"] for log in logs] == ["no limits of version 1: models.m.context_window.tokens"]


def test_names_without_end_are_not_remembered(path):
    """A file that another program wrote keeps its other entries."""
    long = "m" * 301
    path.write_text(document(**{long: {"context_window": entry()}, "m": {"context_window": entry()}}))
    source = LearnedSource(path, clock=lambda: NOON)
    source.learn(long, {"context_window": 4096})
    assert [(info.name, info.context_window) for info in source.fetch(None)] == [("m", 8192)]


def test_trouble_that_appears_later_is_reported_once_and_memory_goes_on(path):
    """A folder in the place of the file can be neither read nor replaced; it is over when the folder is gone."""
    source = LearnedSource(path)
    path.mkdir()
    with capture_logs() as logs:
        saved(source, "a")
        saved(source, "b")
        source.refresh()
        source.refresh()
    assert warnings_of(logs) == [("models.learned_not_saved", str(path)), ("models.learned_unreadable", str(path))]
    assert {log["reason"].partition(":")[0] for log in logs} == {"IsADirectoryError"}
    assert {file.name for file in path.parent.iterdir()} == {"learned.json", "learned.json.lock"}  # no draft is left
    path.rmdir()
    saved(source, "c")
    assert [info.name for info in LearnedSource(path).fetch(None)] == ["a", "b", "c"]
    path.unlink()
    path.mkdir()
    with capture_logs() as logs:
        saved(source, "d")
    assert warnings_of(logs) == [("models.learned_not_saved", str(path))]


# Not in the caller's thread


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks there")
def test_learning_does_not_wait_for_the_file(path):
    source = LearnedSource(path)
    with alone(path):
        source.learn("m", {"context_window": 8192})
        assert (source.recall("m"), source.flush(0.01)) == ({"context_window": 8192}, False)
        source.learn("n", {"context_window": 4096})  # while the writer is busy: saved in its next round
    assert source.flush()
    assert [info.name for info in LearnedSource(path).fetch(None)] == ["m", "n"]


def test_a_process_without_more_threads_goes_on_in_memory(path, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    source = LearnedSource(path)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(threading.Thread, "start", refuse)
        source.learn("m", {"context_window": 8192})
    assert (source.flush(), source.recall("m")) == (True, {"context_window": 8192})
    assert warnings_of(logs) == [("models.learned_not_saved", str(path))]
    saved(source, "n")
    assert [info.name for info in LearnedSource(path).fetch(None)] == ["m", "n"]


EVENT_LOOP_PROBE = """
import asyncio, json, sys, threading
from langchain_ctxwin.models.sources import LearnedSource
touched = []
def watch(event, args):
    if event == "open" or event.startswith(("os.", "fcntl.")):
        touched.append((threading.current_thread() is threading.main_thread(), event))
async def main():
    source = LearnedSource(sys.argv[1])
    sys.addaudithook(watch)
    source.learn("m", {"context_window": 8192})
    assert source.recall("m") and source.fetch(None)
    await asyncio.to_thread(source.flush)
    print(json.dumps(sorted(set(map(tuple, touched)))))
asyncio.run(main())
"""


def test_the_thread_of_an_event_loop_touches_no_file(path):
    """Another process learns inside a coroutine; every file operation happens in its background thread."""
    command = [sys.executable, "-B", "-c", EVENT_LOOP_PROBE, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    touched = json.loads(output)
    assert [event for in_loop, event in touched if in_loop] == []
    assert {"open", "os.rename"} <= {event for _, event in touched}
    assert LearnedSource(path).recall("m") == {"context_window": 8192}


def test_a_clock_or_a_log_handler_may_come_back_to_the_source():
    """It is asked under the source's lock, by the same thread."""

    def clock():
        source.accepted("another", 1)
        return 0.0

    source = LearnedSource(clock=clock)
    learner = threading.Thread(target=lambda: source.learn("m", {"context_window": 8192}), daemon=True)
    learner.start()
    learner.join(10)
    assert source.recall("m") == {"context_window": 8192}
