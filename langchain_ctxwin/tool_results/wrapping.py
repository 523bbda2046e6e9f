"""Wrapping of tools: nothing about a tool changes but what becomes of its results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any

from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    StructuredTool,
    ToolException,
)
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from pydantic import BaseModel, RootModel, create_model

from langchain_ctxwin.core.notes import READ_MORE
from langchain_ctxwin.errors import ConfigError, CursorError

DESCRIPTION = (
    "Read more of a tool result that was too large to show at once. Copy `cursor` from the note beside the result. "
    "Without more it gives the next page. All other arguments ask the whole result at once and can be combined. "
    "Notation: id|user.name names the fields of the rows below, an empty cell is a field that the row lacks; … and […] "
    "and [41 more characters]: text left out; (goes on): begun on the page before."
)
"""What the tool does, and the notation of all pages: said once here, because it stands in every request anyway."""

TAG = "ctxwin:read_more"  # marks the tool, also in traces
OUR_RUNTIME = "ctxwin_runtime"  # the argument for a wrapped tool's runtime: it may have a `runtime` of its own


Look = Callable[[Any], Any]
Paths = list[str] | str | None


def wrapped(tool: BaseTool, guard: Any) -> BaseTool:
    """Return a copy of a tool whose output goes through a guard's `output` and `aoutput`.

    The tool itself runs, so that what it remembers is in one place; name, schema, errors and callbacks stay. The copy
    asks LangGraph for the runtime, also where the tool does not: the guard needs the state and the thread.
    """
    kind: Any = type(tool)
    asks_itself = _asks_for_runtime(tool)

    def run(_: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        own_input, arguments, runtime = _taken_apart(tool, tool_input)
        output = tool.run(own_input, *args, **kwargs)
        return guard.output(output, tool.name, arguments, runtime)

    async def arun(_: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        own_input, arguments, runtime = _taken_apart(tool, tool_input)
        output = await tool.arun(own_input, *args, **kwargs)
        return await guard.aoutput(output, tool.name, arguments, runtime)

    def get_input_schema(_: Any, config: Any = None) -> Any:
        schema: Any = tool.get_input_schema(config)
        if asks_itself or not issubclass(schema, BaseModel):
            return schema
        extra: dict[str, Any] = {
            OUR_RUNTIME: (Annotated[Any, InjectedToolArg, ToolRuntime], None)
        }
        # Of a tool with a JSON schema this is a root model, which takes no fields and tells nothing about arguments.
        base = None if issubclass(schema, RootModel) else schema
        return create_model(schema.__name__, __base__=base, **extra)

    methods = {"run": run, "arun": arun, "get_input_schema": get_input_schema}
    changed: Any = type(kind)(
        kind.__name__, (kind,), {"__module__": kind.__module__, **methods}
    )
    copy = tool.model_copy()
    copy.__class__ = changed
    return copy


def _taken_apart(tool: BaseTool, tool_input: Any) -> tuple[Any, dict[str, Any], Any]:
    """The input that the tool expects, the arguments of the model, and the runtime."""
    if not isinstance(tool_input, dict):
        return tool_input, {"input": tool_input}, None
    runtimes = (one for one in tool_input.values() if isinstance(one, ToolRuntime))
    own_input = {key: value for key, value in tool_input.items() if key != OUR_RUNTIME}
    arguments = {key: value for key, value in own_input.items() if key in tool.args}
    return own_input, arguments, next(runtimes, None)


def _asks_for_runtime(tool: BaseTool) -> bool:
    """Say whether the tool has an argument that LangGraph fills with a runtime: by its name, or by its type."""
    func = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    annotations = {
        **getattr(func, "__annotations__", {}),
        **get_all_basemodel_annotations(tool.get_input_schema()),
    }
    return "runtime" in annotations or any(
        "ToolRuntime" in str(one) for one in annotations.values()
    )


def with_views(output: Any, look: Look, call_id: str | None = None) -> Any:
    """Return the output with views in the place of its contents; ids, status and artifacts stay.

    Of a command that hands a conversation over only the answer to this call is looked at.
    """
    match output:
        case ToolMessage():
            is_other = call_id is not None and output.tool_call_id != call_id
            return (
                output
                if is_other
                else output.model_copy(update={"content": look(output.content)})
            )
        case list() if any(isinstance(item, ToolOutputMixin) for item in output):
            return [with_views(item, look, call_id) for item in output]
        case Command(update={"messages": list() | ToolMessage() as messages, **others}):
            listed = messages if isinstance(messages, list) else [messages]
            guarded = [
                with_views(item, look, call_id)
                if isinstance(item, ToolMessage)
                else item
                for item in listed
            ]
            return replace(output, update={"messages": guarded, **others})
        case Command():
            return output
    return look(output)


def is_read_more(tool: BaseTool) -> bool:
    """Say whether this is the tool of a guard, rather than another one of the same name."""
    return tool.name == READ_MORE and TAG in (tool.tags or ())


def read_more_tool(
    read: Callable[..., str], aread: Callable[..., Awaitable[str]]
) -> BaseTool:
    """Return the tool of a guard; a fault of a cursor is an answer to the model, in a sentence that it can act on."""

    def read_more(
        cursor: Annotated[str, "The cursor, exactly as it stands in the note."],
        contains: Annotated[
            str | None, "Only what matches this regular expression, whatever its case."
        ] = None,
        fields: Annotated[
            Paths,
            'Paths of the fields to show, such as "price.amount, items[].id"; "*" for all.',
        ] = None,
        where: Annotated[
            str | None,
            'Only rows such as: total > 100 and city in (Graz, "Bad Ischl").',
        ] = None,
        sort: Annotated[
            Paths, 'Fields to sort by, "-total" for the largest first.'
        ] = None,
        count_by: Annotated[
            Paths, "Fields whose values are counted, instead of rows."
        ] = None,
        page_tokens: Annotated[
            int | None, "Largest size of the page in tokens."
        ] = None,
        runtime: Annotated[Any, InjectedToolArg] = None,
    ) -> str:
        question = {
            "contains": contains,
            "fields": fields,
            "where": where,
            "sort": sort,
            "count_by": count_by,
        }
        try:
            return read(cursor, **question, page_tokens=page_tokens, runtime=runtime)
        except (CursorError, ConfigError) as error:
            raise ToolException(str(error)) from error

    async def aread_more(cursor: str, **question: Any) -> str:
        try:
            return await aread(cursor, **question)
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
