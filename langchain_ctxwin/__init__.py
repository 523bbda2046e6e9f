"""Context-window management for LangChain and LangGraph agents: every request fits, nothing is lost silently."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.agent.nodes import ContextNodes, add_context_nodes
from langchain_ctxwin.agent.ready import create_context_agent
from langchain_ctxwin.agent.state import (
    ContextInput,
    ContextOutput,
    ContextState,
    PlainContextState,
)
from langchain_ctxwin.config import (
    ContextConfig,
    FileConfig,
    RetrievalConfig,
    RoutingConfig,
    ToolOverrides,
    ToolResultConfig,
)
from langchain_ctxwin.core.compaction import Compaction
from langchain_ctxwin.core.limits import ModelLimits, TokenBudget
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow
from langchain_ctxwin.core.record import render_record
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.tokens import CharRatioCounter, TokenEstimator
from langchain_ctxwin.core.turns import pin
from langchain_ctxwin.engine import ContextEngine, Fitted
from langchain_ctxwin.errors import (
    BudgetExceededError,
    ConfigError,
    ContextWindowError,
    CursorError,
    CursorExpiredError,
    CursorTamperedError,
    NoModelFitsError,
    ResultGoneError,
    SummarizationError,
    ThreadBudgetError,
    UnknownModelError,
)
from langchain_ctxwin.summarize import ExtractiveSummarizer, ModelSummarizer

if TYPE_CHECKING:
    from langchain_ctxwin.agent.middleware import ContextAgentState as ContextAgentState
    from langchain_ctxwin.agent.middleware import (
        ContextWindowMiddleware as ContextWindowMiddleware,
    )
    from langchain_ctxwin.agent.ready import (
        ThreadCompaction,
        acompact,
        aundo,
        compact,
        undo,
    )
    from langchain_ctxwin.decompose import create_map_reduce_graph
    from langchain_ctxwin.models.registry import ModelRegistry
    from langchain_ctxwin.pruning import forget
    from langchain_ctxwin.recall import create_recall_tool, search_messages
    from langchain_ctxwin.retrieval import (
        BudgetedCompressor,
        BudgetedRetriever,
        RetrievalResult,
    )
    from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
    from langchain_ctxwin.summarize import SummaryJobs
    from langchain_ctxwin.tool_results import CursorSigner, ToolResultGuard
    from langchain_ctxwin.tools import ToolSelector

__version__ = version("langchain-ctxwin")

_LAZY = {
    "BudgetedCompressor": "retrieval",
    "BudgetedRetriever": "retrieval",
    "ContextAgentState": "middleware",
    "ContextWindowMiddleware": "middleware",
    "ThreadCompaction": "agent.ready",
    "acompact": "agent.ready",
    "aundo": "agent.ready",
    "compact": "agent.ready",
    "undo": "agent.ready",
    "create_map_reduce_graph": "decompose",
    "create_recall_tool": "recall",
    "forget": "pruning",
    "CursorSigner": "tool_results",
    "ModelRegistry": "models.registry",
    "ModelRouter": "routing",
    "RetrievalResult": "retrieval",
    "RoutedChatModel": "routing",
    "search_messages": "recall",
    "SummaryJobs": "summarize",
    "ToolResultGuard": "tool_results",
    "ToolSelector": "tools",
}
# Where names are that need an extra, or more time to import than most programs have use for.

_LAZY_MODULES = frozenset({"models", "observe", "routing", "tools"})
# Modules that are imported at their first use as an attribute.


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


# The middleware needs an extra, so a star leaves it out; its names can be imported from here all the same.
__all__ = [
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
    "RetrievalConfig",
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
]
