"""What a refused request teaches: the limits that the provider stated, and how small the next attempt must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.learned_limits import LEAST_LIMIT_TOKENS, Known, remembered, stated_limit, unrefuted
from langchain_ctxwin.core.learning import MAX_MODELS, accepted_tokens, bounded, from_refusal
from langchain_ctxwin.core.limits import OUTPUT_SHARE, ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.session import Session
from langchain_ctxwin.core.window import Window

BLIND_STEP = 0.75
"""Part of a refused size that a retry aims for when nothing says why it was refused: two tries halve a request."""


def retry_target(window: Window, overflow: ContextOverflow) -> int:
    """Upper bound that a refused request must come down to, measured again with all that the refusal taught.

    That is the input limit, when the request is now known to be over it. One that seems to fit was refused for reasons
    that we cannot count, and has to become much smaller: as small as the limit that was stated, if the request can,
    also where that is not believed.
    """
    if window.over_by:
        return window.budget.input_limit
    blind = int(BLIND_STEP * window.survey.upper_tokens)
    stated = stated_limit(overflow, Known(limits=window.limits, kept_input_tokens=window.budget.input_limit))
    limits = lowered(window.limits, stated)
    limit = limits.input_limit(reserve_within(limits, window.budget.reserved_tokens, learned=bool(stated)))
    return min(blind, limit) if limit > window.survey.least_fixed_tokens else blind


def refused(window: Window, overflow: ContextOverflow) -> dict[str, Any]:
    """Return `context_counts` after a refusal: the stated limit, and what the stated size says about our counts."""
    counts = from_refusal(window, stated_input(overflow))
    if overflow.said_by == "request":
        return counts
    known = known_of(window)
    learned = stated_limit(overflow, known) or unrefuted(_inferred_limit(window), known.accepted_tokens)
    if not learned:
        return counts
    limits = smaller_of(remembered_limit(window.session, window.about.model), learned)
    return {**counts, "limits": bounded(counts.get("limits"), window.about.model, limits, MAX_MODELS)}


def known_of(window: Window) -> Known:
    """Return what a measured request says beside the refusal it met."""
    return Known(
        limits=window.limits,
        kept_input_tokens=window.budget.input_limit,
        accepted_tokens=accepted_tokens(window),
        refused_tokens=max(window.survey.upper_tokens, window.survey.estimates.total_tokens),
    )


def remembered_limit(session: Session, model: str) -> dict[str, int]:
    """Return the limits that a conversation learned of a model, without those that cannot hold."""
    anchor = session.counts.get("anchor") or {}
    is_same = anchor.get("model") == session.speaker(model)
    return remembered(session.learned_limit(model), anchor["tokens"] if is_same else 0)


def _inferred_limit(window: Window) -> dict[str, int]:
    """Return an input limit for a refusal that states none: between what was refused and what was taken before.

    It holds for the conversation only; without it, the same unstated limit would be met again and again.
    """
    refused_tokens, taken = window.survey.total_tokens, window.extends.tokens if window.extends else 0
    limit = max(int(BLIND_STEP * refused_tokens), (refused_tokens + taken) // 2)
    is_news = not window.over_by and limit >= LEAST_LIMIT_TOKENS
    return {"max_input_tokens": limit} if is_news else {}


def smaller_of(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of both; of those that both state, the smaller."""
    return {name: min(limits[name] for limits in (one, other) if name in limits) for name in {**one, **other}}


def lowered(limits: ModelLimits, learned: Mapping[str, int]) -> ModelLimits:
    """Return the limits with what the provider was heard to say, where that is smaller."""
    if not learned:
        return limits
    window = _smaller(limits.context_window, learned.get("context_window"))
    largest_input = _smaller(limits.max_input_tokens, learned.get("max_input_tokens"))
    outputs = {name: getattr(limits, name) for name in ("max_output_tokens", "requested_output_tokens")}
    kept = {name: tokens for name, tokens in outputs.items() if tokens and (window is None or tokens < window)}
    tighter = largest_input if window is None or (largest_input or window) <= window else None
    return replace(
        limits,
        context_window=window,
        max_input_tokens=tighter,
        max_output_tokens=kept.get("max_output_tokens"),
        requested_output_tokens=kept.get("requested_output_tokens"),
    )


def reserve_within(limits: ModelLimits, configured: int | None, *, learned: bool) -> int:
    """Return the output reserve; in a learned window no more than the usual share of it.

    What requests ask for was chosen for the window that was configured. Each request asks for what is left then.
    """
    reserve = limits.output_reserve(configured)
    window = limits.context_window
    return reserve if not learned or window is None else min(reserve, int(window * OUTPUT_SHARE))


def _smaller(known: int | None, learned: int | None) -> int | None:
    return min((tokens for tokens in (known, learned) if tokens is not None), default=None)


def stated_input(overflow: ContextOverflow) -> int | None:
    """Return the input that the provider counted; a stated sum has the requested output taken off."""
    if overflow.actual is None or overflow.kind == "input" or overflow.requested_output is None:
        return overflow.actual
    inside_sum = overflow.limit is not None and overflow.actual > overflow.limit
    return overflow.actual - overflow.requested_output if inside_sum else overflow.actual
