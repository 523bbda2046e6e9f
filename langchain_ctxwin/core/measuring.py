"""Measuring: a `Request` of what a caller hands over is completed, in the best known size; what answers teach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.compaction import cut, with_new_pins, with_view
from langchain_ctxwin.core.limits import (
    BLIND_STEP,
    OUTPUT_SHARE,
    ModelLimits,
    count_of,
    is_possible,
    least,
    lowered,
    stated_input,
    stated_limit,
)
from langchain_ctxwin.core.model_info import Usage, stop_reasons
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.pairing import unbound_before
from langchain_ctxwin.core.provider_blocks import (
    MediaSize,
    has_bound_reasoning,
    learned_limits,
)
from langchain_ctxwin.core.request import Request, Window
from langchain_ctxwin.core.session import Json, Session, State
from langchain_ctxwin.core.sizing import (
    LARGEST_JUMP,
    LEAST_SHARE,
    NEAR_SHARE,
    STORED_SIZES,
    ReportedSize,
    Sizes,
    answered_by,
    may_be,
    sent_tokens,
)
from langchain_ctxwin.core.turns import Steps
from langchain_ctxwin.core.view import message_id


def measured(
    request: Request, shared_limits: Iterable[int], *, was_refused: bool = False
) -> Request:
    """Return a request of parts with its view, its steps, sizes and limits: in the conversation as it is stored.

    Args:
        request: what it is made from, with the conversation's state.
        shared_limits: limits that other conversations learned.
        was_refused: the provider has just refused this very request.

    Raises:
        ConfigError: the limits leave no room for input.
    """
    session = request.session
    request = replace(
        request,
        media=_media_limits(request),
        unsealed=session.number("unsealed"),
        needs_room=False,
    )
    request = _sized(request)
    own_limit = remembered_limit(session, request.model)
    learned = least(*shared_limits, own_limit)
    # by the lower of both counts: what reports made us believe of the fixed regions may be wrong
    fixed = request.fixed_tokens, request.fixed_estimates.fixed_tokens
    limits, reserved_tokens = _limits(
        request, learned, 0 if was_refused else min(fixed)
    )
    limit = limits.input_limit(reserved_tokens)
    request = replace(
        request,
        limits=limits,
        reserved_tokens=reserved_tokens,
        input_limit=limit,
        limit=limit,
    )
    # what the stored view has to follow before a request is made from it
    for change in (with_new_pins, started_by_provider, with_reasoning_untied):
        if changed := change(request):
            request = _sized(replace(request, session=changed))
    return request


def _media_limits(request: Request) -> dict[str, int | None]:
    """The pictures and files that the request may have: the smallest of what is stated, documented, learned."""
    declared = request.declared
    window = declared.context_window or declared.max_input_tokens
    learned = (request.session.counts.get("media") or {}).get(request.model) or {}
    documented = request.rules.media_limits(window)
    stated = {
        "max_bytes": declared.max_request_bytes,
        "max_images": declared.max_images,
    }
    return {
        name: least(own, documented.get(name), learned.get(name))
        for name, own in stated.items()
    }


def started_by_provider(request: Request) -> Session | None:
    """Return the session whose view begins where the provider says; None when it does so already.

    Its newest compaction stands for what is before, and only what follows is in the prompt. The record tells of what
    left. It counts as one compaction, because the prefix changes.
    """
    lead, history = request.lead, request.history
    if lead is None or (start := history.step_at(lead).index) <= request.start:
        return None
    view = replace(cut(request, start), covered=0, block=None)
    reason = "the provider compacted what was before"
    # what follows is tied to its compaction
    bare = replace(request, summary="")
    later = with_view(bare, view, reason, unbound=start)
    faults = (*request.session.faults, f"{reason}: the view begins anew")
    return replace(later, summary="", pending=None, faults=faults)


def with_reasoning_untied(request: Request) -> Session | None:
    """Return the session without reasoning that was tied to another prompt, other tools, or pictures that left.

    None where all of it still is behind what preceded it. A compaction has its own rule.
    """
    session, tied_to = request.session, request.tied_to
    if (
        session.counts.get("tied_to") in (None, tied_to)
        or not request.rules.binds_reasoning
    ):
        return None
    last = len(request.history.messages)
    return replace(
        session,
        counts={**session.unanchored, "tied_to": tied_to},
        guard={**session.guard, "unbound": last},
    )


def _limits(
    request: Request, learned: int | None, fixed_tokens: int
) -> tuple[ModelLimits, int]:
    """Return limits with what was learned, and the reserve; without it where no request could keep to what was learned.

    A limit that the fixed regions alone exceed would end the conversation on the word of a refusal that may have been
    misread; the provider is asked instead, and its answer settles it.
    """
    limits = lowered(request.declared, learned)
    reserve, window = (
        limits.output_reserve(request.settings.output_reserve),
        limits.context_window,
    )
    if limits is request.declared:
        return limits, reserve
    if window is not None:
        # it was chosen for the window that was configured; each request asks for what is left then
        reserve = min(reserve, int(window * OUTPUT_SHARE))
    if limits.input_limit(reserve) <= fixed_tokens:
        return _limits(request, None, 0)
    return limits, reserve


# ---- the best known size --------------------------------------------------------------------------------------------


def _sized(request: Request) -> Request:
    """The request in the best known size: an extension of what the provider reported, or estimated."""
    session = request.session
    plain = replace(request, unbound=_unbound(request))
    request = plain.shown_as(session.view, session.summary)
    sizes, report = sizes_for(request), None
    if "anchor" not in session.counts:
        sizes, report = from_history(request, sizes)
        if report:
            counts = _with_sizes(session.counts, request.model, sizes)
            session = replace(session, counts=counts)
    request = replace(request, session=session, sizing=sizes)
    if report := last_report_of(request, report):
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
        at, messages = anchor["index"], request.history.messages
        if at > len(messages) or anchor["digest"] != request.digest_until(at):
            return None
        return ReportedSize(anchor["tokens"], anchor["estimate"], at)
    return newest


def _unbound(request: Request) -> int:
    """Position up to which reasoning is tied to a prefix that is gone: since a compaction, a refusal, a new prompt."""
    session, messages = request.session, request.history.messages
    own = session.number("unbound")
    stop = min(own or session.number("since"), len(messages))
    if not request.rules.binds_reasoning:
        return 0
    return stop if own else unbound_before(messages, stop, request.rules)


def from_history(request: Request, sizes: Sizes) -> tuple[Sizes, ReportedSize | None]:
    """Learn from the usage in the shown history, whose answers were not handed to us, by the same rules as of answers.

    After a compaction only what was answered since belongs to requests like this one. Returns the newest report, too.
    """
    session = request.session
    compacted = session.number("since") if session.compactions else 0
    newest, fixed = None, request.fixed_estimates.total_tokens
    before = fixed
    known, sizes = sizes, replace(sizes, doubted=None)
    for step in request.steps:
        estimate, before = before, before + step.tokens
        answer = step.messages[0] if step.messages else None
        is_first = step is request.steps[0]
        if not isinstance(answer, AIMessage) or is_first or step.index < compacted:
            continue
        tokens, name = sent_tokens(answer), answered_by(answer)
        if not tokens or not may_be(name, sizes.model or request.model):
            continue
        report = ReportedSize(tokens, estimate, step.index)
        # what is known judges the first one, too: it may have been doubted when it came
        planned = fixed + int(sizes.ratio * (estimate - fixed)) + sizes.offset
        if newest:
            planned = newest.tokens + estimate - newest.estimate
        sizes = sizes.after(report, planned, newest, *_bounds_of(request))
        if not sizes.doubted:
            newest, sizes = report, replace(sizes, model=name or sizes.model)
    if newest is None:
        return known, None
    steps = Steps(request.steps[: request.steps.place(newest.at)])
    learned = sizes.with_request(newest.tokens, request.fixed_estimates, steps)
    return replace(learned, doubted=sizes.doubted), newest


def _bounds_of(request: Request) -> tuple[float, int]:
    """What the model of a request takes at most, and our count of its tools: by which a report is judged."""
    declared, tools = request.declared, request.fixed_estimates.tool_tokens
    return declared.input_limit(0) if declared.known else inf, tools


def sizes_for(request: Request) -> Sizes:
    """Return the stored sizes as far as they hold for a request: with other tools those of texts alone."""
    stored = (request.session.counts.get("sizes") or {}).get(request.model)
    sizes = STORED_SIZES.validate_python(stored) if stored else Sizes()
    if sizes.tools != request.tools_digest:
        return Sizes(spans=sizes.spans, model=sizes.model, tools=request.tools_digest)
    return sizes


def _with_sizes(counts: State, model: str, sizes: Sizes) -> Json:
    """The counts with the sizes of requests to one model."""
    stored = counts.get("sizes") or {}
    new = STORED_SIZES.dump_python(sizes, mode="json")
    return {**counts, "sizes": {**stored, model: new}}


# ---- after an answer ------------------------------------------------------------------------------------------------


def after_measure(window: Window) -> Session:
    """Return the session after a measure: mended positions, and how many messages were seen."""
    messages = window.history.messages
    first = message_id(messages, 0) if messages else None
    counts = {**window.session.counts, "messages": len(messages), "first": first}
    return replace(window.session, counts=counts, faults=())


def from_answer(window: Window, reply: AIMessage) -> tuple[Json, str]:
    """Learn from the usage that came with the answer to a request.

    Returns the new `context_counts`, and why a reported size was not believed; empty when it was, or none was reported.
    """
    counts, tokens = dict(window.session.counts), sent_tokens(reply)
    if has_bound_reasoning(reply):
        counts["tied_to"] = window.tied_to
    if not tokens:
        return counts, ""
    sizes, extended, planned = window.sizing, window.last_report, window.total_tokens
    asked, name = window.model, answered_by(reply)
    is_same = may_be(name, sizes.model or asked)
    if not is_same:  # what one counts that stood in says nothing about the other
        sizes, extended = Sizes(tools=sizes.tools), None
        planned = window.estimates.total_tokens
    # a gateway may count twice what was read from the cache
    once = tokens - (Usage.of(reply.usage_metadata).cached_tokens or 0)
    is_near = abs(once - planned) <= NEAR_SHARE * planned
    if sizes.is_reported and is_near and tokens > LARGEST_JUMP * planned:
        tokens = once
    report = ReportedSize(tokens, window.estimates.total_tokens, window.stop)
    sizes = replace(sizes, model=name or sizes.model)
    sizes = sizes.after(report, planned, extended, *_bounds_of(window))
    if sizes.doubted:
        far_off = f"{tokens:,} input tokens, far from our count of {planned:,}"
        ignored = f"the provider reported {far_off}"
        return _with_sizes(counts, asked, sizes), ignored
    counts["anchor"] = {
        "digest": window.digest_until(window.stop),
        "tokens": tokens,
        "estimate": report.estimate,
        "index": window.stop,
    }
    learned = remembered_limit(window.session, asked)
    if is_same and learned and not is_possible(learned, tokens):
        others = counts["limits"].items()
        counts["limits"] = {name: one for name, one in others if name != asked}
    sizes = sizes.with_request(tokens, window.fixed_estimates, window.steps)
    return _with_sizes(counts, asked, sizes), ""


# The answer ended because something was full: the requested output, or the window.
LENGTH_STOPS = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "model_length",
        "model_context_window_exceeded",
    }
)
# An answer shorter than this part of what was requested did not end at the request's own limit, and a size this close
# to the window has reached it: servers that count a stop token or a template differ by a few tokens, not by 5 %.
EARLY_SHARE, EDGE_SHARE = 0.95, 0.01
# Servers count the tokens of their template beside a prompt that they cut, or not.
SAME_TOKENS = 8
# A request that grew by less may be counted as large as before: templates drop old reasoning blocks.
GROWTH_TOKENS = 64
# Servers that leave cached tokens out report what was added since the last request, and up to a block of their cache:
# OpenAI's and Gemini's begin at 1,024 tokens. Our estimate of what was added may be this far off.
CACHE_BLOCK_TOKENS, ADDED_DOUBT = 1_024, 1.25


def silent_overflow(
    window: Window, reply: AIMessage, requested_output_tokens: int | None
) -> ContextOverflow | None:
    """Recognise in the answer to a request an overflow that the server did not report as an error.

    Either the window ended the answer (llama.cpp, vLLM), or the server dropped a part of the prompt to make it fit
    (Ollama): then it reports the same size again although the request grew.

    Args:
        window: the request.
        reply: the answer, with its usage and the reason why it ended.
        requested_output_tokens: the longest answer that was asked for.
    """
    usage: Mapping[str, Any] = reply.usage_metadata or {}
    parts, least = usage.get("input_token_details") or {}, window.lower_tokens
    cached = sum(parts.get(key) or 0 for key in ("cache_read", "cache_creation"))
    reported, output = sent_tokens(reply), count_of(usage.get("output_tokens"))
    if not reported or output is None or reported < cached:
        return None
    sizes, extended = window.sizing, window.last_report
    if not may_be(answered_by(reply), sizes.model):
        sizes, extended, least = Sizes(), None, 0
    total, context = reported + output, window.limits.context_window or 0
    reasons = {reason.rpartition(".")[2].lower() for reason in stop_reasons(reply)}
    is_at_edge = abs(total - context) <= EDGE_SHARE * context
    is_cut_early = output < EARLY_SHARE * (requested_output_tokens or inf)
    if is_at_edge and is_cut_early and reasons & LENGTH_STOPS:
        return ContextOverflow(
            total, reported, "input_plus_output", requested_output_tokens
        )
    before, doubted = extended, sizes.doubted
    added = max(0, least - extended.tokens) if extended else 0
    if doubted and doubted.tokens < doubted.estimate:
        before = doubted
        added = max(0, window.estimates.total_tokens - doubted.estimate)
    if before is None or reported >= least or added < GROWTH_TOKENS:
        return None
    uncached = added / ADDED_DOUBT, added * ADDED_DOUBT + CACHE_BLOCK_TOKENS
    is_same = abs(reported - before.tokens) <= SAME_TOKENS
    if not is_same or uncached[0] <= reported <= uncached[1]:
        return None
    # Some servers keep half their window of a prompt that exceeds it.
    accepted = accepted_tokens(window)
    is_half = accepted <= 2 * reported < least
    return ContextOverflow(2 * reported if is_half else max(reported, accepted))


# ---- after a refusal ------------------------------------------------------------------------------------------------


def without_reasoning(window: Window, refused: str = "unbound") -> Session:
    """Return the session after a refusal of reasoning: of what is tied to another prefix, all so far is left out.

    Of `unsealed`, of what the provider itself had signed or encrypted, a block on demand is left out, too.
    """
    session, last = window.session, len(window.history.messages)
    guard, view = {**session.guard, refused: last}, session.view
    if refused == "unbound":
        guard["binding_model"] = window.model
    else:
        view = replace(view, block=None)
    return replace(session, guard=guard, view=view, counts=session.unanchored)


def retry_target(window: Window, number: int) -> int:
    """Upper bound that a refused request must come down to, measured again with all that the refusal taught.

    That is the input limit, when the request is now known to be over it. One that seems to fit was refused for reasons
    that we cannot count, and has to become much smaller; so has one that was refused again.
    """
    likely_tokens, limit = window.likely_tokens, window.input_limit
    target = BLIND_STEP * likely_tokens if likely_tokens <= limit else limit
    return int(target * BLIND_STEP ** (number - 1))


def refused(window: Window, overflow: ContextOverflow) -> Json:
    """Return `context_counts` after a refusal: the smallest limit, and what the stated size says about our counts.

    Sizes that earlier answers brought no longer count for this request. A refusal that states no limit teaches one
    between what was refused and what was taken before; without it, the same unstated limit would be met again and
    again.
    """
    counts, model = {**window.session.counts}, window.model
    if media := learned_limits(overflow, MediaSize.of_all(window.assembled())):
        before = counts.get("media") or {}
        return {
            **counts,
            "media": {**before, model: {**before.get(model, {}), **media}},
        }
    counts["anchor"], stated = None, count_of(stated_input(overflow))
    least = LEAST_SHARE * min(window.total_tokens, window.estimates.total_tokens)
    if stated is not None and stated >= least:
        fixed, steps = window.fixed_estimates, window.steps
        sizes = window.sizing.with_refusal(stated, fixed, steps)
        counts = _with_sizes(counts, model, sizes)
    taken = accepted_tokens(window)
    limit = stated_limit(overflow, taken)
    if limit is None and not window.over_by:
        refused_tokens = window.total_tokens
        between = max(int(BLIND_STEP * refused_tokens), (refused_tokens + taken) // 2)
        is_shared = not window.limits.max_input_tokens
        # the reserve of a learned window is at most a quarter of it
        beside = min(window.reserved_tokens, between // 3) if is_shared else 0
        limit = between + beside if is_possible(between, taken) else None
    if limit is None or limit > (remembered_limit(window.session, model) or inf):
        return counts
    return {**counts, "limits": {**(counts.get("limits") or {}), model: limit}}


def accepted_tokens(window: Window) -> int:
    """Return the largest input that is known to have been taken before a request; 0 when none is."""
    return window.last_report.tokens if window.last_report else 0


def remembered_limit(session: Session, model: str) -> int | None:
    """Return the limit that a conversation learned of a model."""
    return (session.counts.get("limits") or {}).get(model)
