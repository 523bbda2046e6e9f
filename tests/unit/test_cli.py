"""What does the command `ctxwin` answer, and with which exit code?"""

import sys

import pytest

from langchain_ctxwin import __version__
from langchain_ctxwin.cli import main


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
