"""The tool by which a model reads on in a large result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException

from langchain_ctxwin.errors import ConfigError, CursorError
from langchain_ctxwin.tool_results.notes import READ_MORE

TAG = "ctxwin:read_more"
"""Marks the tool, also in traces."""

DESCRIPTION = (
    "Read more of a tool result that was too large to show at once. Copy `cursor` from the note beside the result. "
    "Without more it gives the next page; `contains` searches the whole result for a text; `fields` shows other fields "
    '(["*"] for all); `page_tokens` makes the page smaller.'
)

Cursor = Annotated[str, "The cursor, exactly as it stands in the note."]
Contains = Annotated[str | None, "Show only what contains this text, whatever its case."]
FieldPaths = Annotated[list[str] | str | None, 'Paths of the fields to show, such as "price.amount" or "items[].id".']
PageTokens = Annotated[int | None, "Largest size of the page in tokens."]
Runtime = Annotated[Any, InjectedToolArg]


def is_read_more(tool: BaseTool) -> bool:
    """Say whether this is the tool of a guard, rather than one that somebody gave the same name."""
    return tool.name == READ_MORE and TAG in (tool.tags or ())


def read_more_tool(read: Callable[..., str], aread: Callable[..., Awaitable[str]]) -> BaseTool:
    """Return the tool; what is wrong with a cursor is told to the model in a sentence that it can act on.

    Args:
        read: `ToolResultGuard.read`.
        aread: `ToolResultGuard.aread`.
    """

    def read_more(
        cursor: Cursor,
        contains: Contains = None,
        fields: FieldPaths = None,
        page_tokens: PageTokens = None,
        runtime: Runtime = None,
    ) -> str:
        try:
            return read(cursor, contains=contains, fields=fields, page_tokens=page_tokens, runtime=runtime)
        except (CursorError, ConfigError) as error:
            raise ToolException(str(error)) from error

    async def aread_more(
        cursor: Cursor,
        contains: Contains = None,
        fields: FieldPaths = None,
        page_tokens: PageTokens = None,
        runtime: Runtime = None,
    ) -> str:
        try:
            return await aread(cursor, contains=contains, fields=fields, page_tokens=page_tokens, runtime=runtime)
        except (CursorError, ConfigError) as error:
            raise ToolException(str(error)) from error

    return StructuredTool.from_function(
        read_more,
        aread_more,
        name=READ_MORE,
        description=DESCRIPTION,
        tags=[TAG],
        handle_tool_error=True,
        parse_docstring=False,
    )
