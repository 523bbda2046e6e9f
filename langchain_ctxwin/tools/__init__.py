"""Tool definitions chosen to fit: the tools that a conversation needs, within a number of tokens.

    selector    what users hold: prices, which tools make the set and when it changes, and `search_tools`
    ranking     what a tool says of itself, what is asked for now, and how near both are

Nothing is remembered between requests but in the state and in the messages.
"""

from langchain_ctxwin.tools.selector import ToolSelection, ToolSelector

__all__ = ["ToolSelection", "ToolSelector"]
