"""Plans for a measured request: when old turns are summarized or dropped, and from what a summary is written.

due, relieve (soft)  |  emergency (hard):  Window -> Compaction | None;  prepare:  Window -> Snapshot | None
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.core.blocks import text_of
from langchain_ctxwin.core.calls import call_ids, calls_of, is_result, is_user, result_ids
from langchain_ctxwin.core.compaction import (
    LEAST_MESSAGES,
    MIN_PROGRESS,
    WRITTEN_SHARE,
    Compaction,
    Goal,
    clamp_lasting,
    clamp_pins,
    clamp_until_fits,
    cut,
    first_enough,
    left_behind,
    portion,
    shown_messages,
    step_cuts,
    turn_cuts,
    with_record,
    with_shorter_account,
)
from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.limits import refusal
from langchain_ctxwin.core.notes import is_asked
from langchain_ctxwin.core.priced_view import PricedView, RequestParts
from langchain_ctxwin.core.session import MAX_INEFFECTIVE, Pending, content_digest, uncovered
from langchain_ctxwin.core.turns import Shown
from langchain_ctxwin.core.updates import ready
from langchain_ctxwin.core.view import View, message_id, position_of
from langchain_ctxwin.core.window import Window, make_report
from langchain_ctxwin.errors import BudgetExceededError

# Default size of a summary: a share of the room for history, dense, yet far less than what it replaces; at least a
# paragraph, at most two pages.
SUMMARY_SHARE, LEAST_SUMMARY_TOKENS, MOST_SUMMARY_TOKENS = 0.2, 64, 2000
WAITING_SHARE = 1.25  # how far a history may grow past its own bounds while a summary is awaited, as a share of them
LEAST_KEPT = 0.1  # share of the room that a snapshot leaves untouched: a giant result may follow at once
# Rooms of history that a further summary has to cover: each is read, written and breaks the prompt cache once, and the
# record tells of what left meanwhile. Measured in an arena of ten scenarios: a sixth of all cost, at equal facts.
FURTHER_ROOMS = 3.0
PREPARED_SHARE = 0.8  # of the trigger: the latest that a summary is begun in the background
MIN_LEFT_OUT_RATIO = 2.0  # a summary of what left without one has to replace at least this many times its own size
MIN_CLEAR_TOKENS = 50  # smallest saving for which a tool result is cleared: about twice its stub
EXCERPT_CHARS = 40  # part of a text that says which one is meant: half a line
ASKED = "the agent asked to compact"


# ---- soft: a summary, before the request is at its limit ------------------------------------------------------------


def due(window: Window, *, is_local: bool) -> Compaction | None:
    """Return the summary that is due now; where no model writes summaries, what should leave in its place."""
    goal, priced_view = window.goal, window.priced_view
    most_tokens = goal.most_history(priced_view)
    if goal.trigger is None and not is_local:
        most_tokens = int(WRITTEN_SHARE * most_tokens)
    reason = _overdue(window, most_tokens, goal.max_messages) if _may_summarize(window) else ""
    if not reason or not is_local:
        return _summary(window, reason) if reason else None
    compaction = reduction(window, goal, reason=reason)  # the record tells of it, so nothing is waited for
    if compaction is None or _has_too_many(priced_view, goal.max_messages):
        return compaction
    freed = priced_view.total_tokens - compaction.tokens_after
    return compaction if freed >= MIN_PROGRESS * priced_view.total_tokens else None


def _summary(window: Window, reason: str) -> Compaction | None:
    """The summary that is due; None when it would not pay for itself."""
    request, priced_view, goal = window.request, window.priced_view, window.goal
    summary_tokens, cuts = summary_size(window), [*turn_cuts(priced_view), *step_cuts(request, priced_view)]

    def summarized(start: int) -> PricedView:
        view = cut(request, priced_view, start, goal)
        return request.priced_view(replace(view, covered=position_of(request.messages, start - 1)), "")

    def is_enough(start: int) -> bool:
        after = summarized(start)
        fits = after.upper_tokens + summary_tokens <= goal.limit
        few = goal.max_messages is None or len(request.messages) - start <= goal.kept_messages
        return fits and few and after.total_tokens <= goal.low_water(after)

    if not cuts:
        return None
    start = first_enough(priced_view, goal, cuts, is_enough)
    after = with_record(request, priced_view, summarized(start), goal, summary_tokens=summary_tokens)
    begin, tokens_after = uncovered(priced_view.view, request.first), after.total_tokens + summary_tokens
    pays = priced_view.total_tokens - tokens_after >= MIN_PROGRESS * priced_view.total_tokens
    if not pays and (goal.max_messages is None or not is_enough(start)):
        return None
    return Compaction(
        kind="summarize",
        reason=reason,
        view=replace(after.view, covered_tokens=after.view.record.tokens),
        actions=(f"messages summarized: {start - begin:,}",),
        tokens_before=priced_view.total_tokens,
        tokens_after=tokens_after,
        upper_after=after.upper_tokens + summary_tokens,
        snapshot=(begin, start),
        summary_max_tokens=summary_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a background summary is to cover."""

    start: int
    stop: int  # excluded
    digest: str
    max_tokens: int  # length of the summary
    reason: str


