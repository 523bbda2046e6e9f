"""Large tool results: shown in a form that fits, kept until they expire, read on by cursor.

    guard       what users hold: a result is priced, read (contents), kept (cursors, stores), and shown
    wrapping    wraps tools, tool nodes and agents; the tool `read_more`
    reading     answers a cursor: the first view, the next page, a search, other fields; writes the notes
    pages       what fits on one page: the mildest form that shows all, else whole entries, else a part of one
    view        the entries of a result, and how they are printed; projection chooses their fields

Nothing here knows the engine: the room that is left comes from `context_report` in the state of the graph.
"""

from langchain_ctxwin.tool_results.cursors import Cursor, CursorSigner
from langchain_ctxwin.tool_results.guard import ToolResultGuard

__all__ = ["Cursor", "CursorSigner", "ToolResultGuard"]
