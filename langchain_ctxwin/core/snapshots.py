"""Ahead of need: which messages a background summary should cover, and how a finished one is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_ctxwin.core.compaction import (
    LEAST_MESSAGES,
    Goal,
    cut,
    first_that,
    noted,
    shown_messages,
    step_cuts,
    turn_cuts,
)
from langchain_ctxwin.core.pending import Pending, content_digest, uncovered
from langchain_ctxwin.core.planning import MIN_PROGRESS, Trigger, summary_size
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import View, position_of

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
