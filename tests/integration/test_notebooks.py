"""Does every notebook run from top to bottom, offline, and leave a picture?"""

import os
import re
import shutil
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TIMEOUT_SECONDS = 120  # for a whole notebook, the start of its kernel included

# Runs in a process of its own, so that the warnings and event loops of the kernel machinery are not those of the tests.
RUNNER = """
import sys, nbformat
from nbclient import NotebookClient
path = sys.argv[1]
notebook = nbformat.read(path, as_version=4)
try:
    NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
finally:
    nbformat.write(notebook, path)
"""


def execute(notebook, work, *, timeout_seconds=TIMEOUT_SECONDS):
    """Run a copy of a notebook and what stands beside it; return it with its outputs.

    Raises:
        CalledProcessError: a cell failed; the cell and its traceback are printed on stderr.
        TimeoutExpired: the notebook took longer than `timeout_seconds`.
    """
    copy = work / "notebooks"
    shutil.copytree(notebook.parent, copy, ignore=shutil.ignore_patterns(".*"))
    command = [sys.executable, "-c", RUNNER, notebook.name]
    subprocess.run(
        command, cwd=copy, env=_offline(work), check=True, timeout=timeout_seconds
    )
    return nbformat.read(copy / notebook.name, as_version=4)


def _offline(home):
    """No keys, no way out through a proxy, and no kernel specification but that of this interpreter."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().endswith(("_API_KEY", "_PROXY", "MPLBACKEND"))
    }
    # the discard port
    nowhere = dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"
    )
    own = {
        "HOME": str(home),
        "JUPYTER_DATA_DIR": str(home / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }
    return (
        kept
        | nowhere
        | own
        | {"IPYTHONDIR": str(home / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
    )


RANDOM = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f-]+|(?<=data )[\w-]{12}|(?<=[\"'])[\w-]{12}\.[\w.-]+|\b\d[\d,.:]*"
)
"""Ids, marks, cursors, and numbers: random names are counted, so that sizes differ by a few tokens."""

SAME_SHARE = {"01_quickstart.ipynb": 0.0, "05_tool_results.ipynb": 0.9}
"""Lines that have to be the same where not all are: an agent whose way depends on what just fits, and pages that end
inside a text, a few characters earlier or later by what their random marks cost."""


def words_printed(notebook):
    """The lines that the cells of a notebook print, without what is random in them."""
    outputs = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    texts = [
        output.text
        for output in outputs
        if output.output_type == "stream" and output.name == "stdout"
    ]
    return [RANDOM.sub("#", line).rstrip() for line in "".join(texts).splitlines()]


def has_picture(notebook):
    """Tell whether any output is a picture."""
    return any(
        "image/png" in output.get("data", {})
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )


@pytest.mark.parametrize(
    "notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name
)
def test_a_notebook_runs_offline_and_leaves_a_picture(notebook, tmp_path):
    """A reader who runs all cells of a fresh copy sees no error, at least one picture, and the words that are saved."""
    executed, saved = execute(notebook, tmp_path), nbformat.read(notebook, as_version=4)
    assert has_picture(executed)
    assert has_picture(saved)
    printed, expected = words_printed(executed), words_printed(saved)
    share = SAME_SHARE.get(notebook.name)
    if share is None:
        assert printed == expected
    else:
        assert SequenceMatcher(None, printed, expected, autojunk=False).ratio() >= share
