"""The hard path: cheaper reductions first, each re-priced, until the request is at its low-water mark or fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.clamping import clamp_newest_giant, clamp_until_fits
from langchain_ctxwin.core.compaction import Compaction, Goal, cut, first_that, step_cuts, turn_cuts
from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.pins import is_pinned
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import View, message_id

MIN_CLEAR_TOKENS = 50
"""Smallest saving for which a tool result is cleared: about twice its stub."""


def force(request: Request, before: Survey, goal: Goal, *, reason: str) -> Compaction | None:
    """Return what has to leave so that the request fits; None when every rung changes nothing.

    The result may still not fit: when the fixed regions alone exceed the limit nothing can help.
    """
    after = before
    for rung in (clamp_newest_giant, _collapse_superseded, _clear_results, _drop_turns, _drop_steps):
        if goal.reaches(after):
            break
        after = min(rung(request, after, goal), after, key=lambda survey: survey.total_tokens)
    after = clamp_until_fits(request, _restore_cleared(request, before, after, goal), goal)
    if after.view == before.view:
        return None
    return Compaction(
        kind="force",
        reason=reason,
        view=after.view,
        actions=_actions(before.view, after.view),
        tokens_before=before.total_tokens,
        tokens_after=after.total_tokens,
        upper_after=after.upper_tokens,
        dropped_turns=after.view.receipt.turns - before.view.receipt.turns,
        dropped_messages=after.view.receipt.messages - before.view.receipt.messages,
    )


def _collapse_superseded(request: Request, survey: Survey, _: Goal) -> Survey:
    """Replace results of calls that were made again later by a pointer to the newer result."""
    newer_by_call: dict[str, str] = {}
    superseded: dict[str, str] = {}
    for call, result, index in reversed(list(_calls(request, survey))):
        key = message_id(request.messages, index)
        newer = newer_by_call.setdefault(call, key) if result.status != "error" else newer_by_call.get(call, key)
        if (
            newer != key
            and not is_pinned(result)
            and _saving(request, survey, index, View(superseded={key: newer})) >= MIN_CLEAR_TOKENS
        ):
            superseded[key] = newer
    if not superseded:
        return survey
    known = {**superseded, **survey.view.superseded}
    return request.survey(replace(survey.view, superseded=known), survey.summary)


def _clear_results(request: Request, survey: Survey, goal: Goal) -> Survey:
    """Clear the oldest tool results, never the newest step, as many as the low-water mark needs."""
    missing = survey.total_tokens - goal.low_water(survey)
    batch: set[str] = set()
    for _, result, index in _calls(request, survey):
        key = message_id(request.messages, index)
        if missing <= 0:
            break
        if is_pinned(result) or key in survey.view.cleared or key in survey.view.superseded:
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
    """Drop the oldest steps of the current turn; its user message is pinned and its newest step stays."""
    return _cut_first(request, survey, goal, step_cuts(request, survey))


def _cut_first(request: Request, survey: Survey, goal: Goal, cuts: list[int]) -> Survey:
    def surveyed(start: int) -> Survey:
        return request.survey(cut(request, survey, start, goal), survey.summary)

    if not cuts:
        return survey
    best = first_that(cuts, lambda start: goal.reaches(surveyed(start)))
    return surveyed(cuts[-1] if best is None else best)


def _restore_cleared(request: Request, before: Survey, after: Survey, goal: Goal) -> Survey:
    """Give back the newest results that need not have been cleared once older turns had left."""
    fresh = [key for key in _shown_ids(request, after) if key in after.view.cleared - before.view.cleared]
    if not fresh or after.start == before.start or not goal.reaches(after):
        return after
    counts = list(range(len(fresh) + 1))
    fewest = first_that(counts, lambda n: goal.reaches(_with_cleared(request, after, _keep(before, after, fresh[:n]))))
    return after if fewest is None else _with_cleared(request, after, _keep(before, after, fresh[:fewest]))


def _keep(before: Survey, after: Survey, fresh: list[str]) -> frozenset[str]:
    return (before.view.cleared & after.view.cleared) | frozenset(fresh)


def _with_cleared(request: Request, survey: Survey, cleared: frozenset[str]) -> Survey:
    return request.survey(replace(survey.view, cleared=cleared), survey.summary)


def _shown_ids(request: Request, survey: Survey) -> list[str]:
    return [message_id(request.messages, index) for index in range(survey.start, len(request.messages))]


def _saving(request: Request, survey: Survey, index: int, change: View) -> int:
    key = message_id(request.messages, index)
    shown = edit(request.messages[index], key, survey.view)
    return request.price(shown) - request.price(edit(request.messages[index], key, change))


def _calls(request: Request, survey: Survey) -> Iterator[tuple[str, ToolMessage, int]]:
    """Each answered call in the view before the newest step: what was asked, the result, its position."""
    newest = survey.newest.index if survey.newest else survey.start
    asked: dict[str, str] = {}
    for index in range(survey.start, newest):
        message: AnyMessage = request.messages[index]
        if isinstance(message, AIMessage):
            asked.update(
                (call["id"] or "", json.dumps([call["name"], call["args"]], sort_keys=True, default=str))
                for call in message.tool_calls
            )
        elif isinstance(message, ToolMessage) and message.tool_call_id in asked:
            yield asked[message.tool_call_id], message, index


def _actions(before: View, after: View) -> tuple[str, ...]:
    dropped = after.receipt.messages - before.receipt.messages
    lines = (
        ("superseded tool results collapsed", len(after.superseded.keys() - before.superseded.keys())),
        ("old tool results cleared", len(after.cleared - before.cleared)),
        ("messages dropped", dropped),
        ("messages clamped", sum(1 for k, clamp in after.clamped.items() if before.clamped.get(k) != clamp)),
    )
    return tuple(f"{what}: {number:,}" for what, number in lines if number > 0)
