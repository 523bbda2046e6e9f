"""Plans for a priced request: what leaves it and when, and from what a summary is written.

    summary_due, relieve (soft)  |  emergency (hard):  Request -> Compaction | None
    prepare:  Request -> (Pending, reason) | None

What leaves is decided by one loop over tiers, functions from a request to a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.clamping import (
    clamped_to_fit,
    with_clamped_pins,
    with_lasting_question,
)
from langchain_ctxwin.core.compaction import (
    MIN_PROGRESS,
    RECORDED_SHARE,
    Compaction,
    cut,
    recorded,
    step_cuts,
    turn_cuts,
)
from langchain_ctxwin.core.fitting import first_enough
from langchain_ctxwin.core.limits import refusal
from langchain_ctxwin.core.pairing import call_ids, calls_of, is_result, result_ids
from langchain_ctxwin.core.parts import swaps_prefix
from langchain_ctxwin.core.request import LEAST_MESSAGES, Request, portion
from langchain_ctxwin.core.session import (
    Pending,
    uncovered,
)
from langchain_ctxwin.core.turns import VisibleSteps, starts_turn
from langchain_ctxwin.core.view import View, message_id, position_of

# Default size of a summary: a share of the room for history, dense, yet far less than what it replaces; at least a
# paragraph, at most two pages.
SUMMARY_SHARE, LEAST_SUMMARY_TOKENS, MOST_SUMMARY_TOKENS = 0.2, 64, 2000
LEAST_KEPT = 0.1  # share of the room that a snapshot leaves untouched: a giant result may follow at once
# Rooms of history that a further summary has to cover: each is read, written and breaks the prompt cache once, and the
# record tells of what left meanwhile. Measured in an arena of ten scenarios: a sixth of all cost, at equal facts.
FURTHER_ROOMS = 3.0
MIN_LEFT_OUT_RATIO = 2.0  # a summary of what left without one has to replace at least this many times its own size
MIN_CLEAR_TOKENS = 75  # smallest result that is cleared: three times its stub
ASKED_BY_HOST = "asked by the host"

Tier = Callable[[Request], Request]

# ---- what leaves, tier by tier --------------------------------------------------------------------------------------


def smaller(before: Request) -> Request:
    """Return the request with what has to leave taken out; the same one where nothing can.

    A question that filled the window is shortened first, then a finished summary is shown. The result may still not
    fit: when the fixed regions alone exceed the limit nothing can help.
    """
    summary = ready(before)
    request = with_lasting_question(before)
    if summary and not request.is_low:
        request = with_summary(request, summary)
    for tier in TIERS:
        if request.is_low or _stays_valid(request):
            break
        candidate = tier(request)
        request = (
            candidate if candidate.total_tokens < request.total_tokens else request
        )
    request = recorded(with_clamped_pins(request), before, is_first=True)
    if not request.fits:
        beside = replace(
            clamped_to_fit(request), limit=int(RECORDED_SHARE * request.limit)
        )
        request = replace(recorded(beside, before, is_cut=True), limit=before.limit)
    return request


def _stays_valid(request: Request) -> bool:
    """True where nothing else should leave, because reasoning is kept behind the block of its provider.

    Of what the next block is prepared for, so that it is not due at once.
    """
    most = portion(request.parts.settings.prepare, request.room)
    is_small = request.fits and request.history_tokens <= most
    return is_small and swaps_prefix(request.parts, request.session, request.view)


def with_summary(request: Request, summary: Pending) -> Request:
    """Show a finished summary in the place of what it covers; the start never moves back."""
    moved = cut(request, summary.stop) if summary.stop > request.start else request.view
    covered = position_of(request.parts.messages, summary.stop - 1)
    view = replace(moved, covered=covered, block=summary.block)
    return request.shown_as(view, summary.text)


def clear_results(request: Request) -> Request:
    """Clear the oldest results of the tools that are named for it, never the newest step, as many as are needed."""
    parts, messages = request.parts, request.parts.messages
    names, keys = {*parts.settings.clear_tools}, list[str]()
    called = dict[str, str | None]()  # by id, which a later call may bear again
    for index in range(request.start, request.newest_index) if names else ():
        message = messages[index]
        called |= {call["id"] or "": call["name"] for call in calls_of(message)}
        tools = {message.name or called.get(key) for key in result_ids(message)}
        is_named = is_result(message) and not names.isdisjoint(tools)
        is_large = is_named and parts.price(message) >= MIN_CLEAR_TOKENS
        if is_large and index not in parts.pins:
            keys.append(message_id(messages, index))

    def cleared(number: int) -> Request:
        view = request.view
        return request.shown_as(
            replace(view, cleared=view.cleared.union(keys[:number]))
        )

    return _least(request, range(1, len(keys) + 1), cleared)


def cut_turns(request: Request) -> Request:
    """Drop the oldest turns; the current one stays."""
    return _cut_first(request, turn_cuts(request))


def cut_steps(request: Request) -> Request:
    """Drop the oldest steps of the current turn; its user message is pinned and its newest step stays."""
    return _cut_first(request, step_cuts(request))


TIERS: tuple[Tier, ...] = (clear_results, cut_turns, cut_steps)


def _cut_first(request: Request, cuts: Sequence[int]) -> Request:
    return _least(request, cuts, lambda start: request.shown_as(cut(request, start)))


def _least(
    request: Request, cuts: Sequence[int], after: Callable[[int], Request]
) -> Request:
    """The request after the first of the cuts with which it is at its low-water mark."""
    if not cuts:
        return request
    return after(first_enough(cuts, lambda value: after(value).is_low))


# ---- what is due ----------------------------------------------------------------------------------------------------


def emergency(request: Request, target_tokens: int | None = None) -> Compaction | None:
    """Return the compaction with which the request fits, or raise `BudgetExceededError`."""
    limit = request.input_limit if target_tokens is None else target_tokens
    before = replace(request, limit=limit)
    need = before.need()
    if need is None or need.level != "hard":
        return None
    compaction = _compaction(before, need.reason)
    after = compaction.after if compaction else before.shown_as(before.view)
    # After a refusal by the provider a smaller request is worth a try, whatever we believe of its size.
    if target_tokens is None and after.lower_tokens > limit:
        raise refusal(after.report)
    return compaction


def relieve(request: Request) -> Compaction | None:
    """Return what should leave, or be shown, although the request fits."""
    need, summary = request.need(), ready(request)
    if need is not None:
        return None if need.level == "hard" else _worthwhile(request, need.reason)
    if summary is None or summary.stop > request.start:
        return None
    after = recorded(with_summary(request, summary), request)
    reason = "the summary of messages that had left is ready"
    return (
        Compaction(kind="force", reason=reason, before=request, after=after)
        if after.fits
        else None
    )


def summary_due(request: Request, *, is_local: bool) -> Compaction | None:
    """Return the summary that is due now; where no model writes summaries, what should leave in its place."""
    need = request.need("" if is_local else "inline")
    if need is None or not request.may_summarize:
        return None
    planned = _worthwhile if is_local else _summary
    return planned(request, need.reason)


def compaction_on_request(request: Request, *, is_local: bool) -> Compaction | None:
    """Return the compaction that the host asks for, although the request may fit: a summary where one is due."""
    may_write = not is_local and request.parts.settings.summarize != "off"
    summary = _summary(request, ASKED_BY_HOST) if may_write and request.fits else None
    return summary or _worthwhile(request, ASKED_BY_HOST)


def _worthwhile(request: Request, reason: str) -> Compaction | None:
    compaction = _compaction(request, reason)
    if compaction is None or not _pays(request, compaction.tokens_after):
        return None
    return compaction


def _compaction(before: Request, reason: str) -> Compaction | None:
    after = smaller(before)
    if after.view == before.view and after.summary == before.summary:
        return None
    return Compaction(kind="force", reason=reason, before=before, after=after)


def ready(request: Request) -> Pending | None:
    """Return the finished summary that can be shown, if there is one and its messages are unchanged."""
    pending = request.session.pending
    if pending and pending.is_written and pending.matches(request.parts.history):
        return pending
    return None


# ---- summaries ------------------------------------------------------------------------------------------------------


def _summary(request: Request, reason: str) -> Compaction | None:
    """The summary that is due; None when it would not pay for itself."""
    parts = request.parts
    summary_tokens = summary_size(request)
    start = _summary_stop(request, summary_tokens)
    if start is None:
        return None
    covered = position_of(parts.messages, start - 1)
    view = replace(cut(request, start), covered=covered, block=None)
    after = request.shown_as(view, "")
    after = recorded(after, request, summary_tokens=summary_tokens)
    if not _pays(request, after.total_tokens + summary_tokens):
        return None
    return Compaction(
        kind="summarize",
        reason=reason,
        before=request,
        after=after,
        snapshot=(uncovered(request.view, parts.first), start),
        summary_max_tokens=summary_tokens,
    )


def _summary_stop(
    request: Request, summary_tokens: int, *, is_ahead: bool = False
) -> int | None:
    """Position up to which a summary has to cover messages, so that the request with it is at its low-water mark.

    One that is prepared ahead is shown once the request has grown to its ceiling, so it covers that growth, too.
    """
    messages = len(request.parts.messages)
    most_messages = request.parts.settings.trigger_messages
    most_kept = messages if most_messages is None else request.kept_messages
    target = request.low_water
    if is_ahead:
        growth = request.fixed_tokens + request.most_history - request.total_tokens
        least = request.fixed_tokens + int(LEAST_KEPT * request.room)
        target = max(least, target - max(0, growth))
    if is_ahead and most_messages is not None:
        most_kept = max(
            LEAST_MESSAGES, most_kept - most_messages + request.shown_messages
        )

    def is_enough(stop: int) -> bool:
        after = _without(request, stop)
        fits = after.upper_tokens + summary_tokens <= after.limit
        return fits and messages - stop <= most_kept and after.total_tokens <= target

    cuts = [*turn_cuts(request), *step_cuts(request)]
    return first_enough(cuts, is_enough) if cuts else None


def prepare(
    request: Request, *, is_on_demand: bool = False
) -> tuple[Pending, str] | None:
    """Return a summary to begin ahead of need, without a key yet, and why it is due.

    None while one is on its way or would not pay for itself. One that the provider makes on demand is begun late: what
    is said meanwhile stays behind it.
    """
    if request.session.pending or not request.may_summarize:
        return None
    parts, need = (
        request.parts,
        request.need("provider" if is_on_demand else "background"),
    )
    max_tokens, start = summary_size(request), uncovered(request.view, parts.first)
    steps = parts.history.steps_from(start)
    left_out = sum(step.tokens for step in steps if step.index < request.start)
    is_late = left_out >= MIN_LEFT_OUT_RATIO * max_tokens
    stop = None
    if need:
        stop, reason = _summary_stop(request, max_tokens, is_ahead=True), need.reason
    elif is_late:
        stop = request.start
        reason = f"{request.start - start:,} messages left without a summary"
    if stop is None or stop <= start:
        return None
    added = left_out + sum(step.tokens for step in request.steps if step.index < stop)
    # What Anthropic compacts it reads from its cache, and reasoning behind its block stays valid.
    is_early = added < FURTHER_ROOMS * request.most_history
    is_cheap = request.block is not None and parts.rules.binds_reasoning
    if request.summary and is_early and not is_cheap:
        return None
    after_tokens = _without(request, stop).total_tokens + max_tokens
    if not is_late and not _pays(request, after_tokens):
        return None
    pending = Pending(
        key="",
        start=position_of(parts.messages, start),
        through=position_of(parts.messages, stop - 1),
        digest=parts.history.digest(start, stop),
        since_seconds=0.0,
        max_tokens=max_tokens,
    )
    return pending, reason


def _without(request: Request, stop: int) -> Request:
    """The request without everything before `stop`, and without any summary."""
    return request.shown_as(replace(cut(request, stop), block=None), "")


def summary_size(request: Request) -> int:
    """The length of a summary in tokens: as configured, else by the room of the history."""
    share = int(SUMMARY_SHARE * request.room)
    return request.parts.settings.summary_max_tokens or max(
        LEAST_SUMMARY_TOKENS, min(MOST_SUMMARY_TOKENS, share)
    )


def _pays(request: Request, tokens_after: int) -> bool:
    """True for what frees a tenth; a bound by number of messages is the user's own, and no price is weighed there."""
    freed = request.total_tokens - tokens_after
    is_by_number = request.parts.settings.trigger_messages is not None
    return is_by_number or freed >= MIN_PROGRESS * request.total_tokens


