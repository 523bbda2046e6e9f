"""The last rung: long messages are shown by head and tail, the least important kind first, only as far as needed.

An explicit pin is clamped only when it alone exceeds the room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxwin.core.compaction import RECORD_FRAME_TOKENS, Goal, cut, first_that, record_room
from langchain_ctxwin.core.edits import clampable_chars
from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.priced_view import PricedView, Request, last_user, pins_before
from langchain_ctxwin.core.record import Record, fitted
from langchain_ctxwin.core.turns import tool_of
from langchain_ctxwin.core.view import Clamp, View, message_id

CLAMP_FLOOR_CHARS = 240  # shortest form of a clamped message: about three lines, enough to see what it was
HEAD_SHARE = 2 / 3  # part of a clamped text that shows its head; beginnings say more about what a text is than ends
# Parts of the room: for a newest step that could not fit by itself (the conversation around it is worth more than its
# middle), for such a question (the answer is about it), and for a newest step beside the record when all else has left.
GIANT_SHARE, QUESTION_SHARE, NEWEST_SHARE = 0.25, 0.6, 0.5
PINS_SHARE = 0.75  # of the limit: most of what fixed regions take once a pin had to be clamped
CAP_STEP = 0.97  # from one candidate length to the next: an exact cut is not worth more pricing
HALF = 0.5  # of a room for text that whole lines have to fill; a paragraph in one line would otherwise be left out
CUT_MARK = "..."
_LAST_WORD = re.compile(r"(?<![!-~])[!-~]++\Z")  # letters of scripts without spaces may stand alone

Kind = Callable[[int], bool]  # says by its position whether a message is one to be clamped
Enough = Callable[[PricedView], bool]


def clamp_until_fits(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp kind by kind until the request fits: results, calls and AI text, other messages, the current user message.

    Results of spared tools come after all other messages. Explicit pins that alone exceed the room come right before
    the current user message; the others stay verbatim.
    """
    priced_view, current = _with_shorter_account(request, priced_view, goal), last_user(request.messages)
    priced_view = _clamp_all_but_question(request, priced_view, goal)
    if not goal.likely_fits(priced_view) and current not in request.pins:
        priced_view = _clamp(request, priced_view, lambda index: index == current, goal.likely_fits)
    return priced_view


