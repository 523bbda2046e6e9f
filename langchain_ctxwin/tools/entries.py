"""What does a tool say of itself: its name, and the words by which it is found, whatever its form?"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.tools import BaseTool

from langchain_ctxwin.core.tokens import tool_definition
from langchain_ctxwin.core.tool_schemas import MAX_DEPTH, NAMED_PARTS, PARAMETER_KEYS, SINGLE_PARTS

MAX_FIELDS = 200
"""Parts of one schema that are read for words; what a tool is for is said at its top."""

MAX_TEXT_CHARS = 4_000
"""Longest description that is read for words: about two pages."""

MAX_SUMMARY_CHARS = 160
"""Longest one-line description: two printed lines."""

DECLARATIONS = ("function_declarations", "functionDeclarations")
"""Where one tool holds several functions."""

_NAME_JOINTS = re.compile(r"[\W_]+")
_LINE_BREAKS = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tool as the ranking sees it."""

    tool: Any
    """The tool as it was given."""

    name: str
    """By which the model calls it; of several functions in one tool, the first."""

    names: tuple[str, ...]
    """All functions that the tool holds."""

    is_unnamed: bool
    """True for a provider's own tool that is called by its type."""

    title: str
    """The words of its names."""

    description: str
    fields: str
    """The names of its parameters."""

    field_texts: str
    """The descriptions of its parameters."""

    values: str
    """The values that its parameters can have, as far as they are listed."""

    @property
    def text(self) -> str:
        """What embeddings are made from."""
        return f"{self.title}: {self.description}" if self.description else self.title

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        line = _LINE_BREAKS.sub(" ", self.description).strip()
        first = _SENTENCE_END.split(line, maxsplit=1)[0]
        return first if len(first) <= MAX_SUMMARY_CHARS else f"{first[: MAX_SUMMARY_CHARS - 3].rstrip()}..."


def entries_of(tools: Iterable[Any]) -> tuple[Entry, ...]:
    """Read tools. Of provider tools that have no name but their type, the second of a type is called `type 2`."""
    entries, seen = list[Entry](), Tally[str]()
    for entry in map(entry_of, tools):
        seen[entry.name] += 1
        again = entry.is_unnamed and seen[entry.name] > 1
        name = f"{entry.name} {seen[entry.name]}"
        entries.append(replace(entry, name=name, names=(name,)) if again else entry)
    return tuple(entries)


def entry_of(tool: Any) -> Entry:
    """Read a tool in any form LangChain takes; what nobody can read has only its name."""
    functions = list(_functions(tool))
    names = tuple(name for function in functions if (name := str(function.get("name") or "")))
    is_unnamed = not names and isinstance(tool, Mapping)
    names = names or (_fallback_name(tool),)
    schemas = [schema for function in functions for schema in _schemas(_parameters(function))]
    properties = [part for schema in schemas if isinstance(part := schema.get("properties"), Mapping)]
    return Entry(
        tool=tool,
        name=names[0],
        names=names,
        is_unnamed=is_unnamed,
        title=" ".join(_NAME_JOINTS.sub(" ", name) for name in names)[:MAX_TEXT_CHARS],
        description=" ".join(_text(function.get("description")) for function in functions)[:MAX_TEXT_CHARS],
        fields=" ".join(str(name) for part in properties for name in part)[:MAX_TEXT_CHARS],
        field_texts=" ".join(filter(None, (_text(schema.get("description")) for schema in schemas[1:])))[
            :MAX_TEXT_CHARS
        ],
        values=" ".join(value for schema in schemas for value in _values(schema))[:MAX_TEXT_CHARS],
    )


def _functions(tool: Any) -> Iterator[Mapping[str, Any]]:
    """The definitions in one tool: mostly one."""
    definition = tool if isinstance(tool, Mapping) else tool_definition(tool)
    if not isinstance(definition, Mapping):
        return
    declared = next((found for key in DECLARATIONS if isinstance(found := definition.get(key), list | tuple)), None)
    if declared is not None:
        yield from (part for part in declared if isinstance(part, Mapping))
        return
    wrapped = (part for key in ("function", "toolSpec") if isinstance(part := definition.get(key), Mapping))
    function = next(wrapped, definition)
    if "name" not in function and "title" in function:
        yield {**function, "name": function["title"], "parameters": function}
    else:
        yield function


def _fallback_name(tool: Any) -> str:
    """The name of a provider's own tool, which is its type or its only key; else what the object is called.

    Of servers there are several, told apart by their label.
    """
    if isinstance(tool, Mapping):
        kind, label = tool.get("type"), tool.get("server_label")
        own = kind if isinstance(kind, str) and kind else next(map(str, tool), "")
        return f"{own}:{label}" if isinstance(label, str) and label else own
    name = tool.name if isinstance(tool, BaseTool) else getattr(tool, "name", getattr(tool, "__name__", None))
    return name if isinstance(name, str) and name else type(tool).__name__


def _parameters(function: Mapping[str, Any]) -> Any:
    schema = next((found for key in PARAMETER_KEYS if (found := function.get(key)) is not None), None)
    inner = schema.get("json") if isinstance(schema, Mapping) else None
    return inner if isinstance(inner, Mapping) else schema


def _schemas(root: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and those inside it, near ones first; each once, so that recursive and shared ones end."""
    level, seen = [root], set[int]()
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for schema in level:
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            if len(seen) >= MAX_FIELDS:
                return
            seen.add(id(schema))
            yield schema
            below.extend(_parts(schema))
        level = below


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in NAMED_PARTS:
        if isinstance(named := schema.get(key), Mapping):
            yield from list(named.values())[:MAX_FIELDS]
    for key in SINGLE_PARTS:
        part = schema.get(key)
        yield from part[:MAX_FIELDS] if isinstance(part, list | tuple) else (part,)


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    """The texts that a schema lists as possible, usual or example."""
    for key in ("enum", "examples"):
        listed = schema.get(key)
        yield from (_text(value) for value in (listed[:MAX_FIELDS] if isinstance(listed, list | tuple) else ()))
    yield from (_text(schema.get(key)) for key in ("const", "default"))


def _text(value: Any) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
