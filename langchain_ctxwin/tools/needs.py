"""What a conversation needs tools for now: its last request, part by part, and what is still planned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
    convert_to_messages,
)

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.text.terms import query_terms

Asked = str | Sequence[MessageLikeRepresentation]
"""A query, or the messages of a conversation."""

SEARCH_NAME = "search_tools"

LINE_START, LINE_NAME_END = "- ", ": "
"""What stands around the name of a tool in a result of `search_tools`."""

MAX_REQUEST_CHARS = 4_000
"""What is read of a request or a plan: its beginning and its end, half each; pasted text in between is no request."""

MAX_NEEDS = 20
"""Parts that are ranked each for itself: time grows with them, and longer lists of wishes are rare."""

MIN_NEED_TERMS = 2  # a part with fewer words of its own joins the part before it
SHORT_REQUEST_TERMS = 3  # a request with fewer ("yes, do that") is read with what was said before it
DONE = ("completed", "cancelled")  # states of items on a list of things to do that need no tools any more

_CONJUNCTION = r"(?:and|then|also|plus|as well as|along with|additionally|furthermore|moreover)\b[,\s]*+"
# White space is looked at from where it begins, once: from each of its places, a long run would take its square.
_PARTS = re.compile(
    rf"(?<=[.?!;:])\s++|(?<!\s)\n++(?:\s++{_CONJUNCTION})?|\n++|(?:,|(?<!\s))\s++{_CONJUNCTION}",
    re.IGNORECASE,
)

# Words that requests are phrased with; whole words, because "interested" says nothing and "interest" does.
_PHRASES = """
able assist assistance curious dear finally first give good great hello help hey hi hope imagine interested interesting
kind kindly know lastly let like love may maybe might must need next nice ok okay please possible second shall sure tell
thank thanks think third try trying want wanted wish wonder wondering
"""
_PHRASING = re.compile(rf"\b(?:{'|'.join(_PHRASES.split())})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What tools are wanted for."""

    request: str  # the whole request, with what is planned
    parts: tuple[str, ...] = ()  # its parts when it has several, each one a wish of its own
    called: tuple[str, ...] = ()  # names of the tools that the conversation has called, the last one first
    called_now: tuple[str, ...] = ()  # those that it has called since the last request
    found: tuple[str, ...] = ()  # lines of `search_tools` since then, newest results first; each begins with a name
    is_new: bool = True  # while the model has said nothing to the request


def needs_of(asked: Asked) -> Needs:
    """Read a query, or the messages of a conversation; anything else is a `ConfigError`."""
    if isinstance(asked, str):
        request = _clipped(asked)
        return Needs(request=request, parts=_wishes([request]))
    given: object = asked
    if isinstance(given, bytes) or not isinstance(given, Sequence):
        raise ConfigError(f"query_or_messages={type(asked).__name__}: give a text or a list of messages")
    messages: list[BaseMessage] = list(convert_to_messages(asked))
    start = next((at for at in reversed(range(len(messages))) if isinstance(messages[at], HumanMessage)), 0)
    turn = messages[start:]
    texts = [*_request(messages[:start], turn), *_plan(turn)]
    results = [
        message for message in reversed(turn) if isinstance(message, ToolMessage) and message.name == SEARCH_NAME
    ]
    lines = (line for result in results for line in result.text.splitlines() if line.startswith(LINE_START))
    return Needs(
        request="\n".join(texts),
        parts=_wishes(texts),
        called=_called(messages),
        called_now=_called(turn),
        is_new=not any(isinstance(message, AIMessage) for message in turn),
        found=tuple(dict.fromkeys(line.removeprefix(LINE_START) for line in lines)),
    )


def parts_of(text: str) -> list[str]:
    """Cut a request into its sentences and clauses.

    Examples:
        >>> parts_of("Convert 50 euros to dollars and then book a taxi to the airport. Thanks")
        ['Convert 50 euros to dollars', 'then book a taxi to the airport. Thanks']
    """
    parts: list[list[str]] = []
    for piece in _PARTS.split(text):
        if not (part := piece.strip(" ,\t")):
            continue
        if parts and len(query_terms(part)) < MIN_NEED_TERMS:
            parts[-1].append(part)
        else:
            parts.append([part])
    return [" ".join(joined) for joined in parts]


def without_phrasing(text: str) -> str:
    """Return a request without the words that any request could have.

    Examples:
        >>> without_phrasing("Hi, I would like to know the interest rate please").split()
        [',', 'I', 'would', 'to', 'the', 'interest', 'rate']
    """
    return _PHRASING.sub(" ", text)


def _request(before: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> list[str]:
    """The last user message; with what was said before it when it says little itself."""
    if not turn or not isinstance(turn[0], HumanMessage):
        return []
    request = _clipped(turn[0].text)
    if len(query_terms(request)) >= SHORT_REQUEST_TERMS:
        return [request]
    return [*(_clipped(said) for kind in (HumanMessage, AIMessage) if (said := _last_text(before, kind))), request]


def _plan(turn: Sequence[BaseMessage]) -> list[str]:
    """What the model last said in this turn, and what is open on its list of things to do."""
    calls = [call["args"] for message in turn if isinstance(message, AIMessage) for call in message.tool_calls]
    lists = [todos for args in calls if isinstance(todos := args.get("todos"), list)]
    items = [item for item in (lists or [[]])[-1] if isinstance(item, Mapping) and item.get("status") not in DONE]
    to_do = "\n".join(content for item in items if isinstance(content := item.get("content"), str))
    return [_clipped(text) for text in (_last_text(turn, AIMessage), to_do) if text]


def _called(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    calls = [call["name"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return tuple(name for name in dict.fromkeys(reversed(calls)) if name != SEARCH_NAME)


def _wishes(texts: Iterable[str]) -> tuple[str, ...]:
    parts = list(dict.fromkeys(part for text in texts for part in parts_of(text)))
    return tuple(parts[:MAX_NEEDS]) if len(parts) > 1 else ()


def _last_text(messages: Sequence[BaseMessage], kind: type[BaseMessage]) -> str:
    texts = (str(message.text) for message in reversed(messages) if isinstance(message, kind))
    return next((text for text in texts if text.strip()), "")


def _clipped(text: str) -> str:
    half = MAX_REQUEST_CHARS // 2
    return text if len(text) <= MAX_REQUEST_CHARS else f"{text[:half]}\n{text[-half:]}"
