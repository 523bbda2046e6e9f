"""Search over what left the view: for programs, and for the agent itself."""

from langchain_ctxwin.recall.search import Found, asearch_messages, search_messages
from langchain_ctxwin.recall.tool import create_recall_tool

__all__ = ["Found", "asearch_messages", "create_recall_tool", "search_messages"]
