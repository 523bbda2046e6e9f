"""The former place of `project_automatically`, see `projection`."""

from langchain_ctxwin.tool_results.projection import project_automatically

__all__ = ["project_automatically"]
