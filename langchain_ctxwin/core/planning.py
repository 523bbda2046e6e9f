"""The soft path: when a summary of the oldest turns is worth making, and of which messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_ctxwin.core.compaction import (
    Compaction,
    Goal,
    cut,
    first_that,
    noted,
    portion,
    shown_messages,
    step_cuts,
    turn_cuts,
)
from langchain_ctxwin.core.pending import content_digest, uncovered
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import position_of

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
