"""How full is the window, in a line that the model sees? Told where another tenth is full, and never changed after.

Whether a message carries the line depends on what precedes it alone: on estimates, which do not change as reported
sizes do. So each request extends the one before it, and nothing has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.turns import Step

TENTHS = 10
"""Steps in which the fill is told: ten lines at most between two compactions."""

Fill = Callable[[AnyMessage, int], AnyMessage]
"""`filled` or a memoized form of it: message, full tenths -> the message with the line."""


def with_fill(
    steps: Sequence[Step], *, before_tokens: int, limit: int, price: Callable[[AnyMessage], int], fill: Fill
) -> tuple[Step, ...]:
    """Return the steps of a request with the line at the end of each message by which another tenth is full.

    Args:
        steps: the history as the model sees it, priced.
        before_tokens: size of everything before it.
        limit: input tokens that are a full window.
        price: tokens of one message.
        fill: adds the line to a message.
    """
    told, used, shown = -1, before_tokens, list[Step]()
    for step in steps:
        if _tenths(used + step.tokens, limit) > told:
            messages = list[AnyMessage]()
            for message in step.messages:
                carried, told = _carrying(message, used, limit, told, price, fill)
                messages.append(carried)
                used += price(carried)
            shown.append(replace(step, messages=tuple(messages), tokens=sum(map(price, messages))))
        else:
            shown.append(step)
            used += step.tokens
    return tuple(shown)


def filled(message: AnyMessage, tenths: int) -> AnyMessage:
    """Return a copy of a message that ends with the line.

    Example:
        >>> filled(HumanMessage("And now?"), 4).text.splitlines()
        ['And now?', '', '[Context window 40% full]']
    """
    line = f"[Context window {100 * tenths // TENTHS}% full]"
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": f"{content}\n\n{line}" if content else line})
    return message.model_copy(update={"content": [*content, {"type": "text", "text": line}]})


def _carrying(
    message: AnyMessage, used: int, limit: int, told: int, price: Callable[[AnyMessage], int], fill: Fill
) -> tuple[AnyMessage, int]:
    """The message, with the line where one is due, and what has been told by then; a model's own words get none."""
    tenths = _tenths(used + price(message), limit)
    if tenths <= told or not isinstance(message, HumanMessage | ToolMessage):
        return message, told
    tenths = max(tenths, _tenths(used + price(fill(message, tenths)), limit))  # the line takes room, too
    return fill(message, tenths), tenths


def _tenths(tokens: int, limit: int) -> int:
    return min(TENTHS, TENTHS * tokens // max(1, limit))
