"""Every setting, from code, environment or file."""

from langchain_ctxwin.config.context import ContextConfig
from langchain_ctxwin.config.file import FileConfig
from langchain_ctxwin.config.live import LiveConfig, as_live
from langchain_ctxwin.config.retrieval import RetrievalConfig
from langchain_ctxwin.config.routing import RoutingConfig
from langchain_ctxwin.config.settings import Settings
from langchain_ctxwin.config.tool_results import ToolOverrides, ToolResultConfig

__all__ = [
    "ContextConfig",
    "FileConfig",
    "LiveConfig",
    "RetrievalConfig",
    "RoutingConfig",
    "Settings",
    "ToolOverrides",
    "ToolResultConfig",
    "as_live",
]
