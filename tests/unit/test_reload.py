"""Which settings hold after a file changed, and when does its content count as complete?"""

import sys
import threading
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from langchain_ctxwin.config import FileConfig, LiveConfig
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.reload import DOUBTFUL_SECONDS, SETTLE_SECONDS, ConfigFile, Seen, Settling, folders_of

WHOLE = Seen(content=b"keep = 0.4\n")


@pytest.fixture
def path(tmp_path):
    """A valid settings file."""
    path = tmp_path / "settings.toml"
    path.write_text("keep = 0.4\n")
    return path


def test_the_file_is_read_at_once(path):
    """No watching is needed for the settings of the start."""
    settings = ConfigFile(path)
    assert (settings.current, settings.problem) == (FileConfig(keep=0.4), "")
    assert isinstance(settings, LiveConfig)


@pytest.mark.parametrize("text", [None, "", "keep = 'x'\n", "keep = = 1\n", "kepp = 0.4\n"])
def test_a_bad_file_at_the_start_raises(tmp_path, text):
    """There is no last good configuration yet."""
    path = tmp_path / "settings.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"settings\.toml"):
        ConfigFile(path)


def test_a_reload_exchanges_the_settings_and_logs_what_differs(path):
    """The event names every setting with its values before and after; what was read before stays as it is."""
    settings = ConfigFile(path)
    before = settings.current
    path.write_text("keep = 0.3\n[tool_results.per_tool.search]\nmax_tokens = 100\n")
    with capture_logs() as logs:
        assert settings.reload()
    differences = {"keep": [0.4, 0.3], "tool_results.per_tool.search.max_tokens": [None, 100]}
    assert logs == [{"event": "config.reloaded", "log_level": "info", "path": str(path), "changes": differences}]
    assert (before.keep, settings.current.keep) == (0.4, 0.3)


def test_secrets_are_masked_in_the_log(path):
    """A change of keys is told, their values are not."""
    path.write_text('[tool_results]\ncursor_keys = ["s3cret"]\n')
    settings = ConfigFile(path)
    path.write_text('[tool_results]\ncursor_keys = ["s3cret", "n3wer"]\n')
    with capture_logs() as logs:
        settings.reload()
    assert logs[0]["changes"] == {"tool_results.cursor_keys": [["**********"], ["**********", "**********"]]}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("keep = 0\n", "{path}: invalid FileConfig: keep=0: Input should be greater than 0"),
        ("", "cannot read settings from {path}: it is empty: give at least one setting, or a comment"),
        ("keep = \n", "cannot read settings from {path}: Invalid value (at line 1, column 8)"),
        (None, "cannot read settings from {path}: No such file or directory"),
    ],
)
def test_a_bad_file_keeps_the_last_good_settings_and_logs_the_error(path, text, error):
    """Whatever is wrong, the settings stay, and the exact error is logged and kept."""
    settings = ConfigFile(path)
    path.unlink() if text is None else path.write_text(text)
    with capture_logs() as logs:
        assert not settings.reload()
    told = [(log["event"], log["error"]) for log in logs]
    assert told == [("config.rejected", error.format(path=path))]
    assert (settings.current, settings.problem) == (FileConfig(keep=0.4), error.format(path=path))


def test_unchanged_settings_are_no_event(path):
    """Another spelling of the same values changes nothing: not even the object."""
    settings = ConfigFile(path)
    before = settings.current
    path.write_text("# the same\nkeep = 0.40\n")
    with capture_logs() as logs:
        assert settings.reload()
    assert (logs, settings.current) == ([], before)
    assert settings.current is before


def test_a_mended_file_is_told_although_nothing_changed(path):
    """Whoever saw the rejection wants to see its end."""
    settings = ConfigFile(path)
    path.write_text("keep = 'x'\n")
    settings.reload()
    path.write_text("keep = 0.4\n")
    with capture_logs() as logs:
        settings.reload()
    assert [(log["event"], log["changes"]) for log in logs] == [("config.reloaded", {})]
    assert settings.problem == ""


def test_the_callback_gets_both_settings(path):
    """Only when something differs."""
    calls = []
    settings = ConfigFile(path, on_change=lambda before, after: calls.append((before.keep, after.keep)))
    settings.reload()
    path.write_text("keep = 0.3\n")
    settings.reload()
    assert calls == [(0.4, 0.3)]


