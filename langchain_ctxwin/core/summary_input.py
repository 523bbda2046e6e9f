"""The input of a summarizer: messages as the model saw them, or the request that it has read already."""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.turns import Shown
from langchain_ctxwin.core.window import Window

QUESTION_TOKENS = 640
"""Room for the message that asks for a summary: its instructions, and words of the message up to which it reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRequest:
    """A request whose prefix the provider has in its cache."""

    messages: tuple[AnyMessage, ...]  # as they were sent, the system message included
    room_tokens: int  # how much longer it may become
    unseen: int = 0  # how many of the first messages to be summarized it does not show, because they have left the view


def shown_part(window: Window, start: int, stop: int) -> list[AnyMessage]:
    """Return the messages in `[start, stop)`: as the view shows them, and as they were where they have left it."""
    left = list(window.request.messages[start : min(stop, window.priced_view.start)])
    shown = (step.messages for step in window.priced_view.steps if start <= step.index < stop)
    return [*left, *(message for messages in shown for message in messages)]


def last_request(window: Window, start: int, stop: int) -> LastRequest | None:
    """Return the request that a summary of the messages in `[start, stop)` can be asked after.

    It is the last one that was sent, with its final answer; it holds more where `stop` asks for it, and ends earlier
    where the question would not fit. None when no request was sent since the view changed, or all of the messages have
    left it.
    """
    priced_view, since = window.priced_view, window.session.since
    begun = since.index if since else -1
    answers = [s for s in priced_view.steps if s.index > begun and s.messages and isinstance(s.messages[0], AIMessage)]
    if not answers or stop <= priced_view.start:
        return None
    newest, answer = answers[-1], answers[-1].messages[0]
    is_final = isinstance(answer, AIMessage) and not answer.tool_calls
    end = max(stop, newest.stop if is_final else newest.index)
    steps, room_tokens = list(priced_view.steps), window.budget.input_limit - priced_view.upper_tokens
    while steps[-1].index >= end or (steps[-1].index >= stop and room_tokens < QUESTION_TOKENS):
        room_tokens += steps.pop().tokens
    messages = tuple(replace(priced_view, shown=Shown.of(steps)).messages())
    return LastRequest(messages=messages, room_tokens=room_tokens, unseen=max(0, priced_view.start - start))
