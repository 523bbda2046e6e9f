"""Does every module import only what its layer may see, wherever the import stands?

errors <- text, core <- util, protocols <- config <- engine, summarize, retrieval, recall, observe
<- tool_results, models <- routing, tools, reload
all of those <- agent <- middleware (where its public names are imported from)
all but agent <- replay, decompose; everything <- cli, demo, the package root
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "langchain_ctxwin"
ROOT = Path(__file__).parents[2] / PACKAGE

BASE = {*str.split("errors core protocols config util text")}
# What the engine is given so that it need not price anything twice.
COLLABORATORS = {"pricing", "reporting"}
MIDDLE = {
    *str.split(
        "engine summarize retrieval recall observe tool_results models tools"
        " reload counting routing"
    )
}
MAY_IMPORT = {
    "errors": set(),
    "text": {"errors"},
    "core": {"errors"},
    "util": {"core", "errors"},
    "protocols": {"core", "errors"},
    "config": {"core", "errors", "util"},
    **dict.fromkeys(MIDDLE, BASE),
    **dict.fromkeys(COLLABORATORS, BASE | COLLABORATORS),
    "engine": BASE | COLLABORATORS | {"summarize"},
    "pruning": BASE | {"summarize", "tool_results"},
    "observe": BASE | {"reporting"},
    "tool_results": BASE | COLLABORATORS,
    "models": BASE | {"reporting"},
    "routing": BASE | {"models", "pricing"},
    **dict.fromkeys(("agent", "decompose"), BASE | COLLABORATORS | MIDDLE),
    "testing": set(),
    "conformance": {"testing"},
    # What is replayed is what the agent does around each call, not something like it.
    "replay": BASE | COLLABORATORS | MIDDLE | {"agent"},
    "middleware": {"agent"},
}
FREE = {"", "__main__", "cli", "demo"}
# The package root and the programs see everything; nothing sees them.

# of `langchain_core.runnables` only what a wrapped model states is read: core never invokes one
PURE = {
    *str.split(
        "__future__ base64 binascii bisect collections dataclasses datetime.date"
        " decimal functools hashlib itertools json math operator re string struct"
        " textwrap types typing zlib langchain_core.messages langchain_core.tools"
        " langchain_core.utils langchain_core.runnables pydantic typing_extensions"
    )
}
SIDE_EFFECTS = {*str.split("open print input exec eval __import__ breakpoint")}

PROVIDER_SDKS = {
    *str.split("google openai anthropic langchain_google_genai langchain_openai"),
    "langchain_anthropic",
}
OPTIONAL = {
    **dict.fromkeys([*PROVIDER_SDKS, "matplotlib"], ()),
    "langchain": ("agent.middleware", "util.chat_models", "conformance"),
    "opentelemetry": ("observe.opentelemetry_sink",),
    "quicktok": ("counting",),
    "redis": ("tool_results.stores",),
    "watchfiles": ("reload",),
}
"""Packages that need not be there -> the modules that import them."""


def problems(module, source):
    """Say what a module of the package imports or calls that its layer may not."""
    layer = layer_of(module)
    if layer in FREE:
        return []
    if layer not in MAY_IMPORT:
        return [f"{module} is in no layer: give `{layer}` a line in MAY_IMPORT"]
    nodes = [*ast.walk(ast.parse(source))]
    names = [name for node in nodes for name in _imported(node)]
    found = [name for name in names if not _may_import(module, layer, name)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    if layer == "core":
        found += [one.id for one in calls if getattr(one, "id", "") in SIDE_EFFECTS]
    return [f"{module} may not have {name}" for name in found]


def layer_of(module):
    """Return the first name below the package; the package itself is the empty layer."""
    return module.partition(".")[0]


def _imported(node):
    """Absolute names of an import; those of a relative one begin with a period."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (node.module or "")
        return [f"{origin}.{alias.name}" for alias in node.names]
    return []


def _may_import(module, layer, name):
    package, _, inside = name.partition(".")
    if package == PACKAGE:
        return layer_of(inside) in {layer, *MAY_IMPORT[layer]}
    if layer == "core":
        return any(f"{name}.".startswith(f"{pure}.") for pure in PURE)
    return bool(package) and module in OPTIONAL.get(package, (module,))


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path.read_text(encoding="utf-8")


def test_every_module_imports_only_what_its_layer_may_see():
    """Nor does the core open, print, ask or evaluate anything; an optional package is imported where it is named."""
    assert [line for module in _modules() for line in problems(*module)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "from langchain_ctxwin.core import fitting"),
        ("core.plan", "import langgraph.graph"),
        ("core.plan", "from time import monotonic"),
        ("core.plan", "def read():\n    import pathlib"),
        ("core.plan", "from langchain_core.language_models import BaseChatModel"),
        ("core.plan", "def f():\n    print(1)"),
        ("retrieval", "from . import recall"),
        ("tools", "def rank():\n    from langchain_ctxwin.engine import ContextEngine"),
        ("agent.ready", "try:\n    import watchfiles\nexcept ImportError:\n    pass"),
        ("models.apis", "from google import genai"),
        ("helpers", "import json"),
    ],
)
def test_what_is_planted_is_reported(module, source):
    """Imports inside functions, and built-ins that need no import, included."""
    assert len(problems(module, source)) == 1


IMPORT_PROBE = """
import json, os, sys
exec(sys.argv[1])
before, seen = set(sys.modules), []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT
def watch(event, args):
    if event == "open" and args[0] != os.devnull and (args[2] or 0) & WRITES:
        seen.append(f"wrote {args[0]}")
    elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
        seen.append(event)
sys.addaudithook(watch)
exec(sys.argv[2])
print(json.dumps({"effects": seen, "modules": sorted({*sys.modules} - before)}))
"""
DEPENDENCIES = "import structlog, langchain_core.tools, langgraph.graph"  # what they import is not ours to avoid


def _probe(statement, before=""):
    command = [sys.executable, "-B", "-c", IMPORT_PROBE, before, statement]
    # -B: no bytecode is written
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def _optional(modules):
    unwanted = {"google.genai", "numpy", "pytest", *OPTIONAL} - {"google"}
    return sorted(unwanted.intersection(modules))


def test_importing_the_package_loads_no_optional_package_and_touches_nothing():
    """`import langchain_ctxwin` loads no provider SDK, extra, numpy or pytest, writes no file, opens no connection."""
    probe = _probe("import langchain_ctxwin", before=DEPENDENCIES)
    assert (_optional(probe["modules"]), probe["effects"]) == ([], [])


def test_the_import_probe_sees_what_it_looks_for(tmp_path):
    """An optional package, a written file and a connection attempt are all noticed."""
    target = tmp_path / "written"
    probe = _probe(
        f"import matplotlib, socket; open({str(target)!r}, 'w'); socket.getaddrinfo('127.0.0.1', 1)"
    )
    found = (_optional(probe["modules"]), probe["effects"])
    assert found == (["matplotlib", "numpy"], [f"wrote {target}", "socket.getaddrinfo"])