def test_a_failing_callback_changes_nothing(path):
    """The settings are active, and the failure is logged."""

    def fail(before, after):
        raise RuntimeError("no")

    settings = ConfigFile(path, on_change=fail)
    path.write_text("keep = 0.3\n")
    with capture_logs() as logs:
        assert settings.reload()
    assert [log["event"] for log in logs] == ["config.reloaded", "config.callback_failed"]
    assert settings.current.keep == 0.3


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit])
def test_the_callback_is_called_again_after_it_failed(path, failure):
    """Whatever it raised."""
    calls = []

    def fail(before, after):
        calls.append(after.keep)
        raise failure

    settings = ConfigFile(path, on_change=fail)
    for keep in (0.3, 0.2):
        path.write_text(f"keep = {keep}\n")
        assert settings.reload()
    assert calls == [0.3, 0.2]


def test_a_callback_that_reloads_is_told_one_change_after_the_other(path):
    """The second one when it is done with the first."""
    calls = []

    def note(before, after):
        calls.append(("begin", before.keep, after.keep))
        if after.keep == 0.3:
            path.write_text("keep = 0.2\n")
            settings.reload()
        calls.append(("end", before.keep, after.keep))

    settings = ConfigFile(path, on_change=note)
    path.write_text("keep = 0.3\n")
    settings.reload()
    assert calls == [("begin", 0.4, 0.3), ("end", 0.4, 0.3), ("begin", 0.3, 0.2), ("end", 0.3, 0.2)]


def test_a_callback_that_hangs_holds_up_no_other_reload(path):
    """Its settings are active, and the callback hears of them when it is done."""
    begun, may_end, calls = threading.Event(), threading.Event(), []

    def hang(before, after):
        calls.append(after.keep)
        begun.set()
        may_end.wait()

    settings = ConfigFile(path, on_change=hang)
    path.write_text("keep = 0.3\n")
    hanging = threading.Thread(target=settings.reload)
    hanging.start()
    begun.wait()
    path.write_text("keep = 0.2\n")
    assert (settings.reload(), settings.current.keep, calls) == (True, 0.2, [0.3])
    may_end.set()
    hanging.join()
    assert calls == [0.3, 0.2]


def test_a_log_that_fails_changes_nothing(path):
    """Neither for good files nor for bad ones."""

    def fail(*_):
        raise OSError("the stream is closed")

    settings = ConfigFile(path)
    before = structlog.get_config()
    structlog.configure(processors=[fail])
    try:
        path.write_text("keep = 0.3\n")
        assert settings.reload()
        path.write_text("keep = 'x'\n")
        assert not settings.reload()
    finally:
        structlog.configure(**before)
    assert (settings.current.keep, "keep='x'" in settings.problem) == (0.3, True)


def test_without_watchfiles_the_extra_is_named(path, monkeypatch):
    """Reading and reloading by hand work without it."""
    monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
    settings = ConfigFile(path)
    assert settings.reload()
    with pytest.raises(ConfigError, match=r'pip install "langchain-ctxwin\[reload\]"'):
        settings.start()
    settings.stop()


