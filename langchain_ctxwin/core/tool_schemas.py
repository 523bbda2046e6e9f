"""What does a tool definition cost? The text of what the model is shown of it: its JSON, or a typed signature.

A family whose `Framing.fields` are set shows signatures: names and descriptions count, plus constants per field, and
pricing the JSON would be off by half a request. The others show the JSON schema itself, with all its keywords.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.content import Media, leaves
from langchain_ctxwin.core.framing import FieldPrices, Framing

MAX_DEPTH = 12
"""Nesting of a schema that is followed; providers refuse deeper ones."""

MAX_NODES = 2_000
"""Parts of one schema that are looked at, so that shared definitions cannot multiply without end."""

MAX_VALUES = 10 * MAX_NODES
"""Values of one definition that its JSON shows: a schema states about ten, counting names and keywords."""

SINGLE_PARTS = ("items", "additionalProperties", "not", "anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords that hold a schema or a list of them."""

NAMED_PARTS = ("properties", "$defs", "definitions")
"""Keywords that hold schemas by name."""

PARAMETER_KEYS = ("parameters", "input_schema", "inputSchema", "args_schema")
"""Where definitions keep their schema: OpenAI and Gemini, Anthropic, MCP and Bedrock, LangChain."""

UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, NameError, RuntimeError)
"""What LangChain and pydantic raise for a tool that they cannot describe."""

TextPrice = Callable[[str], float]


def schema_tokens(tools: Iterable[Any], framing: Framing, price: TextPrice) -> float:
    """Return the price of a set of tool definitions in any form LangChain takes; 0 for none.

    The time is bounded for cyclic, shared and deep schemas. A tool that nobody can read is priced by its text.
    """
    functions = [function for tool in tools for function in _functions(tool)]
    if not functions:
        return 0.0
    return framing.any_tools + sum(_tool_tokens(function, framing, price) for function in functions)


def _functions(tool: Any) -> Iterator[Mapping[str, Any]]:
    """The definitions in one tool, each with a name, a description and parameters."""
    if isinstance(tool, Mapping):
        yield from _functions_of_mapping(tool)
        return
    try:
        converted = convert_to_openai_tool(tool)
    except UNREADABLE:
        converted = {"name": str(getattr(tool, "name", type(tool).__name__)), "description": ""}
    yield from _functions_of_mapping(converted)


def _functions_of_mapping(tool: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    declared = tool.get("function_declarations") or tool.get("functionDeclarations")
    if isinstance(declared, list | tuple):
        yield from (part for part in declared if isinstance(part, Mapping))
        return
    wrapped = next((part for key in ("function", "toolSpec") if isinstance(part := tool.get(key), Mapping)), tool)
    if any(key in wrapped for key in PARAMETER_KEYS) or ("name" in wrapped and "description" in wrapped):
        yield wrapped
    elif "title" in wrapped and isinstance(wrapped.get("properties"), Mapping):
        schema = {key: part for key, part in wrapped.items() if key not in {"title", "description"}}
        yield {"name": wrapped["title"], "description": wrapped.get("description"), "parameters": schema}
    else:
        yield {"description": " ".join(leaf for leaf in leaves(_with_keys(tool)) if not isinstance(leaf, Media))}


def _with_keys(tool: Mapping[str, Any]) -> list[Any]:
    """Keys and values of a provider's own tool: what it is is often said by a key or by its type alone."""
    return [*map(str, tool), *tool.values()]


def _tool_tokens(function: Mapping[str, Any], framing: Framing, price: TextPrice) -> float:
    root = next((found for key in PARAMETER_KEYS if (found := function.get(key)) is not None), None)
    if isinstance(root, Mapping) and isinstance(inner := root.get("json"), Mapping):
        root = inner  # Bedrock wraps the schema once more
    name, description = str(function.get("name") or ""), str(function.get("description") or "")
    if framing.fields is None:
        shown = {"name": name, "description": description, "parameters": root}
        return framing.tool + price(_json(shown))
    tokens = framing.tool + price(name)
    if description:
        tokens += framing.fields.description + price(description)
    return tokens + sum(_node_tokens(node, framing.fields, price) for node in _nodes(root))


def _json(value: Any) -> str:
    """The JSON of a definition; it ends for any value, and what no JSON holds is shown as text."""
    return json.dumps(_bounded(value, iter(range(MAX_VALUES)), ()), ensure_ascii=False, default=str)


def _bounded(value: Any, left: Iterator[int], path: tuple[int, ...]) -> Any:
    """A copy of so many values at most; one that contains itself is not entered again."""
    if next(left, None) is None or id(value) in path or len(path) > 2 * MAX_DEPTH:
        return None
    inside = (*path, id(value))
    if isinstance(value, Mapping):
        return {str(key): _bounded(part, left, inside) for key, part in islice(value.items(), MAX_NODES)}
    if isinstance(value, list | tuple):
        return [_bounded(part, left, inside) for part in value[:MAX_NODES]]
    return value


def _nodes(root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the schemas inside it; one that contains itself is not entered again."""
    stack: list[tuple[Any, tuple[int, ...]]] = [(root, ())]
    left = MAX_NODES
    while stack and left:
        schema, path = stack.pop()
        if not isinstance(schema, Mapping) or id(schema) in path or len(path) > MAX_DEPTH:
            continue
        left -= 1
        yield schema
        inside = (*path, id(schema))
        stack.extend((part, inside) for part in _parts(schema))


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in SINGLE_PARTS:
        part = schema.get(key)
        if isinstance(part, list | tuple):
            yield from part[:MAX_NODES]
        elif part is not None:
            yield part
    for key in NAMED_PARTS:
        named = schema.get(key)
        if isinstance(named, Mapping):
            yield from list(named.values())[:MAX_NODES]


def _node_tokens(schema: Mapping[str, Any], fields: FieldPrices, price: TextPrice) -> float:
    """What one schema states itself."""
    tokens = 0.0
    names = schema.get("properties")
    if isinstance(names, Mapping) and names:
        tokens += fields.first_property + fields.more_properties * (len(names) - 1)
        tokens += sum(price(str(name)) for name in names)
    if description := schema.get("description"):
        tokens += fields.property_description + price(str(description))
    choices = schema.get("enum")
    if isinstance(choices, list | tuple) and choices:
        tokens += fields.enum_item * len(choices) + price(" ".join(map(str, choices[:MAX_NODES])))
    return tokens
