"""Tool definitions chosen to fit: the tools that a conversation needs, within a number of tokens."""

from langchain_ctxwin.tools.selection import ToolSelection
from langchain_ctxwin.tools.selector import ToolSelector

__all__ = ["ToolSelection", "ToolSelector"]
