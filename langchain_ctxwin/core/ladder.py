"""The hard path: cheaper reductions first, each re-priced, until the request is at its low-water mark or fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.clamping import clamp_giant, clamp_newest_results, clamp_until_fits
from langchain_ctxwin.core.compaction import (
    Compaction,
    Goal,
    cut,
    first_that,
    left_behind,
    noted,
    shown_messages,
    step_cuts,
    turn_cuts,
)
from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.pending import Pending, uncovered
from langchain_ctxwin.core.snapshots import shows_more, swapped_in
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
