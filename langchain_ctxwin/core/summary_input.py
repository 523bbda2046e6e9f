"""What is a summarizer given? The messages as the model saw them, and the request that the model has read already."""

from __future__ import annotations

from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.window import Window

QUESTION_TOKENS = 640
"""Room for the message that asks for a summary: its instructions, and words of the message up to which it reaches."""


def shown_part(window: Window, start: int, stop: int) -> list[AnyMessage]:
    """Return the messages in `[start, stop)`: as the view shows them, and as they were where they have left it."""
    left = list(window.request.messages[start : min(stop, window.survey.start)])
    shown = (step.messages for step in window.survey.steps if start <= step.index < stop)
    return [*left, *(message for messages in shown for message in messages)]


def last_request(window: Window, start: int, stop: int) -> tuple[list[AnyMessage], int]:
    """Return the request whose prefix the provider has in its cache, and the tokens by which it may grow.

    It is the last one that was sent, with its final answer; it holds more where `stop` asks for it, and ends earlier
    where the question would not fit. None (an empty list) when no request was sent since the view changed, or when
    messages from `start` on have left it.
    """
    survey, since = window.survey, window.session.since
    begun = since.index if since else -1
    answers = [s for s in survey.steps if s.index > begun and s.messages and isinstance(s.messages[0], AIMessage)]
    if not answers or start < survey.start:
        return [], 0
    newest, answer = answers[-1], answers[-1].messages[0]
    is_final = isinstance(answer, AIMessage) and not answer.tool_calls
    end = max(stop, newest.stop if is_final else newest.index)
    steps, room_tokens = list(survey.steps), window.budget.input_limit - survey.upper_tokens
    while steps[-1].index >= end or (steps[-1].index >= stop and room_tokens < QUESTION_TOKENS):
        room_tokens += steps.pop().tokens
    return replace(survey, steps=tuple(steps)).messages(), room_tokens
