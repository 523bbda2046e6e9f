"""What does a tool definition cost? Its names and descriptions, plus constants per field, not its JSON text.

Providers show models a rendering of the schema, not its JSON: pricing the JSON is off by half a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.content import compact_json
from langchain_ctxwin.core.framing import Framing

MAX_DEPTH = 12
"""Nesting of a schema that is followed; deeper ones are cyclic more often than meant."""

TextPrice = Callable[[str], float]


def schema_tokens(tools: Iterable[Any], framing: Framing, price: TextPrice) -> float:
    """Return the price of a set of tool definitions in any form LangChain takes; 0 for none."""
    functions = [_function(tool) for tool in tools]
    if not functions:
        return 0.0
    return framing.any_tools + sum(_tool_tokens(function, framing, price) for function in functions)


def _function(tool: Any) -> Mapping[str, Any]:
    """The definition in OpenAI's shape; one that LangChain cannot convert is described by its text."""
    try:
        converted: Any = convert_to_openai_tool(tool)
    except (ValueError, TypeError, RecursionError):
        return {"name": "", "description": _as_text(tool)}
    function = converted.get("function")
    return function if isinstance(function, Mapping) else {"name": "", "description": _as_text(converted)}


def _as_text(tool: Any) -> str:
    try:
        return compact_json(tool)
    except RecursionError:
        return ""


def _tool_tokens(function: Mapping[str, Any], framing: Framing, price: TextPrice) -> float:
    tokens = framing.tool + price(str(function.get("name") or ""))
    if description := function.get("description"):
        tokens += framing.description + price(str(description))
    return tokens + _object_tokens(function.get("parameters"), framing, price, depth=0)


def _object_tokens(schema: Any, framing: Framing, price: TextPrice, *, depth: int) -> float:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return 0.0
    fields = schema.get("properties")
    tokens = 0.0
    if isinstance(fields, Mapping) and fields:
        tokens += framing.first_property + framing.more_properties * (len(fields) - 1)
        tokens += sum(_field_tokens(str(name), field, framing, price, depth) for name, field in fields.items())
    nested = [schema.get(key) for key in ("items", "additionalProperties", "not")]
    nested += [part for key in ("anyOf", "oneOf", "allOf", "prefixItems") for part in schema.get(key) or ()]
    nested += [part for key in ("$defs", "definitions") for part in (schema.get(key) or {}).values()]
    return tokens + sum(_object_tokens(part, framing, price, depth=depth + 1) for part in nested)


def _field_tokens(name: str, field: Any, framing: Framing, price: TextPrice, depth: int) -> float:
    if not isinstance(field, Mapping):
        return price(name)
    tokens = price(name)
    if description := field.get("description"):
        tokens += framing.property_description + price(str(description))
    choices = field.get("enum")
    if isinstance(choices, list):
        tokens += sum(framing.enum_item + price(str(choice)) for choice in choices)
    return tokens + _object_tokens(field, framing, price, depth=depth + 1)
