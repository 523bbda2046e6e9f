"""Which settings does a file give, what is refused, and what is never shown?"""

import traceback
from pathlib import Path

import pytest

from langchain_ctxwin.config import (
    ContextConfig,
    FileConfig,
    ToolOverrides,
    ToolResultConfig,
)
from langchain_ctxwin.errors import ConfigError

TOML = """
keep = 0.4

[tool_results]
max_tokens = 2000

[tool_results.per_tool.search]
fields = ["items[].id"]
"""
JSON = """{"keep": 0.4,
"tool_results": {"max_tokens": 2000, "per_tool": {"search": {"fields": ["items[].id"]}}}}"""
SETTINGS = FileConfig(
    keep=0.4,
    tool_results=ToolResultConfig(
        max_tokens=2000, per_tool={"search": ToolOverrides(fields=("items[].id",))}
    ),
)


@pytest.fixture
def read(tmp_path):
    """Read a text as a settings file: `read("toml", text)`."""

    def read(ending, text):
        path = tmp_path / f"settings.{ending}"
        path.write_text(text)
        return FileConfig.from_file(path)

    return read


@pytest.fixture
def refusal(read):
    """Return the error of a text; no traceback of it shows a secret."""

    def refusal(ending, text):
        with pytest.raises(ConfigError) as caught:
            read(ending, text)
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))
        return str(caught.value)

    return refusal


@pytest.mark.parametrize(("ending", "text"), [("toml", TOML), ("json", JSON)])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_format_gives_the_same_settings(read, ending, text, mark):
    """Tables of their own hold the settings of tools; some editors write a byte order mark."""
    assert read(ending, mark + text) == SETTINGS
    assert read("toml", "# keep = 0.4\n") == FileConfig()


def test_the_environment_fills_what_the_file_leaves_out(read, monkeypatch):
    """Also within a table of which the file holds a part; the file wins."""
    monkeypatch.setenv("CTXWIN_CONTEXT_TRIGGER", "0.8")
    monkeypatch.setenv("CTXWIN_TOOL_RESULTS_MAX_SHARE", "0.1")
    monkeypatch.setenv("CTXWIN_TOOL_RESULTS_MAX_TOKENS", "9")
    monkeypatch.setenv("CTXWIN_ROUTING_QUALITY", "7")
    config = read("toml", "keep = 0.4\n[tool_results]\nmax_tokens = 2000\n")
    tools = config.tool_results
    assert (
        config.trigger,
        tools.max_share,
        tools.max_tokens,
        config.routing.quality,
    ) == (
        0.8,
        0.1,
        2000,
        7,
    )


def test_the_help_explains_every_setting():
    """`help(ContextConfig)` shows the text of the class, not what stands under a field."""
    assert [
        name
        for name in ContextConfig.model_fields
        if f"    {name}: " not in ContextConfig.__doc__
    ] == []


def test_faults_of_a_table_are_told_at_once(refusal):
    """With the file, the name, the value and what to give."""
    assert refusal("toml", "keep = 'x'\ntrigger_messages = 1\n").endswith(
        "settings.toml: invalid FileConfig: "
        "keep='x': Input should be a valid number, unable to parse string as a number; "
        "trigger_messages=1: Input should be greater than or equal to 2"
    )


@pytest.mark.parametrize(
    ("ending", "text", "reason"),
    [
        # An unknown setting is named without its value: what is misspelt may be a secret.
        (
            "toml",
            "kepp = 1",
            "unknown setting kepp (did you mean keep?): remove it or correct its name",
        ),
        (
            "json",
            '{"tool_results": {"cursor_keys": "s3cret"}}',
            "invalid ToolResultConfig: cursor_keys (str): Input should be",
        ),
        (
            "json",
            '{"tool_results": {"cursor_keys": [{"a": "s3cret"}]}}',
            "cursor_keys.0 (dict): Input should be a valid",
        ),
        (
            "toml",
            '[[tool_results]]\ncursor_keys = ["s3cret"]',
            "tool_results (list): Input should be a valid dictionary",
        ),
        (
            "toml",
            'cursor_keys = ["s3cret" "x"]',
            "Unclosed array (at line 1, column 25)",
        ),
        (
            "json",
            '{"cursor_keys": ["s3cret" 1]}',
            "Expecting ',' delimiter: line 1 column 27 (char 26)",
        ),
        ("toml", " \n", "it is empty: give at least one setting, or a comment"),
        ("ini", "keep = 1", "use one of .json, .toml"),
    ],
)
def test_what_cannot_be_settings_is_refused_with_its_place(
    refusal, ending, text, reason
):
    """The file is named, the reason is exact, and no text of a secret is repeated."""
    told = refusal(ending, text)
    assert f"settings.{ending}" in told
    assert reason in told


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("CONTEXT_TRIGGER", "much", "trigger='much': Input should be"),
        (
            "TOOL_RESULTS_CURSOR_KEYS",
            '["s3cret", {"a": "s3cret"}]',
            "cursor_keys.1 (dict)",
        ),
    ],
)
def test_a_fault_of_the_environment_is_told(refusal, monkeypatch, name, value, reason):
    monkeypatch.setenv(f"CTXWIN_{name}", value)
    assert reason in refusal("toml", "keep = 0.4\n")


def test_every_setting_has_a_row_in_the_docs():
    page = (Path(__file__).parents[2] / "docs/settings.md").read_text(encoding="utf-8")
    assert [
        name for name in ContextConfig.model_fields if f"`{name}`" not in page
    ] == []
