"""What a tool says of itself, whatever its form: its name, and the words by which it is found."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.tools import BaseTool

from langchain_ctxwin.core.tokens import tool_definition
from langchain_ctxwin.core.tool_schemas import MAX_DEPTH, NAMED_PARTS, PARAMETER_KEYS, SINGLE_PARTS

# What is read for words: what a tool is for is said at the top of its schema, and in the first two pages of a text.
MAX_FIELDS = 200
MAX_TEXT_CHARS = 4_000

MAX_SUMMARY_CHARS = 160  # two printed lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tool as the ranking sees it."""

    tool: Any  # as it was given
    name: str  # by which the model calls it; of several functions in one tool, the first of its names
    names: tuple[str, ...]
    is_unnamed: bool  # a provider's own tool, which is called by its type
    title: str  # the words of its names
    description: str
    fields: str  # the names of its parameters
    field_texts: str  # and their descriptions
    values: str  # that they can have, as far as they are listed

    @property
    def text(self) -> str:
        """What embeddings are made from."""
        return f"{self.title}: {self.description}" if self.description else self.title

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        first = re.split(r"(?<=[.!?])\s", " ".join(self.description.split()), maxsplit=1)[0]
        return first if len(first) <= MAX_SUMMARY_CHARS else f"{first[: MAX_SUMMARY_CHARS - 3].rstrip()}..."


def entries_of(tools: Iterable[Any]) -> tuple[Entry, ...]:
    """Read tools. Of provider tools that have no name but their type, the second of a type is called `type 2`."""
    entries, seen = list[Entry](), Counter[str]()
    for entry in map(entry_of, tools):
        seen[entry.name] += 1
        name = f"{entry.name} {seen[entry.name]}"
        again = entry.is_unnamed and seen[entry.name] > 1
        entries.append(replace(entry, name=name, names=(name,)) if again else entry)
    return tuple(entries)


def entry_of(tool: Any) -> Entry:
    """Read a tool in any form LangChain takes; what nobody can read has only its name."""
    functions = list(_functions(tool))
    given = tuple(name for function in functions if (name := str(function.get("name") or "")))
    names = given or (_fallback_name(tool),)
    schemas = [schema for function in functions for schema in _schemas(function)]
    properties = [part for schema in schemas if isinstance(part := schema.get("properties"), Mapping)]
    return Entry(
        tool=tool,
        name=names[0],
        names=names,
        is_unnamed=not given and isinstance(tool, Mapping),
        title=_joined(re.sub(r"[\W_]+", " ", name) for name in names),
        description=_joined(_text(function.get("description")) for function in functions),
        fields=_joined(str(name) for part in properties for name in part),
        field_texts=_joined(filter(None, (_text(schema.get("description")) for schema in schemas[1:]))),
        values=_joined(value for schema in schemas for value in _values(schema)),
    )


def _functions(tool: Any) -> Iterator[Mapping[str, Any]]:
    """The definitions in one tool: mostly one."""
    definition = tool if isinstance(tool, Mapping) else tool_definition(tool)
    if not isinstance(definition, Mapping):
        return
    for key in ("function_declarations", "functionDeclarations"):
        if isinstance(declared := definition.get(key), list | tuple):
            yield from (part for part in declared if isinstance(part, Mapping))
            return
    wrapped = (part for key in ("function", "toolSpec") if isinstance(part := definition.get(key), Mapping))
    function = next(wrapped, definition)
    if "name" not in function and "title" in function:
        function = {**function, "name": function["title"], "parameters": function}
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


def _schemas(function: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema of a function and those inside it, near ones first; each once, so that recursive ones end."""
    root = next((found for key in PARAMETER_KEYS if (found := function.get(key)) is not None), None)
    if isinstance(root, Mapping) and isinstance(inner := root.get("json"), Mapping):
        root = inner  # Bedrock wraps the schema once more
    waiting, seen = deque([(root, 0)]), set[int]()
    while waiting and len(seen) < MAX_FIELDS:
        schema, depth = waiting.popleft()
        if not isinstance(schema, Mapping) or id(schema) in seen or depth >= MAX_DEPTH:
            continue
        seen.add(id(schema))
        yield schema
        named = (part for key in NAMED_PARTS if isinstance(part := schema.get(key), Mapping))
        single = (schema.get(key) for key in SINGLE_PARTS)
        parts = [*(list(part.values()) for part in named)]
        parts += [list(part) if isinstance(part, list | tuple) else [part] for part in single]
        waiting.extend((part, depth + 1) for some in parts for part in some[:MAX_FIELDS])


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    """The texts that a schema lists as possible, usual or example."""
    for key in ("enum", "examples"):
        listed = schema.get(key)
        yield from map(_text, listed[:MAX_FIELDS] if isinstance(listed, list | tuple) else ())
    yield from (_text(schema.get(key)) for key in ("const", "default"))


def _joined(texts: Iterable[str]) -> str:
    return " ".join(texts)[:MAX_TEXT_CHARS]


def _text(value: Any) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
