"""Measuring: a request becomes a `Window` with its limits, its size and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.compaction import Goal, cut, with_record
from langchain_ctxwin.core.limits import ModelLimits, TokenBudget, lowered, reserve_within, smaller_of
from langchain_ctxwin.core.media import provider_limits
from langchain_ctxwin.core.priced_view import BINDS, Head, PricedView, RequestParts, step_at, unbound_before
from langchain_ctxwin.core.recovery import learned_media, remembered_limit
from langchain_ctxwin.core.session import Session, counted
from langchain_ctxwin.core.sizing import Sizes
from langchain_ctxwin.core.updates import from_history, sizes_for
from langchain_ctxwin.core.view import View, message_id, position_of, with_checksum
from langchain_ctxwin.core.window import (
    About,
    CountedBy,
    Extends,
    Stopped,
    Window,
    checked_tokens,
    fingerprint,
    latest_report,
    make_report,
    rebased,
)


def measure_request(
    request: RequestParts,
    session: Session,
    stated: ModelLimits,
    about: About,
    *,
    heard: Mapping[str, int],
    output_reserve: int | None,
    goal: Callable[[int, bool], Goal],
    was_refused: bool = False,
    show_fill: bool = False,
) -> Window:
    """Measure a request.

    Args:
        request: what it is made from.
        session: the conversation's state.
        stated: what is known about the model's limits.
        about: model and tools.
        heard: limits that other conversations learned.
        output_reserve: tokens reserved for the answer, where configured.
        goal: what a compaction aims for, by input limit and by whether sizes were ever reported.
        was_refused: the provider has just refused this very request.
        show_fill: let the model see how full the window is.

    Raises:
        ConfigError: the limits leave no room for input.
    """
    request = _with_known_media(request, session, stated, about.model)
    sized = _sized(session, request, about)
    limits, reserve = stated, reserve_within(stated, output_reserve, learned=False)
    if learned := smaller_of(heard, remembered_limit(session, about.model)):
        limits, reserve = _lowered(
            stated, learned, output_reserve, 0 if was_refused else sized.priced_view.least_fixed_tokens
        )
    limit = limits.input_limit(reserve)
    sized = _sized(session, request, about, full_tokens=limit) if show_fill else sized
    budget = _budget(sized.priced_view, limit, reserve)
    aim = goal(limit, sized.request.sizing.reports > 0)
    for change in (with_record_anew, begun_by_provider):
        if changed := change(sized.session, sized.request, sized.priced_view, aim):
            sized = _sized(changed, request, about, full_tokens=sized.request.full_tokens)
            budget = _budget(sized.priced_view, limit, reserve)
    report = make_report(
        sized.priced_view,
        budget,
        context_window=limits.context_window or limit + reserve,
        counted_by=sized.counted_by,
        guard=sized.session.guard,
        clamped=sized.request.clamped_newest(sized.priced_view),
        stopped=_stopped(sized, aim),
    )
    return Window(
        report=report,
        budget=budget,
        limits=limits,
        over_by=int(report["over_by"]),
        about=about,
        answering_model=sized.answering_model,
        digest=sized.digest,
        extends=sized.extends,
        request=sized.request,
        priced_view=sized.priced_view,
        session=sized.session,
        goal=aim,
    )


def _with_known_media(request: RequestParts, session: Session, stated: ModelLimits, model: str) -> RequestParts:
    """The request with all that is known of the pictures it may have: by settings, documented, and learned."""
    documented = provider_limits(request.rules.provider, stated.context_window or stated.max_input_tokens)
    return replace(request, media=request.media.smallest(documented).smallest(learned_media(session, model)))


def with_record_anew(session: Session, request: RequestParts, priced_view: PricedView, goal: Goal) -> Session | None:
    """Return the session with a record of what has left, as it is now; None when nothing of that was edited."""
    if not session.has_edits:
        return None
    view = with_record(request, replace(priced_view, view=View()), priced_view, goal).view
    counts = {key: value for key, value in session.counts.items() if key != "anchor"}
    guard = counted(session, request.messages, reason="what had left was edited or removed")
    view = with_checksum(view, request.messages)
    return replace(session, view=view, counts=counts, guard=guard, has_edits=False)


def begun_by_provider(session: Session, request: RequestParts, priced_view: PricedView, goal: Goal) -> Session | None:
    """Return the session whose view begins where the provider says; None when it does so already.

    Its newest compaction stands for what is before, and only what follows is in the prompt. The record tells of what
    left. A view that began with a compaction which this provider cannot use ends: the whole history counts again.
    Each counts as one compaction, because the prefix changes.
    """
    view, messages = session.view, request.messages
    lead = request.lead(view)
    if view.begun_by and not request.kept_compactions(view):
        after, reason, known = View(), "the view began with a compaction that this provider cannot read", {}
    elif lead is None or (start := step_at(messages, lead, len(messages)).index) <= priced_view.start:
        return None
    else:
        begun = cut(request, priced_view, start, goal)
        begun = replace(begun, covered=None, begun_by=message_id(messages, lead))
        after = with_checksum(with_record(request, priced_view, request.priced_view(begun, ""), goal).view, messages)
        reason = "the provider compacted what was before"
        known = {"unbound": position_of(messages, start - 1).to_json()}  # what follows is tied to its compaction
    counts = {key: value for key, value in session.counts.items() if key != "anchor"}
    guard = counted(session, messages, reason=reason, **known)
    faults = (*session.faults, f"{reason}: the view begins anew")
    return replace(session, view=after, summary="", counts=counts, guard=guard, pending=None, faults=faults)


def _lowered(
    stated: ModelLimits, learned: Mapping[str, int], output_reserve: int | None, fixed_tokens: int
) -> tuple[ModelLimits, int]:
    """Return the limits with what was learned, and the reserve; without it where no request could keep to it.

    A limit that the fixed regions alone exceed would end the conversation on the word of a refusal that may have been
    misread; the provider is asked instead, and its answer settles it.
    """
    limits = lowered(stated, learned)
    reserve = reserve_within(limits, output_reserve, learned=True)
    if limits.input_limit(reserve) > fixed_tokens:
        return limits, reserve
    return stated, reserve_within(stated, output_reserve, learned=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """A request in the best known sizes."""

    session: Session
    request: RequestParts
    priced_view: PricedView
    answering_model: str
    digest: str
    extends: Extends | None
    counted_by: CountedBy


def _sized(session: Session, request: RequestParts, about: About, *, full_tokens: int = 0) -> _Sized:
    unbound = _unbound(session, request)
    request = replace(request, head=None, full_tokens=full_tokens, answered=session.view, unbound=unbound)
    session, sizing, told = _calibrated(session, request, about)
    request = replace(request, sizing=sizing, head=_head(session, request, sizing))
    answering_model = session.answering_model(about.model)
    priced_view = request.priced_view(session.view, session.summary)
    digest = fingerprint(priced_view, about.tools_digest, about.model)
    extends = latest_report(request, priced_view, session, digest, told)
    if extends is None and priced_view.shown.head_stop:  # something before the history is not what it was
        request = replace(request, head=None)
        priced_view = request.priced_view(session.view, session.summary)
    checked = checked_tokens(priced_view, session, digest)
    known = rebased(priced_view, request.sizing, extends, checked)
    is_exact = checked is not None or (extends is None and about.is_exact())
    return _Sized(
        session=session,
        request=request,
        priced_view=known,
        answering_model=answering_model,
        digest=digest,
        extends=extends,
        counted_by="exact" if is_exact else "usage" if extends else "estimate",
    )


def _unbound(session: Session, request: RequestParts) -> int:
    """Position up to which reasoning is tied to a prefix that is gone: since a compaction, a refusal, a new prompt."""
    position = session.unbound or session.since
    if position is None or request.rules.provider not in BINDS:
        return 0
    found = position.find(request.messages)
    stop = min(position.index if found is None else found, len(request.messages) - 1) + 1
    return stop if session.unbound else unbound_before(request.messages, stop, request.rules)


def _head(session: Session, request: RequestParts, sizing: Sizes) -> Head | None:
    """The part of the history that the anchor stands for, and that was shown as it is."""
    anchor, messages = session.counts.get("anchor") or {}, request.messages
    start, stop = request.start_of(session.view), anchor.get("index", 0)
    if "checksum" not in anchor or not start < stop < len(messages) or messages[stop].id != anchor["id"]:
        return None
    if any(span.start < start or span.stop > stop for span in sizing.spans):
        return None
    return Head(
        start=start,
        stop=stop,
        total_tokens=anchor["estimate"],
        checksum=anchor["checksum"],
        is_plain=anchor.get("plain") is True,
    )


def _budget(priced_view: PricedView, limit: int, reserve: int) -> TokenBudget:
    regions = priced_view.size.regions
    return TokenBudget(
        input_limit=limit,
        system_tokens=regions.system_tokens,
        tool_tokens=regions.tool_tokens,
        summary_tokens=regions.summary_tokens,
        pinned_tokens=regions.pinned_tokens,
        reserved_tokens=reserve,
    )


def _stopped(sized: _Sized, goal: Goal) -> Stopped:
    if goal.has_no_room(sized.priced_view):
        return "fixed_regions"
    return "summaries_ineffective" if sized.session.has_given_up(sized.request.messages) else ""


def _calibrated(session: Session, request: RequestParts, about: About) -> tuple[Session, Sizes, tuple[int, int] | None]:
    """What the session knows about sizes; it is learned first from a history that brings usage.

    With the position and the size of the newest report in that history, where no answer was handed to us.
    """
    told = None
    if "anchor" not in session.counts and any(map(_has_usage, reversed(request.messages))):
        plain_request = replace(request, sizing=Sizes(doubt=request.sizing.doubt))
        priced_view = plain_request.priced_view(session.view, session.summary)
        session, newest = from_history(session, plain_request, priced_view, about)
        told = (newest.at, newest.tokens) if newest else None
    return session, sizes_for(session, request, session.answering_model(about.model), about.tools_digest), told


def _has_usage(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.usage_metadata)
