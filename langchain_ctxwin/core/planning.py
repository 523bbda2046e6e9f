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
from langchain_ctxwin.core.session import Pending, content_digest, uncovered
from langchain_ctxwin.core.survey import Request, Survey
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

    def reason(self, survey: Survey, room: int) -> str:
        """Return why a summary is due, or an empty text."""
        limit, history_tokens = portion(self.share, room), survey.size.regions.history_tokens
        if history_tokens > limit:
            return f"history of {history_tokens:,} tokens is past the trigger of {limit:,}"
        if self.has_too_many(survey):
            return f"{shown_messages(survey):,} messages are past the trigger of {self.messages:,}"
        return ""

    def has_too_many(self, survey: Survey) -> bool:
        """True when the view holds more messages than it may."""
        return self.messages is not None and shown_messages(survey) > self.messages


def summarize(request: Request, survey: Survey, goal: Goal, trigger: Trigger) -> Compaction | None:
    """Return the summary that is due; None when the history is small enough or a summary would not pay for itself.

    Args:
        request: what the next request is made from.
        survey: its present price.
        goal: limit and low-water mark.
        trigger: when to act.
    """
    reason = trigger.reason(survey, goal.room(survey))
    cuts = [*turn_cuts(survey), *step_cuts(request, survey)] if reason else []
    if not cuts:
        return None
    summary_tokens = trigger.summary_max_tokens or summary_size(goal.room(survey))
    best = first_that(cuts, lambda start: _is_enough(request, survey, goal, trigger, start, summary_tokens))
    start = cuts[-1] if best is None else best
    after = _after(request, survey, goal, start)
    after = noted(request, survey.view, after, goal, summary_tokens=summary_tokens)
    begin = uncovered(survey.view, request.first)
    tokens_after = after.total_tokens + summary_tokens
    pays = survey.total_tokens - tokens_after >= MIN_PROGRESS * survey.total_tokens
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
        tokens_before=survey.total_tokens,
        tokens_after=tokens_after,
        upper_after=after.upper_tokens + summary_tokens,
        snapshot=(begin, start),
        summary_max_tokens=summary_tokens,
    )


def _is_enough(request: Request, survey: Survey, goal: Goal, trigger: Trigger, start: int, summary_tokens: int) -> bool:
    after = _after(request, survey, goal, start)
    fits = after.upper_tokens + summary_tokens <= goal.limit
    small = fits and after.total_tokens <= goal.low_water(after)
    kept_messages = len(request.messages) - start
    few = trigger.messages is None or kept_messages <= goal.kept_messages
    return small and few


def _after(request: Request, survey: Survey, goal: Goal, start: int) -> Survey:
    """The request once everything before `start` is summarized, without the summary itself."""
    view = cut(request, survey, start, goal)
    covered = position_of(request.messages, start - 1)
    return request.survey(replace(view, covered=covered), "")


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


def due_snapshot(request: Request, survey: Survey, goal: Goal, trigger: Trigger) -> Snapshot | None:
    """Return what to summarize ahead of need; None when it is too early or would not pay for itself.

    The snapshot reaches so far that the request is at its low-water mark when the summary is shown, at the limit.
    """
    max_tokens = trigger.summary_max_tokens or summary_size(goal.room(survey))
    start = uncovered(survey.view, request.first)
    reason = trigger.reason(survey, goal.room(survey))
    if reason:
        stop = _stop(request, survey, goal)
    elif survey.view.uncovered_tokens >= MIN_LEFT_OUT_RATIO * max_tokens:
        stop, reason = survey.start, f"{survey.start - start:,} messages left without a summary"
    else:
        return None
    if stop is None or stop <= start:
        return None
    if survey.summary and _covered_tokens(survey, stop) < FURTHER_ROOMS * goal.room(survey):
        return None
    # A bound by number of messages is the user's own: there the price is not ours to weigh.
    if not trigger.has_too_many(survey) and not _pays(request, survey, goal, stop, max_tokens):
        return None
    digest = content_digest(request.messages, start, stop)
    return Snapshot(start=start, stop=stop, digest=digest, max_tokens=max_tokens, reason=reason)


def swapped_in(request: Request, before: View, survey: Survey, goal: Goal, ready: Pending) -> Survey:
    """Return the request with a finished summary in the place of what it covers; the start never moves back.

    Args:
        request: what the request is made from.
        before: the view that is left, with the record of what left until then.
        survey: the request as far as it was made smaller since.
        goal: limit, and the share of the record.
        ready: the summary.
    """
    moved = cut(request, survey, ready.stop, goal) if ready.stop > survey.start else survey.view
    after = noted(request, before, request.survey(moved, ready.text), goal)
    left_since = sum(request.price(request.messages[i]) for i in range(ready.stop, request.start_of(moved)))
    view = replace(
        after.view,
        covered=position_of(request.messages, ready.stop - 1),
        covered_digest=ready.digest,
        covered_tokens=max(0, after.view.record.tokens - left_since),
    )
    return request.survey(view, ready.text)


def shows_more(survey: Survey, ready: Pending) -> bool:
    """True when a finished summary covers messages that left without one."""
    return survey.view.uncovered_tokens > 0 and uncovered(survey.view, 0) <= ready.through.index < survey.start


def _stop(request: Request, survey: Survey, goal: Goal) -> int | None:
    cuts = [*turn_cuts(survey), *step_cuts(request, survey)]
    if not cuts:
        return None
    growth = max(0, goal.ceiling(survey) - survey.total_tokens)
    least = survey.fixed_tokens + int(LEAST_KEPT * goal.room(survey))
    target, most = max(least, goal.low_water(survey) - growth), goal.max_messages

    def is_enough(stop: int) -> bool:
        kept_messages = len(request.messages) - stop
        few = most is None or kept_messages <= max(LEAST_MESSAGES, goal.kept_messages - (most - shown_messages(survey)))
        return few and _without(request, survey, goal, stop).total_tokens <= target

    best = first_that(cuts, is_enough)
    return cuts[-1] if best is None else best


