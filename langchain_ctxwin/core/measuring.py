"""Measuring: what a caller hands over becomes a `Request` in the best known size; what answers teach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from langchain_core.messages import AIMessage
from pydantic import TypeAdapter

from langchain_ctxwin.core.compaction import cut, with_new_pins, with_view
from langchain_ctxwin.core.limits import (
    OUTPUT_SHARE,
    ModelLimits,
    is_possible,
    least,
    lowered,
    media_limits,
)
from langchain_ctxwin.core.parts import Parts, unbound_before
from langchain_ctxwin.core.provider_blocks import has_bound_reasoning
from langchain_ctxwin.core.request import Request, Window
from langchain_ctxwin.core.session import Session, last_position
from langchain_ctxwin.core.sizing import (
    LEAST_SHARE,
    ReportedSize,
    Sizes,
    answered_by,
    counted_once,
    far_off,
    is_believed,
    is_count,
    may_be,
    sent_tokens,
)
from langchain_ctxwin.core.turns import Steps
from langchain_ctxwin.core.view import Position, View, message_id, position_of


def measured(
    parts: Parts,
    session: Session,
    shared_limits: Iterable[int],
    *,
    was_refused: bool = False,
) -> Request:
    """Return the next request of a conversation, priced.

    Args:
        parts: what it is made from.
        session: the conversation's state.
        shared_limits: limits that other conversations learned.
        was_refused: the provider has just refused this very request.

    Raises:
        ConfigError: the limits leave no room for input.
    """
    parts = replace(
        parts,
        media=_media_limits(parts, session),
        unsealed=session.stop_at("unsealed"),
    )
    request = _sized(parts, session)
    own_limit = remembered_limit(session, parts.model)
    learned = least(*shared_limits, own_limit)
    # by the lower of both counts: what reports made us believe of the fixed regions may be wrong
    fixed = request.fixed_tokens, request.fixed_estimates.fixed_tokens
    limits, reserved_tokens = _limits(parts, learned, 0 if was_refused else min(fixed))
    limit = limits.input_limit(reserved_tokens)
    bounds: dict[str, Any] = {
        "limits": limits,
        "reserved_tokens": reserved_tokens,
        "input_limit": limit,
        "limit": limit,
    }
    request = replace(request, **bounds)
    for change in CHANGES:
        if changed := change(request):
            request = replace(_sized(parts, changed), **bounds)
    return request


def _media_limits(parts: Parts, session: Session) -> dict[str, int]:
    """The pictures and files that the request may have: the smallest of what is set, stated, documented, learned."""
    declared = parts.declared
    window = declared.context_window or declared.max_input_tokens
    learned = (session.counts.get("media") or {}).get(parts.model) or {}
    documented = parts.rules.media_limits(window)
    every = parts.media, media_limits(declared), documented, learned
    names = {name for limits in every for name in limits}
    return {name: min(one[name] for one in every if name in one) for name in names}


def started_by_provider(request: Request) -> Session | None:
    """Return the session whose view begins where the provider says; None when it does so already.

    Its newest compaction stands for what is before, and only what follows is in the prompt. The record tells of what
    left. A view that began with a compaction which this provider cannot use ends: the whole history counts again.
    Each counts as one compaction, because the prefix changes.
    """
    session, parts = request.session, request.parts
    view, lead = session.view, request.lead
    if view.begun_by and request.kept_compaction is None:
        reason = "the view began with a compaction that this provider cannot read"
        later = replace(with_view(request, View(), reason), view=View())
    elif lead is None or (start := parts.history.step_at(lead).index) <= request.start:
        return None
    else:
        begun_by = message_id(parts.messages, lead)
        view = replace(cut(request, start), covered=None, block=None, begun_by=begun_by)
        reason = "the provider compacted what was before"
        # what follows is tied to its compaction
        unbound = asdict(position_of(parts.messages, start - 1))
        bare = replace(request, summary="")
        later = with_view(bare, view, reason, unbound=unbound)
    faults = (*session.faults, f"{reason}: the view begins anew")
    return replace(later, summary="", pending=None, faults=faults)


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


CHANGES = (
    with_new_pins,
    started_by_provider,
    with_reasoning_untied,
)
"""What the stored view has to follow before a request is made from it."""


def _limits(
    parts: Parts, learned: int | None, fixed_tokens: int
) -> tuple[ModelLimits, int]:
    """Return the limits with what was learned, and the reserve; without it where no request could keep to it.

    A limit that the fixed regions alone exceed would end the conversation on the word of a refusal that may have been
    misread; the provider is asked instead, and its answer settles it.
    """
    limits = lowered(parts.declared, learned)
    reserve, window = (
        limits.output_reserve(parts.settings.output_reserve),
        limits.context_window,
    )
    if limits is parts.declared:
        return limits, reserve
    if window is not None:
        # it was chosen for the window that was configured; each request asks for what is left then
        reserve = min(reserve, int(window * OUTPUT_SHARE))
    if limits.input_limit(reserve) <= fixed_tokens:
        return _limits(parts, None, 0)
    return limits, reserve


# ---- the best known size --------------------------------------------------------------------------------------------


def _sized(parts: Parts, session: Session) -> Request:
    """The request in the best known size: an extension of what the provider reported, or estimated."""
    plain = Request(
        parts=parts,
        session=session,
        sizing=Sizes(doubt=parts.pricer.doubt),
        unbound=_unbound(session, parts),
    )
    request = plain.shown_as(session.view, session.summary)
    newest = None
    if "anchor" not in session.counts:
        session, newest = from_history(request)
    request = replace(request, session=session, sizing=sizes_for(parts, session))
    if report := last_report_of(request, newest):
        prefix_tokens = report.estimate - request.fixed_estimates.total_tokens
        steps = Steps(request.steps)
        steps.counted = report.at, max(0, prefix_tokens)
        request = replace(request, steps=steps, last_report=report)
    return request


def last_report_of(
    request: Request, newest: ReportedSize | None
) -> ReportedSize | None:
    """Return the reported size of an earlier request that this one extends; without an anchor, the `newest` one."""
    if anchor := request.session.counts.get("anchor"):
        at = anchor["index"]
        is_there = [m.id for m in request.parts.messages[at : at + 1]] == [anchor["id"]]
        if not is_there or anchor["digest"] != request.digest_until(at):
            return None
        newest = ReportedSize(anchor["tokens"], anchor["estimate"], at)
    if newest is None:
        return None
    later = request.steps[request.steps.place(newest.at) :][:1]
    return newest if later and later[0].index == newest.at else None


def _unbound(session: Session, parts: Parts) -> int:
    """Position up to which reasoning is tied to a prefix that is gone: since a compaction, a refusal, a new prompt."""
    own, messages = session.stop_at("unbound"), parts.messages
    stop = min(own or session.stop_at("since"), len(messages))
    if not parts.rules.binds_reasoning:
        return 0
    return stop if own else unbound_before(messages, stop, parts.rules)


# ---- after an answer or a refusal ------------------------------------------------------------------------------------


def after_measure(window: Window) -> Session:
    """Return the session after a measure: mended positions, and how many messages were seen."""
    messages = window.parts.messages
    first = message_id(messages, 0) if messages else None
    counts = {**window.session.counts, "messages": len(messages), "first": first}
    return replace(window.session, counts=counts, faults=())


def without_reasoning(window: Window) -> Session:
    """Return the session after a refusal of reasoning that is tied to another prefix: all of it so far is left out."""
    session, last = window.session, last_position(window.parts.messages)
    guard = {**session.guard, "unbound": last, "binding_model": window.parts.model}
    return replace(session, guard=guard, counts=session.unanchored)


def unsealed(window: Window) -> Session:
    """Return the session after a refusal of what the provider itself had signed or encrypted: it is sent no more."""
    session, last = window.session, last_position(window.parts.messages)
    guard = {**session.guard, "unsealed": last}
    view = replace(session.view, block=None)
    return replace(session, guard=guard, view=view, counts=session.unanchored)


def from_answer(window: Window, reply: AIMessage) -> tuple[dict[str, Any], str]:
    """Learn from the usage that came with the answer to a request.

    Returns the new `context_counts`, and why a reported size was not believed; empty when it was, or none was reported.
    """
    counts, tokens = dict(window.session.counts), sent_tokens(reply)
    if has_bound_reasoning(reply):
        counts["tied_to"] = window.tied_to
    if tokens is None:
        return counts, ""
    sizes, extended, planned = window.sizing, window.last_report, window.total_tokens
    asked, name = window.parts.model, answered_by(reply)
    is_same = may_be(name, sizes.model or asked)
    if not is_same:  # what one counts that stood in says nothing about the other
        sizes, extended = Sizes(tools=sizes.tools, doubt=sizes.doubt), None
        planned = window.estimates.total_tokens
    if not is_count(tokens) or not tokens:
        return counts, far_off(tokens, planned)
    sizes = replace(sizes, model=name or sizes.model)
    if sizes.is_reported:
        tokens = counted_once(reply, tokens, planned)
    report = ReportedSize(tokens, window.estimates.total_tokens, window.stop)
    if not is_believed(
        report,
        sizes,
        planned,
        tool_tokens=window.estimates.tool_tokens,
        limit_tokens=window.limits.input_limit(0),
        extended_tokens=extended.tokens if extended else 0,
    ):
        doubting = replace(sizes, doubted=report)
        return _with_sizes(counts, asked, doubting), far_off(tokens, planned)
    counts["anchor"] = {
        "id": reply.id,
        "model": asked,
        "digest": window.digest_until(window.stop),
        "tokens": tokens,
        "estimate": report.estimate,
        "index": window.stop,
    }
    learned = remembered_limit(window.session, asked)
    if is_same and learned and not is_possible(learned, tokens):
        others = counts["limits"].items()
        counts["limits"] = {name: one for name, one in others if name != asked}
    if extended:
        answer = Position(id=reply.id or "", index=window.stop)
        sizes = sizes.with_growth(extended, report, answer)
    sizes = sizes.with_request(tokens, window.estimates, window.steps)
    return _with_sizes(counts, asked, sizes), ""


def _with_sizes(counts: Mapping[str, Any], model: str, sizes: Sizes) -> dict[str, Any]:
    """The counts with the sizes of requests to one model."""
    stored = counts.get("sizes") or {}
    return {**counts, "sizes": {**stored, model: sizes.to_json()}}


def small_report(window: Window) -> tuple[int, int] | None:
    """Return the last report, when it was too small to be believed, and what was added since."""
    report = window.sizing.doubted
    if report is None or report.tokens >= report.estimate:
        return None
    return report.tokens, max(0, window.estimates.total_tokens - report.estimate)


def from_refusal(window: Window, stated_tokens: int | None) -> dict[str, Any]:
    """Learn from the size that a provider states for a request it refused.

    Sizes that earlier answers brought no longer count for this request.
    """
    counts = {**window.session.counts, "anchor": None}
    least = LEAST_SHARE * min(window.total_tokens, window.estimates.total_tokens)
    if not is_count(stated_tokens) or stated_tokens < least:
        return counts
    sizes = window.sizing.with_refusal(stated_tokens, window.estimates, window.steps)
    return _with_sizes(counts, window.parts.model, sizes)


def from_history(request: Request) -> tuple[Session, ReportedSize | None]:
    """Learn from the usage in the shown history, whose answers were not handed to us, by the same rules as of answers.

    After a compaction only what was answered since belongs to requests like this one. Returns the newest report, too.
    """
    session, parts = request.session, request.parts
    compacted = session.stop_at("since") if session.compactions else 0
    limit = parts.declared.input_limit(0) if parts.declared.known else None
    sizes = replace(sizes_for(parts, session), doubted=None)
    learned_until = sizes.last.index if sizes.last else 0
    newest, before = None, request.fixed_estimates.total_tokens
    for step in request.steps:
        estimate, before = before, before + step.tokens
        answer = step.messages[0] if step.messages else None
        is_first = step is request.steps[0]
        if not isinstance(answer, AIMessage) or is_first or step.index < compacted:
            continue
        tokens, name = sent_tokens(answer), answered_by(answer)
        is_other = not may_be(name, sizes.model or parts.model)
        if not tokens or not is_count(tokens) or is_other:
            continue
        report = ReportedSize(tokens, estimate, step.index)
        is_known = is_believed(
            report,
            sizes,
            newest.tokens + estimate - newest.estimate if newest else estimate,
            tool_tokens=request.estimates.tool_tokens,
            limit_tokens=limit,
            extended_tokens=newest.tokens if newest else 0,
        )
        if not is_known:
            sizes = replace(sizes, doubted=report)
            continue
        if newest and newest.at >= learned_until:
            answered_at = position_of(parts.messages, report.at)
            sizes = sizes.with_growth(newest, report, answered_at)
        model = name or sizes.model
        newest, sizes = (
            report,
            replace(sizes, doubted=None, is_reported=True, model=model),
        )
    if newest is None:
        return session, None
    if newest.at <= learned_until:
        return session, newest
    sizes = sizes.with_request(
        newest.tokens,
        request.estimates,
        request.steps,
        later_tokens=request.steps.between(newest.at, request.stop),
    )
    counts = _with_sizes(session.counts, parts.model, sizes)
    return replace(session, counts=counts), newest


STORED_SIZES = TypeAdapter(Sizes)


def sizes_for(parts: Parts, session: Session) -> Sizes:
    """Return the stored sizes as far as they hold for a request."""
    stored = (session.counts.get("sizes") or {}).get(parts.model)
    sizes = STORED_SIZES.validate_python(stored) if stored else Sizes()
    return sizes.valid_for(parts.tools_digest, parts.messages, parts.pricer.doubt)


def remembered_limit(session: Session, model: str) -> int | None:
    """Return the limit that a conversation learned of a model."""
    return (session.counts.get("limits") or {}).get(model)
