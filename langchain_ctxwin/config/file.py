"""What does one file with all settings hold?"""

from __future__ import annotations

from pydantic import Field

from langchain_ctxwin.config.context import ContextConfig
from langchain_ctxwin.config.retrieval import RetrievalConfig
from langchain_ctxwin.config.routing import RoutingConfig
from langchain_ctxwin.config.tool_results import ToolResultConfig


class FileConfig(ContextConfig):
    """All settings in one file: those of `ContextConfig` at the top, the others in tables of their own.

    Example:
        ```toml
        keep = 0.4

        [tool_results]
        max_tokens = 2000

        [tool_results.per_tool.search]
        fields = ["items[].id", "items[].name"]
        ```
    """

    tool_results: ToolResultConfig = Field(default_factory=ToolResultConfig)
    """Settings of `ToolResultGuard`."""

    retrieval: RetrievalConfig = Field(default_factory=RetrievalConfig)
    """Settings of `BudgetedRetriever`, which reads them once: it does not follow a file that changes."""

    routing: RoutingConfig = Field(default_factory=RoutingConfig)
    """Settings of `ModelRouter`, which also reads them once."""
