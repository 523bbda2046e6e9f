"""What stays in every request, verbatim: marked messages, the first and the current user message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from langchain_ctxwin.core.pairing import is_empty
from langchain_ctxwin.core.turns import Step, call_ids, split_steps
from langchain_ctxwin.core.view import Position, position_of
from langchain_ctxwin.errors import ConfigError

M = TypeVar("M", bound=BaseMessage)

PIN_KEY = "ctxwin_pin"
"""Key in `additional_kwargs` that marks a pinned message; it survives every checkpointer."""

PinWhen = Callable[[AnyMessage], bool]
"""Says which messages are pinned without a mark. It must answer the same about an unchanged message every time."""

ANSWER_TEXT = "[left out]"
"""Stands for the rest of the turn of a pinned question whose answer is not carried along."""


def pin(message: M) -> M:
    """Return a copy of the message that stays in every request, verbatim.

    The copy keeps the id, so writing it back to the state pins a message that is already in the history.

    Raises:
        ConfigError: it is no message.

    Example:
        >>> is_pinned(pin(HumanMessage("Never book before 9:00.")))
        True
    """
    if not isinstance(message, BaseMessage):
        raise ConfigError(f"pin({message!r:.80}): pass a message, for example pin(HumanMessage(...))")
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, PIN_KEY: True}})


def is_pinned(message: BaseMessage) -> bool:
    """True when the message was marked through `pin`."""
    return bool(message.additional_kwargs.get(PIN_KEY))


def pins_before(
    messages: Sequence[AnyMessage],
    start: int,
    *,
    first: int,
    marked: Iterable[int],
    pin_first_user: bool,
    carry: Callable[[AnyMessage], bool],
) -> tuple[Position, ...]:
    """Return what is shown although it lies before `start`, in order.

    Args:
        messages: the full history.
        start: first position of the view.
        first: first position that is not a leading system message.
        marked: positions of explicit pins.
        pin_first_user: keep the first user message.
        carry: True when a final answer is short enough to be kept with its pinned question.
    """
    wanted = {index for index in marked if first <= index < start}
    current = last_user(messages)
    first_user = next((i for i in range(first, start) if isinstance(messages[i], HumanMessage)), None)
    wanted.update(index for index in (current, first_user if pin_first_user else None) if index is not None)
    shown: set[int] = set()
    for index in sorted(i for i in wanted if i < start):
        shown.update(_with_step(messages, index, start))
        shown.update(_answer(messages, index, start, carry) if index != current else ())
    return tuple(position_of(messages, index) for index in sorted(shown))


def last_user(messages: Sequence[AnyMessage]) -> int | None:
    """Return the position of the current user message; None when there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], HumanMessage)), None)


def needs_answer(question: AnyMessage, following: AnyMessage | None) -> bool:
    """True when a shown user message would look open although its turn is done."""
    return isinstance(question, HumanMessage) and (following is None or isinstance(following, HumanMessage))


def _with_step(messages: Sequence[AnyMessage], index: int, stop: int) -> range:
    step = step_at(messages, index, stop)
    return range(step.index, step.stop)


def step_at(messages: Sequence[AnyMessage], index: int, stop: int) -> Step:
    """Return the step that holds the message at `index`."""
    begin = index
    while begin > 0 and not isinstance(messages[begin], HumanMessage):
        begin -= 1
    return next(step for step in split_steps(messages, begin, stop) if index < step.stop)


def _answer(messages: Sequence[AnyMessage], index: int, stop: int, carry: Callable[[AnyMessage], bool]) -> list[int]:
    """Position of the final answer of a pinned question, when it is there and short enough."""
    if not isinstance(messages[index], HumanMessage):
        return []
    end = next((i for i in range(index + 1, stop) if isinstance(messages[i], HumanMessage)), stop)
    last = end - 1
    answer = messages[last]
    final = last > index and isinstance(answer, AIMessage) and not call_ids(answer) and not is_empty(answer)
    return [last] if final and carry(answer) else []
