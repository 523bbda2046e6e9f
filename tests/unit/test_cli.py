"""What does the command `ctxwin` answer, and with which exit code?"""

import sys

import pytest

from langchain_ctxwin import __version__, config
from langchain_ctxwin.cli import main
from langchain_ctxwin.config import FileConfig


@pytest.fixture
def folder(tmp_path):
    """A small folder with three text files."""
    place = tmp_path / "texts"
    place.mkdir()
    for number in range(3):
        lines = [f"alpha bravo line {i} of file {number}" for i in range(60)]
        (place / f"file{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    return place


def _complaint(capsys):
    """The error output, which is never a traceback."""
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


def test_the_version_is_printed(capsys):
    """`--version` names the command and the installed version."""
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert (exit_.value.code, capsys.readouterr().out) == (0, f"ctxwin {__version__}\n")


def test_a_run_whose_checks_hold_ends_with_0(folder, capsys):
    """The figures are printed, every answer is verified, and output that is no terminal has no control characters."""
    assert main(["demo", str(folder), "--steps", "8"]) == 0
    out = capsys.readouterr().out
    assert "answers verified" in out
    assert "Every request fit" in out
    assert "\x1b" not in out


def test_a_second_window_takes_over_when_the_first_is_outgrown(folder, capsys):
    """The cheaper model answers while it can, then the larger one; every answer is verified."""
    assert main(["demo", str(folder), "--steps", "12", "--window", "2500", "--larger-window", "8000"]) == 0
    out = capsys.readouterr().out
    small, large = (f"> offline-{size} answers from here on" for size in ("small", "large"))
    assert 0 < out.index(small) < out.index(large)
    assert "Every request fit" in out


@pytest.mark.parametrize("wrong", [["--larger-window", "4000"], ["--larger-window", "9000", "--model", "fake:model"]])
def test_a_second_window_that_cannot_serve_is_refused(folder, capsys, wrong, monkeypatch):
    """It has to be larger than the first, and is for the offline model alone."""
    monkeypatch.setattr("langchain_ctxwin.cli._real_model", lambda _: object())
    assert main(["demo", str(folder), "--window", "4000", *wrong]) == 2
    assert "--larger-window" in _complaint(capsys)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing", "does not exist"), ("texts/file0.txt", "is a file"), ("empty", "holds no text files")],
)
def test_a_path_that_cannot_be_explored_is_named_in_one_line(folder, capsys, name, problem):
    """A missing path, a file and an empty folder end with 2."""
    (folder.parent / "empty").mkdir()
    assert main(["demo", str(folder.parent / name)]) == 2
    complaint = _complaint(capsys)
    assert problem in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize("window", ["1", "300", "450", "600"])
def test_a_window_below_what_every_request_holds_shows_the_table(folder, capsys, window):
    """The regions are printed with the limit, whether the package or the model refused."""
    assert main(["demo", str(folder), "--window", window]) == 2
    complaint = _complaint(capsys)
    assert complaint.startswith("ctxwin: ")
    assert "input limit" in complaint
    assert "tools" in complaint


@pytest.mark.parametrize(
    "arguments", [["--window", "0"], ["--window", "-5"], ["--steps", "many"], ["--nothing"], ["--window"]]
)
def test_wrong_arguments_end_with_the_usage(folder, capsys, arguments):
    """Argument errors are argparse's."""
    with pytest.raises(SystemExit) as exit_:
        main(["demo", str(folder), *arguments])
    assert exit_.value.code == 2
    assert "usage: ctxwin" in _complaint(capsys)


def test_without_rich_the_extra_is_named(folder, capsys, monkeypatch):
    """One line says what to install."""
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["demo", str(folder)]) == 2
    assert _complaint(capsys) == "ctxwin: the demo needs rich: pip install 'langchain-ctxwin[cli]'\n"


def test_a_real_model_without_langchain_names_the_extra(folder, capsys, monkeypatch):
    """One line says what to install."""
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    assert main(["demo", str(folder), "--model", "provider:name"]) == 2
    assert _complaint(capsys) == "ctxwin: --model needs langchain: pip install 'langchain-ctxwin[agents]'\n"


