"""Which explicit pins and constraints does a request hold, by name and size? For the refusal when they are too much."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.messages import SystemMessage

from langchain_ctxwin.core.budget import Kept
from langchain_ctxwin.core.edits import edit, text_of
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import message_id

EXCERPT_CHARS = 40
"""Part of a text that says which one is meant: half a line."""


def kept_in(request: Request, survey: Survey) -> tuple[Kept, ...]:
    """Return the explicit pins that the request shows and the constraints, in order."""
    return (*_pins(request, survey), *_constraints(request))


def _pins(request: Request, survey: Survey) -> Iterator[Kept]:
    shown = {message.id for step in (*survey.pinned, *survey.steps) for message in step.messages}
    for index in sorted(request.pins):
        message, key = request.messages[index], message_id(request.messages, index)
        if index < request.first or (message.id and message.id not in shown):
            continue
        clamped = ", clamped" if key in survey.view.clamped else ""
        tokens = _tokens(request, request.price(edit(message, key, survey.view)))
        yield Kept(name=f"{key} ({message.type}{clamped}) {_excerpt(text_of(message.content))}", tokens=tokens)


def _constraints(request: Request) -> Iterator[Kept]:
    for rule in request.constraints:
        tokens = _tokens(request, request.price(SystemMessage(content=rule)))
        yield Kept(name=f"constraint {_excerpt(rule)}", tokens=tokens)


def _tokens(request: Request, estimate: int) -> int:
    """The estimate of a text as the regions of a report count it."""
    return round(max(0.0, 1 + request.sizing.belief.slope) * estimate)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line[:EXCERPT_CHARS]}..."' if len(line) > EXCERPT_CHARS else f'"{line}"'
