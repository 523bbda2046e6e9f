"""What do an exception and those behind it say about themselves: class names, status, codes and text?"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from langchain_ctxwin.core.echo import Quotes

T = TypeVar("T", str, bytes)

Own = Callable[[str], str]
"""What of a text counts."""

MAX_EXCEPTIONS = 32
"""Exceptions looked at in a chain of causes and groups; real chains have two to five."""

MAX_TEXT_CHARS = 4_096
"""Text looked at per source: some servers echo the whole request into the error."""

MAX_SOURCES = 4
"""Different texts looked at per exception: clients keep the server's words in two or three places."""

MAX_BODY_NODES = 200
"""Values looked at in a response body, for the same reason."""

MAX_NOTES = 8
"""Notes looked at per exception; frameworks add one or two."""

LONG_VALUE_CHARS = 2_048
"""A value in a body that is longer is an echo of the request and is read after the others."""

STATUS_ATTRIBUTES = ("status_code", "http_status", "status", "code")
"""Where clients keep the HTTP status, the most reliable name first."""

BODY_ATTRIBUTES = ("body", "details", "response", "error")
"""Where clients keep the decoded body (OpenAI and Anthropic, Google, botocore, Ollama)."""

CODE_KEYS = ("code", "type")
"""Attributes and body keys that hold a provider's own error code."""

HTTP_ERRORS = range(400, 600)

_DROPPED = re.compile(r"[\\\"'`\u2018\u2019]+")
_STATUS = re.compile(r"[45][0-9]{2}")
_URL = re.compile(r"https?://\S{1,200}")
_ESCAPED_SPACE = re.compile(r"\\{1,8}[nrt](?![a-z]{2})|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one exception (or one text) says."""

    class_names: tuple[str, ...] = ()
    status: int | None = None
    codes: frozenset[str] = frozenset()
    """Provider error codes and types, in lower case."""

    text: str = ""
    """Message and body without quotes and backslashes, whitespace collapsed, bounded in length."""


def evidence_of(source: object, quotes: Quotes | None = None) -> Iterator[Evidence]:
    """Yield what `source` says; for an exception also what its causes and the members of a group say, nearest first.

    Never raises, whatever the exceptions' own attributes and `__str__` do, and ends on cyclic chains.

    Args:
        source: an exception, a text or a decoded body.
        quotes: texts that count for nothing where they are quoted.
    """
    for evidence in _evidence_of(source, quotes.masked if quotes else _text_itself):
        yield replace(evidence, codes=_unquoted(evidence.codes, quotes)) if quotes else evidence


def _evidence_of(source: object, own: Own) -> Iterator[Evidence]:
    if not isinstance(source, BaseException):
        yield Evidence(codes=_codes(source), text=_joined([source], own))
        return
    for error in _chain(source):
        bodies = _bodies(error)
        yield Evidence(
            class_names=tuple(cls.__name__ for cls in type(error).__mro__),
            status=_status(error),
            codes=_codes({key: _read(error, key) for key in CODE_KEYS}).union(*map(_codes, bodies)),
            text=_joined([error, _notes(error), *bodies], own),
        )


def _text_itself(text: str) -> str:
    return text


def _unquoted(codes: frozenset[str], quotes: Quotes) -> frozenset[str]:
    """The codes that are no words of the request: a body may hold the request itself, with types of its own."""
    return frozenset(code for code in codes if not quotes.has(code))


def _chain(error: BaseException) -> Iterator[BaseException]:
    queue, seen = deque([error]), set[int]()
    while queue and len(seen) < MAX_EXCEPTIONS:
        current = queue.popleft()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        context = None if _read(current, "__suppress_context__") else _read(current, "__context__")
        behind = (*members[:MAX_EXCEPTIONS], _read(current, "__cause__"), context)
        queue.extend(cause for cause in behind if isinstance(cause, BaseException))


def _notes(error: BaseException) -> list[str]:
    notes = _read(error, "__notes__")
    return [note for note in notes[:MAX_NOTES] if isinstance(note, str)] if isinstance(notes, list) else []


def _bodies(error: BaseException) -> list[Any]:
    bodies = [_read(error, name) for name in BODY_ATTRIBUTES]
    response = _read(error, "response")
    if _read(response, "is_closed") is True:  # an httpx response that was read; others might read from the socket here
        bodies.append(_read(response, "text"))
    return [body for body in bodies if isinstance(body, str | bytes | bytearray | Mapping | list | tuple)]


def _status(error: BaseException) -> int | None:
    sources = (error, _read(error, "response"))
    stated = (_read(source, name) for source in sources for name in STATUS_ATTRIBUTES)
    return next((status for value in stated if (status := _http_status(value)) is not None), None)


def _http_status(value: object) -> int | None:
    """An error status as a number or its digits (LiteLLM keeps it as text at times)."""
    if isinstance(value, str) and _STATUS.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, int) and value in HTTP_ERRORS else None


def _codes(body: object) -> frozenset[str]:
    return frozenset(
        value.lower() for key, value in _leaves(body) if key.lower() in CODE_KEYS and isinstance(value, str)
    )


def _joined(sources: Iterable[object], own: Own) -> str:
    texts = dict.fromkeys(_plain(own(_text(source))) for source in sources)
    return " ; ".join(text for text in islice(texts, MAX_SOURCES) if text)


def _text(source: object) -> str:
    if isinstance(source, bytes | bytearray):
        return _bounded(bytes(source)).decode("utf-8", "replace")
    if isinstance(source, Mapping | list | tuple):
        leaves = [f"{key}: {_bounded(str(value))}" for key, value in _leaves(source)]
        return _bounded(", ".join(sorted(leaves, key=lambda leaf: len(leaf) > LONG_VALUE_CHARS)))
    text = _attempt(lambda: str(source))
    return _bounded(text) if isinstance(text, str) else ""


def _bounded(text: T) -> T:
    """Head and tail of a long text: the message stands before or after what is echoed."""
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else text[:half] + text[-half:]


def _plain(text: str) -> str:
    return _DROPPED.sub("", _ESCAPED_SPACE.sub(" ", _URL.sub("", text)))


def _leaves(body: object) -> list[tuple[str, Any]]:
    """Scalar values of a nested body with their keys, breadth first, bounded (a body may even contain itself)."""
    queue: deque[tuple[str, Any]] = deque([("", body)])
    leaves: list[tuple[str, Any]] = []
    for _ in range(MAX_BODY_NODES):
        if not queue:
            break
        key, value = queue.popleft()
        if isinstance(value, Mapping):
            queue.extend(_attempt(partial(_items, value)) or ())
        elif isinstance(value, list | tuple):
            queue.extend((key, item) for item in value[:MAX_BODY_NODES])
        elif isinstance(value, str | int | float):
            leaves.append((key, value))
    return leaves


def _items(body: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    return [(str(key), value) for key, value in islice(body.items(), MAX_BODY_NODES)]


def _read(source: object, name: str) -> Any:
    return _attempt(lambda: getattr(source, name, None))


def _attempt(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # noqa: BLE001  # a foreign property or __str__ may raise anything; then it says nothing
        return None
