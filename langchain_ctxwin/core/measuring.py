"""How a request becomes a Window: its limits, what is known about sizes, its size, its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.budget import TokenBudget
from langchain_ctxwin.core.compaction import Goal
from langchain_ctxwin.core.learning import believed, from_history
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.measured import Measured
from langchain_ctxwin.core.recovery import lowered, reserve_within, smaller_of
from langchain_ctxwin.core.session import Session
from langchain_ctxwin.core.survey import Request, Survey
from langchain_ctxwin.core.window import CountedBy, Window, fingerprint, latest_report, make_report, rebased


def measure_request(
    request: Request,
    session: Session,
    stated: ModelLimits,
    *,
    model: str,
    tools: Sequence[Any],
    tools_digest: str,
    heard: Mapping[str, int],
    output_reserve: int | None,
    goal: Callable[[int, bool], Goal],
    exact: bool,
) -> Window:
    """Measure a request.

    Args:
        request: what it is made from; its sizing is that of a conversation without any report.
        session: the conversation's state.
        stated: what is known about the model's limits.
        model: name of the model.
        tools: the tool definitions.
        tools_digest: their fingerprint.
        heard: limits that other conversations learned.
        output_reserve: tokens reserved for the answer, where configured.
        goal: what a compaction aims for, by input limit and by whether sizes were ever reported.
        exact: whether the counter is exact.

    Raises:
        ConfigError: the limits leave no room for input.
    """
    learned = smaller_of(heard, session.learned_limit(model))
    limits = lowered(stated, learned)
    reserve = reserve_within(limits, output_reserve, learned=bool(learned))
    limit = limits.input_limit(reserve)
    speaker = session.speaker(model)
    session, request = _calibrated(session, request, speaker, tools_digest)
    survey = request.survey(session.view, session.summary)
    digest = fingerprint(survey, tools_digest, model)
    extends = latest_report(request, survey, session, digest)
    survey = rebased(survey, request.sizing, extends)
    budget = _budget(survey, limit, reserve)
    counted_by: CountedBy = "usage" if extends else "exact" if exact else "estimate"
    window_tokens = limits.context_window or limit + reserve
    report = make_report(survey, budget, context_window=window_tokens, counted_by=counted_by, guard=session.guard)
    return Window(
        report=report,
        budget=budget,
        limits=limits,
        over_by=int(report["over_by"]),
        model=model,
        speaker=speaker,
        tools=tools,
        tools_digest=tools_digest,
        digest=digest,
        extends=extends,
        request=request,
        survey=survey,
        session=session,
        goal=goal(limit, request.sizing.belief.reports > 0),
    )


def _budget(survey: Survey, limit: int, reserve: int) -> TokenBudget:
    regions = survey.size.regions
    return TokenBudget(
        input_limit=limit,
        system_tokens=regions.system_tokens,
        tool_tokens=regions.tool_tokens,
        summary_tokens=regions.summary_tokens,
        pinned_tokens=regions.pinned_tokens,
        reserved_tokens=reserve,
    )


def _calibrated(session: Session, request: Request, speaker: str, tools_digest: str) -> tuple[Session, Request]:
    """Put what the session knows about sizes into the request; learn it first from a history that brings usage."""
    fresh = request.sizing
    if not session.counts.get("beliefs"):
        survey = request.survey(session.view, session.summary)
        session = from_history(session, request, survey, speaker, tools_digest)
    belief = believed(session, speaker, tools_digest, fresh.belief)
    measured = session.measured
    if not measured.holds_for(request.messages, speaker):
        measured = Measured(model=speaker)
    return session, replace(request, sizing=replace(fresh, belief=belief, measured=measured))
