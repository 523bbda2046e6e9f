"""Which limit that a refusal states may be learned, by its own conversation and by others, and what refutes it?

Every limit that is learned passes here, whoever learns it. A wrong one costs its own conversation a compaction, and
everybody else their window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.reported import is_absurd

LEAST_LIMIT_TOKENS = 256
"""A stated limit below this is that of something else: no served model has such a window."""

MOST_TIMES_OFF = 20
"""How many times smaller, or larger, than declared a limit may be to be told to other conversations. Hosts cut windows
to a sixteenth (GitHub Models answers "Max size: 8000 tokens" for models of 128,000), rarely further. What is further
off is met by each conversation itself, at the price of one refused request: little beside a window that one
conversation could take away from all."""

COUNT_SLACK = 1.01
"""Reports of accepted requests may be this much above a limit that holds: servers count a template or keep a few tokens
for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside what a refusal states."""

    limits: ModelLimits | None = None
    """The limits that hold so far."""

    kept_input_tokens: int | None = None
    """The input limit that requests keep to, the output reserve taken off."""

    accepted_tokens: int = 0
    """The largest input that this model was reported to have taken; 0 when none is known."""

    refused_tokens: int | None = None
    """The most that the refused request may have by our own count."""


def stated_limit(overflow: ContextOverflow, known: Known) -> dict[str, int]:
    """Return the limit that a refusal states, by the field of `ModelLimits` it belongs to, for its own conversation.

    Empty without one, and for one that cannot be: the provider took more before, or the request cannot have been that
    large.
    """
    limit = overflow.limit
    if limit is None or limit < LEAST_LIMIT_TOKENS or _cannot_have_exceeded(overflow, limit, known):
        return {}
    joint = overflow.kind == "input_plus_output" or _is_joint(limit, known)
    return unrefuted({"context_window" if joint else "max_input_tokens": limit}, known.accepted_tokens)


def for_everybody(learned: Mapping[str, int], declared: ModelLimits | None) -> dict[str, int]:
    """Return the learned limits that hold for other conversations too: those that are near what is declared.

    Where nothing is declared, there is nothing that a limit could be far from.
    """
    stated = (declared.context_window, declared.max_input_tokens) if declared else ()
    size = max((tokens for tokens in stated if tokens is not None), default=None)
    usable = remembered(learned)
    if size is None:
        return usable
    least, most = size / MOST_TIMES_OFF, size * MOST_TIMES_OFF
    return {name: tokens for name, tokens in usable.items() if least <= tokens <= most}


def remembered(learned: Mapping[str, int], accepted_tokens: int = 0) -> dict[str, int]:
    """Return what of limits that were learned before may be a limit, and is not refuted: state comes from outside."""
    usable = {name: tokens for name, tokens in learned.items() if tokens >= LEAST_LIMIT_TOKENS}
    return unrefuted(usable, accepted_tokens)


def unrefuted(learned: Mapping[str, int], accepted_tokens: int) -> dict[str, int]:
    """Return the limits that are not below the input of a request that the provider accepted."""
    return {name: tokens for name, tokens in learned.items() if accepted_tokens <= COUNT_SLACK * tokens}


def _cannot_have_exceeded(overflow: ContextOverflow, limit: int, known: Known) -> bool:
    """True when no hidden prompt makes the refused request as large as the limit that it is to have exceeded."""
    if known.refused_tokens is None or overflow.kind == "input_plus_output":
        return False  # the output that was requested may be nearly all of it
    return is_absurd(limit, known.refused_tokens)


def _is_joint(limit: int, known: Known) -> bool:
    """True when a stated limit corrects a window that is known to be shared by input and output.

    The limit that requests kept to already, ours without the output reserve, is one for input and corrects nothing.
    """
    limits = known.limits
    if limits is None or limits.max_input_tokens is not None or limits.context_window is None:
        return False
    return limit <= limits.context_window and (limit == limits.context_window or limit != known.kept_input_tokens)
