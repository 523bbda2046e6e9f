"""Remembers prices and shown steps, so that a step of an agent pays only for what is new. Losing it loses time only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from operator import attrgetter, is_
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.core.survey import Before, PinWhen, Price, after_steps, is_pinned, show_steps
from langchain_ctxwin.core.turns import Step, starts_turn
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru, snapshot

MAX_CONVERSATIONS = 64
"""Conversations whose shown steps are kept; each holds references only."""

ACCEPTED_SECONDS = 3_600.0
"""How long an accepted size refutes smaller limits: after an hour the server may have been restarted with less room."""

_content = attrgetter("content")


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
class _Shown:
    """The shown steps of one conversation and what they were made from."""

    view: View
    follows: Before
    messages: list[AnyMessage]
    contents: list[Any]
    nested: list[tuple[int, Any]]
    steps: tuple[Step, ...]
    closed: tuple[Step, ...]
    """The steps that later messages cannot change."""

    after_closed: Before
    """What precedes the step after them."""


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
        if known is None or not _extends(known, shown, view, before):
            known = _Shown(
                view=view, follows=before, messages=[], contents=[], nested=[], steps=(), closed=(), after_closed=before
            )
        elif len(known.messages) == len(shown):
            return known.steps
        return self._known.put(key, self._extended(known, messages, start, shown)).steps

    def _extended(self, known: _Shown, messages: Sequence[AnyMessage], start: int, shown: list[AnyMessage]) -> _Shown:
        """Show what follows the closed steps, and remember what the new messages look like."""
        old = known.closed
        resume = old[-1].stop if old else start
        steps = (*old, *show_steps(messages, resume, known.view, known.after_closed, self._price))
        closed = (*old, *_closed(steps[len(old) :]))
        seen = len(known.messages)
        parts = ((index, _mutable_parts(shown[index])) for index in range(seen, len(shown)))
        return replace(
            known,
            messages=shown,
            contents=[*known.contents, *map(_content, shown[seen:])],
            nested=[*known.nested, *((index, snapshot(part)) for index, part in parts if part)],
            steps=steps,
            closed=closed,
            after_closed=after_steps(closed[len(old) :], known.after_closed),
        )


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
        # By identity: comparing messages that were loaded anew costs far more than looking at each of them.
        same = len(old) if len(old) <= len(messages) and all(map(is_, old, messages)) else 0
        if same == len(messages):
            return found
        new = [index for index in range(same, len(messages)) if self._holds(messages, index)]
        marks = (found if same else frozenset()).union(new)
        self._known.put(key, (list(messages), marks))
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


def _extends(known: _Shown, shown: list[AnyMessage], view: View, before: Before) -> bool:
    """True when the conversation is the known one with nothing but messages added."""
    if len(shown) < len(known.messages) or not _same_edits(known.view, view) or not _same_before(known.follows, before):
        return False
    if known.messages != shown[: len(known.messages)]:
        return False
    if not all(map(is_, known.contents, map(_content, shown))):
        return False
    return all(parts == _mutable_parts(shown[index]) for index, parts in known.nested)


def _mutable_parts(message: AnyMessage) -> list[Any]:
    """What of a message can change in place without becoming another object: content blocks and tool calls."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    content = [] if isinstance(message.content, str) else message.content
    return [content, calls] if content or calls else []


def _same_before(old: Before, new: Before) -> bool:
    """True when pairing treats what follows both the same: only the kind of message and the taken call ids count."""
    return type(old.message) is type(new.message) and old.calls == new.calls


def _same_edits(old: View, new: View) -> bool:
    return old.cleared == new.cleared and old.clamped == new.clamped


def _closed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps that later messages cannot extend: not the last one, nor the one before notes that may join it."""
    count = len(steps) - 1
    while count > 0 and steps[count].size == 1 and not _starts_anew(steps[count]):
        count -= 1
    return steps[: max(0, count)]


def _starts_anew(step: Step) -> bool:
    """True for a message that ends the step before it; a system note does not."""
    return bool(step.messages) and (starts_turn(step) or isinstance(step.messages[-1], AIMessage))