def _with_shorter_account(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Shorten the record, then the summary, where pins or the newest step leave them less room; neither goes whole."""
    if goal.fits(priced_view):
        return priced_view
    smallest = _clamp_all_but_question(request, _without_account(request, priced_view), goal)
    room = goal.likely_limit(smallest) - smallest.total_tokens
    if request.text_tokens(priced_view.preamble.record) <= room:
        return priced_view
    summary = first_part(priced_view.summary, room // 2, request.text_tokens)
    lines_room = max(0, room - request.text_tokens(summary) - RECORD_FRAME_TOKENS)
    view = replace(priced_view.view, record=fitted(priced_view.view.record, lines_room, request.text_tokens))
    if not summary:  # nothing of it fits: what it covered is in no summary any more, and is summarized again
        view = replace(view, covered=None, covered_digest="", covered_tokens=0)
    return request.priced_view(view, summary)


def _without_account(request: Request, priced_view: PricedView) -> PricedView:
    return request.priced_view(replace(priced_view.view, record=Record()), "")


def first_part(text: str, room_tokens: int, price: Callable[[str], int]) -> str:
    """Return whole lines from the start of a text, as many as the room holds; a long one is cut between words."""
    if not text or price(text) <= room_tokens:
        return text
    fit = take_while_fits(text.split("\n"), room_tokens, lambda line: price(line) + 1)
    if fit.tokens >= HALF * room_tokens:
        return "\n".join(fit.kept)
    line, room = fit.dropped[0], room_tokens - fit.tokens
    stop = first_that(range(len(line) - 1, 0, -1), lambda stop: price(f"{line[:stop]}{CUT_MARK}") < room)
    head = _LAST_WORD.sub("", line[:stop]) if stop else ""  # a word or value is never cut in two
    return "\n".join((*fit.kept, f"{head}{CUT_MARK}" if head.strip() else "")).strip()


def _clamp_all_but_question(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    messages, pins, current = request.messages, request.pins, last_user(request.messages)
    spared = _sparing(request, goal)
    kinds: tuple[Kind, ...] = (
        lambda index: isinstance(messages[index], ToolMessage) and index not in pins and not spared(index),
        lambda index: isinstance(messages[index], AIMessage) and index not in pins,
        lambda index: index != current and index not in pins and not spared(index),
        *((lambda index: index not in pins and spared(index),) if goal.spare_tools else ()),
    )
    for kind in kinds:
        if goal.fits(priced_view):
            return priced_view
        priced_view = _clamp(request, priced_view, kind, goal.fits)
    if goal.likely_fits(priced_view):
        return priced_view
    large = {index for index in pins if _exceeds_alone(request, priced_view, goal, index)}

    def leaves_room(candidate: PricedView) -> bool:
        return goal.likely_fits(candidate) and candidate.fixed_tokens <= PINS_SHARE * goal.limit

    # Pins stay for good. If they filled the window, every message that follows would break the prompt cache once more.
    roomy = _clamp(request, priced_view, large.__contains__, leaves_room)
    return roomy if leaves_room(roomy) else _clamp(request, priced_view, large.__contains__, goal.likely_fits)


def _sparing(request: Request, goal: Goal) -> Kind:
    """Return what says of a position whether it holds the result of a spared tool."""
    return lambda index: bool(goal.spare_tools) and tool_of(request.messages, index) in goal.spare_tools


def _exceeds_alone(request: Request, priced_view: PricedView, goal: Goal, index: int) -> bool:
    """True when a request with this explicit pin verbatim, and everything else at its smallest, would not fit.

    Constraints and other explicit pins are left out of it; pins after the start of the view, which cannot leave, are
    clamped. As with the current user message, a suspicion is not enough while no size was reported.
    """
    pin, view = message_id(request.messages, index), priced_view.view
    kept = pins_before(
        request.messages,
        priced_view.start,
        first=request.first,
        marked=(index,),
        pin_first_user=goal.pin_first_user,
        carry=lambda _: True,
    )
    alone = replace(
        view,
        pinned=tuple(position for position in view.pinned if position in kept),
        clamped={key: clamp for key, clamp in view.clamped.items() if key != pin},
    )
    smallest = _with_clamps(request, alone, _lengths(request, alone, lambda other: other != index), CLAMP_FLOOR_CHARS)
    return not goal.likely_fits(replace(request, constraints=()).priced_view(smallest, priced_view.summary))


def clamp_giant(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp what is new and could not fit even if everything else left: a question, or the results of a step."""
    newest, current = priced_view.newest, last_user(request.messages)
    if newest is None:
        return priced_view
    begin = newest.index
    if current is not None and begin <= current and current not in request.pins:
        alone = request.priced_view(cut(request, priced_view, begin, goal), priced_view.summary)
        is_giant = not goal.likely_fits(_clamp_all_but_question(request, alone, goal))
        if is_giant and alone.preamble.record:  # as little as can be around it
            bare = _without_account(request, alone)
            is_giant = not goal.likely_fits(_clamp_all_but_question(request, bare, goal))
        if is_giant:
            most = QUESTION_SHARE * goal.room(alone)
            is_question, is_small = (lambda index: index == current), (lambda view: _from(view, begin) <= most)
            priced_view = _clamp(request, priced_view, is_question, is_small)
    asked = sum(step.tokens for step in priced_view.steps if step.index == current and step.index != begin)
    room, newest = goal.room(priced_view) - asked, priced_view.newest
    if newest is None or newest.tokens <= room:
        return priced_view
    return _clamp_newest(request, priced_view, goal, ToolMessage, GIANT_SHARE * room)


def clamp_newest_results(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clamp results, then calls, that leave the record no room: their values are in it, in a fraction of the room."""
    newest = priced_view.newest
    if newest is None:
        return priced_view
    account = request.text_tokens(priced_view.preamble.record) - request.text_tokens(priced_view.summary)
    room = goal.room(priced_view) + account - sum(step.tokens for step in priced_view.steps if step is not newest)
    wanted, _ = record_room(request, priced_view, goal)
    most = room - min(wanted + RECORD_FRAME_TOKENS, int((1 - NEWEST_SHARE) * room))
    for kind in (ToolMessage, AIMessage):
        if _from(priced_view, newest.index) > most:
            priced_view = _clamp_newest(request, priced_view, goal, kind, most)
    return priced_view


def _clamp_newest(
    request: Request, priced_view: PricedView, goal: Goal, kind: type[BaseMessage], most_tokens: float
) -> PricedView:
    """Clamp the messages of one type in the newest step, until the step takes at most so many tokens."""
    newest, spared = priced_view.newest, _sparing(request, goal)
    begin = newest.index if newest else 0

    def is_kind(index: int) -> bool:
        is_new = index >= begin and isinstance(request.messages[index], kind)
        return is_new and index not in request.pins and not spared(index)

    return _clamp(request, priced_view, is_kind, lambda candidate: _from(candidate, begin) <= most_tokens)


def _from(priced_view: PricedView, index: int) -> int:
    """Tokens of the steps from a position on."""
    return priced_view.steps.between(index, priced_view.stop)[0]


def _clamp(request: Request, priced_view: PricedView, kind: Kind, enough: Enough) -> PricedView:
    """Cut the longest messages of a kind to one common length: the largest that is enough, else the floor."""
    lengths = _lengths(request, priced_view.view, kind)
    if not lengths:
        return priced_view

    def clamped_to(chars: int) -> PricedView:
        return request.priced_view(_with_clamps(request, priced_view.view, lengths, chars), priced_view.summary)

    caps, chars = list[int](), float(max(lengths.values()))
    while chars > CLAMP_FLOOR_CHARS:
        caps.append(int(chars))
        chars *= CAP_STEP
    caps = sorted({CLAMP_FLOOR_CHARS, *caps}, reverse=True)
    best = first_that(caps, lambda cap: enough(clamped_to(cap)))
    return clamped_to(caps[-1] if best is None else best)


def _lengths(request: Request, view: View, kind: Kind) -> dict[int, int]:
    """Return the shown messages of a kind that can be cut: their lengths in characters, by position."""
    messages, start = request.messages, request.start_of(view)
    pinned = [position.index for position in view.pinned if position.index < start]
    lengths = dict[int, int]()
    for index in (*pinned, *range(start, len(messages))):
        if message_id(messages, index) not in view.cleared and kind(index):
            lengths[index] = clampable_chars(messages[index])
    return {index: chars for index, chars in lengths.items() if chars > CLAMP_FLOOR_CHARS}


def _with_clamps(request: Request, view: View, lengths: Mapping[int, int], chars: int) -> View:
    clamps = dict(view.clamped)
    for index in (index for index, length in lengths.items() if length > chars):
        key, head = message_id(request.messages, index), int(chars * HEAD_SHARE)
        old = clamps.get(key) or Clamp(head_chars=head, tail_chars=chars - head)
        clamps[key] = Clamp(
            head_chars=min(head, old.head_chars),
            tail_chars=min(chars - head, old.tail_chars),
            of_pin=index in request.pins,
        )
    return replace(view, clamped=clamps)
