"""Tool definitions chosen to fit: the tools that a conversation needs, within a number of tokens.

    selector    what users hold: prices, which tools make the set and when it changes, and `search_tools`
    ranking     words and meaning (embeddings), part by part of the request
    needs       what is asked for now, and in which words; entries: what a tool says of itself, in any form

Nothing is remembered between requests but in the state and in the messages.
"""

from langchain_ctxwin.tools.selector import ToolSelection, ToolSelector

__all__ = ["ToolSelection", "ToolSelector"]
