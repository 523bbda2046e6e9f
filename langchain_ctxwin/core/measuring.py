"""Measuring: what a caller hands over becomes a `Request` with its limits and the best known sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from langchain_ctxwin.core.compaction import cut, recorded
from langchain_ctxwin.core.limits import (
    ModelLimits,
    lowered,
    media_limits,
    reserve_within,
    smaller_of,
)
from langchain_ctxwin.core.parts import Parts, unbound_before
from langchain_ctxwin.core.recovery import remembered_limit
from langchain_ctxwin.core.request import Request, last_report_of
from langchain_ctxwin.core.session import Session, guard_after, last_position
from langchain_ctxwin.core.sizing import ReportedSize, Sizes
from langchain_ctxwin.core.updates import from_history, sizes_for
from langchain_ctxwin.core.view import View, message_id, position_of


def measured(
    parts: Parts,
    session: Session,
    declared: ModelLimits,
    shared_limits: Mapping[str, int],
    *,
    was_refused: bool = False,
) -> Request:
    """Return the next request of a conversation, priced.

    Args:
        parts: what it is made from.
        session: the conversation's state.
        declared: what is known about the model's limits.
        shared_limits: limits that other conversations learned.
        was_refused: the provider has just refused this very request.

    Raises:
        ConfigError: the limits leave no room for input.
    """
    if parts.history.media:
        parts = replace(parts, media=_media_limits(parts, session, declared))
    sealed = session.unsealed.find(parts.messages) if session.unsealed else None
    parts = replace(parts, unsealed=0 if sealed is None else sealed + 1)
    request = _sized(parts, session)
    reserve = parts.settings.output_reserve
    limits = declared
    reserved_tokens = reserve_within(declared, reserve, learned=False)
    if learned := smaller_of(shared_limits, remembered_limit(session, parts.model)):
        fixed_tokens = 0 if was_refused else request.least_fixed_tokens
        limits, reserved_tokens = _lowered(declared, learned, reserve, fixed_tokens)
    limit = limits.input_limit(reserved_tokens)

    def within(request: Request) -> Request:
        return replace(
            request,
            limits=limits,
            reserved_tokens=reserved_tokens,
            input_limit=limit,
            limit=limit,
        )

    request = within(request)
    for change in (with_record_anew, started_by_provider, with_reasoning_untied):
        if changed := change(request):
            request = within(_sized(parts, changed))
    return request


def _media_limits(
    parts: Parts, session: Session, declared: ModelLimits
) -> dict[str, int]:
    """The pictures and files that the request may have: the smallest of what is set, stated, documented, learned."""
    window = declared.context_window or declared.max_input_tokens
    learned = (session.counts.get("media") or {}).get(parts.model) or {}
    documented = parts.rules.media_limits(window)
    return smaller_of(parts.media, media_limits(declared), documented, learned)


def with_record_anew(request: Request) -> Session | None:
    """Return the session with a record of what has left, as it is now; None when nothing of that was edited."""
    session = request.session
    messages = request.parts.messages
    if not session.has_edits:
        return None
    view = request.parts.history.with_checksum(
        recorded(request, replace(request, view=View())).view
    )
    guard = guard_after(session, messages, reason="what had left was edited or removed")
    return replace(
        session, view=view, counts=session.unanchored, guard=guard, has_edits=False
    )


def started_by_provider(request: Request) -> Session | None:
    """Return the session whose view begins where the provider says; None when it does so already.

    Its newest compaction stands for what is before, and only what follows is in the prompt. The record tells of what
    left. A view that began with a compaction which this provider cannot use ends: the whole history counts again.
    Each counts as one compaction, because the prefix changes.
    """
    session = request.session
    parts = request.parts
    messages = request.parts.messages
    view = session.view
    lead = parts.lead(session.view)
    if view.begun_by and parts.kept_compaction(view) is None:
        after = View()
        reason = "the view began with a compaction that this provider cannot read"
        changes = {}
    elif lead is None or (start := parts.history.step_at(lead).index) <= request.start:
        return None
    else:
        later_view = replace(
            cut(request, start),
            covered=None,
            block=None,
            begun_by=message_id(messages, lead),
        )
        after = parts.history.with_checksum(
            recorded(request.shown_as(later_view, ""), request).view
        )
        reason = "the provider compacted what was before"
        # what follows is tied to its compaction
        changes = {"unbound": asdict(position_of(messages, start - 1))}
    guard = guard_after(session, messages, reason=reason, **changes)
    faults = (*session.faults, f"{reason}: the view begins anew")
    return replace(
        session,
        view=after,
        summary="",
        counts=session.unanchored,
        guard=guard,
        pending=None,
        faults=faults,
    )


def with_reasoning_untied(request: Request) -> Session | None:
    """Return the session without reasoning that was tied to another prompt, other tools, or pictures that left.

    None where all of it still is behind what preceded it. A compaction has its own rule.
    """
    session, tied_to = request.session, request.tied_to
    if (
        session.counts.get("tied_to") in (None, tied_to)
        or not request.parts.rules.binds_reasoning
    ):
        return None
    last = last_position(request.parts.messages)
    return replace(
        session,
        counts={**session.unanchored, "tied_to": tied_to},
        guard={**session.guard, "unbound": last},
    )


def _lowered(
    declared: ModelLimits,
    learned: Mapping[str, int],
    output_reserve: int | None,
    fixed_tokens: int,
) -> tuple[ModelLimits, int]:
    """Return the limits with what was learned, and the reserve; without it where no request could keep to it.

    A limit that the fixed regions alone exceed would end the conversation on the word of a refusal that may have been
    misread; the provider is asked instead, and its answer settles it.
    """
    limits = lowered(declared, learned)
    reserve = reserve_within(limits, output_reserve, learned=True)
    if limits.input_limit(reserve) > fixed_tokens:
        return limits, reserve
    return declared, reserve_within(declared, output_reserve, learned=False)


# ---- the best known size --------------------------------------------------------------------------------------------


def _sized(parts: Parts, session: Session) -> Request:
    """The request in the best known size: checked by the provider, an extension of what it reported, or estimated."""
    plain = Request(
        parts=parts,
        session=session,
        sizing=Sizes(doubt=parts.pricer.doubt),
        unbound=_unbound(session, parts),
    )
    request, newest = _calibrated(plain.shown_as(session.view, session.summary))
    report = last_report_of(request, newest)
    request = replace(request, last_report=report)
    if report:
        prefix_tokens = report.estimate - request.fixed_estimates.total_tokens
        steps = request.steps.with_counted(report.at, max(0, prefix_tokens))
        request = replace(request, steps=steps)
    return replace(request, checked_tokens=_checked_tokens(request))


def _unbound(session: Session, parts: Parts) -> int:
    """Position up to which reasoning is tied to a prefix that is gone: since a compaction, a refusal, a new prompt."""
    position = session.unbound or session.since
    messages = parts.messages
    if position is None or not parts.rules.binds_reasoning:
        return 0
    index = position.find(messages)
    stop = min(position.index if index is None else index, len(messages) - 1) + 1
    return stop if session.unbound else unbound_before(messages, stop, parts.rules)


def _calibrated(request: Request) -> tuple[Request, ReportedSize | None]:
    """The request with what the session knows about sizes; it is learned first from a history that brings usage.

    With the newest report in that history, where no answer was handed to us.
    """
    session, newest = request.session, None
    if "anchor" not in session.counts:
        session, newest = from_history(request)
    name = session.answering_model(request.parts.model)
    request = replace(request, session=session, answering_model=name)
    return replace(request, sizing=sizes_for(request, name)), newest


def _checked_tokens(request: Request) -> int | None:
    """Return the provider's own count of exactly this request, if it was asked for one."""
    checked = request.session.counts.get("checked")
    if not checked:
        return None
    same = (
        checked.get("digest") == request.digest
        and checked.get("estimate") == request.estimates.total_tokens
    )
    return int(checked["tokens"]) if same else None