# ---- what a summary is written from ---------------------------------------------------------------------------------

QUESTION_TOKENS = 640
"""Room for the message that asks for a summary: its instructions, and words of the message up to which it reaches."""


def shown_part(request: Request, start: int, stop: int) -> list[AnyMessage]:
    """Return the messages in `[start, stop)`: in the form of the view, or as they are where they have left it."""
    left_messages = request.parts.messages[start : min(stop, request.start)]
    visible_steps = (
        step.messages for step in request.steps if start <= step.index < stop
    )
    return [
        *left_messages,
        *(message for messages in visible_steps for message in messages),
    ]


def request_until(request: Request, start: int, stop: int) -> Request:
    """Return the request as it was sent, up to `stop`: what a provider is asked to compact.

    Where the messages in `[start, stop)` have left it, or it would not fit, they are a request of their own, behind the
    summary before: as many of the newest turns as fit. What precedes them is in the record.
    """
    whole = _until(request, stop)
    if stop > request.start and whole.fits:
        return whole
    messages, before = request.parts.messages, request.view

    def since(begin: int) -> Request:
        view = View(
            start=position_of(messages, begin),
            covered=before.covered,
            block=before.block,
        )
        return _until(request.shown_as(view, request.summary), stop)

    steps = request.parts.history.steps_from(start)
    turns = (s.index for s in steps if start < s.index < stop and starts_turn(s))
    return since(first_enough([start, *turns], lambda begin: since(begin).fits))


