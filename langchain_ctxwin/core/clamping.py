"""The last rung: long messages are shown by head and tail, the least important kind first, only as far as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.compaction import Goal, first_that
from langchain_ctxwin.core.edits import clampable_chars
from langchain_ctxwin.core.pins import is_pinned, last_user
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import Clamp, View, message_id

CLAMP_FLOOR_CHARS = 240
"""Shortest form of a clamped message: about three lines, enough to see what it was."""

HEAD_SHARE = 2 / 3
"""Part of a clamped text that shows its head; beginnings say more about what a text is than ends."""

GIANT_SHARE = 0.25
"""Room left to a newest step that could not fit by itself; the conversation around it is worth more than its middle."""

Kind = Callable[[AnyMessage, int], bool]
Enough = Callable[[Survey], bool]


def clamp_until_fits(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp kind by kind until the request fits: results, calls and AI text, other pins, the current user message."""
    current = last_user(request.messages)
    kinds: tuple[tuple[Kind, Enough], ...] = (
        (lambda message, _: isinstance(message, ToolMessage) and not is_pinned(message), goal.fits),
        (lambda message, _: isinstance(message, AIMessage) and not is_pinned(message), goal.fits),
        (lambda _, index: index != current, goal.fits),
        (lambda _, index: index == current, goal.likely_fits),
    )
    for kind, enough in kinds:
        if enough(survey):
            break
        survey = clamp_kind(request, survey, kind, enough)
    return survey


def clamp_newest_giant(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp the results of a newest step that could not fit even if everything else left."""
    newest = survey.newest
    if newest is None or not any(isinstance(message, ToolMessage) for message in newest.messages):
        return survey
    current = last_user(request.messages)
    asked = sum(step.tokens for step in survey.steps if step.index == current and step is not newest)
    room = goal.room(survey) - asked
    if newest.tokens <= room:
        return survey

    def in_newest(message: AnyMessage, index: int) -> bool:
        return isinstance(message, ToolMessage) and index >= newest.index and not is_pinned(message)

    def small_enough(candidate: Survey) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= GIANT_SHARE * room

    return clamp_kind(request, survey, in_newest, small_enough)


def clamp_kind(request: Request, survey: Survey, kind: Kind, enough: Enough) -> Survey:
    """Cut the longest messages of a kind to one common length: the largest that is enough, else the floor."""
    lengths = {key: chars for key, chars in _lengths(request, survey, kind) if chars > CLAMP_FLOOR_CHARS}
    if not lengths:
        return survey

    def clamped_to(chars: int) -> Survey:
        return request.survey(_with_clamps(survey.view, lengths, chars), survey.summary)

    caps = sorted({CLAMP_FLOOR_CHARS, *_caps(max(lengths.values()))}, reverse=True)
    best = first_that(list(range(len(caps))), lambda i: enough(clamped_to(caps[i])))
    return clamped_to(caps[-1] if best is None else caps[best])


def _caps(longest: int) -> Iterator[int]:
    """Candidate lengths: steps of about 3 %, because an exact cut is not worth more pricing."""
    chars = float(longest)
    while chars > CLAMP_FLOOR_CHARS:
        yield int(chars)
        chars *= 0.97


def _lengths(request: Request, survey: Survey, kind: Kind) -> Iterator[tuple[str, int]]:
    view = survey.view
    pinned = [position.index for position in view.pinned if position.index < survey.start]
    for index in (*pinned, *range(survey.start, len(request.messages))):
        message, key = request.messages[index], message_id(request.messages, index)
        if key not in view.cleared and key not in view.superseded and kind(message, index):
            yield key, clampable_chars(message)


def _with_clamps(view: View, lengths: Mapping[str, int], chars: int) -> View:
    clamps = dict(view.clamped)
    for key, length in lengths.items():
        if length > chars:
            clamps[key] = _tighter(clamps.get(key), chars)
    return replace(view, clamped=clamps)


def _tighter(old: Clamp | None, chars: int) -> Clamp:
    head = int(chars * HEAD_SHARE)
    tail = chars - head
    if old is None:
        return Clamp(head_chars=head, tail_chars=tail)
    return Clamp(head_chars=min(head, old.head_chars), tail_chars=min(tail, old.tail_chars))
