"""Plans for a priced request, by what it needs: what leaves it, and from what a summary is written.

    request.need()  ->  None | ahead | soft | hard
    emergency (hard), relieve (soft), summary_due (soft, or ahead of it)  ->  Compaction | None
    prepare (ahead, beside the step)                                      ->  (Pending, reason) | None

What leaves is decided in `smaller`: a summary that is ready is shown, then one loop goes over tiers, functions from a
request to a smaller one; what is still too large is clamped to what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.compaction import (
    Compaction,
    cut,
    cuts,
    pays,
    recorded,
)
from langchain_ctxwin.core.fitting import first_enough
from langchain_ctxwin.core.limits import BLIND_STEP, refusal
from langchain_ctxwin.core.pairing import calls_of
from langchain_ctxwin.core.record import HOLDS, extended
from langchain_ctxwin.core.request import Request
from langchain_ctxwin.core.session import Pending, uncovered
from langchain_ctxwin.core.settings import portion
from langchain_ctxwin.core.turns import Steps, last_user
from langchain_ctxwin.core.view import Clamp, clampable_chars, message_id

# Default size of a summary: a share of the room for history, dense, yet far less than what it replaces; at least a
# paragraph, at most two pages.
SUMMARY_SHARE, LEAST_SUMMARY_TOKENS, MOST_SUMMARY_TOKENS = 0.2, 64, 2000
LEAST_KEPT = 0.1  # share of the room that a snapshot leaves untouched: a giant result may follow at once
# Rooms of history that a further summary has to cover: each is read, written and breaks the prompt cache once, and the
# record tells of what left meanwhile. Measured in an arena of ten scenarios: a sixth of all cost, at equal facts.
FURTHER_ROOMS = 3.0
MIN_CLEAR_TOKENS = 75  # smallest result that is cleared: three times its stub
ASKED_BY_HOST = "asked by the host"

CLAMP_FLOOR_CHARS = 240  # shortest form of a clamped message: about three lines, enough to see what it was
# part of a clamped text that shows its head; beginnings say more about what a text is than ends
HEAD_SHARE = 2 / 3
CUT_SHARE = 0.95  # of the limit: where a cut of messages ends, so that a record of what is cut out fits beside it
# Of the limit: most of what fixed regions take once pins had to be clamped. They stay for good: with more, each of the
# next messages would be a compaction of its own.
PINS_SHARE = 0.75
# Of the limit: the most that a question which has to be cut leaves to the rules of the record.
BESIDE_QUESTION = 0.1

Enough = Callable[[Request], bool]

# ---- what leaves, tier by tier --------------------------------------------------------------------------------------


def smaller(before: Request) -> Request:
    """Return the request with what has to leave taken out; the same one where nothing can.

    A finished summary is shown first. The result may still not fit: when the fixed regions alone exceed the limit
    nothing can help.
    """
    request = before if before.is_low else show_summary(before)
    for tier in TIERS:
        if request.is_low or _stays_valid(request):
            break
        candidate = tier(request)
        if candidate.total_tokens < request.total_tokens:
            request = candidate
    request = recorded(with_clamped_pins(request), before, is_first=True)
    return request if request.fits else recorded(clamped_to_fit(request), before)


def _stays_valid(request: Request) -> bool:
    """True where nothing else should leave, because reasoning is kept behind the block of its provider.

    Of what the next block is prepared for, so that it is not due at once.
    """
    most = portion(request.settings.prepare, request.room)
    is_small = request.fits and request.history_tokens <= most
    return is_small and request.swaps_prefix


def show_summary(request: Request) -> Request:
    """Show a finished summary in the place of what it covers; the start never moves back."""
    summary = request.session.pending
    if summary is None or not summary.is_written:
        return request
    moved = cut(request, summary.stop) if summary.stop > request.start else request.view
    view = replace(moved, covered=summary.stop, block=summary.block)
    return request.shown_as(view, summary.text)


def clear_results(request: Request) -> Request:
    """Clear the oldest results of the tools that are named for it, never the newest step, as many as are needed."""
    messages = request.history.messages
    names, keys = {*request.settings.clear_tools}, list[str]()
    called = dict[str, str | None]()  # by id, which a later call may bear again
    for index in range(request.start, request.newest_index) if names else ():
        message = messages[index]
        called |= {call["id"] or "": call["name"] for call in calls_of(message)}
        if not isinstance(message, ToolMessage) or index in request.pins:
            continue
        tool = message.name or called.get(message.tool_call_id)
        if tool in names and request.price(message) >= MIN_CLEAR_TOKENS:
            keys.append(message_id(messages, index))

    def cleared(number: int) -> Request:
        view = request.view
        return request.shown_as(
            replace(view, cleared=view.cleared.union(keys[:number]))
        )

    return _least(request, range(1, len(keys) + 1), cleared)


def cut_oldest(request: Request) -> Request:
    """Drop the oldest turns, then the oldest steps of the current one.

    Its user message is pinned, and its newest step stays.
    """
    return _least(
        request, cuts(request), lambda start: request.shown_as(cut(request, start))
    )


TIERS = (clear_results, cut_oldest)


def _least(
    request: Request, choices: Sequence[int], after: Callable[[int], Request]
) -> Request:
    """The request after the first of the choices with which it is at its low-water mark."""
    if not choices:
        return request
    return after(first_enough(choices, lambda value: after(value).is_low))


# ---- what is too large is cut to its head and tail, to what fits, kind by kind ---------------------------------------
#
# pins, where they exceed the room alone  ->  old messages, those of users last
#   ->  newest AI text and calls  ->  newest results  ->  the current question


def with_clamped_pins(request: Request) -> Request:
    """Clamp the explicit pins where the request would not fit with everything else at its smallest."""
    messages = request.history.messages
    pins = request.pins.difference({last_user(messages)})
    others = _lengths(request, {*range(len(messages))} - pins)

    def fits(candidate: Request) -> bool:
        least = _clamped_to(_without_record(candidate), others, CLAMP_FLOOR_CHARS)
        return least.likely_fits

    return clamp(request, pins, fits, share=PINS_SHARE) if pins else request


def clamped_to_fit(request: Request) -> Request:
    """Cut messages to what fits, kind by kind.

    Where the newest step has no room beside summary and record at its shortest, the summary leaves, and of the record
    what has no room: what the summary covers is summarized again.
    """
    *others, question = _kinds(request)
    for kind in others:
        request = clamp(request, kind, lambda candidate: candidate.fits)
    if not request.fits:
        request = _without_record(request, int(BESIDE_QUESTION * request.limit))
        request = clamp(request, question, lambda candidate: candidate.likely_fits)
    if request.likely_fits:
        return request
    free = request.limit - _without_record(request).likely_tokens
    return _without_record(request, max(0, free))


def _kinds(request: Request) -> list[set[int]]:
    """Positions of the messages to clamp, in groups: old ones, those of users, newest ones, their results, question.

    A question that was cut once counts as old when something follows it and the request hardly fits: what is newer
    needs the room.
    """
    messages = request.history.messages
    current = last_user(messages)
    question = set[int]() if current is None else {current}
    visible = {*request.visible}
    visible -= request.pins - question
    old = {index for index in visible if index < request.newest_index}
    if not request.likely_fits:
        clamped = request.view.clamped
        question -= {i for i in old if message_id(messages, i) in clamped}
    old -= question
    users = {index for index in visible if isinstance(messages[index], HumanMessage)}
    newest = visible - old - question
    results = {index for index in newest if isinstance(messages[index], ToolMessage)}
    return [old - users, old & users, newest - results, results, question]


def clamp(
    request: Request,
    kind: Collection[int],
    enough: Enough,
    *,
    share: float = CUT_SHARE,
) -> Request:
    """Cut the longest messages of a kind to one common length: the largest that is enough within a share of the limit.

    At least a floor of each stays.
    """
    lengths = _lengths(request, kind)
    if not lengths or enough(request):
        return request
    goal = replace(request, limit=int(share * request.limit))
    chars = first_enough(
        range(max(lengths.values()), CLAMP_FLOOR_CHARS - 1, -1),
        lambda chars: enough(_clamped_to(goal, lengths, chars)),
    )
    shorter = _clamped_to(request, lengths, chars)
    # a short one may have more with the note of what is left out
    return shorter if shorter.total_tokens < request.total_tokens else request


def _lengths(request: Request, kind: Collection[int]) -> dict[int, int]:
    """Return the shown messages of a kind that can be cut: how many characters of them are shown, by position."""
    messages, view = request.history.messages, request.view
    lengths = dict[int, int]()
    for index in {*kind}.intersection(request.visible):
        key = message_id(messages, index)
        chars = clampable_chars(messages[index])
        if clamp := view.clamped.get(key):
            chars = min(chars, clamp.head_chars + clamp.tail_chars)
        if key not in view.cleared and chars > CLAMP_FLOOR_CHARS:
            lengths[index] = chars
    return lengths


def _clamped_to(request: Request, lengths: dict[int, int], chars: int) -> Request:
    """The request with the messages that are longer than so many characters cut to that length."""
    head = int(chars * HEAD_SHARE)
    clamps = {
        message_id(request.history.messages, index): Clamp(
            head_chars=head,
            tail_chars=chars - head,
            pin=index in request.pins,
            tool=request.recall,
        )
        for index, length in lengths.items()
        if length > chars
    }
    view = replace(request.view, clamped={**request.view.clamped, **clamps})
    return request.shown_as(view)


def _without_record(request: Request, room_tokens: int = 0) -> Request:
    """The request without a summary, and with the frame of its record, or with so much of the rules in it."""
    record = request.view.record
    record = extended(
        replace(record, lines=(), waiting=()),
        [one for one in (*record.waiting, *record.lines) if one.uses >= HOLDS],
        room_tokens=room_tokens,
        price=request.text_tokens,
        share=1.0,
    )
    view = replace(request.view, record=record, covered=0, block=None)
    return request.shown_as(view, "")


# ---- what is due ----------------------------------------------------------------------------------------------------


def emergency(request: Request, target_tokens: int | None = None) -> Compaction | None:
    """Return the compaction that a request needs which does not fit; None when it fits, or nothing can leave.

    Raises:
        BudgetExceededError: even at its smallest it is surely too large.
    """
    limit = request.input_limit if target_tokens is None else target_tokens
    before = replace(request, limit=limit, needs_room=target_tokens is not None)
    need = before.need()
    if need is None or need.level != "hard":
        return None
    compaction = _compaction(before, need.reason, must_pay=False)
    after = compaction.after if compaction else before
    # After a refusal by the provider a smaller request is worth a try, whatever we believe of its size. So is one near
    # a learned limit, which may have been inferred: the true one can be larger, but not as large as what was refused.
    declared = request.declared.room(request.settings.output_reserve)
    most_tokens = max(limit, min(declared, limit / BLIND_STEP))
    if target_tokens is None and after.lower_tokens > most_tokens:
        raise refusal(after.report)
    return compaction


def relieve(request: Request) -> Compaction | None:
    """Return what should leave although the request fits."""
    need = request.need()
    if need is None or need.level == "hard":
        return None
    return _compaction(request, need.reason)


def summary_due(request: Request, *, is_local: bool) -> Compaction | None:
    """Return the summary that is due now; where no model writes summaries, what should leave in its place."""
    need = request.need("" if is_local else "inline")
    if need is None or not request.may_summarize:
        return None
    planned = _compaction if is_local else _summary
    return planned(request, need.reason)


def compaction_on_request(request: Request, *, is_local: bool) -> Compaction | None:
    """Return the compaction that the host asks for, although the request may fit: a summary where one is due."""
    may_write = not is_local and request.settings.summarize != "off"
    before = replace(request, needs_room=True)
    summary = _summary(before, ASKED_BY_HOST) if may_write and before.fits else None
    return summary or _compaction(before, ASKED_BY_HOST)


def _compaction(
    before: Request, reason: str, *, must_pay: bool = True
) -> Compaction | None:
    """What should leave; None where nothing can, or it frees too little."""
    after = smaller(before)
    is_same = after.view == before.view and after.summary == before.summary
    if is_same or (must_pay and not pays(before, after.total_tokens)):
        return None
    return Compaction(kind="force", reason=reason, before=before, after=after)


# ---- summaries ------------------------------------------------------------------------------------------------------


def _summary(request: Request, reason: str) -> Compaction | None:
    """The summary that is due; None when it would not pay for itself."""
    covering = _to_cover(request)
    if covering is None:
        return None
    start, stop, size = covering
    return Compaction(
        kind="summarize",
        reason=reason,
        before=request,
        after=recorded(_without(request, stop), request, summary_tokens=size),
        snapshot=(start, stop),
        summary_max_tokens=size,
    )


def _to_cover(
    request: Request, *, is_ahead: bool = False
) -> tuple[int, int, int] | None:
    """Positions between which a summary brings the request to its low-water mark, and its size in tokens.

    One that is prepared ahead is shown once the request has grown to its ceiling, so it covers that growth, too. None
    where a summary would not pay for itself.
    """
    messages, room = len(request.history.messages), request.room
    most_messages = request.settings.trigger_messages
    most_kept = messages if most_messages is None else request.kept_messages
    share = min(MOST_SUMMARY_TOKENS, int(SUMMARY_SHARE * room))
    size = request.settings.summary_max_tokens or max(LEAST_SUMMARY_TOKENS, share)
    target = request.low_water
    if is_ahead:
        growth = request.fixed_tokens + request.most_history - request.total_tokens
        least = request.fixed_tokens + int(LEAST_KEPT * room)
        target = max(least, target - max(0, growth))
        if most_messages is not None:  # and the message that is past it
            most_kept -= max(0, most_messages + 1 - request.shown_messages)

    def is_enough(stop: int) -> bool:
        after = _without(request, stop)
        fits = after.upper_tokens + size <= after.limit
        return fits and messages - stop <= most_kept and after.total_tokens <= target

    start = uncovered(request.view, request.history.first)
    places = cuts(request)
    stop = first_enough(places, is_enough) if places else 0
    if stop <= start or not pays(request, _without(request, stop).total_tokens + size):
        return None
    return start, stop, size


def prepare(
    request: Request, *, is_on_demand: bool = False
) -> tuple[Pending, str] | None:
    """Return a summary to begin ahead of need, without a key yet, and why it is due.

    None while one is on its way or would not pay for itself. One that the provider makes on demand is begun late: what
    is said meanwhile stays behind it.
    """
    need = request.need("provider" if is_on_demand else "background")
    if need is None or request.session.pending or not request.may_summarize:
        return None
    covering = _to_cover(request, is_ahead=True)
    if covering is None:
        return None
    start, stop, size = covering
    if is_on_demand and request_until(request, stop) is None:
        return None
    steps = request.history.steps_from(start)
    added = sum(step.tokens for step in steps if step.index < stop)
    # What Anthropic compacts it reads from its cache, and reasoning behind its block stays valid.
    is_early = added < FURTHER_ROOMS * request.most_history
    is_cheap = request.block is not None and request.rules.binds_reasoning
    if request.summary and is_early and not is_cheap:
        return None
    digest = request.history.checksums[stop]
    pending = Pending(
        key="", start=start, stop=stop, digest=digest, since=0.0, max_tokens=size
    )
    return pending, need.reason


def _without(request: Request, stop: int) -> Request:
    """The request without everything before `stop`, which a summary is to cover that is not written yet."""
    return request.shown_as(replace(cut(request, stop), covered=stop, block=None), "")


# ---- what a summary is written from ---------------------------------------------------------------------------------


def shown_part(request: Request, start: int, stop: int) -> list[AnyMessage]:
    """Return the messages in `[start, stop)`: in the form of the view, or as they are where they have left it."""
    shown = (step for step in request.steps if start <= step.index < stop)
    return [
        *request.history.messages[start : min(stop, request.start)],
        *(message for step in shown for message in step.messages),
    ]


def request_until(request: Request, stop: int) -> Request | None:
    """Return the request as it was sent, up to `stop`: what a model or a provider is asked to sum up.

    None where the messages have left the request, or it does not fit.
    """
    steps = Steps(step for step in request.steps if step.index < stop)
    until = replace(request, steps=steps, last_report=None)
    return until if steps and until.fits else None