def test_an_unknown_provider_is_named_in_one_line(folder, capsys):
    """What `init_chat_model` says about a name is passed on, its first line only."""
    assert main(["demo", str(folder), "--model", "nobody:nothing"]) == 2
    complaint = _complaint(capsys)
    assert complaint.startswith("ctxwin: --model nobody:nothing: ")
    assert complaint.count("\n") == 1


def test_the_same_seed_asks_the_same_and_another_seed_asks_otherwise(folder, capsys):
    """Two runs have the same questions and answers, a third one others; sizes vary with the random message ids."""
    texts = []
    for seed in ("1", "1", "2"):
        main(["demo", str(folder), "--steps", "8", "--seed", seed])
        out = capsys.readouterr().out
        texts.append([line for line in out.splitlines() if line.lstrip().startswith(("Turn", "=>"))])
    assert texts[0] == texts[1] != texts[2]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A file that sets three things, one of them secret, beside an environment that sets another."""
    monkeypatch.setenv("CTXWIN_RETRIEVAL_K", "3")
    path = tmp_path / "settings.toml"
    path.write_text(
        'keep = 0.4\n[tool_results]\ncursor_keys = ["s3cret"]\n[tool_results.per_tool.search]\nmax_tokens = 5\n'
    )
    return path


def test_a_valid_file_is_ok_and_shows_what_differs(settings, capsys):
    """From the defaults, environment included, secrets masked."""
    assert main(["config", "check", str(settings)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"OK {settings}",
        "  keep = 0.4 (default 0.15)",
        "  retrieval.k = 3 (default null)",
        '  tool_results.cursor_keys = ["**********"] (default [])',
        "  tool_results.per_tool.search.max_tokens = 5 (default null)",
    ]


def test_an_invalid_file_ends_with_the_exact_error(settings, capsys):
    """The file, the field, the value and what to give, in one line."""
    settings.write_text("trigger_messages = 1\n")
    assert main(["config", "check", str(settings)]) == 2
    told = f"ctxwin: {settings}: invalid FileConfig: trigger_messages=1: give at least 2\n"
    assert _complaint(capsys) == told


def test_every_setting_is_shown_with_its_origin(settings, capsys):
    """The value, and whether it is from the file, the environment or a default; secrets masked."""
    assert main(["config", "show", str(settings)]) == 0
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    shown = {setting: origin.strip() for setting, origin in lines}
    assert len(shown) == len(config.defaults(FileConfig))
    assert {setting: origin for setting, origin in shown.items() if origin != "default"} == {
        "keep = 0.4": "file",
        'tool_results.cursor_keys = ["**********"]': "file",
        "tool_results.per_tool.search.max_tokens = 5": "file",
        "retrieval.k = 3": "environment",
    }


def test_settings_are_shown_without_a_file_and_without_extras(capsys, monkeypatch):
    """The environment and the defaults; rich is not needed."""
    for name in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["config", "show"]) == 0
    assert "trigger = 0.95" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_missing_file_is_named_in_one_line(tmp_path, capsys, command):
    """It ends with 2."""
    path = tmp_path / "none.toml"
    assert main(["config", command, str(path)]) == 2
    assert _complaint(capsys) == f"ctxwin: cannot read settings from {path}: No such file or directory\n"


@pytest.mark.parametrize("command", ["check", "show"])
def test_names_of_tools_cannot_write_lines_of_their_own(tmp_path, capsys, command):
    """Control characters are escaped."""
    path = tmp_path / "settings.json"
    path.write_text(r'{"tool_results": {"per_tool": {"a\nkeep = 0.9  file\u001b[31m": {"max_tokens": 4}}}}')
    assert main(["config", command, str(path)]) == 0
    out = capsys.readouterr().out
    assert r"tool_results.per_tool.a\nkeep = 0.9  file\x1b[31m.max_tokens = 4" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("text", ["x: !!bool maybe", "x: !!timestamp x", "x: !!int ''", "self: 1", '"\\uD800": 1'])
def test_no_file_makes_the_check_fail_with_a_traceback(tmp_path, capsys, text):
    """It ends with 2 and one line."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    assert main(["config", "check", str(path)]) == 2
    assert _complaint(capsys).count("\n") == 1
