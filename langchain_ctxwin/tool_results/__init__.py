"""Large tool results: shown in a form that fits, kept until they expire, read on by cursor.

    guard       what users hold: a result is priced, kept and shown; wraps tools, tool nodes and agents; `read_more`
    pages       what fits on one page: the mildest form that shows all, else whole entries, else a part of one; notes
    query       a question about a stored result: which rows, in which order, how many
    showing     what a result holds: its entries, which of their fields are shown, and how they are printed
    cursors     signed places in a result, and what is kept of it
    stores      where it is kept

Nothing here knows the engine: the room that is left comes from `context_report` in the state of the graph.
"""

from langchain_ctxwin.tool_results.cursors import Cursor, CursorSigner
from langchain_ctxwin.tool_results.guard import ToolResultGuard

__all__ = ["Cursor", "CursorSigner", "ToolResultGuard"]
