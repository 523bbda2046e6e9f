"""Tool definitions chosen to fit: the tools that a conversation needs, within a number of tokens.

    selector    what users hold: needs (what is asked for now) -> ranking -> choosing (which set, and when it changes)
    ranking     words (index, postings, wording) and meaning (embeddings), part by part of the request
    entries     what a tool says of itself, in any form; prices: what it adds to a request
    search      `search_tools`, by which a model finds what is not shown

Nothing is remembered between requests but in the state and in the messages.
"""

from langchain_ctxwin.tools.selection import ToolSelection
from langchain_ctxwin.tools.selector import ToolSelector

__all__ = ["ToolSelection", "ToolSelector"]
