"""Large tool results: shown in a form that fits, kept until they expire, read on by cursor.

    guard       what users hold: wraps tools, tool nodes and agents (given, wrapped, outputs, read_more)
    results     a result is priced (budget), read (contents), kept (record, vault, stores), and shown
    reduction   the mildest form that fits: printed compactly, projected, or page by page
    reading     answers a cursor (cursors, cursor_form): the next page, a search (found), other fields
    pages       what fits on one page, of the entries that layout finds; inside one that is larger; texts for plain text
    view        how entries look: projection (paths), automatic (classes), extraction (salience), printing
    notes       the lines around a page

Nothing here knows the engine: the room that is left comes from `context_report` in the state of the graph.
"""

from langchain_ctxwin.tool_results.cursors import Cursor, CursorSigner
from langchain_ctxwin.tool_results.guard import ToolResultGuard

__all__ = ["Cursor", "CursorSigner", "ToolResultGuard"]