@pytest.fixture
def hasty_threads():
    """Switch threads a hundred times as often: more of them meet, and none waits long for its turn."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 100)
    yield
    sys.setswitchinterval(interval)


def test_readers_see_only_whole_settings(path, hasty_threads):
    """Each version states one number twice; no reader sees two."""
    versions = [f"max_history_tokens = {n}\n[tool_results]\nmax_tokens = {n}\n" for n in range(1, 51)]
    path.write_text(versions[0])
    settings, done, torn = ConfigFile(path), threading.Event(), []

    def read():
        while not done.is_set():
            now = settings.current
            if now.max_history_tokens != now.tool_results.max_tokens:
                torn.append(now)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for version in versions:
        path.write_text(version)
        settings.reload()
    done.set()
    for reader in readers:
        reader.join()
    assert (torn, settings.current.max_history_tokens) == ([], 50)


def test_content_settles_when_it_stays_the_same():
    """Not when it is first seen, not a moment later, then once."""
    settling = Settling(Seen())
    offers = [settling.offer(WHOLE, now) for now in (0.0, SETTLE_SECONDS / 2, SETTLE_SECONDS, 1.0)]
    assert offers == [None, None, WHOLE, None]


def test_a_write_begins_the_wait_anew_even_when_it_left_the_content_alone():
    """The stamp of the file differs, so its writer is still there."""
    settling, other = Settling(Seen()), Seen(content=WHOLE.content, stamp=(1, 2, 3))
    settling.offer(WHOLE, 0.0)
    assert settling.offer(other, SETTLE_SECONDS) is None
    assert settling.offer(other, 2 * SETTLE_SECONDS) == WHOLE


@pytest.mark.parametrize("content", [b"", b" \n", b"keep = 0.4\nmax_recov", b"keep = 0"])
def test_content_that_looks_unfinished_has_to_stay_longer(content):
    """An empty file, and one that ends in the middle of a line."""
    settling, seen = Settling(WHOLE), Seen(content=content)
    settling.offer(seen, 0.0)
    assert settling.wait_seconds(0.0) == DOUBTFUL_SECONDS
    assert [settling.offer(seen, now) for now in (SETTLE_SECONDS, DOUBTFUL_SECONDS)] == [None, seen]


def test_json_needs_no_end_of_line():
    """Its last brace is one."""
    assert Seen(content=b'{"keep": 0.4}').settle_seconds == SETTLE_SECONDS


def test_content_that_comes_back_is_no_news():
    """A file that was away for a moment has not changed."""
    settling = Settling(WHOLE)
    offers = [settling.offer(seen, now) for seen, now in ((Seen(problem="gone"), 0.0), (WHOLE, 0.1), (WHOLE, 9.0))]
    assert (offers, settling.wait_seconds(9.0)) == ([None, None, None], None)


@given(st.lists(st.tuples(st.sampled_from([b"a\n", b"b\n", b"", b"c"]), st.floats(0.001, 0.2)), max_size=30))
def test_only_what_stayed_the_same_is_let_through(looks):
    """Whatever was let through had been seen, unchanged, for at least its time."""
    settling, now, since, before = Settling(WHOLE), 0.0, 0.0, None
    for content, pause in looks:
        now += pause
        since, before = (since if content == before else now), content
        settled = settling.offer(Seen(content=content), now)
        assert settled is None or now - since >= settled.settle_seconds - 1e-9


def _names(path: Path) -> set[str]:
    return {folder for folder, *_ in folders_of(path)}


def test_a_plain_file_is_watched_through_its_folder(path):
    """The folder, because a rename replaces the file itself."""
    assert _names(path) == {str(path.parent)}


def test_every_link_on_the_way_is_watched(tmp_path):
    """As Kubernetes lays it out, with a linked folder before."""
    version = tmp_path / "mount" / "..2026_10_01"
    version.mkdir(parents=True)
    (version / "settings.toml").touch()
    (tmp_path / "mount" / "..data").symlink_to(version.name)
    (tmp_path / "mount" / "settings.toml").symlink_to("..data/settings.toml")
    (tmp_path / "etc").symlink_to(tmp_path / "mount")
    expected = {str(tmp_path), str(tmp_path / "mount"), str(version)}
    assert _names(tmp_path / "etc" / "settings.toml") == expected


def test_links_through_the_parent_folder_are_followed(tmp_path):
    """What a link names counts from where the link lies."""
    for name in ("app", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "app" / "settings.toml").symlink_to("../other/settings.toml")
    assert _names(tmp_path / "app" / "settings.toml") == {str(tmp_path / "app"), str(tmp_path / "other")}


def test_links_in_a_circle_end(tmp_path):
    """They name no file, and the search for it ends."""
    (tmp_path / "a.toml").symlink_to("b.toml")
    (tmp_path / "b.toml").symlink_to("a.toml")
    assert _names(tmp_path / "a.toml") == {str(tmp_path)}


def test_a_missing_folder_is_left_out_and_a_new_one_is_another(tmp_path):
    """The same path in another folder is seen as a change."""
    path = tmp_path / "conf" / "settings.toml"
    assert folders_of(path) == frozenset()
    path.parent.mkdir()
    first = folders_of(path)
    path.parent.rename(tmp_path / "old")
    path.parent.mkdir()
    assert _names(path) == {str(path.parent)}
    assert folders_of(path) != first
