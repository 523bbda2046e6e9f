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
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "langchain_ctxwin"
ROOT = Path(__file__).parents[2] / PACKAGE

BASE = {*str.split("errors core protocols config util text")}
# What the engine is given so that it need not price anything twice.
COLLABORATORS = {"pricing", "reporting"}
MIDDLE = {
    *str.split("engine summarize retrieval recall observe tool_results models tools"),
    *str.split("reload counting routing"),
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
    "counting": BASE,
    "reload": BASE,
    "pruning": BASE | {"summarize", "tool_results"},
    "recall": BASE,
    "observe": BASE | {"reporting"},
    "tool_results": BASE | COLLABORATORS,
    "models": BASE | {"reporting"},
    "routing": BASE | {"models", "pricing"},
    **dict.fromkeys(("agent", "replay", "decompose"), BASE | COLLABORATORS | MIDDLE),
    "testing": set(),
    "conformance": {"testing"},
    # What is replayed is what the agent does around each call, not something like it.
    "replay": BASE | COLLABORATORS | MIDDLE | {"agent"},
    "middleware": {"agent"},
}
FREE = {"", "__main__", "cli", "demo"}
# The package root and the programs see everything; nothing sees them.

PURE = {
    *str.split(
        "__future__ base64 binascii bisect collections dataclasses datetime.date"
    ),
    *str.split("decimal functools hashlib itertools json math operator re string"),
    *str.split("struct textwrap types typing zlib langchain_core.messages"),
    *str.split("langchain_core.tools langchain_core.utils"),
    "langchain_core.runnables",  # only to read what a wrapped model states: core never invokes one
}
SIDE_EFFECTS = {*str.split("open print input exec eval __import__ breakpoint")}

PROVIDER_SDKS = {
    *str.split("google openai anthropic langchain_google_genai langchain_openai"),
    "langchain_anthropic",
}
EXTRAS = {*str.split("langchain watchfiles matplotlib redis opentelemetry quicktok")}
# Modules that are an extra as a whole.
AT_MODULE_TOP = {
    "agent.middleware": {"langchain"},
    "observe.opentelemetry_sink": {"opentelemetry"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name, and whether it waits for a function call or a type checker."""

    name: str
    deferred: bool = False


def violation(module, imported):
    """Say why `module` may not import this, or None."""
    layer = layer_of(module)
    if layer in FREE:
        return None
    if layer not in MAY_IMPORT:
        return f"{module} is in no layer: give `{layer}` a line in MAY_IMPORT"
    if _is_ours(imported.name):
        target = layer_of(imported.name)
        allowed = target == layer or target in MAY_IMPORT[layer]
        return (
            None
            if allowed
            else f"{module} imports {imported.name}: `{layer}` may not see `{target or PACKAGE}`"
        )
    if layer == "core" and not _is_pure(imported.name):
        return f"{module} imports {imported.name}: core has no I/O, clock, randomness or framework"
    package = imported.name.split(".")[0]
    if not imported.deferred and package in (
        PROVIDER_SDKS | EXTRAS
    ) - AT_MODULE_TOP.get(module.removeprefix(f"{PACKAGE}."), set()):
        return f"{module} imports {imported.name} at module top: import this optional package where it is used"
    return None


def layer_of(module):
    """Return the first name below the package; the package itself is the empty layer."""
    name = module.removeprefix(PACKAGE).lstrip(".")
    return name.split(".")[0]


def imports_of(module, source, *, is_package=False):
    """Yield every import of a source text with absolute names, also relative ones and those inside functions."""
    yield from _walk(
        ast.parse(source),
        module if is_package else module.rpartition(".")[0],
        deferred=False,
    )


def _walk(node, package, *, deferred):
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (
            Import(name=name, deferred=deferred) for name in _names(node, package)
        )
    later = (
        deferred
        or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or _is_type_checking(node)
    )
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, package, deferred=later)


def _names(node, package):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    parents = package.split(".")
    base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
    origin = ".".join(part for part in (base, node.module) if part)
    return [f"{origin}.{alias.name}" for alias in node.names]


def _is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in {
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    }


def _is_ours(name):
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


def _is_pure(name):
    return any(name == pure or name.startswith(f"{pure}.") for pure in PURE)


def side_effects_of(module, source):
    """List the built-ins with side effects that a core module calls."""
    if layer_of(module) != "core":
        return []
    calls = (
        node.func.id for node in ast.walk(ast.parse(source)) if _calls_a_name(node)
    )
    return [
        f"{module} calls {name}(): core takes values and returns values"
        for name in calls
        if name in SIDE_EFFECTS
    ]


def _calls_a_name(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        yield (
            ".".join(parts[:-1] if is_package else parts),
            path.read_text(encoding="utf-8"),
            is_package,
        )


def test_every_module_imports_only_what_its_layer_may_see():
    """No module of the package crosses a layer, in whatever form the import is written."""
    found = {
        problem
        for module, source, is_package in _modules()
        for imported in imports_of(module, source, is_package=is_package)
        if (problem := violation(module, imported))
    }
    assert found == set()


def test_core_has_no_side_effects():
    """No module of the core opens, prints, asks or evaluates anything."""
    assert [
        problem
        for module, source, _ in _modules()
        for problem in side_effects_of(module, source)
    ] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "from langchain_ctxwin.core import fitting"),
        ("core.plan", "import langgraph.graph"),
        ("core.plan", "from time import monotonic"),
        ("core.plan", "def read():\n    import pathlib"),
        ("core.plan", "from langchain_core.language_models import BaseChatModel"),
        ("core.plan", "from ..engine import ContextEngine"),
        ("retrieval", "from . import recall"),
        ("tools", "def rank():\n    from .engine import ContextEngine"),
        ("agent.nodes", "from .. import middleware"),
        (
            "agent.ready",
            "try:\n    import watchfiles\nexcept ImportError:\n    watchfiles = None",
        ),
        ("models.apis", "from google import genai"),
        ("helpers", "import json"),
    ],
)
def test_a_planted_import_is_reported(module, source):
    """Each forbidden import is seen, relative ones and those inside functions included."""
    name = f"{PACKAGE}.{module}"
    assert [
        problem
        for imported in imports_of(name, source)
        if (problem := violation(name, imported))
    ]


@pytest.mark.parametrize(
    "source", ["open('x')", "def f():\n    print(1)", "value = eval('1')"]
)
def test_a_planted_side_effect_in_core_is_reported(source):
    """A built-in with side effects needs no import and is seen all the same."""
    assert len(side_effects_of(f"{PACKAGE}.core.plan", source)) == 1


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
    unwanted = {
        "google.genai",
        *(PROVIDER_SDKS - {"google"}),
        *EXTRAS,
        "numpy",
        "pytest",
    }
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
