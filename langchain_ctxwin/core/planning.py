"""Plans: when old turns are summarized or dropped, a snapshot ahead of need, and the ladder when nothing fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.clamping import clamp_giant, clamp_newest_results, clamp_until_fits
from langchain_ctxwin.core.compaction import (
    LEAST_MESSAGES,
    Compaction,
    Goal,
    cut,
    first_that,
    left_behind,
    noted,
    portion,
    shown_messages,
    step_cuts,
    turn_cuts,
)
from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.priced_view import PricedView, Request
from langchain_ctxwin.core.session import Pending, content_digest, uncovered
from langchain_ctxwin.core.view import View, message_id, position_of

SUMMARY_SHARE = 0.2
"""Default size of a summary as a share of the room for history: dense, yet far less than what it replaces."""

SUMMARY_BOUNDS_TOKENS = (64, 2000)
"""Smallest and largest default size of a summary: a paragraph and two pages."""

LENGTH_TOLERANCE = 1.5
"""Longest accepted summary over the size asked for: models cannot count their own tokens, and our count estimates."""

MIN_PROGRESS = 0.1
"""Smallest reduction of the request that a summary must promise; less would be repeated at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When the soft path acts."""

    share: float
    """History size, as a share of its room when at most 1, else tokens."""

    messages: int | None
    summary_max_tokens: int | None

    def reason(self, priced_view: PricedView, room: int) -> str:
        """Return why a summary is due, or an empty text."""
        limit, history_tokens = portion(self.share, room), priced_view.size.regions.history_tokens
        if history_tokens > limit:
            return f"history of {history_tokens:,} tokens is past the trigger of {limit:,}"
        if self.has_too_many(priced_view):
            return f"{shown_messages(priced_view):,} messages are past the trigger of {self.messages:,}"
        return ""

    def has_too_many(self, priced_view: PricedView) -> bool:
        """True when the view holds more messages than it may."""
        return self.messages is not None and shown_messages(priced_view) > self.messages


def summarize(request: Request, priced_view: PricedView, goal: Goal, trigger: Trigger) -> Compaction | None:
    """Return the summary that is due; None when the history is small enough or a summary would not pay for itself.

    Args:
        request: what the next request is made from.
        priced_view: its present price.
        goal: limit and low-water mark.
        trigger: when to act.
    """
    reason = trigger.reason(priced_view, goal.room(priced_view))
    cuts = [*turn_cuts(priced_view), *step_cuts(request, priced_view)] if reason else []
    if not cuts:
        return None
    summary_tokens = trigger.summary_max_tokens or summary_size(goal.room(priced_view))
    best = first_that(cuts, lambda start: _is_enough(request, priced_view, goal, trigger, start, summary_tokens))
    start = cuts[-1] if best is None else best
    after = _after(request, priced_view, goal, start)
    after = noted(request, priced_view.view, after, goal, summary_tokens=summary_tokens)
    begin = uncovered(priced_view.view, request.first)
    tokens_after = after.total_tokens + summary_tokens
    pays = priced_view.total_tokens - tokens_after >= MIN_PROGRESS * priced_view.total_tokens
    if not pays and (trigger.messages is None or best is None):
        return None
    return Compaction(
        kind="summarize",
        reason=reason,
        view=replace(
            after.view,
            covered_digest=content_digest(request.messages, begin, start),
            covered_tokens=after.view.record.tokens,
        ),
        actions=(f"messages summarized: {start - begin:,}",),
        tokens_before=priced_view.total_tokens,
        tokens_after=tokens_after,
        upper_after=after.upper_tokens + summary_tokens,
        snapshot=(begin, start),
        summary_max_tokens=summary_tokens,
    )


def _is_enough(
    request: Request, priced_view: PricedView, goal: Goal, trigger: Trigger, start: int, summary_tokens: int
) -> bool:
    after = _after(request, priced_view, goal, start)
    fits = after.upper_tokens + summary_tokens <= goal.limit
    small = fits and after.total_tokens <= goal.low_water(after)
    kept_messages = len(request.messages) - start
    few = trigger.messages is None or kept_messages <= goal.kept_messages
    return small and few


def _after(request: Request, priced_view: PricedView, goal: Goal, start: int) -> PricedView:
    """The request once everything before `start` is summarized, without the summary itself."""
    view = cut(request, priced_view, start, goal)
    covered = position_of(request.messages, start - 1)
    return request.priced_view(replace(view, covered=covered), "")


def accepted_tokens(max_tokens: int) -> int:
    """Return the length past which a summary is cut when `max_tokens` were asked for."""
    return int(max_tokens * LENGTH_TOLERANCE)


def summary_size(room: int) -> int:
    """Return the default length of a summary, in tokens, for a history with this room."""
    low, high = SUMMARY_BOUNDS_TOKENS
    return max(low, min(high, int(SUMMARY_SHARE * room)))


LEAST_KEPT = 0.1
"""Room for history that a snapshot leaves untouched, as a share: when a giant result follows at once, the newest steps
are still there word for word."""

FURTHER_ROOMS = 3.0
"""Rooms of history that a further summary has to cover: each is read, written and breaks the prompt cache once, and the
record tells of what left meanwhile. Measured in an arena of ten scenarios: a sixth of all cost, at equal facts."""

MIN_LEFT_OUT_RATIO = 2.0
"""A summary of what left without one has to replace at least this many times its own size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a background summary is to cover."""

    start: int
    stop: int
    """Positions of its messages, stop excluded."""

    digest: str
    max_tokens: int
    """Length of the summary."""

    reason: str


def due_snapshot(request: Request, priced_view: PricedView, goal: Goal, trigger: Trigger) -> Snapshot | None:
    """Return what to summarize ahead of need; None when it is too early or would not pay for itself.

    The snapshot reaches so far that the request is at its low-water mark when the summary is shown, at the limit.
    """
    max_tokens = trigger.summary_max_tokens or summary_size(goal.room(priced_view))
    start = uncovered(priced_view.view, request.first)
    reason = trigger.reason(priced_view, goal.room(priced_view))
    if reason:
        stop = _stop(request, priced_view, goal)
    elif priced_view.view.uncovered_tokens >= MIN_LEFT_OUT_RATIO * max_tokens:
        stop, reason = priced_view.start, f"{priced_view.start - start:,} messages left without a summary"
    else:
        return None
    if stop is None or stop <= start:
        return None
    if priced_view.summary and _covered_tokens(priced_view, stop) < FURTHER_ROOMS * goal.room(priced_view):
        return None
    # A bound by number of messages is the user's own: there the price is not ours to weigh.
    if not trigger.has_too_many(priced_view) and not _pays(request, priced_view, goal, stop, max_tokens):
        return None
    digest = content_digest(request.messages, start, stop)
    return Snapshot(start=start, stop=stop, digest=digest, max_tokens=max_tokens, reason=reason)


def swapped_in(request: Request, before: View, priced_view: PricedView, goal: Goal, ready: Pending) -> PricedView:
    """Return the request with a finished summary in the place of what it covers; the start never moves back.

    Args:
        request: what the request is made from.
        before: the view that is left, with the record of what left until then.
        priced_view: the request as far as it was made smaller since.
        goal: limit, and the share of the record.
        ready: the summary.
    """
    moved = cut(request, priced_view, ready.stop, goal) if ready.stop > priced_view.start else priced_view.view
    after = noted(request, before, request.priced_view(moved, ready.text), goal)
    left_since = sum(request.price(request.messages[i]) for i in range(ready.stop, request.start_of(moved)))
    view = replace(
        after.view,
        covered=position_of(request.messages, ready.stop - 1),
        covered_digest=ready.digest,
        covered_tokens=max(0, after.view.record.tokens - left_since),
    )
    return request.priced_view(view, ready.text)


def shows_more(priced_view: PricedView, ready: Pending) -> bool:
    """True when a finished summary covers messages that left without one."""
    return (
        priced_view.view.uncovered_tokens > 0
        and uncovered(priced_view.view, 0) <= ready.through.index < priced_view.start
    )


def _stop(request: Request, priced_view: PricedView, goal: Goal) -> int | None:
    cuts = [*turn_cuts(priced_view), *step_cuts(request, priced_view)]
    if not cuts:
        return None
    growth = max(0, goal.ceiling(priced_view) - priced_view.total_tokens)
    least = priced_view.fixed_tokens + int(LEAST_KEPT * goal.room(priced_view))
    target, most = max(least, goal.low_water(priced_view) - growth), goal.max_messages

    def is_enough(stop: int) -> bool:
        kept_messages = len(request.messages) - stop
        few = most is None or kept_messages <= max(
            LEAST_MESSAGES, goal.kept_messages - (most - shown_messages(priced_view))
        )
        return few and _without(request, priced_view, goal, stop).total_tokens <= target

    best = first_that(cuts, is_enough)
    return cuts[-1] if best is None else best


def _covered_tokens(priced_view: PricedView, stop: int) -> int:
    """Tokens that a summary up to `stop` would add to the one before."""
    return priced_view.view.uncovered_tokens + sum(step.tokens for step in priced_view.steps if step.index < stop)


def _pays(request: Request, priced_view: PricedView, goal: Goal, stop: int, max_tokens: int) -> bool:
    left_out = priced_view.view.uncovered_tokens
    freed = (
        priced_view.total_tokens - _without(request, priced_view, goal, stop).total_tokens
        if stop > priced_view.start
        else 0
    )
    if left_out >= MIN_LEFT_OUT_RATIO * max_tokens:
        return True
    return freed - max_tokens >= MIN_PROGRESS * priced_view.total_tokens


def _without(request: Request, priced_view: PricedView, goal: Goal, stop: int) -> PricedView:
    """The request without everything before `stop`, and without any summary."""
    return request.priced_view(cut(request, priced_view, stop, goal), "")


MIN_CLEAR_TOKENS = 50
"""Smallest saving for which a tool result is cleared: about twice its stub."""


def emergency(
    request: Request, before: PricedView, goal: Goal, *, reason: str, ready: Pending | None = None
) -> Compaction | None:
    """Return what has to leave so that the request fits; None when every rung changes nothing.

    What is too large by itself is clamped first, then a summary that is `ready` is shown. The result may still not fit:
    when the fixed regions alone exceed the limit nothing can help.
    """
    after = _smaller(before, clamp_giant(request, before, goal))
    if ready and not (after is not before and goal.settles(after)):
        after = _shorter(after, swapped_in(request, before.view, after, goal, ready))
    # What follows leaves without a summary: after the first two no more than the next requests need.
    is_small = goal.reaches if after is before else goal.settles
    for rung in (_clear_results, _drop_turns, _drop_steps):
        if is_small(after):
            break
        after = _smaller(after, rung(request, after, goal))
    after = _told(request, before.view, after, goal, ready)
    after = clamp_newest_results(request, after, goal)
    after = clamp_until_fits(request, noted(request, before.view, after, goal), goal)
    return None if after.view == before.view else compaction_of(request, before, after, reason=reason)


def compaction_of(request: Request, before: PricedView, after: PricedView, *, reason: str) -> Compaction:
    """Return the step from one view to a smaller one."""
    dropped = _dropped(request, before.view, after.view)
    return Compaction(
        kind="force",
        reason=reason,
        view=after.view,
        actions=_actions(before, after, dropped_messages=len(dropped)),
        tokens_before=before.total_tokens,
        tokens_after=after.total_tokens,
        upper_after=after.upper_tokens,
        dropped_turns=sum(isinstance(request.messages[index], HumanMessage) for index in dropped),
        dropped_messages=len(dropped),
        summary=after.summary if after.summary != before.summary else None,
    )


def _dropped(request: Request, before: View, after: View) -> list[int]:
    """Positions of the messages that leave without a summary."""
    return [index for index in left_behind(request, before, after) if index >= uncovered(after, request.first)]


def _told(request: Request, before: View, priced_view: PricedView, goal: Goal, ready: Pending | None) -> PricedView:
    """Show a finished summary of what has left now: later it would change the request again.

    Where it leaves too little room, more turns leave for it; it says more of the conversation than they do.
    """
    if ready is None or priced_view.summary == ready.text or not shows_more(priced_view, ready):
        return priced_view
    told = swapped_in(request, before, priced_view, goal, ready)
    if not goal.settles(told):
        told = _smaller(told, _drop_turns(request, told, goal))
    return told if goal.fits(told) else priced_view


def _shorter(priced_view: PricedView, candidate: PricedView) -> PricedView:
    """The candidate, when it takes fewer tokens or shows fewer messages."""
    return candidate if shown_messages(candidate) < shown_messages(priced_view) else _smaller(priced_view, candidate)


def _smaller(priced_view: PricedView, candidate: PricedView) -> PricedView:
    return candidate if candidate.total_tokens < priced_view.total_tokens else priced_view


def _clear_results(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Clear the oldest results of the tools that are named for it, never the newest step, as many as are needed."""
    missing = priced_view.total_tokens - goal.low_water(priced_view) if goal.clear_tools else 0
    batch: set[str] = set()
    for name, index in _results(request, priced_view) if missing > 0 else ():
        key = message_id(request.messages, index)
        if missing <= 0:
            break
        if name not in goal.clear_tools or index in request.pins or key in priced_view.view.cleared:
            continue
        saving = _saving(request, priced_view, index, View(cleared=frozenset({key})))
        if saving >= MIN_CLEAR_TOKENS:
            batch.add(key)
            missing -= saving
    return _with_cleared(request, priced_view, priced_view.view.cleared | batch) if batch else priced_view


