"""The last rung: long messages are shown by head and tail, the least important kind first, only as far as needed.

An explicit pin is clamped only when it alone exceeds the room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.compaction import RECORD_FRAME_TOKENS, Goal, cut, first_that, record_room
from langchain_ctxwin.core.edits import clampable_chars
from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.record import Record, fitted
from langchain_ctxwin.core.survey import Request, Survey, last_user, pins_before
from langchain_ctxwin.core.turns import tool_of
from langchain_ctxwin.core.view import Clamp, View, message_id

CLAMP_FLOOR_CHARS = 240
"""Shortest form of a clamped message: about three lines, enough to see what it was."""

HEAD_SHARE = 2 / 3
"""Part of a clamped text that shows its head; beginnings say more about what a text is than ends."""

GIANT_SHARE = 0.25
"""Room left to a newest step that could not fit by itself; the conversation around it is worth more than its middle."""

PINS_SHARE = 0.75
"""Largest part of the limit that fixed regions take once a pin had to be clamped; the rest is for the conversation."""

QUESTION_SHARE = 0.6
"""Room left to a question that could not fit by itself: it is what the answer is about, so it gets more."""

NEWEST_SHARE = 0.5
"""Part of the room beside pins that the newest step may take when everything else has left: the record has the rest."""

HALF = 0.5
"""Part of a room for text that whole lines have to fill; a paragraph in one line would otherwise be left out."""

CUT_MARK = "..."
"""Says that a line goes on."""

_LAST_WORD = re.compile(r"(?<![!-~])[!-~]++\Z")  # letters of scripts without spaces may stand alone

Kind = Callable[[AnyMessage, int], bool]
Enough = Callable[[Survey], bool]


def clamp_until_fits(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp kind by kind until the request fits: results, calls and AI text, other messages, the current user message.

    Results of spared tools come after all other messages. Explicit pins that alone exceed the room come right before
    the current user message; the others stay verbatim.
    """
    survey, current = _with_shorter_account(request, survey, goal), last_user(request.messages)
    survey = _clamp_all_but_question(request, survey, goal)
    if not goal.likely_fits(survey) and current not in request.pins:
        survey = clamp_kind(request, survey, lambda _, index: index == current, goal.likely_fits)
    return survey


