"""The states of a graph and what of them is public, under the path by which they are imported."""

from langchain_ctxwin.agent.state import ContextInput, ContextOutput, ContextState, PlainContextState

__all__ = ["ContextInput", "ContextOutput", "ContextState", "PlainContextState"]
