"""Clamping: what is too large for the request is cut to its head and tail, to what fits, kind by kind.

old results and calls, other old messages  ->  AI text  ->  newest results  ->  the current question;
before all of these pins, where they exceed the room alone
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.compaction import RECORD_FRAME_TOKENS
from langchain_ctxwin.core.fitting import first_that
from langchain_ctxwin.core.pairing import is_result, is_user
from langchain_ctxwin.core.record import fitted
from langchain_ctxwin.core.request import Request
from langchain_ctxwin.core.turns import Step, last_user
from langchain_ctxwin.core.view import Clamp, clampable_chars, message_id

CLAMP_FLOOR_CHARS = 240  # shortest form of a clamped message: about three lines, enough to see what it was
# part of a clamped text that shows its head; beginnings say more about what a text is than ends
HEAD_SHARE = 2 / 3
CUT_SHARE = 0.96  # of the limit: where a cut of messages ends, so that a record of what is cut out fits beside it
# Of the limit: most of what fixed regions take once pins had to be clamped. They stay for good: with more, each of the
# next messages would be a compaction of its own.
PINS_SHARE = 0.75
# Of the room: most of what a question takes that had filled it by itself, once something follows; for the same reason.
LASTING_SHARE = 0.6
CAP_STEP = 0.99  # from one candidate length to the next: an exact cut is not worth more pricing

Enough = Callable[[Request], bool]


def with_lasting_question(request: Request) -> Request:
    """Cut a question that had filled the window when it was new to a part of it, once something follows it."""
    parts, view, regions = request.parts, request.view, request.size.regions
    messages = parts.messages
    most = LASTING_SHARE * (
        request.likely_limit - regions.system_tokens - regions.tool_tokens
    )
    lasting = {
        index
        for index in parts.visible_indexes(view, request.newest_index)
        if is_user(messages[index]) and message_id(messages, index) in view.clamped
    } - parts.pins

    def is_small(candidate: Request) -> bool:
        steps: tuple[Step, ...] = (*candidate.pinned, *candidate.steps)
        return sum(step.tokens for step in steps if step.index in lasting) <= most

    return request if is_small(request) else clamp(request, lasting, is_small)


def with_clamped_pins(request: Request) -> Request:
    """Clamp the explicit pins where the request would not fit with everything else at its smallest."""
    messages = request.parts.messages
    pins = request.parts.pins.difference({last_user(messages)})
    bare = _without_record(request)
    if not pins or _beside_frame(bare).likely_fits:
        return request
    others = _lengths(bare, {*range(len(messages))} - pins)
    if _beside_frame(_clamped_to(bare, others, CLAMP_FLOOR_CHARS)).likely_fits:
        return request
    most = int(PINS_SHARE * request.limit)

    def leaves_room(candidate: Request) -> bool:
        return _beside_frame(candidate).likely_fits and candidate.fixed_tokens <= most

    after = clamp(bare, pins, leaves_room)
    if not leaves_room(after):
        after = clamp(bare, pins, lambda candidate: _cut_goal(candidate).likely_fits)
    return _with_account_of(after, request)


def clamped_to_fit(request: Request) -> Request:
    """Cut messages to what fits, kind by kind, while the request does not fit.

    Only the newest step leaves summary and record all that these take here; everything else is cut when the request
    would not fit even without them. A summary that has no room beside the newest messages is dropped.
    """
    old, newest, question = _kinds(request)
    bare = _cut(_without_record(request), old)
    beside = _cut(_with_account_of(bare, request), newest)
    if not beside.fits:  # the record gets what they leave at their shortest, and they what its lines leave of that
        less = _with_less_account(_without_record(beside), request)
        beside = _cut(_with_account_of(bare, less), newest)
    bare = _cut(
        _without_record(beside), question, lambda candidate: candidate.likely_fits
    )
    after = _with_account_of(bare, request)
    return after if after.fits else _with_less_account(_without_record(bare), request)


def _kinds(request: Request) -> tuple[list[set[int]], ...]:
    """Positions of the messages to clamp, in groups by order: old messages, the newest ones, the question."""
    messages = request.parts.messages
    current = last_user(messages)
    visible = request.parts.visible_indexes(request.view, len(messages))
    free = {*visible} - request.parts.pins - {current}
    begin = request.newest_index if request.newest else len(messages)
    old = {index for index in free if index < begin}
    answers = {index for index in free if isinstance(messages[index], AIMessage)}
    results = {index for index in free if is_result(messages[index])}
    others = free - answers - results
    question = set() if current is None else {current}
    return [old - others, old | others], [answers, results - old], [question]


def _cut(
    request: Request,
    kinds: Iterable[set[int]],
    enough: Enough = lambda candidate: candidate.fits,
) -> Request:
    """The request with the messages of these kinds cut, kind by kind, until it is small enough."""
    for kind in kinds:
        if not enough(request):
            request = clamp(
                request, kind, lambda candidate: enough(_cut_goal(candidate))
            )
    return request


def clamp(request: Request, kind: Collection[int], enough: Enough) -> Request:
    """Cut the longest messages of a kind to one common length: the largest that is enough, else the floor."""
    lengths = _lengths(request, kind)
    if not lengths:
        return request
    caps, chars = [CLAMP_FLOOR_CHARS], float(max(lengths.values()))
    while chars > CLAMP_FLOOR_CHARS:
        caps.insert(-1, int(chars))
        chars *= CAP_STEP
    best = first_that(caps, lambda cap: enough(_clamped_to(request, lengths, cap)))
    return _clamped_to(request, lengths, CLAMP_FLOOR_CHARS if best is None else best)


def _lengths(request: Request, kind: Collection[int]) -> dict[int, int]:
    """Return the shown messages of a kind that can be cut: their lengths in characters, by position."""
    messages, view = request.parts.messages, request.view
    lengths = {
        index: clampable_chars(messages[index])
        for index in request.parts.visible_indexes(view, len(messages))
        if index in kind and message_id(messages, index) not in view.cleared
    }
    return {
        index: chars for index, chars in lengths.items() if chars > CLAMP_FLOOR_CHARS
    }


def _clamped_to(request: Request, lengths: dict[int, int], chars: int) -> Request:
    """The request with the messages that are longer than so many characters cut to that length."""
    parts = request.parts
    clamps = dict(request.view.clamped)
    head = int(chars * HEAD_SHARE)
    for index in (index for index, length in lengths.items() if length > chars):
        key = message_id(parts.messages, index)
        old = clamps.get(key) or Clamp(head_chars=head, tail_chars=chars - head)
        clamps[key] = Clamp(
            head_chars=min(head, old.head_chars),
            tail_chars=min(chars - head, old.tail_chars),
            pin=index in parts.pins,
            tool=parts.recall,
        )
    return request.shown_as(replace(request.view, clamped=clamps))


def _without_record(request: Request) -> Request:
    """The request without a summary, and with the frame of its record alone."""
    record = fitted(request.view.record, 0, request.text_tokens)
    return request.shown_as(replace(request.view, record=record, block=None), "")


def _with_account_of(request: Request, other: Request) -> Request:
    return request.shown_as(
        replace(request.view, record=other.view.record, block=other.view.block),
        other.summary,
    )


def _with_less_account(bare: Request, request: Request) -> Request:
    """The request with as much of its record as has room, and its summary where that has."""
    room = bare.likely_limit - bare.total_tokens
    summary_tokens = request.written_tokens
    view = replace(bare.view, block=request.view.block)
    summary = request.summary
    # what it covered is in no summary any more, and is summarized again
    if summary_tokens > room:
        view = replace(view, covered=None, block=None)
        summary = ""
        summary_tokens = 0
    free = max(0, room - summary_tokens - RECORD_FRAME_TOKENS)
    return bare.shown_as(
        replace(view, record=fitted(request.view.record, free, request.text_tokens)),
        summary,
    )


def _beside_frame(request: Request) -> Request:
    """The request with a limit that leaves room for the frame of a record, which will tell of what is cut out."""
    return replace(request, limit=request.limit - RECORD_FRAME_TOKENS)


def _cut_goal(request: Request) -> Request:
    """The request with the limit that a cut aims for."""
    return replace(
        request,
        limit=min(int(CUT_SHARE * request.limit), request.limit - RECORD_FRAME_TOKENS),
    )
