"""Wrapping of tools: nothing about a tool changes but what becomes of its results."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

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
from langchain_ctxwin.tool_results.contents import is_blocks, jsonable, repeats

DESCRIPTION = (
    "Read more of a tool result that was too large to show at once. Copy `cursor` from the note beside the result. "
    "Without more it gives the next page. All other arguments ask the whole result at once and can be combined. "
    "Notation: id|user.name names the fields of the rows below, an empty cell is a field that the row lacks; … and […] "
    "and [41 more characters]: text left out; (goes on): begun on the page before."
)
"""What the tool does, and the notation of all pages: said once here, because it stands in every request anyway."""

TAG = "ctxwin:read_more"  # marks the tool, also in traces
METADATA = "ctxwin"  # key of a message's `response_metadata` that tells programs what the notes tell the model
STRUCTURED = "structured_content"  # key of an artifact under which langchain-mcp-adapters gives structured content
OUR_RUNTIME = "ctxwin_runtime"  # the argument for a wrapped tool's runtime: it may have a `runtime` of its own


class Reduced(NamedTuple):
    """What is shown of a large result."""

    content: str | list[Any]
    facts: dict[str, Any]  # what the notes say, for programs
    is_stored: bool  # all of the result is kept, so that nothing is lost when it is not kept elsewhere


Look = Callable[[Any], Reduced | None]
Paths = list[str] | str | None


def wrapped(tool: BaseTool, guard: Any = None) -> BaseTool:
    """Return a copy of a tool whose results come as JSON where Python's `str` would come: models, dataclasses, sets.

    The tool's own code runs on the tool itself, so that what it remembers is in one place; name, schema, errors and
    callbacks stay as they are. With a guard all output goes through its `output` and `aoutput`, and the copy asks
    LangGraph for the runtime, whether the tool does or not: the guard needs the state and the thread.
    """
    kind: Any = type(tool)

    @functools.wraps(kind._run)  # noqa: SLF001  # what tools override
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _returned(self, kind._run(tool, *args, **kwargs))  # noqa: SLF001

    @functools.wraps(kind._arun)  # noqa: SLF001
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        returned: Any = await kind._arun(tool, *args, **kwargs)  # noqa: SLF001
        if isinstance(returned, AsyncIterator):
            returned = [item async for item in returned]
        return _returned(self, returned)

    methods: dict[str, Any] = {"_run": _run}
    if kind._arun is not BaseTool._arun:  # noqa: SLF001  # LangChain asks for the same; the default calls `_run`
        methods["_arun"] = _arun
    methods |= {} if guard is None else _guarded(tool, guard)
    changed: Any = type(kind)(
        kind.__name__, (kind,), {"__module__": kind.__module__, **methods}
    )
    copy = tool.model_copy()
    copy.__class__ = changed
    return copy


def _guarded(tool: BaseTool, guard: Any) -> dict[str, Any]:
    kind, asks_itself = type(tool), _asks_for_runtime(tool)

    @functools.wraps(kind.run)
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        given, asked, runtime = _taken_apart(self, tool_input, keep=asks_itself)
        return guard.output(
            kind.run(self, given, *args, **kwargs), self.name, asked, runtime
        )

    @functools.wraps(kind.arun)
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        given, asked, runtime = _taken_apart(self, tool_input, keep=asks_itself)
        return await guard.aoutput(
            await kind.arun(self, given, *args, **kwargs), self.name, asked, runtime
        )

    @functools.wraps(kind.get_input_schema)
    def get_input_schema(self: Any, config: Any = None) -> Any:
        schema: Any = kind.get_input_schema(self, config)
        if asks_itself or not (
            isinstance(schema, type) and issubclass(schema, BaseModel)
        ):
            return schema
        extra: dict[str, Any] = {
            OUR_RUNTIME: (Annotated[Any, InjectedToolArg, ToolRuntime], None)
        }
        # Of a tool with a JSON schema this is a root model, which takes no fields and tells nothing about arguments.
        base = None if issubclass(schema, RootModel) else schema
        return create_model(schema.__name__, __base__=base, **extra)

    return {"run": run, "arun": arun, "get_input_schema": get_input_schema}


def _returned(tool: Any, returned: Any) -> Any:
    if tool.response_format == "content_and_artifact" and isinstance(returned, tuple):
        return (*map(_converted, returned[:1]), *returned[1:])
    return _converted(returned)


def _converted(value: Any) -> Any:
    if (
        value is None
        or isinstance(value, str | ToolOutputMixin)
        or is_blocks(value)
        or _is_output_list(value)
    ):
        return value
    if isinstance(value, Iterator):
        value = list(value)
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return jsonable(value)
    return value


def _is_output_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, ToolOutputMixin) for item in value)
    )


def _taken_apart(
    tool: BaseTool, tool_input: Any, *, keep: bool
) -> tuple[Any, dict[str, Any], Any]:
    """The input that the tool expects, the arguments of the model, and the runtime."""
    if not isinstance(tool_input, dict):
        return tool_input, {"input": tool_input}, None
    runtime = next(
        (value for value in tool_input.values() if isinstance(value, ToolRuntime)), None
    )
    given = {
        key: value
        for key, value in tool_input.items()
        if keep or key != OUR_RUNTIME or runtime is None
    }
    return given, tool._filter_injected_args(given), runtime  # noqa: SLF001  # no public way


def _asks_for_runtime(tool: BaseTool) -> bool:
    """Say whether LangGraph gives the tool a runtime, by its name or by its type; it gives one argument one."""
    func = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    try:
        declared = get_type_hints(func, include_extras=True) if func else {}
    except (NameError, TypeError):  # names that exist for type checkers only
        declared = getattr(func, "__annotations__", {})
    annotations = {**declared, **get_all_basemodel_annotations(tool.get_input_schema())}
    return "runtime" in annotations or any(map(_is_runtime, annotations.values()))


def _is_runtime(annotation: Any) -> bool:
    return ToolRuntime in (annotation, get_origin(annotation)) or any(
        map(_is_runtime, get_args(annotation))
    )


def with_views(output: Any, look: Look, call_id: str | None = None) -> Any:
    """Return the output with what is shown of its contents; all else, such as ids, status and artifacts, as it was.

    Only of an artifact that repeats a content which is stored as a whole, as MCP servers send it, the repetition goes.
    Of a command that hands a conversation over only the answer to this call is looked at.
    """
    if isinstance(output, ToolMessage):
        return _shown(output, look)
    if _is_output_list(output):
        return [with_views(item, look, call_id) for item in output]
    if isinstance(output, Command):
        changed = _each(
            output.update, functools.partial(_message, look=look, call_id=call_id)
        )
        return replace(output, update=changed)
    if isinstance(output, Iterator):
        output = list(output)
    view = look(output)
    return output if view is None else view.content


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """What becomes of messages in an update: an object, pairs of keys and values, or messages."""
    if type(value) in (list, tuple):
        return type(value)(_each(item, change) for item in value)
    if isinstance(value, Mapping) and "content" not in value:
        return {
            key: _each(item, change) if key == "messages" else item
            for key, item in value.items()
        }
    return change(value)


def _message(item: Any, look: Look, call_id: str | None) -> Any:
    is_message = isinstance(item, ToolMessage)
    if not is_message and not (
        isinstance(item, Mapping) and "tool" in (item.get("role"), item.get("type"))
    ):
        return item
    answered = item.tool_call_id if is_message else item.get("tool_call_id")
    if call_id is not None and answered != call_id:
        return item
    if is_message:
        return _shown(item, look)
    view = look(item.get("content"))
    return item if view is None else {**item, "content": view.content}


def _shown(message: ToolMessage, look: Look) -> ToolMessage:
    # a page already: another guard stands further inside
    if METADATA in message.response_metadata:
        return message
    view = look(message.content)
    if view is None:
        return message
    artifact, facts = message.artifact, view.facts
    if (
        view.is_stored
        and isinstance(artifact, Mapping)
        and repeats(message.content, artifact.get(STRUCTURED))
    ):
        artifact = {
            key: value for key, value in artifact.items() if key != STRUCTURED
        } or None
        facts = {**facts, "artifact_left_out": STRUCTURED}
    metadata = {**message.response_metadata, METADATA: facts}
    return message.model_copy(
        update={
            "content": view.content,
            "artifact": artifact,
            "response_metadata": metadata,
        }
    )


def is_read_more(tool: BaseTool) -> bool:
    """Say whether this is the tool of a guard, rather than one that somebody gave the same name."""
    return tool.name == READ_MORE and TAG in (tool.tags or ())


def read_more_tool(
    read: Callable[..., str], aread: Callable[..., Awaitable[str]]
) -> BaseTool:
    """Return the tool of a guard; what is wrong with a cursor is told to the model in a sentence that it can act on."""

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
        asked = {
            "contains": contains,
            "fields": fields,
            "where": where,
            "sort": sort,
            "count_by": count_by,
        }
        try:
            return read(cursor, **asked, page_tokens=page_tokens, runtime=runtime)
        except (CursorError, ConfigError) as error:
            raise ToolException(str(error)) from error

    async def aread_more(cursor: str, **asked: Any) -> str:
        try:
            return await aread(cursor, **asked)
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
