"""Evidence in a provider's exception: class names, status, error codes and text, wherever its client keeps them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T", str, bytes)
# Exceptions looked at in a chain of causes and groups, and of each so many different texts and notes: real ones have
# two to five, the server's words in two or three places, and one or two notes.
MAX_EXCEPTIONS, MAX_SOURCES, MAX_NOTES = 32, 4, 8
# Text looked at per source, and values per body: some servers echo the whole request into the error. A value that is
# longer than the last of these is such an echo and is read after the others.
MAX_TEXT_CHARS, MAX_BODY_NODES, LONG_VALUE_CHARS = 4_096, 200, 2_048
# Where clients keep the HTTP status, the most reliable name first.
STATUS_ATTRIBUTES = ("status_code", "http_status", "status", "code")
# Where clients keep the decoded body (OpenAI and Anthropic, Google, botocore, Ollama).
BODY_ATTRIBUTES = ("body", "details", "response", "error")
CODE_KEYS = ("code", "type")  # attributes and body keys that hold a provider's own error code

_NOISE = re.compile(r"https?://\S{1,200}|[\\\"'`\u2018\u2019]+")
_SPACE = re.compile(r"\\{1,8}[nrt](?![a-z]{2})|\s+")
_STATUS = re.compile(r"[45][0-9]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one exception (or one text) says."""

    class_names: tuple[str, ...] = ()
    status: int | None = None  # the HTTP error status
    codes: frozenset[str] = frozenset()  # provider error codes and types, in lower case
    text: str = ""  # message and body without quotes and backslashes, whitespace collapsed, bounded in length


def evidence_of(source: object) -> Iterator[Evidence]:
    """Yield what `source` says; for an exception also what its causes and the members of a group say, nearest first.

    Never raises, whatever the exceptions' own attributes and `__str__` do, and ends on cyclic chains. The source may
    be an exception, a text or a decoded body.
    """
    if not isinstance(source, BaseException):
        yield Evidence(codes=_codes(source), text=_joined([source]))
        return
    for error in _chain(source):
        response, notes = _attribute(error, "response"), _attribute(error, "__notes__")
        bodies = [_attribute(error, name) for name in BODY_ATTRIBUTES]
        if _attribute(response, "is_closed") is True:  # one that was read; others might read from the socket here
            bodies.append(_attribute(response, "text"))
        bodies = [body for body in bodies if isinstance(body, str | bytes | bytearray | Mapping | list | tuple)]
        notes = [note for note in notes[:MAX_NOTES] if isinstance(note, str)] if isinstance(notes, list) else []
        stated = (_attribute(place, name) for place in (error, response) for name in STATUS_ATTRIBUTES)
        statuses = (str(value) for value in stated if isinstance(value, str | int))  # LiteLLM keeps it as text at times
        yield Evidence(
            class_names=tuple(cls.__name__ for cls in type(error).__mro__),
            status=next((int(text) for text in statuses if _STATUS.fullmatch(text)), None),
            codes=_codes([{key: _attribute(error, key) for key in CODE_KEYS}, *bodies]),
            text=_joined([error, *notes, *bodies]),
        )


def _chain(error: BaseException) -> Iterator[BaseException]:
    queue, seen = deque([error]), set[int]()
    while queue and len(seen) < MAX_EXCEPTIONS:
        current = queue.popleft()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        context = None if _attribute(current, "__suppress_context__") else _attribute(current, "__context__")
        behind = (*members[:MAX_EXCEPTIONS], _attribute(current, "__cause__"), context)
        queue.extend(cause for cause in behind if isinstance(cause, BaseException))


def _attribute(source: object, name: str) -> Any:
    with suppress(Exception):  # a foreign property may raise anything; then it says nothing
        return getattr(source, name, None)
    return None


def _codes(body: object) -> frozenset[str]:
    named = (value for key, value in _leaves(body) if key.lower() in CODE_KEYS)
    return frozenset(value.lower() for value in named if isinstance(value, str))


def _joined(sources: Iterable[object]) -> str:
    texts = dict.fromkeys(_NOISE.sub("", _SPACE.sub(" ", _text(source))) for source in sources)
    return " ; ".join(text for text in islice(texts, MAX_SOURCES) if text)


def _text(source: object) -> str:
    if isinstance(source, bytes | bytearray):
        return _bounded(bytes(source)).decode("utf-8", "replace")
    if isinstance(source, Mapping | list | tuple):
        leaves = [f"{key}: {_bounded(str(value))}" for key, value in _leaves(source)]
        return _bounded(", ".join(sorted(leaves, key=lambda leaf: len(leaf) > LONG_VALUE_CHARS)))
    with suppress(Exception):  # a foreign `__str__` may raise anything
        return _bounded(str(source))
    return ""


def _bounded(text: T) -> T:
    """Head and tail of a long text: the message stands before or after what is echoed."""
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else text[:half] + text[-half:]


def _leaves(body: object) -> list[tuple[str, Any]]:
    """Scalar values of a nested body with their keys, breadth first, bounded (a body may even contain itself)."""
    queue: deque[tuple[str, Any]] = deque([("", body)])
    leaves: list[tuple[str, Any]] = []
    for _ in range(MAX_BODY_NODES):
        if not queue:
            break
        key, value = queue.popleft()
        if isinstance(value, Mapping):
            with suppress(Exception):  # a foreign mapping, too
                queue.extend([(str(name), part) for name, part in islice(value.items(), MAX_BODY_NODES)])
        elif isinstance(value, list | tuple):
            queue.extend((key, item) for item in value[:MAX_BODY_NODES])
        elif isinstance(value, str | int | float):
            leaves.append((key, value))
    return leaves
