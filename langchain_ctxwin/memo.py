"""Remembers prices and shown steps, so that a step of an agent pays only for what is new. Losing it loses time only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.core.priced_view import Before, Head, PinWhen, Price, after_steps, is_pinned, show_steps
from langchain_ctxwin.core.record import Record
from langchain_ctxwin.core.session import valid_record
from langchain_ctxwin.core.turns import Shown, Step, call_ids, shape_of, starts_turn
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru, once, snapshot

MAX_CONVERSATIONS = 64
"""Conversations whose shown steps are kept; each holds references only."""

ACCEPTED_SECONDS = 3_600.0
"""How long an accepted size refutes smaller limits: after an hour the server may have been restarted with less room."""

CHECKED_MESSAGES = 256
"""Newest messages of a view that are looked through for changes in place: several steps, whatever the window is."""


class HeardLimits:
    """The limits that providers stated since this process began, by model: an engine's own `LimitMemory`."""

    def __init__(self) -> None:
        self._known: Lru[Mapping[str, int]] = Lru(MAX_TEXTS)

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits heard of a model."""
        return self._known.get(model) or {}

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember limits; of a model without a name nothing, because it could be any."""
        if model:
            self._known.put(model, {**self.recall(model), **limits})

    def accepted(self, model: str, tokens: int) -> None:
        """Forget the limits below an input that the model took."""
        known = self.recall(model)
        if known and (left := unrefuted(known, tokens)) != known:
            self._known.put(model, left)


class AcceptedSizes:
    """The largest inputs that models took lately; thread-safe, losing them costs a check."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: Lru[tuple[int, float]] = Lru(MAX_TEXTS)

    def note(self, model: str, tokens: int) -> None:
        """Remember an input that a model took."""
        if tokens >= self.of(model):
            self._known.put(model, (tokens, self._clock() + ACCEPTED_SECONDS))

    def of(self, model: str) -> int:
        """Return the largest known input of a model in tokens; 0 when none is."""
        tokens, until = self._known.get(model) or (0, 0.0)
        return tokens if self._clock() < until else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The shown steps of one conversation and what they were made from."""

    view: View
    follows: Before
    messages: list[AnyMessage]
    parts: list[Part]
    """The newest messages as they were."""

    shown: Shown
    closed: int
    """How many of the steps later messages cannot change."""

    after_closed: Before
    """What precedes the step after them."""


class Steps:
    """Shows and prices only the steps that are new since the same view was shown last.

    Changes in place are noticed in the newest messages, which are the ones that somebody may be working on.
    """

    def __init__(self, price: Price) -> None:
        self._price = price
        self._known: Lru[_Known] = Lru(MAX_CONVERSATIONS)

    def __call__(
        self,
        messages: Sequence[AnyMessage],
        start: int,
        view: View,
        before: Before,
        head: Head | None = None,
        *,
        head_tokens: int = 0,
    ) -> Shown:
        """Return the steps of `show_steps`, after the head where they are not known, and where it is what it was."""
        if start >= len(messages):
            return Shown.of(())
        shown = list(messages[start:])
        key = (messages[start].id or id(messages[start]), start)
        known = self._known.get(key)
        is_known = known is not None and _extends(known, shown, view, before)
        if known is None or not is_known or (known.shown.head_stop and head is None):
            known = self._begun(messages, start, view, before, head, head_tokens)
        elif len(known.messages) == len(shown):
            return known.shown
        known = self._known.put(key, self._extended(known, messages, start, shown))
        if known.shown.head_stop:
            history = list(messages)
            known.shown.whole = lambda: self(history, start, view, before)
        return known.shown

    def _extended(self, known: _Known, messages: Sequence[AnyMessage], start: int, shown: list[AnyMessage]) -> _Known:
        """Show what follows the closed steps, and remember what the newest messages look like."""
        resume = known.shown[known.closed - 1].stop if known.closed else known.shown.head_stop or start
        new = tuple(show_steps(messages, resume, known.view, known.after_closed, self._price))
        steps = Shown.of(new, known.shown, known.closed)
        closing = _closed(new)
        newest = shown[max(len(known.messages), len(shown) - CHECKED_MESSAGES) :]
        return replace(
            known,
            messages=shown,
            parts=[*known.parts, *map(_part, newest)][-CHECKED_MESSAGES:],
            shown=steps,
            closed=known.closed + closing,
            after_closed=after_steps(new[:closing], known.after_closed),
        )

    def _begun(
        self,
        messages: Sequence[AnyMessage],
        start: int,
        view: View,
        before: Before,
        head: Head | None,
        head_tokens: int,
    ) -> _Known:
        """What is known of a view that was not shown before: nothing, or its head."""
        begin = list(messages[start : head.stop]) if head else []
        if head is None or shape_of(begin) != head.shape:
            nothing = Shown.of(())
            return _Known(
                view=view, follows=before, messages=[], parts=[], shown=nothing, closed=0, after_closed=before
            )
        shown = begin
        if not head.is_plain:  # repaired as it was then, at no price
            steps = show_steps(messages[: head.stop], start, view, before, lambda _: 0)
            shown = [message for step in steps for message in step.messages]
        calls = frozenset(call_id for message in shown for call_id in call_ids(message))
        return _Known(
            view=view,
            follows=before,
            messages=begin,
            parts=[],
            shown=Shown.after_head(shown, stop=head.stop, tokens=head_tokens, shape=head.shape, is_plain=head.is_plain),
            closed=0,
            after_closed=Before(message=shown[-1] if shown else before.message, calls=before.calls | calls),
        )