def _with_shorter_account(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Shorten the record, then the summary, where pins or the newest step leave them less room; neither goes whole."""
    if goal.fits(survey):
        return survey
    smallest = _clamp_all_but_question(request, request.survey(replace(survey.view, record=Record()), ""), goal)
    present = request.text_tokens(survey.preamble.record)
    room = goal.likely_limit(smallest) - smallest.total_tokens
    if present <= room:
        return survey
    summary = first_part(survey.summary, room // 2, request.text_tokens)
    lines_room = max(0, room - request.text_tokens(summary) - RECORD_FRAME_TOKENS)
    view = replace(survey.view, record=fitted(survey.view.record, lines_room, request.text_tokens))
    if not summary:  # nothing of it fits: what it covered is in no summary any more, and is summarized again
        view = replace(view, covered=None, covered_digest="", covered_tokens=0)
    return request.survey(view, summary)


def first_part(text: str, room_tokens: int, price: Callable[[str], int]) -> str:
    """Return whole lines from the start of a text, as many as the room holds; a long one is cut between words."""
    if not text or price(text) <= room_tokens:
        return text
    fit = take_while_fits(text.split("\n"), room_tokens, lambda line: price(line) + 1)
    if fit.tokens >= HALF * room_tokens:
        return "\n".join(fit.kept)
    return "\n".join((*fit.kept, _head(fit.dropped[0], room_tokens - fit.tokens, price))).strip()


def _head(line: str, room_tokens: int, price: Callable[[str], int]) -> str:
    """The beginning of a line, as much as the room holds; a word or value is never cut in two."""
    stops = list(range(len(line) - 1, 0, -1))
    stop = first_that(stops, lambda stop: price(f"{line[:stop]}{CUT_MARK}") < room_tokens)
    head = _LAST_WORD.sub("", line[:stop]) if stop else ""
    return f"{head}{CUT_MARK}" if head.strip() else ""


def _clamp_all_but_question(request: Request, survey: Survey, goal: Goal) -> Survey:
    current, pins = last_user(request.messages), request.pins
    spared = _sparing(request, goal)
    kinds: tuple[Kind, ...] = (
        lambda message, index: isinstance(message, ToolMessage) and index not in pins and not spared(index),
        lambda message, index: isinstance(message, AIMessage) and index not in pins,
        lambda _, index: index != current and index not in pins and not spared(index),
        *((lambda _, index: index not in pins and spared(index),) if goal.spare_tools else ()),
    )
    for kind in kinds:
        if goal.fits(survey):
            return survey
        survey = clamp_kind(request, survey, kind, goal.fits)
    return survey if goal.likely_fits(survey) else _clamp_pins(request, survey, goal)


def _sparing(request: Request, goal: Goal) -> Callable[[int], bool]:
    """Return what says of a position whether it holds the result of a spared tool."""
    return lambda index: bool(goal.spare_tools) and tool_of(request.messages, index) in goal.spare_tools


def _clamp_pins(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp the explicit pins that alone exceed the room, further than the request needs where that is possible.

    They stay for good. If they filled the window, every message that follows would break the prompt cache once more.
    """
    large = {index for index in request.pins if exceeds_alone(request, survey, goal, index)}

    def leaves_room(candidate: Survey) -> bool:
        return goal.likely_fits(candidate) and candidate.fixed_tokens <= PINS_SHARE * goal.limit

    roomy = clamp_kind(request, survey, lambda _, index: index in large, leaves_room)
    if leaves_room(roomy):
        return roomy
    return clamp_kind(request, survey, lambda _, index: index in large, goal.likely_fits)


def exceeds_alone(request: Request, survey: Survey, goal: Goal, index: int) -> bool:
    """True when a request with this explicit pin verbatim, and everything else at its smallest, would not fit.

    Constraints and other explicit pins are left out of it; pins after the start of the view, which cannot leave, are
    clamped.

    Args:
        request: what the request is made from.
        survey: the request after everything left that can.
        goal: the limit. As with the current user message, a suspicion is not enough while no size was reported.
        index: position of the pin.
    """
    pin = message_id(request.messages, index)
    kept = pins_before(
        request.messages,
        survey.start,
        first=request.first,
        marked=(index,),
        pin_first_user=goal.pin_first_user,
        carry=lambda _: True,
    )
    alone = replace(
        survey.view,
        pinned=tuple(position for position in survey.view.pinned if position in kept),
        clamped={key: clamp for key, clamp in survey.view.clamped.items() if key != pin},
    )
    others = _lengths(request, alone, lambda _, other: other != index)
    smallest = _with_clamps(request, alone, others, CLAMP_FLOOR_CHARS)
    return not goal.likely_fits(replace(request, constraints=()).survey(smallest, survey.summary))


def clamp_giant(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp what is new and could not fit even if everything else left: a question, or the results of a step."""
    return _clamp_giant_results(request, _clamp_giant_question(request, survey, goal), goal)


def _clamp_giant_question(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp a question that no compaction can leave whole, before the conversation leaves for it."""
    current, newest = last_user(request.messages), survey.newest
    if current is None or newest is None or newest.index > current or current in request.pins:
        return survey
    alone = request.survey(cut(request, survey, newest.index, goal), survey.summary)
    if any(goal.likely_fits(smallest) for smallest in _smallest_around(request, alone, goal)):
        return survey
    room = goal.room(alone)

    def small_enough(candidate: Survey) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= QUESTION_SHARE * room

    return clamp_kind(request, survey, lambda _, index: index == current, small_enough)


def _smallest_around(request: Request, alone: Survey, goal: Goal) -> Iterator[Survey]:
    """The question among as little as can be; without summary and record, too, which costs time to find out."""
    yield _clamp_all_but_question(request, alone, goal)
    if alone.preamble.record:
        bare = request.survey(replace(alone.view, record=Record()), "")
        yield _clamp_all_but_question(request, bare, goal)


def _clamp_giant_results(request: Request, survey: Survey, goal: Goal) -> Survey:
    newest = survey.newest
    if newest is None or not any(isinstance(message, ToolMessage) for message in newest.messages):
        return survey
    current = last_user(request.messages)
    spared = _sparing(request, goal)
    asked = sum(step.tokens for step in survey.steps if step.index == current and step is not newest)
    room = goal.room(survey) - asked
    if newest.tokens <= room:
        return survey

    def in_newest(message: AnyMessage, index: int) -> bool:
        is_result = isinstance(message, ToolMessage) and index >= newest.index
        return is_result and index not in request.pins and not spared(index)

    def small_enough(candidate: Survey) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= GIANT_SHARE * room

    return clamp_kind(request, survey, in_newest, small_enough)


def clamp_newest_results(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clamp results, then calls, that leave the record no room: their values are in it, in a fraction of the room."""
    newest = survey.newest
    if newest is None:
        return survey
    room = goal.room(survey) + request.text_tokens(survey.preamble.record) - request.text_tokens(survey.summary)
    room -= sum(step.tokens for step in survey.steps if step is not newest)
    spared = _sparing(request, goal)
    wanted, _ = record_room(request, survey, goal)
    most = room - min(wanted + RECORD_FRAME_TOKENS, int((1 - NEWEST_SHARE) * room))

    def small_enough(candidate: Survey) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= most

    for kind in (ToolMessage, AIMessage):

        def in_newest(message: AnyMessage, index: int, kind: type = kind) -> bool:
            is_of_kind = isinstance(message, kind) and index >= newest.index
            return is_of_kind and index not in request.pins and not spared(index)

        survey = survey if small_enough(survey) else clamp_kind(request, survey, in_newest, small_enough)
    return survey


def clamp_kind(request: Request, survey: Survey, kind: Kind, enough: Enough) -> Survey:
    """Cut the longest messages of a kind to one common length: the largest that is enough, else the floor."""
    lengths = _lengths(request, survey.view, kind)
    if not lengths:
        return survey

    def clamped_to(chars: int) -> Survey:
        return request.survey(_with_clamps(request, survey.view, lengths, chars), survey.summary)

    caps = sorted({CLAMP_FLOOR_CHARS, *_caps(max(lengths.values()))}, reverse=True)
    best = first_that(list(range(len(caps))), lambda i: enough(clamped_to(caps[i])))
    return clamped_to(caps[-1] if best is None else caps[best])


def _caps(longest: int) -> Iterator[int]:
    """Candidate lengths: steps of about 3 %, because an exact cut is not worth more pricing."""
    chars = float(longest)
    while chars > CLAMP_FLOOR_CHARS:
        yield int(chars)
        chars *= 0.97


def _lengths(request: Request, view: View, kind: Kind) -> dict[int, int]:
    """Return the shown messages of a kind that can be cut: their lengths in characters, by position."""
    messages, start = request.messages, request.start_of(view)
    pinned = [position.index for position in view.pinned if position.index < start]
    lengths = dict[int, int]()
    for index in (*pinned, *range(start, len(messages))):
        key, chars = message_id(messages, index), clampable_chars(messages[index])
        if key not in view.cleared and chars > CLAMP_FLOOR_CHARS and kind(messages[index], index):
            lengths[index] = chars
    return lengths


def _with_clamps(request: Request, view: View, lengths: Mapping[int, int], chars: int) -> View:
    clamps = dict(view.clamped)
    for index, length in lengths.items():
        if length > chars:
            key = message_id(request.messages, index)
            clamps[key] = _tighter(clamps.get(key), chars, of_pin=index in request.pins)
    return replace(view, clamped=clamps)


def _tighter(old: Clamp | None, chars: int, *, of_pin: bool) -> Clamp:
    head = int(chars * HEAD_SHARE)
    tail = chars - head
    if old is None:
        return Clamp(head_chars=head, tail_chars=tail, of_pin=of_pin)
    return Clamp(head_chars=min(head, old.head_chars), tail_chars=min(tail, old.tail_chars), of_pin=of_pin)
