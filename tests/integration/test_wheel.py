"""Is the wheel what a user should get, and does it work with each extra absent?"""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PACKAGES_OF_EXTRA = {
    "agents": ["langchain"],
    "anthropic": ["langchain_anthropic", "anthropic"],
    "exact": ["quicktok"],
    "redis": ["redis"],
    "reload": ["watchfiles"],
    "otel": ["opentelemetry"],
    "reader": ["xllamacpp"],
}
MODULES_OF_EXTRA = {
    "agents": {"langchain_ctxwin.middleware", "langchain_ctxwin.agent.middleware"},
    "otel": {"langchain_ctxwin.observe.opentelemetry_sink"},
}
"""Modules that are an extra as a whole and say so when it is missing; every other module must import without it."""

# Imports every module of the package while some packages cannot be found, and says which modules failed and why.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",") if sys.argv[1] else []))
import langchain_ctxwin
failed = {}
for module in pkgutil.walk_packages(langchain_ctxwin.__path__, "langchain_ctxwin.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name) if not module.name.endswith("__main__") else None
    except ImportError as error:
        failed[module.name] = str(error)
print(json.dumps({"file": langchain_ctxwin.__file__, "failed": failed}))
"""

RUN_DEMO = """
import sys
sys.argv = ["ctxwin", "demo"]
from langchain_ctxwin.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the tree without a build environment of its own (so: offline)."""
    out = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """The folder that a user would find in site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # we built it
    return folder


def _python(script, *args, site):
    """Run a script that finds the unpacked wheel before the editable install, away from the tree."""
    # compiled once: the folder is the tests' own
    env = os.environ | {"PYTHONPATH": str(site)}
    nobody = subprocess.DEVNULL
    command = [sys.executable, "-c", script, *args]
    return subprocess.run(
        command,
        cwd=site,
        env=env,
        stdin=nobody,
        capture_output=True,
        text=True,
        check=False,
    )


def unwanted(names):
    """List the files of a wheel that are neither the package nor its metadata, and leftovers inside the package."""
    leftovers = (".pyc", ".ipynb", ".bak", "~")
    return [
        name
        for name in names
        if (
            name.split("/")[0] != "langchain_ctxwin"
            and not name.split("/")[0].endswith(".dist-info")
        )
        or name.endswith(leftovers)
    ]


def unexplained(failed, absent):
    """Return the failed modules that are not an absent extra, or whose error does not say which extra to install."""
    owner = {
        module: extra for extra in absent for module in MODULES_OF_EXTRA.get(extra, ())
    }
    return {
        module: why
        for module, why in failed.items()
        if f"langchain-ctxwin[{owner.get(module)}]" not in why
    }


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Typed, licensed, complete, and without tests, notebooks, benchmarks or docs."""
    names = zipfile.ZipFile(wheel).namelist()
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "langchain_ctxwin").rglob("*.py")
    }
    assert unwanted(names) == []
    data = {
        "langchain_ctxwin/py.typed",
        "langchain_ctxwin/models/snapshot.json.gz",
    }
    assert (sources | data) - set(names) == set()
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_every_extra_is_covered():
    """A new extra needs a line here; `all` and `test` are sums, the others are for the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert set(PACKAGES_OF_EXTRA) == set(project["optional-dependencies"]) - {"all"}


@pytest.mark.parametrize(
    "extras",
    [*([extra] for extra in PACKAGES_OF_EXTRA), [*PACKAGES_OF_EXTRA]],
    ids="+".join,
)
def test_the_wheel_works_without_an_extra(unpacked, extras):
    """Only the modules that are the extra fail to import, and their error names what to install."""
    blocked = [package for extra in extras for package in PACKAGES_OF_EXTRA[extra]]
    done = _python(IMPORT_ALL, ",".join(blocked), site=unpacked)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert Path(result["file"]).is_relative_to(unpacked)
    assert unexplained(result["failed"], extras) == {}


def test_the_demo_runs_without_any_extra(unpacked):
    """Its claims hold where only the wheel and what it depends on are installed."""
    done = _python(RUN_DEMO, site=unpacked)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("claims that were checked hold.\n")