class Records:
    """Reads the stored record of a conversation once, and renders it once, while it is the same object."""

    def __init__(self) -> None:
        self._known: Lru[tuple[object, tuple[Record, tuple[str, ...]]]] = Lru(MAX_CONVERSATIONS)

    def __call__(self, value: object) -> tuple[Record, tuple[str, ...]]:
        """Return what `valid_record` returns."""
        if not value:
            return valid_record(value)
        # The value in the value stays alive, so an id in the key cannot come to mean another one.
        return once(self._known, id(value), lambda: (value, valid_record(value)))[1]


class Marks:
    """Finds the explicit pins of a history, looking only at what changed since the last time."""

    def __init__(self, pin_when: PinWhen | None = None) -> None:
        if pin_when is not None and (not callable(pin_when) or iscoroutinefunction(pin_when)):
            raise ConfigError(f"pin_when={pin_when!r}: pass a plain function that takes a message and returns a bool")
        self._pin_when = pin_when
        self._known: Lru[tuple[list[AnyMessage], frozenset[int]]] = Lru(MAX_CONVERSATIONS)

    def __call__(self, messages: Sequence[AnyMessage]) -> frozenset[int]:
        """Return the positions of messages that were marked through `pin` or for which `pin_when` holds.

        Raises:
            ConfigError: `pin_when` failed.
        """
        key = (messages[0].id or id(messages[0])) if messages else None
        old, found = self._known.get(key) or ([], frozenset[int]())
        same = len(old) if starts_with(messages, old) else 0
        begin = same if self._pin_when else max(0, same - CHECKED_MESSAGES)
        if self._pin_when is None:
            new = [begin + number for number, message in enumerate(messages[begin:]) if is_pinned(message)]
        else:
            new = [index for index in range(begin, len(messages)) if self._holds(messages, index)]
        marks = frozenset(index for index in found if index < begin).union(new)
        if same == len(messages) and marks == found:
            return found
        self._known.put(key, ([*old[:same], *messages[same:]], marks))
        return marks

    def _holds(self, messages: Sequence[AnyMessage], index: int) -> bool:
        message = messages[index]
        if self._pin_when is None or is_pinned(message):
            return is_pinned(message)
        try:
            return bool(self._pin_when(message))
        except Exception as error:
            raise ConfigError(
                f"pin_when raised {type(error).__name__} ({error}) for the {message.type} message "
                f"{message_id(messages, index)!r}: make it return True or False for every message"
            ) from error


def starts_with(messages: Sequence[AnyMessage], old: list[AnyMessage]) -> bool:
    """True when the history begins with these very message objects."""
    if not old or len(messages) < len(old):
        return False
    # The ends first: lists of other objects would be compared by content, which takes longer than to start over.
    if messages[0] is not old[0] or messages[len(old) - 1] is not old[-1]:
        return False
    begin = messages[: len(old)]
    return old == (begin if isinstance(begin, list) else list(begin))


def _extends(known: _Known, shown: list[AnyMessage], view: View, before: Before) -> bool:
    """True when the conversation is the known one with nothing but messages added."""
    if not _same_edits(known.view, view) or not _same_before(known.follows, before):
        return False
    return starts_with(shown, known.messages) and all(map(_is_as_it_was, known.parts))


Part = tuple[AnyMessage, Any, Any, Any]
"""A message, and copies of what can change in it without making it another object."""


def _part(message: AnyMessage) -> Part:
    if not isinstance(message, AIMessage):
        return message, snapshot(message.content), None, None
    return message, snapshot(message.content), snapshot(message.tool_calls), snapshot(message.invalid_tool_calls)


def _is_as_it_was(part: Part) -> bool:
    message, content, calls, invalid = part
    if message.content != content or not isinstance(message, AIMessage):
        return bool(message.content == content)
    return bool(message.tool_calls == calls and message.invalid_tool_calls == invalid)


def _same_before(old: Before, new: Before) -> bool:
    """True when pairing treats what follows both the same: only the kind of message and the taken call ids count."""
    return type(old.message) is type(new.message) and old.calls == new.calls


def _same_edits(old: View, new: View) -> bool:
    return old.cleared == new.cleared and old.clamped == new.clamped


def _closed(steps: Sequence[Step]) -> int:
    """How many steps later messages cannot extend: not the last one, nor the one before notes that may join it."""
    count = len(steps) - 1
    while count > 0 and steps[count].size == 1 and not _starts_anew(steps[count]):
        count -= 1
    return max(0, count)


def _starts_anew(step: Step) -> bool:
    """True for a message that ends the step before it; a system note does not."""
    return bool(step.messages) and (starts_turn(step) or isinstance(step.messages[-1], AIMessage))
