"""Context-window management for LangChain and LangGraph agents: every request fits, nothing is lost silently."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from langchain_ctxwin.agent.nodes import ContextNodes, add_context_nodes
from langchain_ctxwin.agent.ready import (
    ThreadCompaction,
    acompact,
    aundo,
    compact,
    create_context_agent,
    undo,
)
from langchain_ctxwin.agent.state import (
    ContextInput,
    ContextOutput,
    ContextState,
    PlainContextState,
)
from langchain_ctxwin.config import (
    ContextConfig,
    FileConfig,
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
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.turns import pin
from langchain_ctxwin.counting import CharRatioCounter
from langchain_ctxwin.decompose import create_map_reduce_graph
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
from langchain_ctxwin.models.registry import ModelRegistry
from langchain_ctxwin.pruning import forget
from langchain_ctxwin.recall import create_recall_tool, search_messages
from langchain_ctxwin.retrieval import (
    BudgetedCompressor,
    BudgetedRetriever,
    RetrievalResult,
)
from langchain_ctxwin.routing import ModelRouter, RoutedChatModel
from langchain_ctxwin.summarize import (
    ExtractiveSummarizer,
    ModelSummarizer,
    SummaryJobs,
)
from langchain_ctxwin.tool_results import CursorSigner, ToolResultGuard
from langchain_ctxwin.tools import ToolSelector

if TYPE_CHECKING:
    from langchain_ctxwin.agent.middleware import ContextAgentState as ContextAgentState
    from langchain_ctxwin.agent.middleware import (
        ContextWindowMiddleware as ContextWindowMiddleware,
    )

__version__ = version("langchain-ctxwin")


def __getattr__(name: str) -> Any:
    """Import the middleware, which needs an extra, at its first use."""
    if name in {"ContextAgentState", "ContextWindowMiddleware"}:
        return getattr(import_module(f"{__name__}.middleware"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
