"""What tools say of themselves, and what a request asks of them: as a whole, and part by part."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
)
from langchain_core.tools import BaseTool

from langchain_ctxwin.core.calls import standard
from langchain_ctxwin.core.tool_schemas import (
    MAX_DEPTH,
    NAMED_PARTS,
    PARAMETER_KEYS,
    SINGLE_PARTS,
    listed,
    tool_definition,
)
from langchain_ctxwin.core.turns import as_messages
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.text import query_terms

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
        first = re.split(
            r"(?<=[.!?])\s", " ".join(self.description.split()), maxsplit=1
        )[0]
        return (
            first
            if len(first) <= MAX_SUMMARY_CHARS
            else f"{first[: MAX_SUMMARY_CHARS - 3].rstrip()}..."
        )


def entries_of(tools: Iterable[Any]) -> tuple[Entry, ...]:
    """Read tools. Of provider tools that have no name but their type, the second of a type is called `type 2`."""
    entries, seen = list[Entry](), Counter[str]()
    for entry in map(entry_of, listed(tools)):
        seen[entry.name] += 1
        name = f"{entry.name} {seen[entry.name]}"
        again = entry.is_unnamed and seen[entry.name] > 1
        entries.append(replace(entry, name=name, names=(name,)) if again else entry)
    return tuple(entries)


def entry_of(tool: Any) -> Entry:
    """Read a tool in any form LangChain takes; what nobody can read has only its name."""
    functions = list(_functions(tool))
    given = tuple(
        name for function in functions if (name := str(function.get("name") or ""))
    )
    names = given or (_fallback_name(tool),)
    schemas = [schema for function in functions for schema in _schemas(function)]
    properties = [
        part
        for schema in schemas
        if isinstance(part := schema.get("properties"), Mapping)
    ]
    return Entry(
        tool=tool,
        name=names[0],
        names=names,
        is_unnamed=not given and isinstance(tool, Mapping),
        title=_joined(re.sub(r"[\W_]+", " ", name) for name in names),
        description=_joined(
            _text(function.get("description")) for function in functions
        ),
        fields=_joined(str(name) for part in properties for name in part),
        field_texts=_joined(
            filter(None, (_text(schema.get("description")) for schema in schemas[1:]))
        ),
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
    wrapped = (
        part
        for key in ("function", "toolSpec")
        if isinstance(part := definition.get(key), Mapping)
    )
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
    name = (
        tool.name
        if isinstance(tool, BaseTool)
        else getattr(tool, "name", getattr(tool, "__name__", None))
    )
    return name if isinstance(name, str) and name else type(tool).__name__


def _schemas(function: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema of a function and those inside it, near ones first; each once, so that recursive ones end."""
    root = next(
        (found for key in PARAMETER_KEYS if (found := function.get(key)) is not None),
        None,
    )
    if isinstance(root, Mapping) and isinstance(inner := root.get("json"), Mapping):
        root = inner  # Bedrock wraps the schema once more
    waiting, seen = deque([(root, 0)]), set[int]()
    while waiting and len(seen) < MAX_FIELDS:
        schema, depth = waiting.popleft()
        if not isinstance(schema, Mapping) or id(schema) in seen or depth >= MAX_DEPTH:
            continue
        seen.add(id(schema))
        yield schema
        named = (
            part for key in NAMED_PARTS if isinstance(part := schema.get(key), Mapping)
        )
        single = (schema.get(key) for key in SINGLE_PARTS)
        parts = [*(list(part.values()) for part in named)]
        parts += [
            list(part) if isinstance(part, list | tuple) else [part] for part in single
        ]
        waiting.extend(
            (part, depth + 1) for some in parts for part in some[:MAX_FIELDS]
        )


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    """The texts that a schema lists as possible, usual or example."""
    for key in ("enum", "examples"):
        listed = schema.get(key)
        yield from map(
            _text, listed[:MAX_FIELDS] if isinstance(listed, list | tuple) else ()
        )
    yield from (_text(schema.get(key)) for key in ("const", "default"))


def _joined(texts: Iterable[str]) -> str:
    return " ".join(texts)[:MAX_TEXT_CHARS]


def _text(value: Any) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""


# a query, or the messages of a conversation
Asked = str | Sequence[MessageLikeRepresentation]
SEARCH_NAME = "search_tools"
# around the name of a tool in a result of `search_tools`
LINE_START, LINE_NAME_END = ("- ", ": ")
MAX_REQUEST_CHARS = 4_000  # read of a request or a plan, half at either end: pasted text in between is no request
MAX_NEEDS = 20  # parts that are ranked each for itself: time grows with them, and longer lists of wishes are rare
MIN_NEED_TERMS = 2  # a part with fewer words of its own joins the part before it
SHORT_REQUEST_TERMS = (
    3  # a request with fewer ("yes, do that") is read with what was said before it
)
# states of items on a list of things to do that need no tools any more
DONE = ("completed", "cancelled")