def _until(request: Request, stop: int) -> Request:
    steps = VisibleSteps(step for step in request.steps if step.index < stop)
    return replace(request, steps=steps, last_report=None)


def last_request(request: Request, start: int, stop: int) -> list[AnyMessage] | None:
    """Return the request that a summary of the messages in `[start, stop)` can be asked after, as it was sent.

    It is the last one, with its final answer; it holds more where `stop` asks for it, and ends earlier where the
    question would not fit. None when no request was sent since the view changed, a message has left it, or there is no
    room for the question.
    """
    compacted_at = request.session.since.index if request.session.since else -1
    answers = [
        s
        for s in request.steps
        if s.index > compacted_at
        and s.messages
        and isinstance(s.messages[0], AIMessage)
    ]
    if not answers or start < request.start:
        return None
    newest = answers[-1]
    end = max(stop, newest.index if call_ids(newest.messages[0]) else newest.stop)
    steps = list(request.steps)
    room_tokens = request.input_limit - request.upper_tokens
    while steps[-1].index >= end or (
        steps[-1].index >= stop and room_tokens < QUESTION_TOKENS
    ):
        room_tokens += steps.pop().tokens
    if room_tokens < QUESTION_TOKENS:
        return None
    return replace(request, steps=VisibleSteps(steps)).assembled()
