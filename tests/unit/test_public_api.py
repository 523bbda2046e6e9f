"""Are the public names exactly the ones promised?"""

import doctest
import importlib.metadata
import subprocess
import sys
from importlib import import_module
from pkgutil import walk_packages

import pytest

import langchain_ctxwin

PUBLIC_NAMES = {
    "BudgetExceededError",
    "BudgetedCompressor",
    "BudgetedRetriever",
    "CharRatioCounter",
    "Compaction",
    "ConfigError",
    "ContextConfig",
    "ContextEngine",
    "ContextInput",
    "ContextNodes",
    "ContextOutput",
    "ContextOverflow",
    "ContextState",
    "ContextWindowError",
    "CursorError",
    "CursorExpiredError",
    "CursorSigner",
    "CursorTamperedError",
    "ExtractiveSummarizer",
    "FileConfig",
    "Fitted",
    "ModelInfo",
    "ModelLimits",
    "ModelRegistry",
    "ModelRouter",
    "ModelSummarizer",
    "NoModelFitsError",
    "PlainContextState",
    "ResultGoneError",
    "RetrievalResult",
    "RoutedChatModel",
    "RoutingConfig",
    "SummarizationError",
    "SummaryJobs",
    "ThreadBudgetError",
    "ThreadCompaction",
    "TokenBudget",
    "TokenEstimator",
    "ToolOverrides",
    "ToolResultConfig",
    "ToolResultGuard",
    "ToolSelector",
    "UnknownModelError",
    "Window",
    "__version__",
    "acompact",
    "add_context_nodes",
    "aundo",
    "classify_overflow",
    "compact",
    "create_context_agent",
    "create_map_reduce_graph",
    "create_recall_tool",
    "forget",
    "pin",
    "render_record",
    "search_messages",
    "undo",
}


def test_all_is_exactly_the_promised_names():
    """`__all__` is sorted, without repetition, and holds the promised names."""
    names = langchain_ctxwin.__all__
    assert (set(names), list(names)) == (PUBLIC_NAMES, sorted(PUBLIC_NAMES))


@pytest.mark.parametrize("name", sorted(PUBLIC_NAMES - {"__version__"}))
def test_a_public_name_can_be_imported_and_is_documented(name):
    """Every public name exists and carries a docstring of its own."""
    value = getattr(langchain_ctxwin, name)
    assert own_docstring(value), f"{name} needs a docstring: one sentence of what it is"


def own_docstring(value):
    """Return the docstring written on the thing itself; dataclasses and base classes supply others."""
    text = (
        vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    ) or ""
    return "" if text.startswith(f"{getattr(value, '__name__', '')}(") else text


def test_the_version_is_the_installed_one():
    """`__version__` comes from the package metadata."""
    assert langchain_ctxwin.__version__ == importlib.metadata.version(
        "langchain-ctxwin"
    )


def test_an_undocumented_class_is_noticed():
    """Neither an inherited docstring nor a generated signature counts."""
    documented = type("Documented", (), {"__doc__": "What it is."})
    inherited = type("Inherited", (documented,), {})
    generated = type("Generated", (), {"__doc__": "Generated(x: int)"})
    assert [
        bool(own_docstring(value)) for value in (documented, inherited, generated)
    ] == [True, False, False]


WITHOUT_EXTRAS = """
import sys
sys.modules["langchain"] = None
from langchain_ctxwin import *
print(ContextEngine.__name__)
"""


def test_a_star_import_needs_no_extra():
    """Names that need an extra can be imported one by one, and say what to install."""
    printed = subprocess.check_output([sys.executable, "-c", WITHOUT_EXTRAS], text=True)
    assert printed.strip() == "ContextEngine"


FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = [
    one.name
    for one in walk_packages(langchain_ctxwin.__path__, "langchain_ctxwin.")
    if not one.name.endswith("__main__")
]


def test_the_examples_in_docstrings_hold():
    modules = map(import_module, MODULES)
    results = [doctest.testmod(module, optionflags=FLAGS) for module in modules]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) > 100