def _covered_tokens(survey: Survey, stop: int) -> int:
    """Tokens that a summary up to `stop` would add to the one before."""
    return survey.view.uncovered_tokens + sum(step.tokens for step in survey.steps if step.index < stop)


def _pays(request: Request, survey: Survey, goal: Goal, stop: int, max_tokens: int) -> bool:
    left_out = survey.view.uncovered_tokens
    freed = survey.total_tokens - _without(request, survey, goal, stop).total_tokens if stop > survey.start else 0
    if left_out >= MIN_LEFT_OUT_RATIO * max_tokens:
        return True
    return freed - max_tokens >= MIN_PROGRESS * survey.total_tokens


def _without(request: Request, survey: Survey, goal: Goal, stop: int) -> Survey:
    """The request without everything before `stop`, and without any summary."""
    return request.survey(cut(request, survey, stop, goal), "")


MIN_CLEAR_TOKENS = 50
"""Smallest saving for which a tool result is cleared: about twice its stub."""


def force(
    request: Request, before: Survey, goal: Goal, *, reason: str, ready: Pending | None = None
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


def compaction_of(request: Request, before: Survey, after: Survey, *, reason: str) -> Compaction:
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


def _told(request: Request, before: View, survey: Survey, goal: Goal, ready: Pending | None) -> Survey:
    """Show a finished summary of what has left now: later it would change the request again.

    Where it leaves too little room, more turns leave for it; it says more of the conversation than they do.
    """
    if ready is None or survey.summary == ready.text or not shows_more(survey, ready):
        return survey
    told = swapped_in(request, before, survey, goal, ready)
    if not goal.settles(told):
        told = _smaller(told, _drop_turns(request, told, goal))
    return told if goal.fits(told) else survey


def _shorter(survey: Survey, candidate: Survey) -> Survey:
    """The candidate, when it takes fewer tokens or shows fewer messages."""
    return candidate if shown_messages(candidate) < shown_messages(survey) else _smaller(survey, candidate)


def _smaller(survey: Survey, candidate: Survey) -> Survey:
    return candidate if candidate.total_tokens < survey.total_tokens else survey


def _clear_results(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clear the oldest results of the tools that are named for it, never the newest step, as many as are needed."""
    missing = survey.total_tokens - goal.low_water(survey) if goal.clear_tools else 0
    batch: set[str] = set()
    for name, index in _results(request, survey) if missing > 0 else ():
        key = message_id(request.messages, index)
        if missing <= 0:
            break
        if name not in goal.clear_tools or index in request.pins or key in survey.view.cleared:
            continue
        saving = _saving(request, survey, index, View(cleared=frozenset({key})))
        if saving >= MIN_CLEAR_TOKENS:
            batch.add(key)
            missing -= saving
    return _with_cleared(request, survey, survey.view.cleared | batch) if batch else survey


def _drop_turns(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Drop the oldest turns; the current one stays."""
    return _cut_first(request, survey, goal, turn_cuts(survey))


def _drop_steps(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Drop the oldest steps of a large current turn; its user message is pinned and its newest step stays."""
    return survey if goal.leaves_whole(survey) else _cut_first(request, survey, goal, step_cuts(request, survey))


def _cut_first(request: Request, survey: Survey, goal: Goal, cuts: list[int]) -> Survey:
    def surveyed(start: int) -> Survey:
        return request.survey(cut(request, survey, start, goal), survey.summary)

    if not cuts:
        return survey
    best = first_that(cuts, lambda start: goal.reaches(surveyed(start)))
    return surveyed(cuts[-1] if best is None else best)


def _with_cleared(request: Request, survey: Survey, cleared: frozenset[str]) -> Survey:
    return request.survey(replace(survey.view, cleared=cleared), survey.summary)


def _saving(request: Request, survey: Survey, index: int, change: View) -> int:
    key = message_id(request.messages, index)
    shown = edit(request.messages[index], key, survey.view)
    return request.price(shown) - request.price(edit(request.messages[index], key, change))


def _results(request: Request, survey: Survey) -> Iterator[tuple[str, int]]:
    """The tool and the position of each result in the view before the newest step."""
    newest = survey.newest.index if survey.newest else survey.start
    called: dict[str, str] = {}
    for index in range(survey.start, newest):
        message: AnyMessage = request.messages[index]
        if isinstance(message, AIMessage):
            called.update((call["id"] or "", call["name"]) for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            yield called.get(message.tool_call_id, message.name or ""), index


def _actions(survey: Survey, smaller: Survey, *, dropped_messages: int) -> tuple[str, ...]:
    before, after = survey.view, smaller.view
    clamps = {key: clamp for key, clamp in after.clamped.items() if before.clamped.get(key) != clamp}
    pins = tuple(f"pin {key} clamped: it alone exceeds the room" for key, clamp in clamps.items() if clamp.of_pin)
    lines = (
        ("summaries swapped in", int(smaller.summary not in {"", survey.summary})),
        ("summaries shortened", int(bool(survey.summary) and len(smaller.summary) < len(survey.summary))),
        ("old tool results cleared", len(after.cleared - before.cleared)),
        ("messages dropped", dropped_messages),
        ("messages clamped", len(clamps)),
    )
    return (*(f"{what}: {number:,}" for what, number in lines if number > 0), *pins)