def prepare(window: Window) -> Snapshot | None:
    """Return what to summarize ahead of need; None while one is on its way, and when it would not pay for itself.

    The snapshot reaches so far that the request is at its low-water mark when the summary is shown, at the limit.
    """
    if window.session.pending or not _may_summarize(window):
        return None
    request, priced_view, goal = window.request, window.priced_view, window.goal
    max_tokens, start = summary_size(window), uncovered(priced_view.view, request.first)
    # Begun below what a compaction keeps, one summary would follow the other for ever.
    share = max(goal.prepare, goal.keep) if max(goal.prepare, goal.keep) <= 1 else goal.prepare
    most = None if goal.max_messages is None else int(min(share, 1.0) * goal.max_messages)
    latest = goal.room(priced_view) if goal.trigger is None else int(PREPARED_SHARE * goal.most_history(priced_view))
    most_tokens = min(portion(share, goal.room(priced_view)), latest)
    reason, stop, left_out = _overdue(window, most_tokens, most), None, priced_view.view.uncovered_tokens
    if reason:
        stop = _snapshot_stop(request, priced_view, goal)
    elif left_out >= MIN_LEFT_OUT_RATIO * max_tokens:
        stop, reason = priced_view.start, f"{priced_view.start - start:,} messages left without a summary"
    if stop is None or stop <= start:
        return None
    added = left_out + sum(step.tokens for step in priced_view.steps if step.index < stop)
    if priced_view.summary and added < FURTHER_ROOMS * goal.most_history(priced_view):
        return None
    # A bound by number of messages is the user's own: there the price is not ours to weigh.
    if not _has_too_many(priced_view, most) and left_out < MIN_LEFT_OUT_RATIO * max_tokens:
        after = _without(request, priced_view, goal, stop) if stop > priced_view.start else priced_view
        if priced_view.total_tokens - after.total_tokens - max_tokens < MIN_PROGRESS * priced_view.total_tokens:
            return None
    digest = content_digest(request.messages, start, stop)
    return Snapshot(start=start, stop=stop, digest=digest, max_tokens=max_tokens, reason=reason)


def _snapshot_stop(request: RequestParts, priced_view: PricedView, goal: Goal) -> int | None:
    cuts = [*turn_cuts(priced_view), *step_cuts(request, priced_view)]
    growth = max(0, goal.ceiling(priced_view) - priced_view.total_tokens)
    least = priced_view.fixed_tokens + int(LEAST_KEPT * goal.room(priced_view))
    target = max(least, goal.low_water(priced_view) - growth)
    most = len(request.messages)
    if goal.max_messages is not None:
        to_come = goal.max_messages - shown_messages(priced_view)
        most = max(LEAST_MESSAGES, goal.kept_messages - to_come)

    def is_enough(stop: int) -> bool:
        is_few = len(request.messages) - stop <= most
        return is_few and _without(request, priced_view, goal, stop).total_tokens <= target

    return first_enough(priced_view, goal, cuts, is_enough) if cuts else None


