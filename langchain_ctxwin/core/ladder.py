"""The hard path: cheaper reductions first, each re-priced, until the request is at its low-water mark or fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.clamping import clamp_giant, clamp_until_fits
from langchain_ctxwin.core.compaction import Compaction, Goal, cut, first_that, shown_messages, step_cuts, turn_cuts
from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.pending import Pending
from langchain_ctxwin.core.pins import last_user
from langchain_ctxwin.core.receipts import newly_left
from langchain_ctxwin.core.snapshots import shows_more, swapped_in, without_summary
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.view import View, message_id

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
        after = _shorter(after, swapped_in(request, after, goal, ready))
    # What follows leaves without a summary: after the first two no more than the next requests need.
    is_small = goal.reaches if after is before else goal.settles
    for rung in (_collapse_superseded, _clear_results, _drop_turns, _drop_steps):
        if is_small(after):
            break
        after = _smaller(after, rung(request, after, goal))
    after = _told(request, _restore_cleared(request, before, after, goal), goal, ready)
    after = _whole_question(request, before, after, clamp_until_fits(request, after, goal), goal)
    return None if after.view == before.view else compaction_of(request, before, after, reason=reason)


def compaction_of(request: Request, before: Survey, after: Survey, *, reason: str) -> Compaction:
    """Return the step from one view to a smaller one."""
    dropped = newly_left(request.messages, before.view, after.view, first=request.first)
    return Compaction(
        kind="force",
        reason=reason,
        view=after.view,
        actions=_actions(before, after),
        tokens_before=before.total_tokens,
        tokens_after=after.total_tokens,
        upper_after=after.upper_tokens,
        dropped_turns=dropped.turns,
        dropped_messages=dropped.messages,
        summary=after.summary if after.summary != before.summary else None,
    )


def _whole_question(request: Request, before: Survey, after: Survey, clamped: Survey, goal: Goal) -> Survey:
    """Leave the summary out where only that lets the question stand whole, or the request fit at all.

    What it covered is on the receipt then, and is summarized again.
    """
    is_cut = _is_question_cut(request, before, clamped)
    if not clamped.summary or (goal.likely_fits(clamped) and not is_cut):
        return clamped
    without = clamp_until_fits(request, without_summary(request, after), goal)
    is_better = not goal.likely_fits(clamped) or not _is_question_cut(request, before, without)
    return without if is_better else clamped


def _is_question_cut(request: Request, before: Survey, after: Survey) -> bool:
    asked = last_user(request.messages)
    key = None if asked is None else message_id(request.messages, asked)
    return key is not None and after.view.clamped.get(key) != before.view.clamped.get(key)


def _told(request: Request, survey: Survey, goal: Goal, ready: Pending | None) -> Survey:
    """Show a finished summary of what has left now: later it would change the request again.

    Where it leaves too little room, more turns leave for it; it says more of the conversation than they do.
    """
    if ready is None or survey.summary == ready.text or not shows_more(survey, ready):
        return survey
    told = swapped_in(request, survey, goal, ready)
    if not goal.settles(told):
        told = _smaller(told, _drop_turns(request, told, goal))
    return told if goal.fits(told) else survey


def _shorter(survey: Survey, candidate: Survey) -> Survey:
    """The candidate, when it takes fewer tokens or shows fewer messages."""
    return candidate if shown_messages(candidate) < shown_messages(survey) else _smaller(survey, candidate)


def _smaller(survey: Survey, candidate: Survey) -> Survey:
    return candidate if candidate.total_tokens < survey.total_tokens else survey


def _collapse_superseded(request: Request, survey: Survey, _: Goal) -> Survey:
    """Replace results of calls that were made again later by a pointer to the newer result."""
    newer_by_call: dict[str, str] = {}
    superseded: dict[str, str] = {}
    for call, result, index in reversed(list(_calls(request, survey))):
        key = message_id(request.messages, index)
        newer = newer_by_call.setdefault(call, key) if result.status != "error" else newer_by_call.get(call, key)
        if (
            newer != key
            and index not in request.pins
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
    for _, _, index in _calls(request, survey):
        key = message_id(request.messages, index)
        if missing <= 0:
            break
        if index in request.pins or key in survey.view.cleared or key in survey.view.superseded:
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


def _actions(survey: Survey, smaller: Survey) -> tuple[str, ...]:
    before, after = survey.view, smaller.view
    dropped = after.receipt.messages - before.receipt.messages
    clamps = {key: clamp for key, clamp in after.clamped.items() if before.clamped.get(key) != clamp}
    pins = tuple(f"pin {key} clamped: it alone exceeds the room" for key, clamp in clamps.items() if clamp.of_pin)
    lines = (
        ("summaries swapped in", int(smaller.summary not in {"", survey.summary})),
        ("summaries left out", int(not smaller.summary and bool(survey.summary))),
        ("superseded tool results collapsed", len(after.superseded.keys() - before.superseded.keys())),
        ("old tool results cleared", len(after.cleared - before.cleared)),
        ("messages dropped", dropped),
        ("messages clamped", len(clamps)),
    )
    return (*(f"{what}: {number:,}" for what, number in lines if number > 0), *pins)
