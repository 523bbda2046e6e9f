"""Plans for a priced request: what leaves it and when, and from what a summary is written.

    summary_due, relieve (soft)  |  emergency (hard):  Request -> Compaction | None
    prepare:  Request -> (Pending, reason) | None

What leaves is decided by one loop over tiers, functions from a request to a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from langchain_ctxwin.core.model_info import CACHE_SECONDS
from langchain_ctxwin.core.pairing import call_ids, calls_of, is_result, result_ids
from langchain_ctxwin.core.parts import swaps_prefix
from langchain_ctxwin.core.request import LEAST_MESSAGES, Request, portion
from langchain_ctxwin.core.session import (
    Pending,
    content_digest,
    uncovered,
)
from langchain_ctxwin.core.turns import VisibleSteps, starts_turn
from langchain_ctxwin.core.view import View, message_id, position_of

# Default size of a summary: a share of the room for history, dense, yet far less than what it replaces; at least a
# paragraph, at most two pages.
SUMMARY_SHARE, LEAST_SUMMARY_TOKENS, MOST_SUMMARY_TOKENS = 0.2, 64, 2000
WRITTEN_SHARE = 0.95  # of the room: where an inline summary is written unless told; what follows it has to fit, too
WAITING_SHARE = 1.25  # how far a history may grow past its own bounds while an inline summary would not pay yet
LEAST_KEPT = 0.1  # share of the room that a snapshot leaves untouched: a giant result may follow at once
# Rooms of history that a further summary has to cover: each is read, written and breaks the prompt cache once, and the
# record tells of what left meanwhile. Measured in an arena of ten scenarios: a sixth of all cost, at equal facts.
FURTHER_ROOMS = 3.0
PREPARED_SHARE = (
    0.8  # of the trigger: the latest that a summary is begun in the background
)
ON_DEMAND_SHARE = 0.9
"""Of the room: where a provider's own block is begun, which is written within one answer. Of one begun at 0.6 the half
of a window stays behind it, and all requests were billed a quarter more."""
MIN_LEFT_OUT_RATIO = 2.0  # a summary of what left without one has to replace at least this many times its own size
MIN_CLEAR_TOKENS = 75  # smallest result that is cleared: three times its stub
ASKED_BY_HOST = "asked by the host"
IDLE = "compact_when_idle: the prompt cache is cold, and a compaction is near"

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


# ---- hard: the request does not fit ---------------------------------------------------------------------------------


def emergency(request: Request, target_tokens: int | None = None) -> Compaction | None:
    """Return the compaction with which the request fits, or raise `BudgetExceededError`."""
    limit = request.input_limit if target_tokens is None else target_tokens
    before = replace(request, limit=limit)
    if before.fits:
        return None
    reason = f"a request of up to {before.upper_tokens:,} tokens exceeds {limit:,}"
    compaction = _compaction(before, reason, is_strict=target_tokens is not None)
    after = compaction.after if compaction else before.shown_as(before.view)
    # After a refusal by the provider a smaller request is worth a try, whatever we believe of its size.
    if target_tokens is None and after.lower_tokens > limit:
        raise refusal(after.report)
    return compaction


def _compaction(
    before: Request, reason: str, *, is_strict: bool = False
) -> Compaction | None:
    after = replace(smaller(replace(before, is_strict=is_strict)), is_strict=False)
    if after.view == before.view and after.summary == before.summary:
        return None
    return Compaction(kind="force", reason=reason, before=before, after=after)


# ---- soft: the request fits, and something is due -------------------------------------------------------------------


def relieve(request: Request) -> Compaction | None:
    """Return what should leave, or be shown, although the request fits."""
    if request.over_by:
        return None

    if (
        is_idle(request)
        and (early := _compaction(request, IDLE))
        and _pays(request, early.tokens_after)
    ):
        return early
    if (bound := past_bound(request)) and not _is_awaited(request):
        return _compaction(request, bound)
    summary = ready(request)
    if summary is None or summary.stop > request.start:
        return None
    after = recorded(with_summary(request, summary), request)
    reason = "the summary of messages that had left is ready"
    return (
        Compaction(kind="force", reason=reason, before=request, after=after)
        if after.fits
        else None
    )


def is_idle(request: Request) -> bool:
    """True when the prompt cache of a conversation has gone cold, and its next compaction is near.

    Then the next request is read at the full price in any case, and a smaller one costs less. Near is the size at which
    a summary is prepared.
    """
    now, settings = request.parts.now_seconds, request.parts.settings
    answered = request.session.counts.get("answered_seconds")
    if (
        now is None
        or answered is None
        or request.history_tokens <= portion(settings.prepare, request.room)
    ):
        return False
    rules = request.parts.rules
    is_short = settings.prompt_cache == "5m"
    kept_seconds = rules.marked_seconds if is_short else CACHE_SECONDS
    return bool(now - answered > kept_seconds)


def compaction_on_request(request: Request, *, is_local: bool) -> Compaction | None:
    """Return the compaction that the host asks for, although the request may fit: a summary where one is due."""
    may_summarize = (
        not is_local
        and request.parts.settings.summarize != "off"
        and not request.over_by
    )
    summary = (
        _summary(request, ASKED_BY_HOST, is_strict=True) if may_summarize else None
    )
    compaction = summary or _compaction(request, ASKED_BY_HOST, is_strict=True)
    is_worth = compaction is not None and (
        request.over_by or _pays(request, compaction.tokens_after)
    )
    return compaction if is_worth else None


def past_bound(request: Request) -> str:
    """Return which bound of its own the history exceeds, in words; empty when none."""
    settings = request.parts.settings
    has_bound = (settings.trigger, settings.max_history_tokens) != (None, None)
    most_tokens = request.most_history if has_bound else request.history_tokens
    return _overdue(request, most_tokens, settings.trigger_messages)


def _is_awaited(request: Request) -> bool:
    """True while the history may exceed a bound of its own because an inline summary is written once it pays."""
    most = request.parts.settings.trigger_messages
    return (
        request.parts.settings.summarize == "inline"
        and _may_summarize(request)
        and request.history_tokens <= WAITING_SHARE * request.most_history
        and (most is None or request.shown_messages <= WAITING_SHARE * most)
    )


def ready(request: Request) -> Pending | None:
    """Return the finished summary that can be shown, if there is one and its messages are unchanged."""
    pending = request.session.pending
    return (
        pending
        if pending and pending.is_written and pending.matches(request.parts.messages)
        else None
    )


# ---- summaries ------------------------------------------------------------------------------------------------------


def summary_due(request: Request, *, is_local: bool) -> Compaction | None:
    """Return the summary that is due now; where no model writes summaries, what should leave in its place."""
    settings = request.parts.settings
    most_tokens = request.most_history
    if settings.trigger is None and not is_local:
        most_tokens = int(WRITTEN_SHARE * most_tokens)
    reason = _overdue(request, most_tokens, settings.trigger_messages)
    if not reason or not _may_summarize(request):
        return None
    if not is_local:
        return _summary(request, reason)
    # the record tells of it, so nothing is waited for
    compaction = _compaction(request, reason)
    if compaction is None or _has_too_many(request, settings.trigger_messages):
        return compaction
    return compaction if _pays(request, compaction.tokens_after) else None


def _summary(
    request: Request, reason: str, *, is_strict: bool = False
) -> Compaction | None:
    """The summary that is due; None when it would not pay for itself."""
    parts = request.parts
    summary_tokens = summary_size(request)
    start = _summary_stop(replace(request, is_strict=is_strict), summary_tokens)
    if start is None:
        return None
    covered = position_of(parts.messages, start - 1)
    view = replace(cut(request, start), covered=covered, block=None)
    after = request.shown_as(view, "")
    after = recorded(after, request, summary_tokens=summary_tokens)
    # A bound by number of messages is the user's own: there the price is not ours to weigh.
    if parts.settings.trigger_messages is None and not _pays(
        request, after.total_tokens + summary_tokens
    ):
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
    if request.session.pending or not _may_summarize(request):
        return None
    parts, settings = request.parts, request.parts.settings
    max_tokens, start = summary_size(request), uncovered(request.view, parts.first)
    # Begun below what a compaction keeps, one summary would follow the other for ever.
    share = settings.prepare
    if share <= 1:
        others = settings.keep, ON_DEMAND_SHARE if is_on_demand else 0
        share = max(share, *(one for one in others if one <= 1))
    most = settings.trigger_messages
    most = None if most is None else int(min(share, 1.0) * most)
    latest = request.room
    if settings.trigger is not None:
        latest = int(PREPARED_SHARE * request.most_history)
    reason = _overdue(request, min(portion(share, request.room), latest), most)
    steps = parts.history.steps_from(start)
    left_out = sum(step.tokens for step in steps if step.index < request.start)
    is_late = left_out >= MIN_LEFT_OUT_RATIO * max_tokens
    stop = None
    if reason:
        stop = _summary_stop(request, max_tokens, is_ahead=True)
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
    # A bound by number of messages is the user's own: there the price is not ours to weigh.
    if not is_late and not _has_too_many(request, most):
        after = _without(request, stop)
        if not _pays(request, after.total_tokens + max_tokens):
            return None
    pending = Pending(
        key="",
        start=position_of(parts.messages, start),
        through=position_of(parts.messages, stop - 1),
        digest=content_digest(parts.messages, start, stop),
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


def _may_summarize(request: Request) -> bool:
    return request.parts.settings.summarize != "off" and not request.stopped


def _overdue(request: Request, most_tokens: int, messages: int | None) -> str:
    """Why a summary is due, by the size of the history and the number of its messages; empty when it is not.

    It names the setting that says so, else the share of the room that was left.
    """
    settings, room = request.parts.settings, request.room
    if request.history_tokens > most_tokens:
        share = round(100 * most_tokens / room) if room else 0
        bound = f"{share} % of the {room:,} tokens left for history"
        if room == settings.max_history_tokens:
            bound = f"{share} % of max_history_tokens={room:,}"
        if settings.trigger is not None and most_tokens == request.most_history:
            bound = f"trigger={settings.trigger:g} ({most_tokens:,} tokens)"
        return f"history of {request.history_tokens:,} tokens is past {bound}"
    if not _has_too_many(request, messages):
        return ""
    part = "" if messages == settings.trigger_messages else f"{messages:,} of "
    return f"{request.shown_messages:,} messages are past {part}trigger_messages={settings.trigger_messages:,}"


def _has_too_many(request: Request, messages: int | None) -> bool:
    return messages is not None and request.shown_messages > messages


def _pays(request: Request, tokens_after: int) -> bool:
    return request.total_tokens - tokens_after >= MIN_PROGRESS * request.total_tokens


# ---- what a summary is written from ---------------------------------------------------------------------------------

QUESTION_TOKENS = 640
"""Room for the message that asks for a summary: its instructions, and words of the message up to which it reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRequest:
    """A request whose prefix the provider has in its cache."""

    messages: tuple[AnyMessage, ...]  # as they were sent, the system message included
    room_tokens: int  # how much longer it may become


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


def last_request(request: Request, start: int, stop: int) -> LastRequest | None:
    """Return the request that a summary of the messages in `[start, stop)` can be asked after.

    It is the last one that was sent, with its final answer; it holds more where `stop` asks for it, and ends earlier
    where the question would not fit. None when no request was sent since the view changed, or a message has left it.
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
    messages = tuple(replace(request, steps=VisibleSteps(steps)).assembled())
    return LastRequest(messages=messages, room_tokens=room_tokens)