def _without(request: RequestParts, priced_view: PricedView, goal: Goal, stop: int) -> PricedView:
    """The request without everything before `stop`, and without any summary."""
    return request.priced_view(cut(request, priced_view, stop, goal), "")


def relieve(window: Window) -> Compaction | None:
    """Return what should leave, or be shown, although the request fits."""
    if window.over_by:
        return None
    request, priced_view, pending = window.request, window.priced_view, window.session.pending
    if is_asked(request.messages, window.session.since):
        goal = replace(window.goal, whole_turn_share=0.0)  # a phase of the turn is done
        return reduction(window, goal, reason=ASKED, summary=ready(window))
    bound, tells_more = past_bound(window), pending is not None and _shows_more(priced_view, pending)
    if not bound and not tells_more:
        return None
    summary = ready(window)
    if bound and (summary or not _is_coming(window)):
        return reduction(window, window.goal, reason=bound, summary=summary)
    if summary is None or not tells_more:
        return None
    after = _swapped_in(request, priced_view, priced_view, window.goal, summary)
    reason = "the summary of messages that had left is ready"
    return _compaction_of(request, priced_view, after, reason=reason) if window.goal.settles(after) else None


def past_bound(window: Window) -> str:
    """Return which bound of its own the history exceeds, in words; empty when none."""
    tokens, shown = window.priced_view.size.regions.history_tokens, shown_messages(window.priced_view)
    goal, most = window.goal, window.goal.max_messages
    if goal.max_history_tokens is not None and tokens > goal.max_history_tokens:
        return f"history of {tokens:,} tokens is past max_history_tokens={goal.max_history_tokens:,}"
    if goal.trigger is not None and tokens > goal.most_history(window.priced_view):
        return f"history of {tokens:,} tokens is past trigger={goal.trigger:,}"
    return f"{shown:,} messages are past trigger_messages={most:,}" if most is not None and shown > most else ""


def summary_size(window: Window) -> int:
    """The length of a summary in tokens: as configured, else by the room of the history."""
    share = int(SUMMARY_SHARE * window.goal.room(window.priced_view))
    return window.goal.summary_max_tokens or max(LEAST_SUMMARY_TOKENS, min(MOST_SUMMARY_TOKENS, share))


def _may_summarize(window: Window) -> bool:
    if window.goal.summarize == "off" or window.goal.has_no_room(window.priced_view):
        return False
    return not window.session.has_given_up(window.request.messages)


def _overdue(window: Window, most_tokens: int, messages: int | None) -> str:
    """Why a summary is due, by the size of the history and the number of its messages; empty when it is not."""
    priced_view = window.priced_view
    history_tokens = priced_view.size.regions.history_tokens
    if history_tokens > most_tokens:
        return f"history of {history_tokens:,} tokens is past the trigger of {most_tokens:,}"
    if _has_too_many(priced_view, messages):
        return f"{shown_messages(priced_view):,} messages are past the trigger of {messages:,}"
    return ""


def _has_too_many(priced_view: PricedView, messages: int | None) -> bool:
    return messages is not None and shown_messages(priced_view) > messages


def _is_coming(window: Window) -> bool:
    """True while a summary may be waited for although the history is past a bound of its own."""
    if not _may_summarize(window) or window.session.failed_summaries >= MAX_INEFFECTIVE:
        return False
    goal = window.goal
    if goal.summarize == "background" and window.session.pending is None and prepare(window) is None:
        return False
    tokens, shown = window.priced_view.size.regions.history_tokens, shown_messages(window.priced_view)
    most_tokens = goal.max_history_tokens if goal.trigger is None else goal.most_history(window.priced_view)
    bounds = ((most_tokens, tokens), (goal.max_messages, shown))
    return all(most is None or size <= WAITING_SHARE * most for most, size in bounds)


