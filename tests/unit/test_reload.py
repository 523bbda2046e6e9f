"""Which settings hold after a file changed, and who follows it?"""

import re
import sys

import pytest
from langchain_core.messages import HumanMessage
from structlog.testing import capture_logs

from langchain_ctxwin import ContextEngine, ContextOverflow, ModelLimits
from langchain_ctxwin.config import FileConfig
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.reload import ConfigFile

LIMITS = ModelLimits(context_window=1_000, max_output_tokens=100)
BRIEF = 'constraints = ["Be brief."]\n'


class File:
    """A settings file and its `ConfigFile`."""

    def __init__(self, path, text="keep = 0.4\n"):
        self.path = path
        path.write_text(text)
        self.settings = ConfigFile(path)

    def becomes(self, text):
        """Write the file, reload it, and return whether it was taken with what was logged."""
        self.path.unlink() if text is None else self.path.write_text(text)
        with capture_logs() as logs:
            is_active = self.settings.reload()
        return is_active, logs


@pytest.fixture
def file(tmp_path):
    return File(tmp_path / "settings.toml")


def test_the_file_is_read_at_once(file):
    """A bad one raises."""
    assert (file.settings.current, file.settings.problem) == (FileConfig(keep=0.4), "")
    for text in ("", "keep = 'x'\n", "keep = = 1\n", "kepp = 0.4\n", None):
        file.path.unlink() if text is None else file.path.write_text(text)
        with pytest.raises(ConfigError, match=r"settings\.toml"):
            ConfigFile(file.path)


def test_a_reload_exchanges_the_settings_and_logs_it(tmp_path):
    """No secret is in the log; what was read before stays as it is."""
    file = File(
        tmp_path / "settings.toml",
        'keep = 0.4\n[tool_results]\ncursor_keys = ["f0rmer", "0ldest"]\n',
    )
    before = file.settings.current
    is_active, logs = file.becomes(
        'keep = 0.3\n[tool_results]\ncursor_keys = ["s3cret"]\nper_tool.search.max_tokens = 100\n'
    )
    event = {
        "event": "config.reloaded",
        "log_level": "info",
        "path": str(file.path),
    }
    assert (is_active, logs) == (True, [event])
    assert (before.keep, file.settings.current.keep) == (0.4, 0.3)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "keep = 0\n",
            "{path}: invalid FileConfig: keep=0: Input should be greater than 0",
        ),
        (
            "",
            "cannot read settings from {path}: it is empty: give at least one setting, or a comment",
        ),
        (
            None,
            "cannot read settings from {path}: [Errno 2] No such file or directory: '{path}'",
        ),
    ],
)
def test_a_bad_file_keeps_the_last_good_settings_until_it_is_mended(file, text, error):
    """The exact error is logged and kept; whoever saw the rejection sees its end."""
    is_active, (event,) = file.becomes(text)
    told = error.format(path=file.path)
    assert (is_active, event["event"], event["error"]) == (
        False,
        "config.rejected",
        told,
    )
    assert (file.settings.current, file.settings.problem) == (
        FileConfig(keep=0.4),
        told,
    )
    is_active, (event,) = file.becomes("keep = 0.4\n")
    assert (is_active, event["event"]) == (True, "config.reloaded")
    assert file.settings.problem == ""


def test_unchanged_settings_are_no_event(file):
    """Another spelling of the same values changes nothing: not even the object."""
    before = file.settings.current
    assert file.becomes("# the same\nkeep = 0.40\n") == (True, [])
    assert file.settings.current is before


def test_watching_without_its_extra_says_what_to_install(file, monkeypatch):
    """A file that is only read again when the program says so needs no extra."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(
        ConfigError, match=re.escape("pip install 'langchain-ctxwin[reload]'")
    ):
        file.settings.start()
    assert file.becomes("keep = 0.3\n")[0]


# Who follows the settings


def test_an_engine_follows_the_file_from_one_request_to_the_next(file):
    """A request that was measured keeps the settings that it started with."""
    engine = ContextEngine(LIMITS, config=file.settings)
    before = engine.measure([HumanMessage("hello")])
    file.becomes(f"{BRIEF}output_reserve = 200\n")
    after = engine.measure([HumanMessage("hello")])
    assert ["Be brief." in str(engine.build(window)) for window in (before, after)] == [
        False,
        True,
    ]
    assert [window.budget.input_limit for window in (before, after)] == [900, 800]
    again = engine.learn(
        before, ContextOverflow(limit=850, actual=860, kind="input"), is_stated=False
    )
    assert "Be brief." not in str(engine.build(again))


def test_a_run_changes_settings_of_a_file_that_has_tables_of_others_too(file):
    file.becomes(
        "constraints = 'Be brief.'\n[tool_results.per_tool.search]\nmax_tokens = 100\n"
    )
    engine = ContextEngine(LIMITS, config=file.settings).with_settings({"keep": 0.2})
    assert (engine.config.keep, engine.config.constraints) == (0.2, ("Be brief.",))
