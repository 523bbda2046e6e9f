"""Remembers prices and shown steps, so that a step of an agent pays only for what is new. Losing it loses time only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any, Generic, TypeVar
from weakref import ref

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.core.pins import is_pinned
from langchain_ctxwin.core.survey import Before, Price, after_steps, show_steps
from langchain_ctxwin.core.turns import Step
from langchain_ctxwin.core.view import View

MAX_PRICES = 100_000
"""Prices kept: ten conversations of ten thousand messages, about 20 MB."""

MAX_CONVERSATIONS = 64
"""Conversations whose shown steps are kept; each holds references only."""

MAX_TEXTS = 512
"""Prices of texts and tool sets kept beside the messages."""

_content = attrgetter("content")
V = TypeVar("V")


class Lru(Generic[V]):
    """A small thread-safe mapping that forgets what was used least recently."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        """Return the value, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: V) -> V:
        """Store and return the value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


class Prices:
    """Prices each message once while it is unchanged; in-place changes of content or calls are noticed."""

    def __init__(self, count: Price) -> None:
        self._count = count
        self._known: dict[int, tuple[ref[Any], Any, Any, int]] = {}
        self._texts: Lru[int] = Lru(MAX_TEXTS)

    def __call__(self, message: AnyMessage) -> int:
        """Return the tokens of one message."""
        if isinstance(message, SystemMessage) and isinstance(message.content, str):
            known_text = self._texts.get(message.content)
            return self._texts.put(message.content, self._count(message)) if known_text is None else known_text
        known = self._known.get(id(message))
        calls = message.tool_calls if isinstance(message, AIMessage) else None
        if known and known[0]() is message and _same(known[1], message.content) and known[2] == calls:
            return known[3]
        tokens = self._count(message)
        if len(self._known) >= MAX_PRICES:
            self._known.clear()
        self._known[id(message)] = (ref(message), _snapshot(message.content), _snapshot(calls), tokens)
        return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The shown steps of one conversation that later messages cannot change, and what they were made from."""

    view: View
    follows: Before
    messages: list[AnyMessage]
    contents: list[Any]
    nested: list[tuple[int, Any]]
    steps: tuple[Step, ...]
    before: Before
    """What precedes the step after `steps`."""


class Steps:
    """Shows and prices only the steps that are new since the same view was shown last."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._known: Lru[_Shown] = Lru(MAX_CONVERSATIONS)

    def __call__(self, messages: Sequence[AnyMessage], start: int, view: View, before: Before) -> tuple[Step, ...]:
        """Return what `show_steps` returns."""
        if start >= len(messages):
            return ()
        shown = list(messages[start:])
        key = (messages[start].id or id(messages[start]), start)
        known = self._known.get(key)
        reused = known if known and _extends(known, shown, view, before) else None
        old, after_old = (reused.steps, reused.before) if reused else ((), before)
        resume = old[-1].stop if old else start
        steps = (*old, *show_steps(messages, resume, view, after_old, self._price))
        closed = _closed(steps)
        grew = len(closed) >= len(old)
        after = after_steps(closed[len(old) :], after_old) if grew else after_steps(closed, before)
        contents = list(map(_content, shown))
        remembered = _Shown(
            view=view,
            follows=before,
            messages=shown,
            contents=contents,
            nested=[(i, _snapshot(content)) for i, content in enumerate(contents) if not isinstance(content, str)],
            steps=closed,
            before=after,
        )
        self._known.put(key, remembered)
        return steps


class Marks:
    """Finds pinned messages in a history, looking only at what changed since the last time."""

    def __init__(self) -> None:
        self._known: Lru[tuple[list[AnyMessage], list[int]]] = Lru(MAX_CONVERSATIONS)
        self._last: tuple[Any, int, list[int]] = (None, 0, [])

    def __call__(self, messages: Sequence[AnyMessage], stop: int) -> list[int]:
        """Return the positions before `stop` of messages that were marked through `pin`."""
        same_list, same_stop, marks = self._last
        if same_list is messages and same_stop == stop:  # the nodes of one step see one list
            return marks
        history = list(messages[:stop])
        key = messages[0].id or id(messages[0])
        old, found = self._known.get(key) or ([], [])
        same = len(old) if len(old) <= stop and all(map(is_, old, history)) else 0
        marks = [*(found if same else ()), *(i for i in range(same, stop) if is_pinned(history[i]))]
        self._known.put(key, (history, marks))
        self._last = (messages, stop, marks)
        return marks


def once(memo: Lru[V], key: Hashable, make: Callable[[], V]) -> V:
    """Return the remembered value of `key`, or make it."""
    known = memo.get(key)
    return memo.put(key, make()) if known is None else known


def _extends(known: _Shown, shown: list[AnyMessage], view: View, before: Before) -> bool:
    """True when the conversation is the known one with nothing but messages added."""
    if len(shown) < len(known.messages) or not _same_edits(known.view, view) or not _same_before(known.follows, before):
        return False
    if not all(map(is_, known.messages, shown)) or not all(map(is_, known.contents, map(_content, shown))):
        return False
    return all(_same(content, shown[index].content) for index, content in known.nested)


def _same_before(old: Before, new: Before) -> bool:
    """True when pairing treats what follows both the same: only the kind of message and the taken call ids count."""
    return type(old.message) is type(new.message) and old.calls == new.calls


def _same_edits(old: View, new: View) -> bool:
    return old.cleared == new.cleared and old.clamped == new.clamped and old.superseded == new.superseded


def _closed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps that later messages cannot extend: all but the last, and system notes may still join a call."""
    closed = list(steps[:-1]) if steps else []
    while closed and closed[-1].size == 1 and not isinstance(_first(closed[-1].messages), AIMessage):
        closed.pop()
    return tuple(closed[:-1])


def _first(messages: Iterable[AnyMessage]) -> AnyMessage | None:
    return next(iter(messages), None)


def _same(snapshot: Any, content: Any) -> bool:
    return snapshot is content or (not isinstance(content, str) and bool(snapshot == content))


def _snapshot(value: Any) -> Any:
    """Copy lists and dicts, share the leaves: comparing with the original is then mostly identity checks."""
    if isinstance(value, dict):
        return {key: _snapshot(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_snapshot(item) for item in value]
    return value