# ---- hard: what leaves without a model, rung by rung ----------------------------------------------------------------


def emergency(window: Window, target_tokens: int | None = None) -> Compaction | None:
    """Return what has to leave so that the request fits, or raise `BudgetExceededError`."""
    limit = window.budget.input_limit if target_tokens is None else target_tokens
    if window.priced_view.upper_tokens <= limit:
        return None
    reason = f"a request of up to {window.priced_view.upper_tokens:,} tokens exceeds {limit:,}"
    compaction = reduction(window, replace(window.goal, limit=limit), reason=reason, summary=ready(window))
    view, request = compaction.view if compaction else window.session.view, window.request
    after = request.priced_view(view, summary_after(compaction, window))
    # After a refusal by the provider a smaller request is worth a try, whatever we believe of its size.
    if target_tokens is None and request.least_tokens(after) > limit:
        raise refusal_of(window, after)
    edited, places = view.cleared | view.clamped.keys(), dict[str, list[int]]()
    for index in range(request.first, len(request.messages)) if edited else ():
        places.setdefault(message_id(request.messages, index), []).append(index)
    for name, shared in places.items():
        if name in edited and len(shared) > 1:  # an edit of one would be lost
            raise BudgetExceededError(
                f"the request has to shrink to {limit:,} tokens, and messages {shared} have the same id {name!r}. "
                "What is shortened is kept by id: give every message an id of its own (`add_messages` does), or none",
                report=window.report,
            )
    return compaction


def reduction(window: Window, goal: Goal, *, reason: str, summary: Pending | None = None) -> Compaction | None:
    """Return what has to leave so that the request fits; None when every rung changes nothing.

    What is too large by itself is clamped first, then a finished `summary` is shown. The result may still not fit:
    when the fixed regions alone exceed the limit nothing can help.
    """
    request, before = window.request, window.priced_view
    after = clamp_lasting(request, before, goal)
    if summary and not (after is not before and goal.settles(after)):
        told = _swapped_in(request, before, after, goal, summary)
        after = told if shown_messages(told) < shown_messages(after) else _smaller(after, told)
    # What follows leaves without a summary: after the first two no more than the next requests need.
    is_small = goal.reaches if after is before else goal.settles
    for rung in (_clear_results, _drop_turns, _drop_steps):
        if is_small(after):
            break
        after = _smaller(after, rung(request, after, goal))
    if summary and after.summary != summary.text and _shows_more(after, summary):
        # A summary of what has left now is shown now: later it would change the request again. Where it leaves too
        # little room, more turns leave for it; it says more of the conversation than they do.
        told = _swapped_in(request, before, after, goal, summary)
        told = told if goal.settles(told) else _smaller(told, _drop_turns(request, told, goal))
        after = told if goal.fits(told) else after
    after = with_record(request, before, clamp_pins(request, after, goal), goal, is_first=True)
    if not goal.fits(after):
        after = with_record(request, before, clamp_until_fits(request, after, goal), goal.beside_cuts)
        after = with_shorter_account(request, after, goal)
    return None if after.view == before.view else _compaction_of(request, before, after, reason=reason)


def summary_after(compaction: Compaction | None, window: Window) -> str:
    """Return the summary that is shown after a compaction; None is none."""
    new = compaction.summary if compaction else None
    return window.session.summary if new is None else new


