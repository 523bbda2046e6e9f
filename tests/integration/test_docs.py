"""Is the site built without a warning, and is a release published without a secret?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def build(folder):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
        "--site-dir",
        folder,
    ]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocstrings", reason="the group docs is not installed")
    result = build(str(tmp_path / "site"))
    assert result.returncode == 0, result.stderr[-2_000:]
    page = (tmp_path / "site" / "reference" / "engine" / "index.html").read_text()
    assert 'id="langchain_ctxwin.ContextEngine"' in page
    notebook = tmp_path / "site" / "notebooks" / "01_quickstart"
    assert "01_quickstart-1.png" in (notebook / "index.html").read_text()
    assert "fonts.googleapis" not in (tmp_path / "site" / "index.html").read_text()


def test_a_release_is_published_without_a_stored_secret():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    publish = yaml.safe_load(text)["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert "secrets." not in text
