"""What tools say of themselves, and what a request asks of them: as a whole, and part by part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
)

from langchain_ctxwin.core.pairing import standard
from langchain_ctxwin.core.provider_blocks import FOUND_KEY
from langchain_ctxwin.core.tool_schemas import functions_of, name_of, schemas_of
from langchain_ctxwin.core.turns import as_messages
from langchain_ctxwin.errors import expect
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
    title: str  # the words of its names
    description: str
    fields: str  # the names of its parameters
    field_texts: str  # and their descriptions
    values: str  # that they can have, as far as they are listed

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        text = " ".join(self.description.split())
        first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
        is_short = len(first) <= MAX_SUMMARY_CHARS
        return first if is_short else f"{first[:MAX_SUMMARY_CHARS]}..."


def entry_of(tool: Any) -> Entry:
    """Read a tool in any form LangChain takes; of a form that is unknown only the name is read."""
    functions = list(functions_of(tool))
    names = tuple(str(one["name"]) for one in functions if one.get("name"))
    names = names or (_fallback_name(tool),)
    schemas = [
        schema
        for function in functions
        for schema in islice(schemas_of(function.get("parameters")), MAX_FIELDS)
    ]
    return Entry(
        tool=tool,
        name=names[0],
        names=names,
        title=_joined(re.sub(r"[\W_]+", " ", name) for name in names),
        description=_joined(one.get("description") for one in functions),
        fields=_joined(name for one in schemas for name in one.get("properties") or ()),
        field_texts=_joined(schema.get("description") for schema in schemas[1:]),
        values=_joined(value for schema in schemas for value in _values(schema)),
    )


def _fallback_name(tool: Any) -> str:
    """The name of a provider's own tool, which is its type or its only key; of several servers, with its label."""
    if not isinstance(tool, Mapping):
        return name_of(tool) or type(tool).__name__
    own, label = tool.get("type") or next(iter(tool), ""), tool.get("server_label")
    return f"{own}:{label}" if label else str(own)


def _values(schema: Mapping[str, Any]) -> Iterator[Any]:
    """What a schema lists as possible or usual."""
    for key in ("enum", "examples"):
        listed = schema.get(key)
        yield from listed if isinstance(listed, list | tuple) else ()
    yield from (schema.get("const"), schema.get("default"))


def _joined(values: Iterable[Any]) -> str:
    texts = (value[:MAX_TEXT_CHARS] for value in values if isinstance(value, str))
    return " ".join(texts)[:MAX_TEXT_CHARS]


# a query, or the messages of a conversation
QueryOrMessages = str | Sequence[MessageLikeRepresentation]
SEARCH_NAME = "search_tools"
MAX_REQUEST_CHARS = 4_000  # read of a request or a plan, half at either end: pasted text in between is no request
MAX_NEEDS = 20  # parts that are ranked each for itself: time grows with them, and longer lists of wishes are rare
MIN_NEED_TERMS = 2  # a part with fewer words of its own joins the part before it
SHORT_REQUEST_TERMS = (
    3  # a request with fewer ("yes, do that") is read with what was said before it
)
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
    # names of the tools that `search_tools` found since then, newest results first
    searched: tuple[str, ...] = ()


def needs_of(query_or_messages: QueryOrMessages) -> Needs:
    """Read a query, or the messages of a conversation; anything else is a `ConfigError`."""
    if isinstance(query_or_messages, str):
        query_or_messages = [HumanMessage(query_or_messages)]
    wanted = "a text or a list of messages"
    expect(query_or_messages, list | tuple, "query_or_messages", wanted)
    conversation = cast("list[AnyMessage]", as_messages(query_or_messages))
    messages = [part for message in conversation for part in standard(message)]
    users = [at for at, one in enumerate(messages) if isinstance(one, HumanMessage)]
    start = users[-1] if users else 0
    turn = messages[start:]
    texts = _request(messages[:start], turn)
    if said := _last_text(turn, AIMessage):
        texts.append(said)
    is_new = not any(isinstance(message, AIMessage) for message in turn)
    own = _clipped(turn[0].text) if is_new and turn else ""
    searched = (
        name
        for one in reversed(turn)
        if isinstance(one, ToolMessage) and isinstance(one.artifact, Mapping)
        for name in one.artifact.get(FOUND_KEY) or ()
    )
    return Needs(
        request="\n".join(texts),
        parts=_wishes(texts),
        called=_called(messages),
        called_now=_called(turn),
        new=(own, *parts_of(own)),
        searched=tuple(dict.fromkeys(searched)),
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
    said = (_last_text(before, kind) for kind in (HumanMessage, AIMessage))
    return [*filter(None, said), request]


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
    texts = (one.text for one in reversed(messages) if isinstance(one, kind))
    return _clipped(next(filter(str.strip, texts), ""))


def _clipped(text: str) -> str:
    half = MAX_REQUEST_CHARS // 2
    return text if len(text) <= MAX_REQUEST_CHARS else f"{text[:half]}\n{text[-half:]}"
