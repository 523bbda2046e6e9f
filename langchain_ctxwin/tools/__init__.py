"""Tool definitions chosen to fit: the tools that a conversation needs, within a number of tokens.

    selector    what users hold: prices, and which tools make the set and when it changes
    ranking     words and meaning (embeddings), part by part of the request
    needs       what is asked for now, and in which words; entries: what a tool says of itself, in any form
    search      `search_tools`, by which a model finds what is not shown

Nothing is remembered between requests but in the state and in the messages.
"""

from langchain_ctxwin.tools.selector import ToolSelection, ToolSelector

__all__ = ["ToolSelection", "ToolSelector"]