def _compaction_of(request: RequestParts, before: PricedView, after: PricedView, *, reason: str) -> Compaction:
    """The step from one view to a smaller one."""
    left = left_behind(request, before.view, after.view)
    dropped = [index for index in left if index >= uncovered(after.view, request.first)]  # without a summary
    old, new = before.view, after.view
    clamps = {key: clamp for key, clamp in new.clamped.items() if old.clamped.get(key) != clamp}
    lines = (
        ("summaries swapped in", int(after.summary not in {"", before.summary})),
        ("summaries shortened", int(bool(before.summary) and len(after.summary) < len(before.summary))),
        ("old tool results cleared", len(new.cleared - old.cleared)),
        ("messages dropped", len(dropped)),
        ("messages clamped", len(clamps)),
    )
    pins = (f"pin {key} clamped: it alone exceeds the room" for key, clamp in clamps.items() if clamp.of_pin)
    return Compaction(
        kind="force",
        reason=reason,
        view=new,
        actions=(*(f"{what}: {number:,}" for what, number in lines if number > 0), *pins),
        tokens_before=before.total_tokens,
        tokens_after=after.total_tokens,
        upper_after=after.upper_tokens,
        dropped_turns=sum(is_user(request.messages[index]) for index in dropped),
        dropped_messages=len(dropped),
        summary=after.summary if after.summary != before.summary else None,
    )


def _smaller(priced_view: PricedView, candidate: PricedView) -> PricedView:
    return candidate if candidate.total_tokens < priced_view.total_tokens else priced_view


