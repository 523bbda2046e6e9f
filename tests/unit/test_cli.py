"""What does the command `ctxwin` answer, and with which exit code?"""

import json
import runpy

import pytest

from langchain_ctxwin.cli import main
from support.model_lists import URL


def _complaint(capsys):
    """The error output: one line about the command, and never a traceback."""
    text = capsys.readouterr().err
    assert ("Traceback" in text, text.partition(" ")[0]) in [
        (False, "ctxwin:"),
        (False, "usage:"),
    ]
    return text


@pytest.mark.parametrize("window", ["300", "600"])
def test_a_window_below_what_every_request_holds_is_told(capsys, window):
    """Whether the package or the model refused."""
    assert main(["demo", "--window", window]) == 2
    assert "raise " in _complaint(capsys)


@pytest.mark.parametrize("number", ["0", "1.5"])
def test_a_wrong_number_ends_with_the_usage(capsys, number):
    with pytest.raises(SystemExit) as exit_:
        main(["demo", "--window", number])
    assert exit_.value.code == 2
    complaint = _complaint(capsys)
    assert "usage: ctxwin" in complaint
    assert "give a whole number, at least 1" in complaint


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A file that sets three things, one of them secret, beside an environment that sets another."""
    monkeypatch.setenv("CTXWIN_ROUTING_QUALITY", "3")
    path = tmp_path / "settings.toml"
    path.write_text(
        'keep = 0.4\n[tool_results]\ncursor_keys = ["s3cret"]\n[tool_results.per_tool.search]\nmax_tokens = 5\n'
    )
    return path


def test_an_invalid_file_ends_with_the_exact_error(settings, capsys):
    settings.write_text("trigger_messages = 1\n")
    assert main(["config", str(settings)]) == 2
    told = f"ctxwin: {settings}: invalid FileConfig: trigger_messages=1: Input should be greater than or equal to 2\n"
    assert _complaint(capsys) == told


def test_every_setting_is_shown(settings, capsys):
    """Also those that the environment sets, or nobody; secrets are masked, and of a tool is shown what differs."""
    assert main(["config", str(settings)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["keep"], shown["routing"]["quality"]) == (0.4, 3)
    assert shown["routing"]["when_full"] == "compact"
    assert shown["tool_results"]["cursor_keys"] == ["**********"]
    assert shown["tool_results"]["per_tool"] == {"search": {"max_tokens": 5}}


def test_settings_are_shown_without_a_file(capsys):
    assert main(["config"]) == 0
    assert '"keep": 0.3' in capsys.readouterr().out


def test_a_missing_file_is_named_and_names_of_tools_cannot_write_lines_of_their_own(
    tmp_path, capsys
):
    path = tmp_path / "settings.json"
    assert main(["config", str(path)]) == 2
    assert f"ctxwin: cannot read settings from {path}: [Errno 2]" in _complaint(capsys)
    path.write_text(
        r'{"tool_results": {"per_tool": {"a\nkeep = 0.9  file\u001b[31m": {"max_tokens": 4}}}}'
    )
    assert main(["config", str(path)]) == 0
    out = capsys.readouterr().out
    assert r'"a\nkeep = 0.9  file\u001b[31m": {' in out
    assert "\x1b" not in out


@pytest.fixture(autouse=True)
def no_traces(tmp_path, monkeypatch):
    """Caches are in a folder of the test."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.parametrize("content", [None, "no json", '{"a": 1}'])
def test_a_catalog_that_cannot_be_read_is_the_last_thing_said(
    content, tmp_path, capsys
):
    """Whoever names it wants it: the code says so, too."""
    path = tmp_path / "catalog.json"
    if content is not None:
        path.write_text(content)
    assert main(["models", "--catalog", str(path)]) == 1
    assert "catalog.json: " in capsys.readouterr().err.splitlines()[-1]


def rows_of(out):
    """The rows of a table of models by their names."""
    return {line.split()[0]: line for line in out.splitlines() if line[:1].isalnum()}


def test_without_servers_the_models_that_come_along_are_listed(capsys):
    assert main(["models", "--provider", "anthropic"]) == 0
    assert len(rows_of(capsys.readouterr().out)) > 10


def test_a_fleet_is_one_table_with_limits_prices_and_who_states_them(asked, capsys):
    """Each server's models, in tokens and dollars per million tokens, and a line per source."""
    places = ("openai={}/openrouter/api/v1", "openai={}/vllm/v1", "ollama={}/ollama")
    servers = [part for place in places for part in ("--source", place.format(URL))]
    assert main(["models", *servers]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:3] == ["MODEL", "PROVIDER", "WINDOW"]
    assert "Tokens; USD per million tokens" in out
    rows = rows_of(out)
    assert rows["maker/test-8b"].split()[2] == "16,384"
    routed = ["96,000", "-", "16,000", "0.2500", "2.0000", "0.0250"]
    assert rows["maker/test-routed"].split()[2:8] == routed
    assert "ollama" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (
            ["--provider", "nobody"],
            1,
            "'nobody': correct its name, or pass --source or --catalog",
        ),
        (["--source", "openai"], 2, "--source openai: give KIND=URL"),
        (["--source", "fax=http://h"], 2, "--source fax=http://h: give KIND=URL"),
    ],
)
def test_what_cannot_be_answered_is_an_error_with_what_to_do(
    arguments, code, told, capsys
):
    assert main(["models", *arguments]) == code
    assert told in "".join(capsys.readouterr())


GRAPH = """
import sqlite3
from langchain_ctxwin import create_context_agent
from langchain_ctxwin.testing import ScriptedChatModel
from langgraph.checkpoint.sqlite import SqliteSaver


def graph():
    saver = SqliteSaver(sqlite3.connect({place!r}, check_same_thread=False))
    model = ScriptedChatModel(window=4096, max_tokens=512)
    return create_context_agent(model, [], checkpointer=saver)
"""


def test_a_thread_is_looked_at_compacted_and_brought_back(tmp_path, capsys):
    place, app = str(tmp_path / "threads.sqlite"), tmp_path / "app.py"
    app.write_text(GRAPH.format(place=place))
    agent = runpy.run_path(str(app))["graph"]()
    for number in range(20):
        agent.invoke(
            {"messages": [("user", f"Note {number}. " * 30)]},
            {"configurable": {"thread_id": "7"}},
        )
    agent.checkpointer.conn.close()
    told = []
    for verb in (
        ["compact", "--preview"],
        ["compact", "--focus", "Note"],
        ["undo"],
        ["compact", "--preview"],
    ):
        assert main([verb[0], f"{app}:graph", "7", *verb[1:]]) == 0
        told.append(capsys.readouterr().out.splitlines()[0])
    assert " messages would leave the view: " in told[0]
    assert told[1] == told[0].replace("would leave", "left")
    assert told[3].partition(":")[0] == told[0].partition(":")[0]
    assert told[2] == "thread 7: the view before the latest compaction is back"


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("app", "give path/to/file.py:graph"),
        ("nowhere.py:graph", "cannot be imported"),
        ("json:dumps", "json:dumps"),
    ],
)
def test_a_graph_that_is_none_is_named(graph, said, capsys):
    assert main(["compact", graph, "7"]) == 2
    assert said in _complaint(capsys)