_CONJUNCTION = r"(?:and|then|also|plus|as well as|along with|additionally|furthermore|moreover)\b[,\s]*+"
# White space is looked at from where it begins, once: from each of its places, a long run would take its square.
_PARTS = re.compile(
    rf"(?<=[.?!;:])\s++|(?<!\s)\n++(?:\s++{_CONJUNCTION})?|\n++|(?:,|(?<!\s))\s++{_CONJUNCTION}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What tools are wanted for."""

    request: str  # the whole request, with what is planned
    # its parts when it has several, each one a wish of its own
    parts: tuple[str, ...] = ()
    # what a person asks for that the model has said nothing to, as a whole and in parts
    new: tuple[str, ...] = ()
    # names of the tools that the conversation has called, the last one first
    called: tuple[str, ...] = ()
    called_now: tuple[str, ...] = ()  # those that it has called since the last request
    # lines of `search_tools` since then, newest results first; each begins with a name
    found: tuple[str, ...] = ()
    is_new: bool = True  # while the model has said nothing to the request


def needs_of(asked: Asked) -> Needs:
    """Read a query, or the messages of a conversation; anything else is a `ConfigError`."""
    if isinstance(asked, str):
        request = _clipped(asked)
        return Needs(
            request=request, parts=_wishes([request]), new=(request, *parts_of(request))
        )
    given: object = asked
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise ConfigError(
            f"query_or_messages={type(asked).__name__}: give a text or a list of messages"
        )
    given_messages = cast("list[AnyMessage]", as_messages(asked))
    messages: list[BaseMessage] = [
        part for message in given_messages for part in standard(message)
    ]
    start = next(
        (
            at
            for at in reversed(range(len(messages)))
            if isinstance(messages[at], HumanMessage)
        ),
        0,
    )
    turn = messages[start:]
    texts = [*_request(messages[:start], turn), *_plan(turn)]
    is_new = not any(isinstance(message, AIMessage) for message in turn)
    own = _clipped(turn[0].text) if is_new and turn else ""
    results = [
        one
        for one in reversed(turn)
        if isinstance(one, ToolMessage) and one.name == SEARCH_NAME
    ]
    lines = (
        line
        for result in results
        for line in result.text.splitlines()
        if line.startswith(LINE_START)
    )
    return Needs(
        request="\n".join(texts),
        parts=_wishes(texts),
        called=_called(messages),
        called_now=_called(turn),
        is_new=is_new,
        new=(own, *parts_of(own)),
        found=tuple(dict.fromkeys(line.removeprefix(LINE_START) for line in lines)),
    )


def parts_of(text: str) -> list[str]:
    """Cut a request into its sentences and clauses; short ones stay with the one before."""
    parts: list[list[str]] = []
    for piece in _PARTS.split(text):
        part = piece.strip(" ,\t")
        if part and parts and len(query_terms(part)) < MIN_NEED_TERMS:
            parts[-1].append(part)
        elif part:
            parts.append([part])
    return [" ".join(joined) for joined in parts]


def _request(before: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> list[str]:
    """The last user message; with what was said before it when it says little itself."""
    if not turn or not isinstance(turn[0], HumanMessage):
        return []
    request = _clipped(turn[0].text)
    if len(query_terms(request)) >= SHORT_REQUEST_TERMS:
        return [request]
    return [
        *(
            _clipped(said)
            for kind in (HumanMessage, AIMessage)
            if (said := _last_text(before, kind))
        ),
        request,
    ]


def _plan(turn: Sequence[BaseMessage]) -> list[str]:
    """What the model last said in this turn, and what is open on its list of things to do."""
    calls = [
        call["args"]
        for message in turn
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    lists = [todos for args in calls if isinstance(todos := args.get("todos"), list)]
    items = [
        item
        for item in (lists or [[]])[-1]
        if isinstance(item, Mapping) and item.get("status") not in DONE
    ]
    to_do = "\n".join(
        content for item in items if isinstance(content := item.get("content"), str)
    )
    return [_clipped(text) for text in (_last_text(turn, AIMessage), to_do) if text]


def _called(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    calls = [
        call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    return tuple(name for name in dict.fromkeys(reversed(calls)) if name != SEARCH_NAME)


def _wishes(texts: Iterable[str]) -> tuple[str, ...]:
    parts = list(dict.fromkeys(part for text in texts for part in parts_of(text)))
    return tuple(parts[:MAX_NEEDS]) if len(parts) > 1 else ()


def _last_text(messages: Sequence[BaseMessage], kind: type[BaseMessage]) -> str:
    texts = (
        str(message.text) for message in reversed(messages) if isinstance(message, kind)
    )
    return next((text for text in texts if text.strip()), "")


def _clipped(text: str) -> str:
    half = MAX_REQUEST_CHARS // 2
    return text if len(text) <= MAX_REQUEST_CHARS else f"{text[:half]}\n{text[-half:]}"