def _drop_turns(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Drop the oldest turns; the current one stays."""
    return _cut_first(request, priced_view, goal, turn_cuts(priced_view))


def _drop_steps(request: Request, priced_view: PricedView, goal: Goal) -> PricedView:
    """Drop the oldest steps of a large current turn; its user message is pinned and its newest step stays."""
    return (
        priced_view
        if goal.leaves_whole(priced_view)
        else _cut_first(request, priced_view, goal, step_cuts(request, priced_view))
    )


def _cut_first(request: Request, priced_view: PricedView, goal: Goal, cuts: list[int]) -> PricedView:
    def surveyed(start: int) -> PricedView:
        return request.priced_view(cut(request, priced_view, start, goal), priced_view.summary)

    if not cuts:
        return priced_view
    best = first_that(cuts, lambda start: goal.reaches(surveyed(start)))
    return surveyed(cuts[-1] if best is None else best)


def _with_cleared(request: Request, priced_view: PricedView, cleared: frozenset[str]) -> PricedView:
    return request.priced_view(replace(priced_view.view, cleared=cleared), priced_view.summary)


def _saving(request: Request, priced_view: PricedView, index: int, change: View) -> int:
    key = message_id(request.messages, index)
    shown = edit(request.messages[index], key, priced_view.view)
    return request.price(shown) - request.price(edit(request.messages[index], key, change))


def _results(request: Request, priced_view: PricedView) -> Iterator[tuple[str, int]]:
    """The tool and the position of each result in the view before the newest step."""
    newest = priced_view.newest.index if priced_view.newest else priced_view.start
    called: dict[str, str] = {}
    for index in range(priced_view.start, newest):
        message: AnyMessage = request.messages[index]
        if isinstance(message, AIMessage):
            called.update((call["id"] or "", call["name"]) for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            yield called.get(message.tool_call_id, message.name or ""), index


def _actions(priced_view: PricedView, smaller: PricedView, *, dropped_messages: int) -> tuple[str, ...]:
    before, after = priced_view.view, smaller.view
    clamps = {key: clamp for key, clamp in after.clamped.items() if before.clamped.get(key) != clamp}
    pins = tuple(f"pin {key} clamped: it alone exceeds the room" for key, clamp in clamps.items() if clamp.of_pin)
    lines = (
        ("summaries swapped in", int(smaller.summary not in {"", priced_view.summary})),
        ("summaries shortened", int(bool(priced_view.summary) and len(smaller.summary) < len(priced_view.summary))),
        ("old tool results cleared", len(after.cleared - before.cleared)),
        ("messages dropped", dropped_messages),
        ("messages clamped", len(clamps)),
    )
    return (*(f"{what}: {number:,}" for what, number in lines if number > 0), *pins)