def _clear_results(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clear the oldest results of the tools that are named for it, never the newest step, as many as are needed."""
    missing = priced_view.total_tokens - goal.low_water(priced_view) if goal.clear_tools else 0
    view, messages, batch = priced_view.view, request.messages, set[str]()
    newest = priced_view.newest.index if priced_view.newest else priced_view.start
    called: dict[str, str] = {}
    for index in range(priced_view.start, newest):
        message, key = messages[index], message_id(messages, index)
        if missing <= 0:
            break
        called.update((call["id"] or "", call["name"] or "") for call in calls_of(message))
        if not is_result(message) or index in request.pins or key in view.cleared:
            continue
        if all(called.get(call_id, message.name or "") in goal.clear_tools for call_id in result_ids(message)):
            shorter = edit(message, key, View(cleared=frozenset({key})))
            saving = request.price(edit(message, key, view)) - request.price(shorter)
            if saving >= MIN_CLEAR_TOKENS:
                batch.add(key)
                missing -= saving
    return (
        request.priced_view(replace(view, cleared=view.cleared | batch), priced_view.summary) if batch else priced_view
    )


def _drop_turns(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Drop the oldest turns; the current one stays."""
    return _cut_first(request, priced_view, goal, turn_cuts(priced_view))


def _drop_steps(request: RequestParts, priced_view: PricedView, goal: Goal) -> PricedView:
    """Drop the oldest steps of a large current turn; its user message is pinned and its newest step stays."""
    if goal.leaves_whole(priced_view):
        return priced_view
    return _cut_first(request, priced_view, goal, step_cuts(request, priced_view))


def _cut_first(request: RequestParts, priced_view: PricedView, goal: Goal, cuts: Sequence[int]) -> PricedView:
    def after(start: int) -> PricedView:
        return request.priced_view(cut(request, priced_view, start, goal), priced_view.summary)

    if not cuts:
        return priced_view
    return after(first_enough(priced_view, goal, cuts, lambda start: goal.reaches(after(start))))


def _swapped_in(
    request: RequestParts, before: PricedView, priced_view: PricedView, goal: Goal, summary: Pending
) -> PricedView:
    """The request, made smaller since `before`, with a finished summary in the place of what it covers.

    The start never moves back.
    """
    moved = cut(request, priced_view, summary.stop, goal) if summary.stop > priced_view.start else priced_view.view
    after = with_record(request, before, request.priced_view(moved, summary.text), goal)
    left_since = sum(request.price(request.messages[i]) for i in range(summary.stop, request.start_of(moved)))
    view = replace(
        after.view,
        covered=position_of(request.messages, summary.stop - 1),
        covered_tokens=max(0, after.view.record.tokens - left_since),
    )
    return request.priced_view(view, summary.text)


def _shows_more(priced_view: PricedView, summary: Pending) -> bool:
    """True when a finished summary covers messages that left without one."""
    is_new = uncovered(priced_view.view, 0) <= summary.through.index < priced_view.start
    return is_new and priced_view.view.uncovered_tokens > 0


# ---- a request that cannot be made to fit ---------------------------------------------------------------------------


def refusal_of(window: Window, after: PricedView) -> BudgetExceededError:
    """Return the error for a request that does not fit even as `after`; it names the pins and constraints in it."""
    request, kept = window.request, list[tuple[str, int]]()
    shown = {message.id for step in (*after.pinned, *after.steps) for message in step.messages}

    def keep(name: str, text: str, message: AnyMessage) -> None:
        line = " ".join(text.split())
        excerpt = f'"{line[:EXCERPT_CHARS]}..."' if len(line) > EXCERPT_CHARS else f'"{line}"'
        tokens = round(request.sizing.ratio * request.price(message))  # as regions are counted
        kept.append((f"{name} {excerpt}", tokens))

    for index in sorted(request.pins):
        message, key = request.messages[index], message_id(request.messages, index)
        if index >= request.first and (not message.id or message.id in shown):
            clamped = ", clamped" if key in after.view.clamped else ""
            keep(f"{key} ({message.type}{clamped})", text_of(message.content), edit(message, key, after.view))
    for rule in request.constraints:
        keep("constraint", rule, SystemMessage(content=rule))
    window_tokens, guard = int(window.report["context_window"]), window.session.guard
    report = make_report(
        after,
        window.budget,
        context_window=window_tokens,
        counted_by="estimate",
        guard=guard,
        clamped=request.clamped_newest(after),
    )
    return refusal(report, kept)


QUESTION_TOKENS = 640
"""Room for the message that asks for a summary: its instructions, and words of the message up to which it reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRequest:
    """A request whose prefix the provider has in its cache."""

    messages: tuple[AnyMessage, ...]  # as they were sent, the system message included
    room_tokens: int  # how much longer it may become
    unseen: int = 0  # how many of the first messages to be summarized it does not show, because they have left the view


def shown_part(window: Window, start: int, stop: int) -> list[AnyMessage]:
    """Return the messages in `[start, stop)`: as the view shows them, and as they were where they have left it."""
    left = list(window.request.messages[start : min(stop, window.priced_view.start)])
    shown = (step.messages for step in window.priced_view.steps if start <= step.index < stop)
    return [*left, *(message for messages in shown for message in messages)]


def last_request(window: Window, start: int, stop: int) -> LastRequest | None:
    """Return the request that a summary of the messages in `[start, stop)` can be asked after.

    It is the last one that was sent, with its final answer; it holds more where `stop` asks for it, and ends earlier
    where the question would not fit. None when no request was sent since the view changed, or all of the messages have
    left it.
    """
    priced_view, since = window.priced_view, window.session.since
    begun = since.index if since else -1
    answers = [s for s in priced_view.steps if s.index > begun and s.messages and isinstance(s.messages[0], AIMessage)]
    if not answers or stop <= priced_view.start:
        return None
    newest, answer = answers[-1], answers[-1].messages[0]
    is_final = isinstance(answer, AIMessage) and not call_ids(answer)
    end = max(stop, newest.stop if is_final else newest.index)
    steps, room_tokens = list(priced_view.steps), window.budget.input_limit - priced_view.upper_tokens
    while steps[-1].index >= end or (steps[-1].index >= stop and room_tokens < QUESTION_TOKENS):
        room_tokens += steps.pop().tokens
    messages = tuple(replace(priced_view, shown=Shown.of(steps)).messages())
    return LastRequest(messages=messages, room_tokens=room_tokens, unseen=max(0, priced_view.start - start))
