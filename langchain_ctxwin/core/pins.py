"""Pins: messages that stay in every request, verbatim, although they lie before the start of the view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from langchain_ctxwin.core.calls import call_ids, is_user
from langchain_ctxwin.core.pairing import is_empty
from langchain_ctxwin.core.turns import Step, split_steps
from langchain_ctxwin.errors import expect

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

    Examples:
        >>> from langchain_core.messages import SystemMessage
        >>> is_pinned(pin(SystemMessage("Never book before 9:00.")))
        True
    """
    expect(
        message, BaseMessage, "message", "a message, for example pin(HumanMessage(...))"
    )
    return message.model_copy(
        update={"additional_kwargs": {**message.additional_kwargs, PIN_KEY: True}}
    )


def is_pinned(message: BaseMessage) -> bool:
    """True when the message was marked through `pin`."""
    return bool(message.additional_kwargs.get(PIN_KEY))


def last_user(messages: Sequence[AnyMessage]) -> int | None:
    """Return the position of the current user message; None when there is none."""
    return next(
        (i for i in range(len(messages) - 1, -1, -1) if is_user(messages[i])), None
    )


def looks_open(question: AnyMessage, following: AnyMessage | None) -> bool:
    """True when a shown user message would look open although its turn is done."""
    return is_user(question) and (following is None or is_user(following))


def answer_marker(question_id: str) -> AIMessage:
    """Return the message that stands for the rest of the turn of a pinned question."""
    return AIMessage(content=ANSWER_TEXT, id=f"{question_id}:answered")


def pinned_groups(
    messages: Sequence[AnyMessage], pinned: Collection[int], start: int
) -> Iterator[Step]:
    """Yield the pinned messages before `start` by step; where something between has left, another step begins."""
    for begin in sorted(index for index in pinned if index - 1 not in pinned):
        stop = next(index for index in range(begin, start + 1) if index not in pinned)
        yield from split_steps(messages, begin, stop)


def final_answer(messages: Sequence[AnyMessage], index: int, stop: int) -> int | None:
    """Return the position of the answer that ends the turn of a pinned question; None while there is none."""
    if not is_user(messages[index]):
        return None
    last = next((i for i in range(index + 1, stop) if is_user(messages[i])), stop) - 1
    answer = messages[last]
    is_final = (
        isinstance(answer, AIMessage) and not call_ids(answer) and not is_empty(answer)
    )
    return last if is_final and last > index else None
