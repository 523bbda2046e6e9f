"""How is a tool wrapped, so that nothing about it changes but what becomes of its results?"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools import BaseTool, InjectedToolArg
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, RootModel, create_model

from langchain_ctxwin.errors import ContextWindowError
from langchain_ctxwin.tool_results.contents import MAX_ITEMS, is_blocks, jsonable

NAMED_RUNTIME = "runtime"
"""The argument in which LangGraph hands a tool its runtime, whatever the argument's type."""

OUR_RUNTIME = "ctxwin_runtime"
"""The argument in which a wrapped tool gets it: found by its type, so that a tool may have a `runtime` of its own."""

Returned = Callable[..., Any]


class OutputGuard(Protocol):
    """What is done with the output of a wrapped tool."""

    def output(self, output: Any, tool: str, args: Any, runtime: Any) -> Any:
        """Return the output to hand on; `args` are those the model gave."""
        ...

    async def aoutput(self, output: Any, tool: str, args: Any, runtime: Any) -> Any:
        """Like `output`, without blocking the event loop."""
        ...


def structured(tool: BaseTool) -> BaseTool:
    """Return a copy of a tool whose results come as JSON where Python's `str` would come: models, dataclasses, sets.

    The tool's own code runs on the tool itself, so that what it remembers is in one place. Tools that run in a way of
    their own are returned as they are.
    """
    kind = type(tool)
    if kind.run is not BaseTool.run or kind.arun is not BaseTool.arun:
        return tool
    methods: dict[str, Returned] = {"_run": _converting(tool, kind._run)}  # noqa: SLF001  # what tools override
    if kind._arun is not BaseTool._arun:  # noqa: SLF001  # LangChain asks for the same; the default calls `_run`
        methods["_arun"] = _aconverting(tool, kind._arun)  # noqa: SLF001  # what tools override
    return _copied(tool, methods)


def guarded(tool: BaseTool, guard: OutputGuard) -> BaseTool:
    """Return a copy of a tool whose output goes through a guard; name, schema, errors and callbacks stay as they are.

    The copy asks LangGraph for the runtime, whether the tool does or not: the guard needs the state and the thread.
    """
    inner = structured(tool)
    kind, own = type(inner), _asks_for_runtime(tool)

    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        given, runtime = _without_runtime(tool_input, keep=own)
        output = kind.run(self, given, *args, **kwargs)
        return guard.output(output, self.name, _model_args(self, given), runtime)

    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        given, runtime = _without_runtime(tool_input, keep=own)
        output = await kind.arun(self, given, *args, **kwargs)
        return await guard.aoutput(output, self.name, _model_args(self, given), runtime)

    def get_input_schema(self: Any, config: Any = None) -> Any:
        schema = kind.get_input_schema(self, config)
        return schema if own else _with_runtime(schema)

    overrides: dict[str, Returned] = {"run": run, "arun": arun, "get_input_schema": get_input_schema}
    return _copied(inner, {name: functools.wraps(getattr(kind, name))(method) for name, method in overrides.items()})


def _copied(tool: BaseTool, methods: dict[str, Any]) -> BaseTool:
    """A copy of a tool with other methods. Its class derives from the tool's own, so that all else is inherited."""
    kind: Any = type(tool)
    changed: Any = type(kind)(kind.__name__, (kind,), {"__module__": kind.__module__, **methods})
    copy = tool.model_copy()
    copy.__class__ = changed
    return copy


def _converting(tool: BaseTool, method: Returned) -> Returned:
    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _returned(self, method(tool, *args, **kwargs))

    return run


def _aconverting(tool: BaseTool, method: Callable[..., Awaitable[Any]]) -> Returned:
    @functools.wraps(method)
    async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        returned = await method(tool, *args, **kwargs)
        return _returned(self, await _all_of(returned) if isinstance(returned, AsyncIterator) else returned)

    return run


def _returned(tool: Any, returned: Any) -> Any:
    if tool.response_format == "content_and_artifact" and isinstance(returned, tuple):
        return (*map(_converted, returned[:1]), *returned[1:])
    return _converted(returned)


def _converted(value: Any) -> Any:
    if value is None or isinstance(value, str | ToolOutputMixin) or is_blocks(value) or _is_output_list(value):
        return value
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return jsonable(value)
    return value


def _is_output_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, ToolOutputMixin) for item in value)


async def _all_of(items: AsyncIterator[Any]) -> list[Any]:
    taken: list[Any] = []
    async for item in items:
        if len(taken) == MAX_ITEMS:
            raise ContextWindowError(f"the tool's generator yields more than {MAX_ITEMS:,} items: return fewer")
        taken.append(item)
    return taken


def _without_runtime(tool_input: Any, *, keep: bool) -> tuple[Any, Any]:
    """The input that the tool expects, and the runtime that LangGraph added; the model cannot give one."""
    if not isinstance(tool_input, dict):
        return tool_input, None
    runtime = next((value for value in tool_input.values() if isinstance(value, ToolRuntime)), None)
    if runtime is None or keep:
        return tool_input, runtime
    return {key: value for key, value in tool_input.items() if key != OUR_RUNTIME}, runtime


def _model_args(tool: BaseTool, given: Any) -> dict[str, Any]:
    return tool._filter_injected_args(given) if isinstance(given, dict) else {"input": given}  # noqa: SLF001  # no public way


def _asks_for_runtime(tool: BaseTool) -> bool:
    """Say whether LangGraph gives the tool a runtime, by its name or by its type; it gives one argument one."""
    annotations = _annotations(tool)
    return NAMED_RUNTIME in annotations or any(map(_is_runtime, annotations.values()))


def _annotations(tool: BaseTool) -> dict[str, Any]:
    """The arguments of a tool, those that the model does not see included."""
    func = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    try:
        declared = get_type_hints(func, include_extras=True) if func else {}
    except (NameError, TypeError):  # names that exist for type checkers only
        declared = getattr(func, "__annotations__", {})
    return {**declared, **get_all_basemodel_annotations(tool.get_input_schema())}


def _is_runtime(annotation: Any) -> bool:
    return ToolRuntime in (annotation, get_origin(annotation)) or any(map(_is_runtime, get_args(annotation)))


def _with_runtime(schema: Any) -> Any:
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return schema
    extra: dict[str, Any] = {OUR_RUNTIME: (Annotated[Any, InjectedToolArg, ToolRuntime], None)}
    # Of a tool with a JSON schema this is a root model, which takes no fields and tells nothing about arguments.
    base = None if issubclass(schema, RootModel) else schema
    return create_model(schema.__name__, __base__=base, **extra)
