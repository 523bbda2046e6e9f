"""What a refused request teaches: the limits that the provider stated, and how small the next attempt must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.limits import OUTPUT_SHARE, ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.window import Window

STATED_MARGIN = 0.97
"""Part of a stated limit that a retry aims for: the provider's own numbers leave only rounding and framing open."""

BLIND_STEP = 0.75
"""Part of the refused size that a retry aims for when the provider states no size: two tries halve a request."""

LEAST_STEP = 0.95
"""A retry is at least this much smaller than what was refused, whatever the numbers say."""


def retry_target(window: Window, overflow: ContextOverflow) -> int:
    """Total tokens, in our own counts, that a request must come down to after the provider refused it.

    The stated size is compared with our estimate of the same request, so that a wrong estimate corrects itself.
    """
    estimate = window.survey.total_tokens
    limit = _input_limit(window, overflow)
    stated = _input_size(overflow)
    if limit is None:
        return int(min(estimate * BLIND_STEP, window.budget.input_limit))
    if stated is None or stated <= limit:
        return int(min(estimate * BLIND_STEP, limit * STATED_MARGIN))
    return int(min(estimate * LEAST_STEP, estimate * limit / stated * STATED_MARGIN))


def learned_limits(window: Window, overflow: ContextOverflow) -> dict[str, Any]:
    """Return `context_counts` with the limit that the provider stated, and without the anchor it contradicts."""
    counts = {key: value for key, value in window.session.counts.items() if key != "anchor"}
    if overflow.limit is None or overflow.limit <= 0:
        return counts
    joint = overflow.kind == "input_plus_output" or _is_joint(window, overflow.limit)
    field = "context_window" if joint else "max_input_tokens"
    known = dict(window.session.learned_limit(window.model))
    known[field] = min(overflow.limit, known.get(field, overflow.limit))
    return {**counts, "limits": {**counts.get("limits", {}), window.model: known}}


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
    """Return the output reserve; one that a learned window cannot hold becomes the usual share of that window."""
    reserve = limits.output_reserve(configured)
    window = limits.context_window
    return int(window * OUTPUT_SHARE) if learned and window is not None and reserve >= window else reserve


def _smaller(known: int | None, learned: int | None) -> int | None:
    return min((tokens for tokens in (known, learned) if tokens is not None), default=None)


def _input_limit(window: Window, overflow: ContextOverflow) -> int | None:
    if overflow.limit is None:
        return None
    if overflow.kind == "input":
        return overflow.limit
    reserve = min(window.budget.reserved_tokens, int(overflow.limit * OUTPUT_SHARE))
    output = overflow.requested_output if overflow.requested_output is not None else reserve
    return max(1, overflow.limit - output)


def _is_joint(window: Window, limit: int) -> bool:
    """True when a stated limit corrects a window that is known to be shared by input and output."""
    known = window.limits.context_window
    return window.limits.max_input_tokens is None and known is not None and limit <= known


def _input_size(overflow: ContextOverflow) -> int | None:
    """The input that the provider counted; a stated sum has the requested output taken off."""
    if overflow.actual is None or overflow.kind == "input" or overflow.requested_output is None:
        return overflow.actual
    inside_sum = overflow.limit is not None and overflow.actual > overflow.limit
    return overflow.actual - overflow.requested_output if inside_sum else overflow.actual
