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
from langchain_ctxwin.core.priced_view import PricedView, Request, last_user, pins_before
from langchain_ctxwin.core.record import Record, fitted
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
Enough = Callable[[PricedView], bool]


def clamp_until_fits(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp kind by kind until the request fits: results, calls and AI text, other messages, the current user message.

    Results of spared tools come after all other messages. Explicit pins that alone exceed the room come right before
    the current user message; the others stay verbatim.
    """
    priced_view, current = _with_shorter_account(request, priced_view, goal), last_user(request.messages)
    priced_view = _clamp_all_but_question(request, priced_view, goal)
    if not goal.likely_fits(priced_view) and current not in request.pins:
        priced_view = clamp_kind(request, priced_view, lambda _, index: index == current, goal.likely_fits)
    return priced_view


def _with_shorter_account(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Shorten the record, then the summary, where pins or the newest step leave them less room; neither goes whole."""
    if goal.fits(priced_view):
        return priced_view
    smallest = _clamp_all_but_question(
        request, request.priced_view(replace(priced_view.view, record=Record()), ""), goal
    )
    present = request.text_tokens(priced_view.preamble.record)
    room = goal.likely_limit(smallest) - smallest.total_tokens
    if present <= room:
        return priced_view
    summary = first_part(priced_view.summary, room // 2, request.text_tokens)
    lines_room = max(0, room - request.text_tokens(summary) - RECORD_FRAME_TOKENS)
    view = replace(priced_view.view, record=fitted(priced_view.view.record, lines_room, request.text_tokens))
    if not summary:  # nothing of it fits: what it covered is in no summary any more, and is summarized again
        view = replace(view, covered=None, covered_digest="", covered_tokens=0)
    return request.priced_view(view, summary)


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


def _clamp_all_but_question(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    current, pins = last_user(request.messages), request.pins
    spared = _sparing(request, goal)
    kinds: tuple[Kind, ...] = (
        lambda message, index: isinstance(message, ToolMessage) and index not in pins and not spared(index),
        lambda message, index: isinstance(message, AIMessage) and index not in pins,
        lambda _, index: index != current and index not in pins and not spared(index),
        *((lambda _, index: index not in pins and spared(index),) if goal.spare_tools else ()),
    )
    for kind in kinds:
        if goal.fits(priced_view):
            return priced_view
        priced_view = clamp_kind(request, priced_view, kind, goal.fits)
    return priced_view if goal.likely_fits(priced_view) else _clamp_pins(request, priced_view, goal)


def _sparing(request: Request, goal: Goal) -> Callable[[int], bool]:
    """Return what says of a position whether it holds the result of a spared tool."""
    return lambda index: bool(goal.spare_tools) and tool_of(request.messages, index) in goal.spare_tools


def _clamp_pins(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp the explicit pins that alone exceed the room, further than the request needs where that is possible.

    They stay for good. If they filled the window, every message that follows would break the prompt cache once more.
    """
    large = {index for index in request.pins if exceeds_alone(request, priced_view, goal, index)}

    def leaves_room(candidate: PricedView) -> bool:
        return goal.likely_fits(candidate) and candidate.fixed_tokens <= PINS_SHARE * goal.limit

    roomy = clamp_kind(request, priced_view, lambda _, index: index in large, leaves_room)
    if leaves_room(roomy):
        return roomy
    return clamp_kind(request, priced_view, lambda _, index: index in large, goal.likely_fits)


def exceeds_alone(request: Request, priced_view: PricedView, goal: Goal, index: int) -> bool:
    """True when a request with this explicit pin verbatim, and everything else at its smallest, would not fit.

    Constraints and other explicit pins are left out of it; pins after the start of the view, which cannot leave, are
    clamped.

    Args:
        request: what the request is made from.
        priced_view: the request after everything left that can.
        goal: the limit. As with the current user message, a suspicion is not enough while no size was reported.
        index: position of the pin.
    """
    pin = message_id(request.messages, index)
    kept = pins_before(
        request.messages,
        priced_view.start,
        first=request.first,
        marked=(index,),
        pin_first_user=goal.pin_first_user,
        carry=lambda _: True,
    )
    alone = replace(
        priced_view.view,
        pinned=tuple(position for position in priced_view.view.pinned if position in kept),
        clamped={key: clamp for key, clamp in priced_view.view.clamped.items() if key != pin},
    )
    others = _lengths(request, alone, lambda _, other: other != index)
    smallest = _with_clamps(request, alone, others, CLAMP_FLOOR_CHARS)
    return not goal.likely_fits(replace(request, constraints=()).priced_view(smallest, priced_view.summary))


def clamp_giant(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp what is new and could not fit even if everything else left: a question, or the results of a step."""
    return _clamp_giant_results(request, _clamp_giant_question(request, priced_view, goal), goal)


def _clamp_giant_question(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp a question that no compaction can leave whole, before the conversation leaves for it."""
    current, newest = last_user(request.messages), priced_view.newest
    if current is None or newest is None or newest.index > current or current in request.pins:
        return priced_view
    alone = request.priced_view(cut(request, priced_view, newest.index, goal), priced_view.summary)
    if any(goal.likely_fits(smallest) for smallest in _smallest_around(request, alone, goal)):
        return priced_view
    room = goal.room(alone)

    def small_enough(candidate: PricedView) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= QUESTION_SHARE * room

    return clamp_kind(request, priced_view, lambda _, index: index == current, small_enough)


def _smallest_around(request: Request, alone: PricedView, goal: Goal) -> Iterator[PricedView]:
    """The question among as little as can be; without summary and record, too, which costs time to find out."""
    yield _clamp_all_but_question(request, alone, goal)
    if alone.preamble.record:
        bare = request.priced_view(replace(alone.view, record=Record()), "")
        yield _clamp_all_but_question(request, bare, goal)


def _clamp_giant_results(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    newest = priced_view.newest
    if newest is None or not any(isinstance(message, ToolMessage) for message in newest.messages):
        return priced_view
    current = last_user(request.messages)
    spared = _sparing(request, goal)
    asked = sum(step.tokens for step in priced_view.steps if step.index == current and step is not newest)
    room = goal.room(priced_view) - asked
    if newest.tokens <= room:
        return priced_view

    def in_newest(message: AnyMessage, index: int) -> bool:
        is_result = isinstance(message, ToolMessage) and index >= newest.index
        return is_result and index not in request.pins and not spared(index)

    def small_enough(candidate: PricedView) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= GIANT_SHARE * room

    return clamp_kind(request, priced_view, in_newest, small_enough)


def clamp_newest_results(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp results, then calls, that leave the record no room: their values are in it, in a fraction of the room."""
    newest = priced_view.newest
    if newest is None:
        return priced_view
    room = (
        goal.room(priced_view)
        + request.text_tokens(priced_view.preamble.record)
        - request.text_tokens(priced_view.summary)
    )
    room -= sum(step.tokens for step in priced_view.steps if step is not newest)
    spared = _sparing(request, goal)
    wanted, _ = record_room(request, priced_view, goal)
    most = room - min(wanted + RECORD_FRAME_TOKENS, int((1 - NEWEST_SHARE) * room))

    def small_enough(candidate: PricedView) -> bool:
        return sum(step.tokens for step in candidate.steps if step.index >= newest.index) <= most

    for kind in (ToolMessage, AIMessage):

        def in_newest(message: AnyMessage, index: int, kind: type = kind) -> bool:
            is_of_kind = isinstance(message, kind) and index >= newest.index
            return is_of_kind and index not in request.pins and not spared(index)

        priced_view = (
            priced_view if small_enough(priced_view) else clamp_kind(request, priced_view, in_newest, small_enough)
        )
    return priced_view


def clamp_kind(request: Request, priced_view: PricedView, kind: Kind, enough: Enough) -> PricedView:
    """Cut the longest messages of a kind to one common length: the largest that is enough, else the floor."""
    lengths = _lengths(request, priced_view.view, kind)
    if not lengths:
        return priced_view

    def clamped_to(chars: int) -> PricedView:
        return request.priced_view(_with_clamps(request, priced_view.view, lengths, chars), priced_view.summary)

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
