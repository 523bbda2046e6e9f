"""The soft path: when a summary of the oldest turns is worth making, and of which messages."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from langchain_ctxwin.core.compaction import Compaction, Goal, cut, first_that, portion, step_cuts, turn_cuts
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import Receipt, View, message_id, position_of

SUMMARY_SHARE = 0.15
"""Default size of a summary as a share of the room for history: dense, yet far less than what it replaces."""

SUMMARY_BOUNDS_TOKENS = (64, 2000)
"""Smallest and largest default size of a summary: a paragraph and two pages."""

KEPT_MESSAGES_SHARE = 0.5
MAX_MESSAGES_SHARE = 0.8
"""What a trigger by number of messages leaves: half of them, unless `keep` is a share that leaves room to grow."""

MIN_PROGRESS = 0.1
"""Smallest reduction of the request that a summary must promise; less would be repeated at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When the soft path acts."""

    share: float
    """History size, as a share of its room when at most 1, else tokens."""

    messages: int | None
    summary_max_tokens: int | None


def summarize(request: Request, survey: Survey, goal: Goal, trigger: Trigger) -> Compaction | None:
    """Return the summary that is due; None when the history is small enough or a summary would not pay for itself.

    Args:
        request: what the next request is made from.
        survey: its present price.
        goal: limit and low-water mark.
        trigger: when to act.
    """
    reason = _due(survey, trigger, goal.room(survey))
    cuts = [*turn_cuts(survey), *step_cuts(request, survey)] if reason else []
    if not cuts:
        return None
    summary_tokens = trigger.summary_max_tokens or _default_size(goal.room(survey))
    best = first_that(cuts, lambda start: _is_enough(request, survey, goal, trigger, start, summary_tokens))
    start = cuts[-1] if best is None else best
    after = _after(request, survey, goal, start)
    tokens_after = after.total_tokens + summary_tokens
    pays = survey.total_tokens - tokens_after >= MIN_PROGRESS * survey.total_tokens
    if not pays and (trigger.messages is None or best is None):
        return None
    return Compaction(
        kind="summarize",
        reason=reason,
        view=after.view,
        actions=(f"messages summarized: {start - _snapshot_start(request, survey.view):,}",),
        tokens_before=survey.total_tokens,
        tokens_after=tokens_after,
        upper_after=after.upper_tokens + summary_tokens,
        snapshot=(_snapshot_start(request, survey.view), start),
        summary_max_tokens=summary_tokens,
    )


def _due(survey: Survey, trigger: Trigger, room: int) -> str:
    limit, history_tokens = portion(trigger.share, room), survey.size.regions.history_tokens
    if history_tokens > limit:
        return f"history of {history_tokens:,} tokens is past the trigger of {limit:,}"
    shown = sum(step.size for step in survey.steps)
    if trigger.messages is not None and shown > trigger.messages:
        return f"{shown:,} messages are past the trigger of {trigger.messages:,}"
    return ""


def _is_enough(request: Request, survey: Survey, goal: Goal, trigger: Trigger, start: int, summary_tokens: int) -> bool:
    after = _after(request, survey, goal, start)
    fits = after.upper_tokens + summary_tokens <= goal.limit
    small = fits and after.total_tokens + summary_tokens <= goal.low_water(survey)
    kept_messages = len(request.messages) - start
    few = trigger.messages is None or kept_messages <= int(_messages_share(goal) * trigger.messages)
    return small and few


def _messages_share(goal: Goal) -> float:
    """Share of the messages that stays, where `keep` is no share that would free enough of them."""
    return goal.keep if goal.keep <= MAX_MESSAGES_SHARE else KEPT_MESSAGES_SHARE


def _after(request: Request, survey: Survey, goal: Goal, start: int) -> Survey:
    """The request once everything before `start` is summarized, without the summary itself."""
    view = cut(request, survey, start, goal)
    covered = position_of(request.messages, start - 1)
    digest = _digest(request, _snapshot_start(request, survey.view), start)
    return request.survey(replace(view, receipt=Receipt(), covered=covered, covered_digest=digest), "")


def _snapshot_start(request: Request, view: View) -> int:
    """First message that no summary covers yet."""
    return max(request.first, view.covered.index + 1) if view.covered else request.first


def _digest(request: Request, start: int, stop: int) -> str:
    """Fingerprint of a snapshot: the ids of its messages."""
    ids = "\0".join(message_id(request.messages, index) for index in range(start, stop))
    return hashlib.blake2b(ids.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _default_size(room: int) -> int:
    low, high = SUMMARY_BOUNDS_TOKENS
    return max(low, min(high, int(SUMMARY_SHARE * room)))
