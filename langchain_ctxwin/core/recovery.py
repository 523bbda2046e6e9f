"""What a refused request teaches: the limits that the provider stated, and how small the next attempt must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.learning import MAX_MODELS, bounded, from_refusal
from langchain_ctxwin.core.limits import OUTPUT_SHARE, ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.window import Window

BLIND_STEP = 0.75
"""Part of a refused size that a retry aims for when nothing says why it was refused: two tries halve a request."""

LEAST_LIMIT_TOKENS = 256
"""A stated limit below this is that of something else: no served model has such a window."""


def retry_target(window: Window) -> int:
    """Upper bound that a refused request must come down to, measured again with all that the refusal taught.

    That is the input limit, when the request is now known to be over it. One that seems to fit was refused for reasons
    that we cannot count, and has to become much smaller.
    """
    if window.over_by:
        return window.budget.input_limit
    return int(BLIND_STEP * window.survey.upper_tokens)


def refused(window: Window, overflow: ContextOverflow) -> dict[str, Any]:
    """Return `context_counts` after a refusal: the stated limit, and what the stated size says about our counts."""
    counts = from_refusal(window, stated_input(overflow))
    stated = stated_limit(window, overflow) or _inferred_limit(window)
    if not stated:
        return counts
    known = smaller_of(window.session.learned_limit(window.about.model), stated)
    return {**counts, "limits": bounded(counts.get("limits"), window.about.model, known, MAX_MODELS)}


def stated_limit(window: Window, overflow: ContextOverflow) -> dict[str, int]:
    """Return the limit that a provider stated, by the field of `ModelLimits` it belongs to; empty without one."""
    if overflow.limit is None or overflow.limit < LEAST_LIMIT_TOKENS:
        return {}
    joint = overflow.kind == "input_plus_output" or _is_joint(window, overflow.limit)
    return {"context_window" if joint else "max_input_tokens": overflow.limit}


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


def _is_joint(window: Window, limit: int) -> bool:
    """True when a stated limit corrects a window that is known to be shared by input and output.

    The limit that we kept to already, ours without the output reserve, is one for input and corrects nothing.
    """
    known, is_kept = window.limits.context_window, limit == window.budget.input_limit
    if window.limits.max_input_tokens is not None or known is None:
        return False
    return limit <= known and (limit == known or not is_kept)


def stated_input(overflow: ContextOverflow) -> int | None:
    """Return the input that the provider counted; a stated sum has the requested output taken off."""
    if overflow.actual is None or overflow.kind == "input" or overflow.requested_output is None:
        return overflow.actual
    inside_sum = overflow.limit is not None and overflow.actual > overflow.limit
    return overflow.actual - overflow.requested_output if inside_sum else overflow.actual
